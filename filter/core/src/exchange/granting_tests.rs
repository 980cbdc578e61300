//! Exchanges of routes that admit grants, from beginning to end, without a host.

use super::detached::{REPORT_HEADER, UpstreamReply};
use super::store_reply::CallReply;
use super::*;
use crate::grant::tests::{Case, OPERATION};
use crate::guard::Verdict;
use fencepost_protocol::claims::Reply;
use fencepost_protocol::frame;
use fencepost_protocol::grant_claims::{
    AnswerHead, FinishRequest, GrantClaimReply, GrantClaimRequest, GrantRefusal,
};
use fencepost_protocol::grants::{Details, Operation, OperationId, OperationStatus};
use serde_json::{Value, json};

const STORE: StoreId = StoreId::from_bytes([7; 16]);

/// One exchange, a clock, and all that it did.
struct Rig {
    exchange: Exchange,
    now: u64,
    pin: Option<StoreId>,
    has_room: bool,
    done: Vec<Effect>,
}

impl Rig {
    fn new(over: Value) -> Self {
        let case =
            Case::new(over).header("x-fencepost-operation-id", "mine").header("x-fencepost-fence", "9");
        let Verdict::Guard(request) = case.judge() else { panic!("not guarded") };
        let exchange = request.into_exchange(ClaimToken::from_bytes([9; 16]), 1_000);
        Self { exchange, now: 1_000, pin: None, has_room: true, done: vec![] }
    }

    /// A request whose admission is asked for.
    fn asking(over: Value) -> Self {
        let mut rig = Self::new(over);
        let effects = rig.step(Input::RequestBody { chunk: br#"{"amount":250.00}"#.to_vec(), end: true });
        assert_eq!(paths(&effects), ["/v1/grants/claim"]);
        rig
    }

    /// A request that is upstream.
    fn running(over: Value) -> Self {
        let mut rig = Self::asking(over);
        assert_eq!(paths(&rig.admitted(60_000)), [operation("may-submit")]);
        let effects = rig.json(Call::MaySubmit, 200, json!({"left_ms": 60_000}));
        assert!(matches!(effects.as_slice(), [Effect::CallUpstream(_)]), "{effects:?}");
        rig
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut world =
            World { now_ms: self.now, pin: &mut self.pin, store_timeout_ms: 2_000, has_room: self.has_room };
        let effects = self.exchange.step(input, &mut world);
        self.done.extend(effects.iter().cloned());
        effects
    }

    fn claim(&mut self, reply: GrantClaimReply, payload: &[u8]) -> Vec<Effect> {
        let body = frame::encode(&Reply::new(STORE, reply), &[payload]).unwrap();
        let reply = CallReply::Answer { status: 200, from_service: true, store: Some(STORE), body };
        self.step(Input::StoreReply { call: Call::Claim, reply })
    }

    fn admitted(&mut self, lease_left_ms: u64) -> Vec<Effect> {
        self.claim(
            GrantClaimReply::Admitted { owner_version: 3, lease_left_ms, submit_left_ms: 900_000 },
            &[],
        )
    }

    fn json(&mut self, call: Call, status: u16, body: Value) -> Vec<Effect> {
        let body = body.to_string().into_bytes();
        let reply = CallReply::Answer { status, from_service: true, store: Some(STORE), body };
        self.step(Input::StoreReply { call, reply })
    }

    fn broken(&mut self, call: Call) -> Vec<Effect> {
        self.step(Input::StoreReply { call, reply: CallReply::Broken })
    }

    fn finished(&mut self) -> Vec<Effect> {
        self.json(Call::Duty, 200, json!({"before": false}))
    }

    fn upstream(&mut self, status: u16, report: &str, body: &str) -> Vec<Effect> {
        let headers = [(":status", "0"), (REPORT_HEADER, report), ("x-answer", "yes"), ("date", "now")];
        let headers = headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        self.step(Input::UpstreamReply(UpstreamReply::Response { status, headers, body: body.into() }))
    }

    fn tick(&mut self, after_ms: u64) -> Vec<Effect> {
        self.now += after_ms;
        self.step(Input::Tick { body: HeldBody::Coming })
    }

    fn gone(&mut self) {
        self.step(Input::StreamGone(Evidence::default()));
    }

    fn reply(&self) -> Option<&LocalReply> {
        let mut replies =
            self.done.iter().filter_map(|e| if let Effect::LocalReply(r) = e { Some(r) } else { None });
        let reply = replies.next();
        assert!(replies.next().is_none(), "two replies");
        reply
    }

    /// Status and code of the answer.
    fn answer(&self) -> (u16, String) {
        let reply = self.reply().expect("an answer");
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let word = body["code"].as_str().or(body["status"].as_str()).unwrap_or("-");
        (reply.status, word.to_owned())
    }

    fn header(&self, name: &str) -> Option<String> {
        let pair = self.reply()?.headers.iter().find(|(other, _)| other == name.as_bytes());
        pair.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    fn results(&self) -> Vec<Outcome> {
        self.done.iter().filter_map(|e| if let Effect::Result(o) = e { Some(*o) } else { None }).collect()
    }

    fn runs(&self) -> usize {
        self.done.iter().filter(|e| matches!(e, Effect::CallUpstream(_))).count()
    }
}

fn operation(verb: &str) -> String {
    format!("/v1/operations/{OPERATION}/{verb}")
}

fn paths(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|e| if let Effect::CallStore { path, .. } = e { Some(path.to_string()) } else { None })
        .collect()
}

fn sent(effects: &[Effect]) -> &[u8] {
    let frame =
        effects.iter().find_map(|e| if let Effect::CallStore { frame, .. } = e { Some(frame) } else { None });
    frame.unwrap()
}

fn finish(effects: &[Effect]) -> (FinishRequest, Vec<u8>) {
    assert_eq!(paths(effects), [operation("finish")]);
    let (head, payload) = frame::decode(sent(effects)).unwrap();
    (head, payload.to_vec())
}

fn before(status: OperationStatus, answer: Option<AnswerHead>) -> GrantClaimReply {
    let operation = Operation {
        operation_id: OperationId::parse(OPERATION).unwrap(),
        status,
        owner_version: 1,
        lease_left_ms: 0,
        submit_left_ms: 0,
        reference: Some("re-1".into()),
        details: Details::default(),
    };
    GrantClaimReply::Before { operation: Box::new(operation), answer }
}

#[test]
fn an_admitted_grant_runs_once_and_its_outcome_is_recorded_before_the_answer() {
    let mut rig = Rig::asking(json!({}));
    let (claim, _) = frame::decode::<GrantClaimRequest>(sent(&rig.done)).unwrap();
    assert_eq!((claim.details.0["amount"].as_str(), claim.operation_id.as_str()), ("250.00", OPERATION));
    let asked = rig.admitted(60_000);
    assert_eq!(
        (paths(&asked), sent(&asked)),
        (vec![operation("may-submit")], &br#"{"owner_version":3,"expected_status":"admitted"}"#[..])
    );
    rig.now += 100;
    let effects = rig.json(Call::MaySubmit, 200, json!({"left_ms": 59_000}));
    let [Effect::CallUpstream(call)] = effects.as_slice() else { panic!("{effects:?}") };
    let header = |name: &str| {
        let lines: Vec<_> = call.headers.iter().filter(|(n, _)| n == name.as_bytes()).collect();
        assert!(lines.len() <= 1, "{name}");
        lines.first().map(|(_, value)| String::from_utf8(value.clone()).unwrap())
    };
    assert_eq!(header("x-fencepost-operation-id").as_deref(), Some(OPERATION), "the client's own is gone");
    assert_eq!((header("x-fencepost-fence").as_deref(), header("x-grant")), (Some("3"), None));
    assert_eq!(
        (header("x-fencepost-max-run-ms").as_deref(), call.body.as_slice()),
        (Some("5000"), &br#"{"amount":250.00}"#[..])
    );
    let effects = rig.upstream(201, "via_upstream|-|1|9", "done");
    let (request, payload) = finish(&effects);
    assert_eq!(serde_json::to_value(request.outcome).unwrap(), "succeeded");
    assert_eq!(request.owner_version, 3);
    let stored = request.answer.unwrap().read(&payload).unwrap();
    assert_eq!((stored.status, stored.body.as_slice()), (201, &b"done"[..]));
    assert_eq!(stored.headers, [(b"x-answer".to_vec(), b"yes".to_vec())]);
    assert!(rig.reply().is_none(), "not before it is recorded");
    rig.finished();
    assert_eq!((rig.reply().unwrap().status, rig.header("x-fencepost-ending")), (201, None));
    assert_eq!((rig.results(), rig.runs()), (vec![Outcome::GrantSucceeded], 1));
    assert!(rig.exchange.is_over());
}

#[test]
fn nothing_but_an_admission_runs_anything() {
    use OperationStatus::*;
    let refused = |code| GrantClaimReply::Refused { code, reason: Some("details".into()) };
    for (reply, status, word, outcome) in [
        (before(Admitted, None), 202, "admitted", Outcome::GrantPending),
        (before(Unknown, None), 202, "unknown", Outcome::GrantPending),
        (before(NeedsReconciliation, None), 202, "needs_reconciliation", Outcome::GrantPending),
        (before(Succeeded, None), 200, "succeeded", Outcome::GrantReported),
        (before(Failed, None), 409, "operation_failed", Outcome::GrantReported),
        (refused(GrantRefusal::NotAvailable), 403, "grant_not_available", Outcome::GrantRefused),
        (refused(GrantRefusal::Expired), 403, "grant_expired", Outcome::GrantRefused),
        (refused(GrantRefusal::NotValid), 403, "grant_not_valid", Outcome::GrantRefused),
        (refused(GrantRefusal::NotCovered), 403, "grant_not_covered", Outcome::GrantRefused),
        (refused(GrantRefusal::Other), 403, "grant_not_available", Outcome::GrantRefused),
    ] {
        let mut rig = Rig::asking(json!({}));
        rig.claim(reply.clone(), &[]);
        assert_eq!(rig.answer(), (status, word.to_owned()), "{reply:?}");
        assert_eq!(
            (rig.results(), rig.runs(), rig.exchange.is_over()),
            (vec![outcome], 0, true),
            "{reply:?}"
        );
        let address = format!("https://api.example/operations/{OPERATION}");
        if status == 202 {
            assert!(rig.header("retry-after").is_some());
            assert_eq!(rig.header("location"), Some(address));
        }
        rig.admitted(60_000);
        assert_eq!(rig.runs(), 0, "a late admission");
    }
}

#[test]
fn a_grant_that_is_held_is_told_so() {
    let mut rig = Rig::asking(json!({}));
    rig.claim(
        GrantClaimReply::Refused { code: GrantRefusal::NotAvailable, reason: Some("held".into()) },
        &[],
    );
    let body = String::from_utf8(rig.reply().unwrap().body.to_vec()).unwrap();
    assert!(body.contains("held since a backup was restored, and was not spent"), "{body}");
}

#[test]
fn the_log_says_what_the_service_has_against_an_admission() {
    for (status, words) in [(403, "token, or its role"), (404, "no --issuers"), (400, "with 400")] {
        let mut rig = Rig::asking(json!({}));
        let reply = CallReply::Answer { status, from_service: true, store: None, body: b"{}".to_vec() };
        rig.step(Input::StoreReply { call: Call::Claim, reply });
        let told = rig.done.iter().any(|e| matches!(e, Effect::Warn(line) if line.contains(words)));
        assert!(told, "{status}: {:?}", rig.done);
        assert_eq!((rig.answer().0, rig.runs()), (503, 0));
    }
}

#[test]
fn an_unclear_reply_runs_nothing_and_is_not_asked_again() {
    let framed = |store: u8| {
        let reply: GrantClaimReply =
            GrantClaimReply::Admitted { owner_version: 1, lease_left_ms: 60_000, submit_left_ms: 60_000 };
        frame::encode(&Reply::new(StoreId::from_bytes([store; 16]), reply), &[]).unwrap()
    };
    let answer = |status, from_service, body| CallReply::Answer { status, from_service, store: None, body };
    for reply in [
        CallReply::Broken,
        answer(200, true, b"{}".to_vec()),
        answer(200, false, framed(7)),
        answer(200, true, framed(8)),
        answer(503, true, vec![]),
        answer(504, false, vec![]),
        answer(403, true, vec![]),
        answer(302, true, vec![]),
    ] {
        let mut rig = Rig::asking(json!({}));
        rig.pin = Some(STORE);
        let effects = rig.step(Input::StoreReply { call: Call::Claim, reply: reply.clone() });
        assert_eq!(
            (rig.answer(), paths(&effects).len()),
            ((503, "store_unavailable".into()), 0),
            "{reply:?}"
        );
        assert!(rig.header("retry-after").is_some());
        assert_eq!((rig.runs(), rig.exchange.is_over()), (0, true));
    }
    let mut rig = Rig::asking(json!({}));
    rig.tick(4_001);
    assert_eq!((rig.answer().0, rig.runs()), (503, 0), "overdue");
}

#[test]
fn an_operation_of_another_id_or_a_cut_answer_is_no_answer() {
    let mut rig = Rig::asking(json!({}));
    let GrantClaimReply::Before { mut operation, .. } = before(OperationStatus::Succeeded, None) else {
        panic!()
    };
    operation.operation_id = OperationId::from_random([1; 16]);
    rig.claim(GrantClaimReply::Before { operation, answer: None }, &[]);
    assert_eq!(rig.answer(), (503, "store_unavailable".into()));
    let answer = StoredAnswer { status: 201, headers: vec![], body: b"done".to_vec() };
    let (head, block) = AnswerHead::of(&answer);
    let payload = [&block[..], b"done"].concat();
    let mut rig = Rig::asking(json!({}));
    rig.claim(before(OperationStatus::Succeeded, Some(head)), &payload[..payload.len() - 1]);
    assert_eq!(rig.answer(), (503, "store_unavailable".into()));
    let mut rig = Rig::asking(json!({}));
    rig.claim(before(OperationStatus::Failed, Some(head)), &payload);
    assert_eq!((rig.reply().unwrap().status, rig.results()), (201, vec![Outcome::Replayed]));
    let map = rig.exchange.own_reply_headers(&[]).unwrap();
    assert!(map.contains(&(b"x-idempotent-replayed".to_vec(), b"true".to_vec())));
    assert!(!map.iter().any(|(name, _)| name == b"x-idempotent-expires"), "operations are kept");
}

#[test]
fn an_admission_that_may_not_submit_has_failed_and_its_grant_stays_spent() {
    type Twist = fn(&mut Rig) -> Vec<Effect>;
    let late_admission: Twist = |rig| {
        rig.now += 59_600;
        rig.admitted(60_000)
    };
    let late_word: Twist = |rig| {
        rig.admitted(60_000);
        rig.now += 1_600;
        rig.json(Call::MaySubmit, 200, json!({"left_ms": 2_000}))
    };
    let refused: Twist = |rig| {
        rig.admitted(60_000);
        rig.json(Call::MaySubmit, 409, json!({"code": "operation_not_applied", "reason": "lease_over"}))
    };
    let broken_twice: Twist = |rig| {
        rig.admitted(60_000);
        assert_eq!(paths(&rig.broken(Call::MaySubmit)), [operation("may-submit")]);
        rig.broken(Call::MaySubmit)
    };
    let down: Twist = |rig| {
        rig.admitted(60_000);
        rig.json(Call::MaySubmit, 503, json!({}))
    };
    let nonsense: Twist = |rig| {
        rig.admitted(60_000);
        rig.json(Call::MaySubmit, 200, json!({"left": 1}))
    };
    let other_store: Twist = |rig| {
        rig.admitted(60_000);
        let (body, store) = (br#"{"left_ms":60000}"#.to_vec(), Some(StoreId::from_bytes([8; 16])));
        let reply = CallReply::Answer { status: 200, from_service: true, store, body };
        rig.step(Input::StoreReply { call: Call::MaySubmit, reply })
    };
    for twist in [late_admission, late_word, refused, broken_twice, down, nonsense, other_store] {
        let mut rig = Rig::asking(json!({}));
        let effects = twist(&mut rig);
        let (request, payload) = finish(&effects);
        assert_eq!(serde_json::to_value(request.outcome).unwrap(), "failed");
        assert_eq!(
            (request.reference.as_deref(), request.answer, payload.len()),
            (Some("not_submitted"), None, 0)
        );
        rig.finished();
        assert_eq!((rig.answer(), rig.runs()), ((503, "grant_not_submitted".into()), 0));
        assert_eq!((rig.header("retry-after"), rig.results()), (None, vec![Outcome::GrantNotSubmitted]));
    }
}

#[test]
fn that_nothing_ran_is_said_only_once_it_is_recorded() {
    // Somebody else may own the operation by then, and send its request after all.
    let unconfirmed: [fn(&mut Rig) -> Vec<Effect>; 3] = [
        |rig| rig.step(Input::StoreReply { call: Call::Duty, reply: CallReply::Broken }),
        |rig| rig.json(Call::Duty, 401, json!({})),
        |rig| rig.json(Call::Duty, 409, json!({})),
    ];
    for reply in unconfirmed {
        let mut rig = Rig::running(json!({}));
        finish(&rig.step(Input::UpstreamReply(UpstreamReply::NotSent)));
        reply(&mut rig);
        assert_eq!(rig.answer(), (503, "store_unavailable".into()));
        assert!(!rig.results().contains(&Outcome::GrantNotSubmitted));
    }
}

#[test]
fn an_outcome_is_recorded_though_the_service_has_refused_it_for_a_while() {
    for status in [401, 403, 408, 429, 500, 503] {
        let mut rig = Rig::running(json!({}));
        finish(&rig.upstream(201, "via_upstream|-|1|9", "done"));
        rig.json(Call::Duty, status, json!({}));
        assert!(!rig.exchange.is_over(), "{status}");
        let again = rig.tick(*limits::DUTY_RETRY_MS.start());
        let (request, _) = finish(&again);
        assert_eq!(serde_json::to_value(request.outcome).unwrap(), "succeeded", "{status}");
    }
}

#[test]
fn the_outcome_is_the_policys_word_on_the_status_and_else_unknown() {
    let over = json!({"grant": {"outcome": {"succeeded": ["2xx", 409], "failed": [402, "4xx", 204]}}});
    for (over, status, outcome) in [
        (json!({}), 200, "succeeded"),
        (json!({}), 402, "failed"),
        (json!({}), 409, "unknown"),
        (json!({}), 422, "failed"),
        (json!({}), 400, "unknown"),
        (json!({}), 302, "unknown"),
        (json!({}), 500, "unknown"),
        (json!({}), 503, "unknown"),
        (over.clone(), 201, "succeeded"),
        (over.clone(), 204, "failed"),
        (over.clone(), 409, "succeeded"),
        (over.clone(), 404, "failed"),
        (over, 500, "unknown"),
    ] {
        let mut rig = Rig::running(over);
        let effects = rig.upstream(status, "via_upstream|-|1|9", "x");
        let (request, _) = finish(&effects);
        assert_eq!(serde_json::to_value(request.outcome).unwrap(), outcome, "{status}");
        assert_eq!(request.answer.is_some(), outcome != "unknown", "{status}");
        rig.finished();
        assert_eq!(rig.reply().unwrap().status, status, "the client has the upstream's own answer");
        assert_eq!(rig.header("x-fencepost-result").as_deref(), (outcome == "unknown").then_some("unknown"));
    }
}

#[test]
fn an_answer_that_was_lost_is_unknown_and_one_that_was_never_asked_for_has_failed() {
    let lost = |rig: &mut Rig| rig.step(Input::UpstreamReply(UpstreamReply::Lost));
    let timeout = |rig: &mut Rig| rig.upstream(504, "response_timeout|UT|1|9", "");
    let without_report = |rig: &mut Rig| {
        rig.step(Input::UpstreamReply(UpstreamReply::Response { status: 200, headers: vec![], body: vec![] }))
    };
    let overdue = |rig: &mut Rig| rig.tick(19_001);
    let unknown: [fn(&mut Rig) -> Vec<Effect>; 4] = [lost, timeout, without_report, overdue];
    for (n, ending) in unknown.into_iter().enumerate() {
        let mut rig = Rig::running(json!({}));
        let effects = ending(&mut rig);
        let effects =
            effects.into_iter().filter(|e| !paths(core::slice::from_ref(e)).contains(&operation("renew")));
        let (request, _) = finish(&effects.collect::<Vec<_>>());
        assert_eq!(
            (serde_json::to_value(request.outcome).unwrap(), request.reference),
            (json!("unknown"), None),
            "{n}"
        );
        rig.finished();
        assert_eq!((rig.answer(), rig.results()), ((504, "upstream_lost".into()), vec![Outcome::Unknown]));
    }
    let not_sent = |rig: &mut Rig| rig.step(Input::UpstreamReply(UpstreamReply::NotSent));
    let no_host = |rig: &mut Rig| rig.upstream(503, "no_healthy_upstream|UH|-|-", "");
    let not_run: [fn(&mut Rig) -> Vec<Effect>; 2] = [not_sent, no_host];
    for ending in not_run {
        let mut rig = Rig::running(json!({}));
        let (request, _) = finish(&ending(&mut rig));
        assert_eq!(request.reference.as_deref(), Some("not_submitted"));
        rig.finished();
        assert_eq!(rig.answer(), (503, "grant_not_submitted".into()));
    }
}

#[test]
fn an_answer_that_is_not_kept_is_an_outcome_all_the_same() {
    for response in [json!({"max_body": "3B"}), json!({"keep": "status"})] {
        let mut rig = Rig::running(json!({"response": response}));
        let (request, payload) = finish(&rig.upstream(200, "via_upstream|-|1|9", "four"));
        assert_eq!((request.answer, payload.len()), (None, 0));
        assert_eq!(request.reference.as_deref(), Some("answer_not_kept"));
        assert_eq!(serde_json::to_value(request.outcome).unwrap(), "succeeded");
        rig.finished();
        assert_eq!(rig.reply().unwrap().body.as_slice(), b"four");
    }
}

#[test]
fn a_failed_finish_lets_the_answer_go_marked_and_is_tried_on() {
    let mut rig = Rig::running(json!({}));
    rig.upstream(201, "via_upstream|-|1|9", "done");
    rig.broken(Call::Duty);
    assert_eq!(
        (rig.reply().unwrap().status, rig.header("x-fencepost-result").as_deref()),
        (201, Some("unstored"))
    );
    assert_eq!(paths(&rig.tick(300)), [operation("finish")]);
    rig.finished();
    assert_eq!(rig.results(), [Outcome::Unstored, Outcome::GrantSucceeded]);
    assert!(rig.exchange.is_over());
    let mut rig = Rig::running(json!({}));
    rig.upstream(201, "via_upstream|-|1|9", "done");
    rig.json(Call::Duty, 409, json!({"code": "operation_not_applied"}));
    assert_eq!(
        (rig.reply().unwrap().status, rig.header("x-fencepost-result").as_deref()),
        (201, Some("lost"))
    );
    assert_eq!((rig.results(), rig.exchange.is_over()), (vec![Outcome::Lost], true));
}

#[test]
fn the_operation_is_renewed_while_it_runs_and_while_its_outcome_is_owed() {
    let mut rig = Rig::running(json!({"max_run": "600s", "execution": {"detached": {"timeout": "700s"}}}));
    assert!(!rig.exchange.is_due(rig.now + 14_000));
    assert!(rig.exchange.is_due(rig.now + 15_000));
    let effects = rig.tick(15_000);
    assert_eq!(
        (paths(&effects), sent(&effects)),
        (vec![operation("renew")], &br#"{"owner_version":3,"lease":"execution"}"#[..])
    );
    assert!(paths(&rig.tick(1_000)).is_empty(), "not on every tick");
    rig.broken(Call::RenewOperation);
    assert_eq!(paths(&rig.tick(14_000)), [operation("renew")], "a lost one is followed by the next");
    rig.json(Call::RenewOperation, 200, json!({"owner_version": 3, "lease_left_ms": 60_000}));
    rig.upstream(201, "via_upstream|-|1|9", "done");
    rig.broken(Call::Duty);
    let effects = rig.tick(15_000);
    assert_eq!(paths(&effects), [operation("renew"), operation("finish")]);
    rig.json(Call::RenewOperation, 409, json!({"code": "operation_not_applied"}));
    rig.json(Call::Duty, 503, json!({}));
    assert_eq!(paths(&rig.tick(20_000)), [operation("finish")], "what is over is not renewed");
}

#[test]
fn a_client_that_leaves_changes_nothing_after_the_admission_was_asked_for() {
    for stage in 0..4 {
        let mut rig = Rig::asking(json!({}));
        let leave_at = |rig: &mut Rig, n| {
            if n == stage {
                rig.gone();
            }
        };
        leave_at(&mut rig, 0);
        rig.admitted(60_000);
        leave_at(&mut rig, 1);
        rig.json(Call::MaySubmit, 200, json!({"left_ms": 60_000}));
        leave_at(&mut rig, 2);
        let effects = rig.upstream(201, "via_upstream|-|1|9", "done");
        assert!(finish(&effects).0.answer.is_some());
        leave_at(&mut rig, 3);
        rig.finished();
        assert_eq!((rig.runs(), rig.reply()), (1, None), "{stage}");
        assert_eq!((rig.results(), rig.exchange.is_over()), (vec![Outcome::GrantSucceeded], true));
    }
    let mut rig = Rig::new(json!({}));
    rig.gone();
    rig.step(Input::RequestBody { chunk: br#"{"amount":1}"#.to_vec(), end: true });
    assert!(paths(&rig.done).is_empty(), "gone before: nothing is asked");
}

#[test]
fn without_room_for_its_body_nothing_is_admitted() {
    let mut rig = Rig::new(json!({"fingerprint": {"max_body": "64B"}}));
    rig.has_room = false;
    rig.step(Input::RequestBody { chunk: br#"{"amount":1}"#.to_vec(), end: true });
    assert_eq!((rig.answer(), paths(&rig.done).len()), ((503, "too_busy".into()), 0));
    let mut rig = Rig::new(json!({"fingerprint": {"max_body": "4B"}}));
    rig.step(Input::RequestBody { chunk: br#"{"amount":1}"#.to_vec(), end: true });
    assert_eq!((rig.answer().0, paths(&rig.done).len()), (413, 0));
}
