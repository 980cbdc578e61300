//! The state table, cell by cell: every kind of row against every kind of caller and call.

use super::*;
use bytes::Bytes;
use fencepost_protocol::claims::{
    CompleteReply, OnLost, Refusal, ReleaseCause, ReleaseReply, RenewResult, Renewal, UnknownCause,
    UnknownReply, UnknownRequest,
};
use fencepost_protocol::{ClaimToken, Fence, Fingerprint, Scheme, ScopeDigest, StoreKey};

const NOW: Micros = Micros(1_000_000_000_000);
const PAST: Micros = Micros(NOW.0 - 1);
const SOON: Micros = Micros(NOW.0 + 1_500);
const CALM: u64 = u64::MAX;
const FENCE: i64 = 77;

const OURS: ClaimToken = ClaimToken::from_bytes([1; 16]);
const OTHERS: ClaimToken = ClaimToken::from_bytes([2; 16]);

fn key() -> StoreKey {
    StoreKey::new("t", &[0; 16]).unwrap()
}

fn scheme(name: &str) -> Scheme {
    Scheme::parse(name).unwrap()
}

fn row(token: ClaimToken, state: State) -> Row {
    Row {
        token,
        fence: FENCE,
        scheme: scheme("1-a"),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        scope: ScopeDigest::from_bytes([0; 16]),
        dead: Dead::default(),
        state,
        created_at: PAST,
        updated_at: PAST,
    }
}

fn claimed(token: ClaimToken, on_lost: OnLost, until: Micros, run_until: Micros) -> Row {
    let lease = Lease { until, run_until, on_lost, claim_ttl_ms: 1_000, unknown_ttl_ms: 5_000 };
    row(token, State::Claimed(lease))
}

fn completed(token: ClaimToken, until: Micros) -> Row {
    let (headers, body) = (Bytes::new(), Bytes::new());
    row(token, State::Completed { status: 200, headers, body, at: PAST, until })
}

fn unknown_row(token: ClaimToken, until: Micros) -> Row {
    row(token, State::Unknown { cause: UnknownCause::Reset, until })
}

fn released(token: ClaimToken, until: Micros) -> Row {
    row(token, State::Released { cause: ReleaseCause::NotRun, until })
}

fn the_claim() -> Claim {
    Claim {
        key: key(),
        token: OURS,
        scheme: scheme("1-a"),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        scope: ScopeDigest::from_bytes([0; 16]),
        claim_ttl_ms: 2_000,
        max_run_ms: 3_000,
        on_lost: OnLost::Hold,
        unknown_ttl_ms: 9_000,
    }
}

/// What a claim did, in a word; `+` says that the row changed.
fn word(step: &Step<ClaimOutcome>) -> String {
    let word = match &step.reply {
        ClaimOutcome::Claimed { fence, .. } if *fence == FENCE => "same",
        ClaimOutcome::Claimed { .. } => "new",
        ClaimOutcome::Completed(_) => "completed",
        ClaimOutcome::InProgress { .. } => "wait",
        ClaimOutcome::Mismatch => "mismatch",
        ClaimOutcome::Unknown { .. } => "unknown",
        ClaimOutcome::OtherScheme(_) => "scheme",
        ClaimOutcome::Dead => "dead",
        ClaimOutcome::OverQuota(_) => "over quota",
    };
    format!("{word}{}", if step.change == Change::Keep { "" } else { "+" })
}

#[test]
fn claim_table() {
    use OnLost::{Hold, Rerun};
    // Row; then the same request, another fingerprint, another scheme, a token that is dead here.
    let cells: [(&str, Option<Row>, [&str; 4]); 20] = [
        ("none", None, ["new+", "new+", "new+", "new+"]),
        ("ended answer", Some(completed(OTHERS, NOW)), ["new+", "new+", "new+", "dead"]),
        ("ended unknown", Some(unknown_row(OTHERS, NOW)), ["new+", "new+", "new+", "dead"]),
        ("ended release", Some(released(OTHERS, NOW)), ["new+", "new+", "new+", "dead"]),
        ("own ended release", Some(released(OURS, NOW)), ["new+", "new+", "new+", "dead"]),
        ("own release", Some(released(OURS, SOON)), ["dead", "dead", "dead", "dead"]),
        ("other's release", Some(released(OTHERS, SOON)), ["new+", "new+", "new+", "dead"]),
        ("own claim", Some(claimed(OURS, Hold, SOON, SOON)), ["same+", "same+", "same+", "same+"]),
        ("own claim, lease over", Some(claimed(OURS, Hold, NOW, NOW)), ["same+", "same+", "same+", "same+"]),
        ("own rerun, over", Some(claimed(OURS, Rerun, NOW, NOW)), ["same+", "same+", "same+", "same+"]),
        ("held", Some(claimed(OTHERS, Hold, SOON, SOON)), ["wait", "mismatch", "scheme", "wait"]),
        ("held rerun", Some(claimed(OTHERS, Rerun, SOON, SOON)), ["wait", "mismatch", "scheme", "wait"]),
        (
            "held, over",
            Some(claimed(OTHERS, Hold, NOW, SOON)),
            ["unknown+", "mismatch+", "scheme+", "unknown+"],
        ),
        ("rerun, may run", Some(claimed(OTHERS, Rerun, NOW, SOON)), ["wait", "mismatch", "scheme", "wait"]),
        ("rerun, over", Some(claimed(OTHERS, Rerun, NOW, NOW)), ["new+", "mismatch", "scheme", "dead"]),
        ("own answer", Some(completed(OURS, SOON)), ["completed", "completed", "completed", "completed"]),
        ("answer", Some(completed(OTHERS, SOON)), ["completed", "mismatch", "scheme", "completed"]),
        ("own unknown", Some(unknown_row(OURS, SOON)), ["unknown", "unknown", "unknown", "unknown"]),
        ("unknown", Some(unknown_row(OTHERS, SOON)), ["unknown", "mismatch", "scheme", "unknown"]),
        ("old answer", Some(completed(OTHERS, PAST)), ["new+", "new+", "new+", "dead"]),
    ];
    for (name, row, expected) in cells {
        let same = the_claim();
        let other = Claim { fingerprint: Fingerprint::from_bytes([9; 32]), ..the_claim() };
        let scheme = Claim { scheme: scheme("2-b"), ..the_claim() };
        let dead = row.clone().map(|mut row| {
            row.dead.push(OURS);
            row
        });
        let found = [
            word(&claim(row.as_ref(), &same, NOW, CALM)),
            word(&claim(row.as_ref(), &other, NOW, CALM)),
            word(&claim(row.as_ref(), &scheme, NOW, CALM)),
            word(&claim(dead.as_ref(), &same, NOW, CALM)),
        ];
        assert_eq!(found, expected, "{name}");
        let begins = [(&row, &same), (&row, &other), (&row, &scheme), (&dead, &same)]
            .map(|(row, asked)| begins_claim(row.as_ref(), asked, NOW, CALM));
        assert_eq!(begins, expected.map(|word| word == "new+"), "{name}");
    }
}

#[test]
fn nothing_is_taken_or_lost_while_the_instance_is_not_calm() {
    for on_lost in [OnLost::Hold, OnLost::Rerun] {
        let row = claimed(OTHERS, on_lost, PAST, PAST);
        let step = claim(Some(&row), &the_claim(), NOW, 999);
        assert_eq!(step, Step::keep(ClaimOutcome::InProgress { lease_left_ms: 1 }));
        assert_ne!(claim(Some(&row), &the_claim(), NOW, 1_000).change, Change::Keep);
        for kind in SweepKind::ALL {
            assert_eq!(sweep(&row, kind, Micros(NOW.0 * 2), 999), Change::Keep);
        }
    }
}

#[test]
fn a_new_claim_has_the_asked_lease_and_a_fence_above_all_earlier_ones() {
    let taken = claimed(OTHERS, OnLost::Rerun, NOW, NOW);
    let high = Row { fence: NOW.0 + 10, ..released(OTHERS, SOON) };
    for (old, fence, dead) in [
        (None, NOW.0, vec![]),
        (Some(&taken), NOW.0, vec![OTHERS]),
        (Some(&high), NOW.0 + 11, vec![OTHERS]),
        (Some(&completed(OTHERS, PAST)), NOW.0, vec![]),
        (Some(&released(OURS, PAST)), NOW.0, vec![]),
    ] {
        let Change::Put(row) = claim(old, &the_claim(), NOW, CALM).change else { panic!() };
        let State::Claimed(lease) = row.state else { panic!() };
        assert_eq!((row.fence, row.dead.tokens()), (fence, &dead[..]));
        assert_eq!((lease.until, lease.run_until), (NOW.plus_ms(2_000), NOW.plus_ms(5_000)));
        assert_eq!((lease.on_lost, lease.claim_ttl_ms, lease.unknown_ttl_ms), (OnLost::Hold, 2_000, 9_000));
    }
}

#[test]
fn a_claim_asked_again_keeps_its_fence_and_its_longest_run() {
    let run_until = NOW.plus_ms(60_000);
    let row = claimed(OURS, OnLost::Rerun, NOW.plus_ms(2_000), run_until);
    let Step { change: Change::Put(row), reply } = claim(Some(&row), &the_claim(), NOW, CALM) else {
        panic!()
    };
    let State::Claimed(lease) = row.state else { panic!() };
    let until = Micros(NOW.plus_ms(2_000).0 + 1);
    assert_eq!((lease.until, lease.run_until, lease.on_lost), (until, run_until, OnLost::Rerun));
    assert_eq!(reply, ClaimOutcome::Claimed { fence: FENCE, lease_until: until });
}

/// Rows for the calls by token, by what they are to us.
fn rows() -> [(&'static str, Option<Row>); 10] {
    use OnLost::{Hold, Rerun};
    [
        ("none", None),
        ("ended", Some(completed(OTHERS, NOW))),
        ("own claim", Some(claimed(OURS, Hold, SOON, SOON))),
        ("own rerun, lease over", Some(claimed(OURS, Rerun, PAST, SOON))),
        ("claim", Some(claimed(OTHERS, Hold, SOON, SOON))),
        ("own answer", Some(completed(OURS, SOON))),
        ("answer", Some(completed(OTHERS, SOON))),
        ("own unknown", Some(unknown_row(OURS, SOON))),
        ("unknown", Some(unknown_row(OTHERS, SOON))),
        ("own release", Some(released(OURS, SOON))),
    ]
}

fn table<R: PartialEq + std::fmt::Debug>(
    call: impl Fn(Option<&Row>) -> Step<R>,
    expected: [(&'static str, R, bool); 10],
) {
    for ((name, row), (expected_name, reply, changes)) in rows().into_iter().zip(expected) {
        assert_eq!(name, expected_name);
        let step = call(row.as_ref());
        assert_eq!(step.reply, reply, "{name}");
        assert_eq!(step.change != Change::Keep, changes, "{name}");
        if let (Change::Put(new), Some(old)) = (&step.change, &row) {
            assert!(new.fence >= old.fence, "{name}: the fence fell");
        }
    }
}

fn the_answer(fence: i64) -> Complete {
    Complete {
        key: key(),
        token: OURS,
        fence: Fence::new(fence).unwrap(),
        scheme: scheme("1-a"),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        scope: ScopeDigest::from_bytes([0; 16]),
        status: 201,
        headers: Bytes::from_static(b"h"),
        body: Bytes::from_static(b"b"),
        ttl_ms: 4_000,
    }
}

#[test]
fn complete_table() {
    let refused = |reason| CompleteReply::Refused { reason };
    table(
        |row| complete(row, &the_answer(5), NOW),
        [
            ("none", CompleteReply::Stored, true),
            ("ended", CompleteReply::Stored, true),
            ("own claim", CompleteReply::Stored, true),
            ("own rerun, lease over", CompleteReply::Stored, true),
            ("claim", refused(Refusal::HeldByOther), false),
            ("own answer", CompleteReply::AlreadyStored, false),
            ("answer", refused(Refusal::Completed), false),
            ("own unknown", CompleteReply::Stored, true),
            ("unknown", refused(Refusal::Unknown), false),
            ("own release", CompleteReply::Stored, true),
        ],
    );
    let other = Complete { fingerprint: Fingerprint::from_bytes([9; 32]), ..the_answer(5) };
    let on = |row: &Row, answer: &Complete| complete(Some(row), answer, NOW);
    assert_eq!(on(&released(OTHERS, SOON), &the_answer(5)).reply, CompleteReply::Stored);
    assert_eq!(on(&released(OURS, SOON), &other), Step::keep(refused(Refusal::Mismatch)));
    // The fence of a row is kept; one that the clock has not reached is not believed.
    let fence = |row: Option<&Row>, fence| match complete(row, &the_answer(fence), NOW).change {
        Change::Put(row) => row.fence,
        _ => panic!(),
    };
    assert_eq!(fence(Some(&claimed(OURS, OnLost::Hold, SOON, SOON)), 500), FENCE);
    assert_eq!(fence(Some(&completed(OTHERS, NOW)), 500), 500);
    assert_eq!(fence(Some(&completed(OTHERS, NOW)), 5), FENCE);
    assert_eq!(fence(None, Fence::MAX), NOW.0);
}

#[test]
fn release_table() {
    let request = |token| Release {
        key: key(),
        token,
        scheme: scheme("1-a"),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        scope: ScopeDigest::from_bytes([0; 16]),
        cause: ReleaseCause::NotRun,
        only_lease: None,
    };
    let refused = |reason| ReleaseReply::Refused { reason };
    table(
        |row| release(row, &request(OURS), NOW),
        [
            ("none", ReleaseReply::Released, true),
            ("ended", ReleaseReply::Released, true),
            ("own claim", ReleaseReply::Released, true),
            ("own rerun, lease over", ReleaseReply::Released, true),
            // The other's claim stays; our token is remembered beside it.
            ("claim", refused(Refusal::HeldByOther), true),
            ("own answer", refused(Refusal::Completed), false),
            ("answer", refused(Refusal::Completed), false),
            ("own unknown", refused(Refusal::Unknown), false),
            ("unknown", refused(Refusal::Unknown), false),
            ("own release", ReleaseReply::AlreadyReleased, false),
        ],
    );
    let old = claimed(OTHERS, OnLost::Hold, SOON, SOON);
    let Change::Put(beside) = release(Some(&old), &request(OURS), NOW).change else { panic!() };
    assert_eq!((&beside.state, beside.token), (&old.state, OTHERS));
    assert_eq!(
        claim(Some(&released(OTHERS, SOON)), &the_claim(), NOW, CALM).reply,
        ClaimOutcome::Claimed { fence: NOW.0, lease_until: NOW.plus_ms(2_000) }
    );
    let Change::Put(tombs) = release(Some(&released(OTHERS, SOON)), &request(OURS), NOW).change else {
        panic!()
    };
    assert_eq!(claim(Some(&tombs), &the_claim(), NOW, CALM).reply, ClaimOutcome::Dead);
}

#[test]
fn unknown_table() {
    let refused = |reason| UnknownReply::Refused { reason };
    let request = UnknownRequest { v: 1, key: key(), token: OURS, cause: UnknownCause::Timeout };
    table(
        |row| unknown(row, &request, NOW),
        [
            ("none", refused(Refusal::Absent), false),
            ("ended", refused(Refusal::Absent), false),
            ("own claim", UnknownReply::Marked, true),
            ("own rerun, lease over", UnknownReply::Marked, true),
            ("claim", refused(Refusal::HeldByOther), false),
            ("own answer", refused(Refusal::Completed), false),
            ("answer", refused(Refusal::Completed), false),
            ("own unknown", UnknownReply::AlreadyMarked, false),
            ("unknown", refused(Refusal::Unknown), false),
            ("own release", refused(Refusal::Released), false),
        ],
    );
    let state = |on_lost| match unknown(Some(&claimed(OURS, on_lost, SOON, SOON)), &request, NOW).change {
        Change::Put(row) => row.state,
        _ => panic!(),
    };
    let until = NOW.plus_ms(5_000);
    assert_eq!(state(OnLost::Hold), State::Unknown { cause: UnknownCause::Timeout, until });
    let State::Claimed(lease) = state(OnLost::Rerun) else { panic!() };
    assert_eq!((lease.until, lease.run_until), (NOW, SOON));
}

#[test]
fn renew_table() {
    let refused = |reason| RenewResult::Refused { reason };
    let request = Renewal { key: key(), token: OURS, claim_ttl_ms: 7_000, run_ms: 0 };
    table(
        |row| renew(row, &request, NOW),
        [
            ("none", refused(Refusal::Absent), false),
            ("ended", refused(Refusal::Absent), false),
            ("own claim", RenewResult::Renewed, true),
            ("own rerun, lease over", RenewResult::Renewed, true),
            ("claim", refused(Refusal::HeldByOther), false),
            ("own answer", refused(Refusal::Completed), false),
            ("answer", refused(Refusal::Completed), false),
            ("own unknown", refused(Refusal::Unknown), false),
            ("unknown", refused(Refusal::Unknown), false),
            ("own release", refused(Refusal::Released), false),
        ],
    );
    let old = claimed(OURS, OnLost::Hold, SOON, SOON);
    let Change::Put(row) = renew(Some(&old), &request, NOW).change else { panic!() };
    let State::Claimed(lease) = row.state else { panic!() };
    // The run that was allowed before is not cut short.
    assert_eq!((lease.until, lease.run_until, lease.claim_ttl_ms), (NOW.plus_ms(7_000), SOON, 7_000));
}
