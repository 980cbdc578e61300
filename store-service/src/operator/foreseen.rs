//! What the service would refuse is refused before a person is asked: from what was shown to them.
//! The service decides all the same; this saves a question whose answer would change nothing.

use super::desk_model::{EndingWord, OperationView};
use super::model::EntryView;
use super::print::duration;
use super::terminal::End;

/// Can this entry be freed, or given an answer?
pub fn entry(shown: &EntryView, answer: bool, force: bool) -> Result<(), End> {
    let (lease, run) = (shown.lease_left_ms.unwrap_or(0), shown.run_left_ms.unwrap_or(0));
    let busy = if shown.on_lost.as_deref() == Some("rerun") { lease.max(run) } else { lease };
    match (&shown.state[..], answer) {
        ("claimed", _) if busy > 0 && !force => Err(refused(format!(
            "may_be_running: its request may be running, for {} more; --force says that it is not",
            duration(busy)
        ))),
        ("released", false) => Err(refused("already_so: the entry is free already".into())),
        ("completed", true) => Err(refused(
            "already_so: the entry has an answer; it is released before another one is given".into(),
        )),
        _ => Ok(()),
    }
}

/// Can a person say this about the operation?
pub fn operation(shown: &OperationView, outcome: EndingWord) -> Result<(), End> {
    let busy = match (&shown.status[..], outcome) {
        ("succeeded" | "failed", _) => {
            return Err(refused("already_so: its end is recorded, and an end is never changed".into()));
        }
        ("admitted" | "unknown", EndingWord::LookAgain) => {
            let why = "already_so: it waits for nobody: its owner or recovery works on it";
            return Err(refused(why.into()));
        }
        ("unknown", EndingWord::Failed) | ("admitted", _) if !shown.resting => shown.lease_left_ms,
        _ => 0,
    };
    if busy == 0 {
        return Ok(());
    }
    let left = duration(busy);
    Err(refused(format!("may_be_running: its owner may still send something, for {left} more")))
}

fn refused(text: String) -> End {
    End::Refused(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Ending, OperationOrder, OperationSeen, OperationSettled};
    use crate::entry::{Dead, Lease, Micros, Row, Ruling, Settle, SettleReply, State};
    use crate::grant::token::GrantKey;
    use crate::store::Entry;
    use bytes::Bytes;
    use fencepost_protocol::claims::{OnLost, ReleaseCause, UnknownCause};
    use fencepost_protocol::grants::{OperationId, OperationStatus};
    use fencepost_protocol::{ClaimToken, Fingerprint, Scheme, ScopeDigest, StoreKey};

    const NOW: Micros = Micros(1_790_000_000_000_000);

    #[test]
    fn of_operations_what_the_service_refuses_is_foreseen_and_nothing_else() {
        let (over, live) = (NOW, NOW.plus_ms(5));
        for status in [
            OperationStatus::Admitted,
            OperationStatus::Unknown,
            OperationStatus::NeedsReconciliation,
            OperationStatus::Succeeded,
            OperationStatus::Failed,
        ] {
            for (lease_until, submit_by, resting) in [
                (over, over, false),
                (live, over, false),
                (over, live, false),
                (live, live, false),
                (live, live, true),
            ] {
                let seen = OperationSeen {
                    id: OperationId::from_random([7; 16]),
                    key: GrantKey { issuer: "i".into(), key_tenant: String::new(), grant_id: "g".into() },
                    caller_namespace: "n".into(),
                    caller_id: "c".into(),
                    tenant: String::new(),
                    details: "{}".into(),
                    status,
                    reference: None,
                    cause: None,
                    owner_version: 3,
                    lease_until,
                    resting,
                    submit_by,
                    created_at: NOW,
                    updated_at: NOW,
                    now: NOW,
                };
                let view = crate::http::operations::view(seen.clone(), None);
                for (word, ending) in [
                    (EndingWord::Succeeded, Ending::Succeeded),
                    (EndingWord::Failed, Ending::Failed),
                    (EndingWord::LookAgain, Ending::LookAgain),
                ] {
                    let order = OperationOrder {
                        id: seen.id.clone(),
                        version: seen.version(),
                        ending,
                        reference: None,
                        who: "ann".into(),
                        reason: "looked".into(),
                    };
                    let done = crate::desk::settle(Some(&seen), &order, NOW) == OperationSettled::Settled;
                    assert_eq!(operation(&view, word).is_ok(), done, "{status:?} {ending:?}");
                }
            }
        }
    }

    #[test]
    fn of_entries_what_the_service_refuses_is_foreseen_and_nothing_else() {
        let (over, live) = (NOW, NOW.plus_ms(5));
        let mut states = vec![
            State::Completed {
                status: 200,
                headers: Bytes::from_static(&[0; 4]),
                body: Bytes::new(),
                at: NOW,
                until: live,
            },
            State::Unknown { cause: UnknownCause::Reset, until: live },
            State::Released { cause: ReleaseCause::NotRun, until: live },
        ];
        for on_lost in [OnLost::Hold, OnLost::Rerun] {
            for (until, run_until) in [(over, over), (live, live), (over, live)] {
                states.push(State::Claimed(Lease {
                    until,
                    run_until,
                    on_lost,
                    claim_ttl_ms: 1_000,
                    unknown_ttl_ms: 5_000,
                }));
            }
        }
        for state in states {
            let row = Row {
                token: ClaimToken::from_bytes([1; 16]),
                fence: 7,
                scheme: Scheme::parse("1-a").unwrap(),
                fingerprint: Fingerprint::from_bytes([1; 32]),
                scope: ScopeDigest::from_bytes([0; 16]),
                dead: Dead::default(),
                state,
                created_at: NOW,
                updated_at: NOW,
            };
            let key = StoreKey::new("t", &[0; 16]).unwrap();
            let shown =
                crate::http::entries::view(Entry::of(key.clone(), row.clone(), false, NOW), false, None);
            for answer in [false, true] {
                for force in [false, true] {
                    let ruling = if answer {
                        let (headers, body) = (Bytes::from_static(&[0; 4]), Bytes::new());
                        Ruling::Answer { status: 200, headers, body, ttl_ms: 1 }
                    } else {
                        Ruling::Free(ReleaseCause::Other)
                    };
                    let order = Settle {
                        key: key.clone(),
                        version: row.version(),
                        ruling,
                        token: ClaimToken::from_bytes([2; 16]),
                        force,
                        who: "ann".into(),
                        reason: "looked".into(),
                    };
                    let done = crate::entry::settle(Some(&row), &order, NOW).reply == SettleReply::Settled;
                    assert_eq!(entry(&shown, answer, force).is_ok(), done, "{row:?} {answer} {force}");
                }
            }
        }
    }
}
