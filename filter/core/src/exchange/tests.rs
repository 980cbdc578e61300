//! Exchanges from beginning to end, without a host.

use super::evidence::Evidence;
use super::store_reply::CallReply;
use super::*;
use crate::policy::Config;
use fencepost_protocol::claims::*;
use fencepost_protocol::{FrameError, answer, frame, paths};

const STORE: StoreId = StoreId::from_bytes([7; 16]);
const TOKEN: ClaimToken = ClaimToken::from_bytes([9; 16]);

/// One exchange, a clock, and all that it did.
struct Rig {
    exchange: Exchange,
    now: u64,
    pin: Option<StoreId>,
    done: Vec<Effect>,
    has_room: bool,
}

fn policy(overrides: &str) -> Rc<Policy> {
    let text = format!(
        r#"{{"store":{{"decide_cluster":"d","claim_cluster":"c","timeout":"2s"}},"key_prefix":"test",
            "policies":{{"pay":{{"namespace":"pay","scope":[{{"constant":{{"value":"x"}}}}]{overrides}}}}}}}"#
    );
    let config = Config::parse(text.as_bytes()).unwrap();
    Rc::clone(config.policies.get("pay").unwrap())
}

impl Rig {
    fn new(overrides: &str) -> Self {
        let headers = [
            (":method", "POST"),
            (":path", "/pay"),
            (":authority", "a"),
            ("content-type", "application/json"),
        ];
        let claimant = Claimant {
            key: StoreKey::new("test", &[1; 16]).unwrap(),
            scope: ScopeDigest::from_bytes([2; 16]),
            token: TOKEN,
            headers: headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect(),
            forward: vec![("x-fencepost-depth".into(), "1".into())],
            withhold: vec!["x-fencepost-fence".into()],
        };
        Self {
            exchange: Exchange::new(policy(overrides), claimant, 1_000),
            now: 1_000,
            pin: None,
            done: vec![],
            has_room: true,
        }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut world =
            World { now_ms: self.now, pin: &mut self.pin, store_timeout_ms: 2_000, has_room: self.has_room };
        let effects = self.exchange.step(input, &mut world);
        self.done.extend(effects.iter().cloned());
        effects
    }

    fn request(&mut self, body: &str) -> Vec<Effect> {
        self.step(Input::RequestBody { chunk: body.into(), end: true })
    }

    fn reply<T: serde::Serialize>(&mut self, call: Call, reply: T, payload: &[u8]) -> Vec<Effect> {
        let body = frame::encode(&Reply::new(STORE, reply), &[payload]).unwrap();
        self.step(Input::StoreReply {
            call,
            reply: CallReply::Answer { status: 200, from_service: true, store: None, body },
        })
    }

    fn claimed(&mut self) -> Vec<Effect> {
        self.reply(Call::Claim, ClaimReply::Claimed { fence: Fence::new(42).unwrap(), parked_ms: 0 }, &[])
    }

    /// A request that is upstream.
    fn running(overrides: &str) -> Self {
        let mut rig = Self::new(overrides);
        rig.request("{}");
        assert!(matches!(rig.claimed().as_slice(), [Effect::ForwardRequest { .. }]));
        rig
    }

    fn head(&mut self, status: u16, headers: &[(&str, &str)], details: &str, end: bool) -> Vec<Effect> {
        let mut pairs = vec![(b":status".to_vec(), status.to_string().into_bytes())];
        pairs.extend(headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())));
        let evidence = Evidence {
            code_details: Some(details.into()),
            flags: Some(0),
            attempts: Some(1),
            bytes_sent: None,
        };
        self.step(Input::ResponseHead(ResponseHead { status, headers: pairs, evidence, end }))
    }

    fn body(&mut self, chunk: &str, end: bool) -> Vec<Effect> {
        self.step(Input::ResponseBody { chunk: chunk.into(), end })
    }

    fn gone(&mut self) -> Vec<Effect> {
        self.step(Input::StreamGone(Evidence { flags: Some(0x4000), ..Evidence::default() }))
    }

    fn tick(&mut self, after_ms: u64) -> Vec<Effect> {
        self.now += after_ms;
        self.step(Input::Tick { body: HeldBody::Coming })
    }

    fn results(&self) -> Vec<Outcome> {
        self.done.iter().filter_map(|e| if let Effect::Result(o) = e { Some(*o) } else { None }).collect()
    }

    fn replies(&self) -> Vec<&LocalReply> {
        self.done.iter().filter_map(|e| if let Effect::LocalReply(r) = e { Some(r) } else { None }).collect()
    }
}

fn calls(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|e| if let Effect::CallStore { path, .. } = e { Some(path.to_string()) } else { None })
        .collect()
}

fn head_of<T: serde::de::DeserializeOwned>(effects: &[Effect]) -> T {
    let frame =
        effects.iter().find_map(|e| if let Effect::CallStore { frame, .. } = e { Some(frame) } else { None });
    let decoded: Result<(T, &[u8]), FrameError> = frame::decode(frame.unwrap());
    decoded.unwrap().0
}

fn code(reply: &LocalReply) -> String {
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    body["code"].as_str().unwrap().to_owned()
}

#[test]
fn first_request_is_forwarded_with_its_fence_and_answered_after_it_is_stored() {
    let mut rig = Rig::new("");
    assert!(rig.exchange.holds_request());
    let effects = rig.request(r#"{"a":1}"#);
    let claim: ClaimRequest = head_of(&effects);
    assert_eq!((claim.token, claim.claim_ttl_ms, claim.wait_ms), (TOKEN, 30_000, PARK_MS_MAX));
    let effects = rig.claimed();
    let [Effect::ForwardRequest { remove, set }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(remove, &["x-fencepost-fence"]);
    for (name, value) in [
        ("x-fencepost-fence", "42"),
        ("x-fencepost-depth", "1"),
        ("x-envoy-max-retries", "0"),
        ("x-envoy-upstream-rq-timeout-ms", "60000"),
    ] {
        assert!(set.contains(&(name.into(), value.into())), "{name}");
    }
    assert!(!rig.exchange.holds_request());
    assert!(rig.head(201, &[("location", "/pay/1")], "via_upstream", false).is_empty());
    assert!(rig.exchange.holds_response());
    assert!(rig.body("{\"n\"", false).is_empty());
    let effects = rig.body(":1}", true);
    let complete: CompleteRequest = head_of(&effects);
    assert_eq!((complete.status, complete.body_len, complete.fence.get()), (201, 7, 42));
    assert!(rig.exchange.holds_response(), "the answer waits for the store");
    let effects = rig.reply(Call::Duty, CompleteReply::Stored, &[]);
    assert_eq!(effects, [Effect::Result(Outcome::Executed), Effect::ResumeResponse]);
    assert!(!rig.exchange.holds_response() && rig.exchange.is_over());
}

#[test]
fn completed_entry_is_replayed_and_a_cut_payload_is_not() {
    let block = answer::encode_headers(&[(b"x-a".to_vec(), b"\xe9".to_vec())]);
    let headers_len = u32::try_from(block.len()).unwrap();
    let outcome =
        |body_len| ClaimReply::Completed { status: 201, headers_len, body_len, age_ms: 5, left_ms: 9_000 };
    let payload = [block.as_slice(), b"{}"].concat();
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.reply(Call::Claim, outcome(2), &payload);
    assert_eq!((rig.replies()[0].status, rig.replies()[0].body.as_slice()), (201, b"{}".as_slice()));
    assert_eq!(rig.results(), [Outcome::Replayed]);
    let map = rig.exchange.own_reply_headers(&[]).unwrap();
    assert!(map.contains(&(b"x-idempotent-replayed".to_vec(), b"true".to_vec())));
    assert!(map.contains(&(b"content-length".to_vec(), b"2".to_vec())));
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.reply(Call::Claim, outcome(3), &payload);
    assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (503, "store_unavailable".into()));
}

#[test]
fn each_refusal_of_the_store_has_its_own_code_and_forwards_nothing() {
    let scheme = Scheme::parse("0-other").unwrap();
    let conflict = r#","concurrency":"conflict""#;
    for (reply, status, expected) in [
        (ClaimReply::InProgress { lease_left_ms: 5, parked_ms: 0 }, 409, "in_progress"),
        (ClaimReply::Unknown { cause: UnknownCause::Timeout, left_ms: 5 }, 409, "outcome_unknown"),
        (ClaimReply::OtherScheme { scheme }, 409, "other_scheme"),
        (ClaimReply::Mismatch, 422, "key_reused"),
        (ClaimReply::Dead, 503, "store_unavailable"),
        (ClaimReply::OverQuota { retry_after_ms: 1_500 }, 429, "quota_exceeded"),
    ] {
        let mut rig = Rig::new(conflict);
        rig.request("{}");
        rig.reply(Call::Claim, reply, &[]);
        assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (status, expected.into()));
        assert!(
            rig.exchange.is_over() && !rig.done.iter().any(|e| matches!(e, Effect::ForwardRequest { .. }))
        );
    }
}

#[test]
fn a_claim_that_comes_after_its_lease_is_given_back_and_not_acted_on() {
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.now += 29_600;
    let effects = rig.claimed();
    assert_eq!(calls(&effects), [paths::RELEASE]);
    assert_eq!(head_of::<ReleaseRequest>(&effects).cause, ReleaseCause::TooLate);
    assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (503, "claim_too_late".into()));
    assert!(!rig.done.iter().any(|e| matches!(e, Effect::ForwardRequest { .. })));
}

#[test]
fn time_that_the_service_parked_a_claim_is_not_counted_against_its_lease() {
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.now += 29_600;
    let effects =
        rig.reply(Call::Claim, ClaimReply::Claimed { fence: Fence::new(1).unwrap(), parked_ms: 2_000 }, &[]);
    assert!(matches!(effects.as_slice(), [Effect::ForwardRequest { .. }]));
}

#[test]
fn a_broken_claim_call_is_sent_once_more_with_the_same_token_and_then_released() {
    let mut rig = Rig::new("");
    rig.request("{}");
    let effects = rig.step(Input::StoreReply { call: Call::Claim, reply: CallReply::Broken });
    assert_eq!(head_of::<ClaimRequest>(&effects).token, TOKEN);
    let effects = rig.step(Input::StoreReply { call: Call::Claim, reply: CallReply::Broken });
    assert_eq!(calls(&effects), [paths::RELEASE]);
    assert_eq!(code(rig.replies()[0]), "store_unavailable");
    // The release is tried until the store confirms it.
    rig.step(Input::StoreReply { call: Call::Duty, reply: CallReply::Broken });
    assert_eq!(calls(&rig.tick(300)), [paths::RELEASE]);
    rig.reply(Call::Duty, ReleaseReply::Released, &[]);
    assert!(rig.exchange.is_over());
}

#[test]
fn another_database_than_the_pinned_one_decides_nothing() {
    let mut rig = Rig::new("");
    rig.pin = Some(StoreId::from_bytes([8; 16]));
    rig.request("{}");
    assert_eq!(calls(&rig.claimed()), [paths::RELEASE]);
    assert_eq!(rig.replies()[0].status, 503);
}

#[test]
fn a_waiter_asks_again_at_once_where_it_was_parked_and_later_where_it_was_not() {
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.now += 2_000;
    let parked = ClaimReply::InProgress { lease_left_ms: 20_000, parked_ms: 2_000 };
    assert_eq!(calls(&rig.reply(Call::Claim, parked.clone(), &[])), [paths::CLAIMS]);
    let refused = ClaimReply::InProgress { lease_left_ms: 20_000, parked_ms: 0 };
    assert!(rig.reply(Call::Claim, refused, &[]).is_empty());
    assert!(!rig.exchange.is_due(rig.now + 100));
    assert_eq!(calls(&rig.tick(250)), [paths::CLAIMS]);
    rig.now += 3_000;
    rig.reply(Call::Claim, parked, &[]);
    assert_eq!(code(rig.replies()[0]), "in_progress");
}

#[test]
fn a_client_that_leaves_before_the_claim_answers_gives_the_claim_back() {
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.gone();
    let effects = rig.claimed();
    assert_eq!(head_of::<ReleaseRequest>(&effects).cause, ReleaseCause::ClientGone);
    assert!(rig.replies().is_empty());
    assert_eq!(rig.results(), [Outcome::Cancelled]);
}

#[test]
fn a_client_that_leaves_while_the_upstream_runs_leaves_an_unknown_outcome() {
    let mut rig = Rig::running("");
    let effects = rig.gone();
    assert_eq!(head_of::<UnknownRequest>(&effects).cause, UnknownCause::ClientGone);
    rig.reply(Call::Duty, UnknownReply::Marked, &[]);
    assert!(rig.exchange.is_over());
}

#[test]
fn a_client_that_leaves_while_the_answer_is_stored_loses_nothing() {
    let mut rig = Rig::running("");
    rig.head(201, &[], "via_upstream", true);
    rig.gone();
    assert!(!rig.exchange.is_over());
    rig.step(Input::StoreReply { call: Call::Duty, reply: CallReply::Broken });
    assert_eq!(calls(&rig.tick(1_000)), [paths::COMPLETE]);
    rig.reply(Call::Duty, CompleteReply::Stored, &[]);
    assert!(rig.exchange.is_over());
    assert_eq!(rig.results().last(), Some(&Outcome::Executed));
}

#[test]
fn a_cut_answer_is_not_stored() {
    let mut rig = Rig::running("");
    rig.head(200, &[("content-length", "100")], "via_upstream", false);
    rig.body("sixty", false);
    let effects = rig.step(Input::StreamGone(Evidence::default()));
    assert_eq!(calls(&effects), [paths::UNKNOWN]);
}

#[test]
fn the_proxys_own_answer_is_never_stored() {
    let mut rig = Rig::running("");
    let effects = rig.head(503, &[], "no_healthy_upstream", false);
    assert_eq!(head_of::<ReleaseRequest>(&effects).cause, ReleaseCause::NotRun);
    assert!(!rig.exchange.holds_response(), "its head passes");
    rig.body("no healthy upstream", true);
    assert!(rig.exchange.holds_response(), "its end waits for the release");
    assert_eq!(rig.reply(Call::Duty, ReleaseReply::Released, &[]), [Effect::ResumeResponse]);

    let mut rig = Rig::running("");
    let effects = rig.head(504, &[], "upstream_response_timeout", false);
    assert_eq!(head_of::<UnknownRequest>(&effects).cause, UnknownCause::Timeout);
    let effects = rig.body("upstream request timeout", true);
    let [Effect::RewriteResponse { body, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(String::from_utf8_lossy(body).contains("upstream_lost"));
    assert_eq!(rig.reply(Call::Duty, UnknownReply::Marked, &[]), [Effect::ResumeResponse]);
}

#[test]
fn statuses_that_are_not_stored_give_the_claim_back() {
    for status in [401, 403, 425, 429] {
        let mut rig = Rig::running("");
        let effects = rig.head(status, &[], "via_upstream", true);
        assert_eq!(head_of::<ReleaseRequest>(&effects).cause, ReleaseCause::StatusNotStored, "{status}");
        assert!(rig.exchange.holds_response());
    }
}

/// Runs a request whose answer is above its bound, by its stated length or by its bytes.
fn oversized(by_length: bool) -> Rig {
    let mut rig = Rig::running(r#","response":{"max_body":"4B"}"#);
    let headers: &[(&str, &str)] = if by_length { &[("content-length", "10")] } else { &[] };
    assert!(rig.head(201, headers, "via_upstream", false).is_empty());
    assert_eq!(rig.exchange.holds_response(), !by_length);
    assert!(rig.body("12345", false).is_empty());
    assert!(!rig.exchange.holds_response() && !rig.exchange.wants_response_body(), "it passes");
    rig
}

#[test]
fn an_answer_that_is_too_large_streams_through_and_leaves_a_marker_at_its_end() {
    for by_length in [true, false] {
        let mut rig = oversized(by_length);
        let effects = rig.body("", true);
        assert_eq!(head_of::<CompleteRequest>(&effects).status, 410);
        assert!(rig.exchange.holds_response(), "its end waits for the marker");
        let effects = rig.reply(Call::Duty, CompleteReply::Stored, &[]);
        assert_eq!(effects, [Effect::Result(Outcome::Oversized), Effect::ResumeResponse]);
    }
}

#[test]
fn a_large_answer_that_breaks_off_is_unknown_and_one_that_its_client_left_has_run() {
    for by_length in [true, false] {
        let mut rig = oversized(by_length);
        let effects = rig.step(Input::StreamGone(Evidence { flags: Some(0), ..Evidence::default() }));
        assert_eq!(head_of::<UnknownRequest>(&effects).cause, UnknownCause::Reset);
        let mut rig = oversized(by_length);
        assert_eq!(head_of::<CompleteRequest>(&rig.gone()).status, 410);
    }
}

#[test]
fn where_the_policy_keeps_no_answers_one_passes_and_leaves_its_status() {
    let keep = r#","response":{"keep":"status","oversized":"rerun","max_body":"4B"}"#;
    for (head_is_all, body) in [(true, ""), (false, "123"), (false, "12345")] {
        let mut rig = Rig::running(keep);
        let mut effects = rig.head(201, &[("location", "/orders/secret")], "via_upstream", head_is_all);
        if !head_is_all {
            assert!(effects.is_empty() && !rig.exchange.wants_response_body(), "nothing of it is held");
            assert!(rig.body(body, false).is_empty());
            effects = rig.body("", true);
        }
        let [Effect::CallStore { frame, .. }] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!(head_of::<CompleteRequest>(&effects).status, 410);
        let text = String::from_utf8_lossy(frame);
        assert!(text.contains("answer_not_kept") && text.contains("status 201"), "{text}");
        assert!(!text.contains("secret") && !text.contains("123"), "{text}");
        let effects = rig.reply(Call::Duty, CompleteReply::Stored, &[]);
        assert!(effects.contains(&Effect::Result(Outcome::Executed)), "{effects:?}");
    }
    let mut rig = Rig::running(keep);
    rig.head(201, &[], "via_upstream", false);
    let effects = rig.step(Input::StreamGone(Evidence { flags: Some(0), ..Evidence::default() }));
    assert_eq!(head_of::<UnknownRequest>(&effects).cause, UnknownCause::Reset, "one that breaks off");
    let effects = Rig::running(keep).head(429, &[], "via_upstream", true);
    assert_eq!(head_of::<ReleaseRequest>(&effects).cause, ReleaseCause::StatusNotStored);
}

#[test]
fn an_endless_answer_is_decided_at_its_head() {
    let mut rig = Rig::running("");
    let effects = rig.head(200, &[("content-type", "Text/Event-Stream; x=y")], "via_upstream", false);
    assert_eq!(head_of::<CompleteRequest>(&effects).status, 410);
    assert!(!rig.exchange.holds_response());
}

#[test]
fn a_full_vm_refuses_more_bodies_and_keeps_no_more_answers() {
    let mut rig = Rig::new("");
    rig.has_room = false;
    assert!(
        rig.step(Input::RequestBody { chunk: b"{".to_vec(), end: false })
            .iter()
            .all(|e| !matches!(e, Effect::CallStore { .. }))
    );
    assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (503, "too_busy".into()));
    let mut rig = Rig::running("");
    rig.has_room = false;
    rig.head(201, &[], "via_upstream", false);
    let effects = rig.body("{}", true);
    assert_eq!(head_of::<CompleteRequest>(&effects).status, 410, "what can't be kept can't be replayed");
}

#[test]
fn a_rewritten_reply_of_ours_is_put_back() {
    let mut rig = Rig::new("");
    rig.request("{}");
    let headers_len = u32::try_from(answer::encode_headers(&[]).len()).unwrap();
    let outcome = ClaimReply::Completed { status: 404, headers_len, body_len: 2, age_ms: 5, left_ms: 9_000 };
    rig.reply(Call::Claim, outcome, &[answer::encode_headers(&[]).as_slice(), b"{}"].concat());
    assert_eq!(rig.exchange.own_reply_body(), Some(b"{}".as_slice()));
    let present = [(b":status".to_vec(), b"500".to_vec()), (b"content-length".to_vec(), b"48".to_vec())];
    let map = rig.exchange.own_reply_headers(&present).unwrap();
    assert!(map.contains(&(b":status".to_vec(), b"404".to_vec())), "{map:?}");
    assert!(map.contains(&(b"content-length".to_vec(), b"2".to_vec())));
}

#[test]
fn a_stored_name_that_is_no_field_name_is_not_replayed() {
    let mut rig = Rig::new("");
    rig.request("{}");
    let block = answer::encode_headers(&[(b":status".to_vec(), b"200".to_vec())]);
    let headers_len = u32::try_from(block.len()).unwrap();
    rig.reply(
        Call::Claim,
        ClaimReply::Completed { status: 201, headers_len, body_len: 0, age_ms: 5, left_ms: 9_000 },
        &block,
    );
    assert_eq!(code(rig.replies()[0]), "store_unavailable");
}

#[test]
fn an_answer_that_cannot_be_stored_reaches_the_client_marked_and_is_tried_on() {
    let mut rig = Rig::running("");
    rig.head(201, &[], "via_upstream", true);
    let effects = rig.step(Input::StoreReply { call: Call::Duty, reply: CallReply::Broken });
    assert!(effects.contains(&Effect::MarkResponse { name: "x-fencepost-result", value: "unstored" }));
    assert!(effects.contains(&Effect::ResumeResponse));
    assert!(!rig.exchange.is_over());
    assert_eq!(calls(&rig.tick(300)), [paths::COMPLETE]);
    let effects = rig.reply(Call::Duty, CompleteReply::Refused { reason: Refusal::HeldByOther }, &[]);
    assert_eq!(effects, [Effect::Result(Outcome::Lost)]);
    assert!(rig.exchange.is_over());
}

#[test]
fn a_late_answer_is_marked_lost_and_still_sent() {
    let mut rig = Rig::running("");
    rig.head(201, &[], "via_upstream", true);
    let effects = rig.reply(Call::Duty, CompleteReply::Refused { reason: Refusal::HeldByOther }, &[]);
    assert!(effects.contains(&Effect::MarkResponse { name: "x-fencepost-result", value: "lost" }));
    assert!(effects.contains(&Effect::ResumeResponse));
}

#[test]
fn a_claim_is_renewed_while_its_request_runs_and_no_longer() {
    let mut rig = Rig::running("");
    assert!(rig.exchange.take_due_renewal(rig.now + 9_999).is_none());
    let renewal = rig.exchange.take_due_renewal(rig.now + 10_000).unwrap();
    assert_eq!((renewal.token, renewal.claim_ttl_ms, renewal.run_ms), (TOKEN, 30_000, 50_000));
    assert!(rig.exchange.take_due_renewal(rig.now + 10_001).is_none(), "one at a time");
    rig.step(Input::RenewFailed);
    assert!(rig.exchange.take_due_renewal(rig.now + 10_002).is_some(), "a failed renewal is repeated");
    rig.now += 10_002;
    rig.step(Input::Renewed(RenewResult::Renewed));
    assert!(rig.exchange.take_due_renewal(rig.now + 5_000).is_none());
    rig.exchange.take_due_renewal(rig.now + 10_000).unwrap();
    rig.step(Input::Renewed(RenewResult::Refused { reason: Refusal::HeldByOther }));
    assert!(rig.exchange.take_due_renewal(rig.now + 90_000).is_none(), "a lost claim is not renewed");
}

#[test]
fn a_body_over_the_limit_is_refused_before_any_claim() {
    let mut rig = Rig::new(r#","fingerprint":{"max_body":"4B"}"#);
    assert!(rig.step(Input::RequestBody { chunk: b"1234".to_vec(), end: false }).is_empty());
    let effects = rig.step(Input::RequestBody { chunk: b"5".to_vec(), end: false });
    assert!(calls(&effects).is_empty());
    assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (413, "body_too_large".into()));
}

#[test]
fn a_body_in_pieces_has_the_fingerprint_of_the_whole() {
    let mut whole = Rig::new("");
    let one: ClaimRequest = head_of(&whole.request(r#"{"a":1,"b":[2]}"#));
    let mut pieces = Rig::new("");
    for byte in r#"{"a":1,"b":[2]}"#.bytes() {
        pieces.step(Input::RequestBody { chunk: vec![byte], end: false });
    }
    let two: ClaimRequest = head_of(&pieces.step(Input::RequestTrailers));
    assert_eq!(one.fingerprint, two.fingerprint);
}

#[test]
fn headers_that_are_held_for_a_body_that_never_comes_are_refused() {
    let mut rig = Rig::new("");
    rig.now += limits::UNSEEN_BODY_MS_MAX;
    rig.step(Input::Tick { body: HeldBody::Coming });
    assert!(rig.replies().is_empty(), "a slow client");
    rig.step(Input::Tick { body: HeldBody::Unsaid });
    assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (503, "host_option".into()));
    let mut rig = Rig::new("");
    rig.now += limits::WITHHELD_BODY_MS_MAX;
    rig.step(Input::Tick { body: HeldBody::Unsaid });
    assert!(rig.replies().is_empty());
    rig.step(Input::Tick { body: HeldBody::Withheld });
    assert_eq!((rig.replies()[0].status, code(rig.replies()[0])), (503, "host_option".into()));
}

#[test]
fn a_reply_of_the_proxy_while_a_claim_is_on_its_way_gives_the_claim_back() {
    let mut rig = Rig::new("");
    rig.request("{}");
    rig.head(408, &[], "request_overall_timeout", true);
    let effects = rig.claimed();
    assert_eq!(calls(&effects), [paths::RELEASE]);
    assert!(rig.replies().is_empty());
}

#[test]
fn a_request_that_runs_past_max_run_in_silence_is_told_to_the_store_and_can_still_be_answered() {
    let mut rig = Rig::running("");
    assert_eq!(calls(&rig.tick(70_000)), [paths::UNKNOWN]);
    assert!(rig.exchange.take_due_renewal(rig.now).is_none());
    rig.head(201, &[], "via_upstream", true);
    rig.reply(Call::Duty, CompleteReply::Stored, &[]);
    assert_eq!(rig.results(), [Outcome::Executed]);
}

#[test]
fn a_reply_that_never_comes_counts_as_broken() {
    let mut rig = Rig::new(r#","concurrency":"conflict""#);
    rig.request("{}");
    assert_eq!(calls(&rig.tick(2_000 + limits::CALL_GRACE_MS)), [paths::CLAIMS], "the resend");
    assert_eq!(calls(&rig.tick(2_000 + limits::CALL_GRACE_MS)), [paths::RELEASE]);
}

/// An observed request whose body has come, and the effects of that.
fn observed(overrides: &str) -> (Rig, Vec<Effect>) {
    let mut rig = Rig::new(&format!(r#","mode":"observe"{overrides}"#));
    assert!(!rig.exchange.holds_request() && rig.exchange.observes_request());
    assert!(rig.step(Input::RequestBody { chunk: b"{\"a\"".to_vec(), end: false }).is_empty());
    let effects = rig.request(":1}");
    (rig, effects)
}

#[test]
fn an_observed_request_is_claimed_on_the_side_and_completed_without_its_answer() {
    let (mut rig, effects) = observed("");
    let claim: ClaimRequest = head_of(&effects);
    assert_eq!(claim.wait_ms, 0);
    let mut whole = Rig::new("");
    assert_eq!(claim.fingerprint, head_of::<ClaimRequest>(&whole.request(r#"{"a":1}"#)).fingerprint);
    assert_eq!(rig.claimed(), [Effect::Result(Outcome::WouldExecute)]);
    assert!(rig.head(201, &[("location", "/pay/1")], "via_upstream", false).is_empty());
    assert!(!rig.exchange.holds_response() && !rig.exchange.wants_response_body());
    assert!(rig.body("secret", false).is_empty());
    let effects = rig.body("", true);
    let complete: CompleteRequest = head_of(&effects);
    assert_eq!((complete.status, complete.headers_len, complete.body_len), (201, 4, 0));
    assert!(!rig.exchange.holds_response());
    rig.gone();
    assert!(rig.reply(Call::Duty, CompleteReply::Stored, &[]).is_empty());
    assert!(rig.exchange.is_over());
}

#[test]
fn an_observed_answer_may_come_before_the_claim() {
    let (mut rig, _) = observed("");
    assert!(rig.head(500, &[], "via_upstream", true).is_empty());
    rig.gone();
    assert!(!rig.exchange.is_over(), "the claim is on its way");
    let effects = rig.claimed();
    assert_eq!(effects.first(), Some(&Effect::Result(Outcome::WouldExecute)));
    assert_eq!(head_of::<CompleteRequest>(&effects).status, 500);
}

#[test]
fn observed_endings_are_recorded_as_in_earnest() {
    let ended = |status, details: &str, headers: &[(&str, &str)]| {
        let (mut rig, _) = observed("");
        rig.claimed();
        calls(&rig.head(status, headers, details, true))
    };
    assert_eq!(ended(201, "via_upstream", &[]), [paths::COMPLETE]);
    assert_eq!(ended(401, "via_upstream", &[]), [paths::RELEASE]);
    assert_eq!(ended(201, "via_upstream", &[("x-fencepost-store", "no")]), [paths::RELEASE]);
    assert_eq!(ended(503, "no_healthy_upstream", &[]), [paths::RELEASE]);
    assert_eq!(ended(504, "upstream_response_timeout", &[]), [paths::UNKNOWN]);
    let (mut rig, _) = observed("");
    rig.claimed();
    assert_eq!(head_of::<UnknownRequest>(&rig.gone()).cause, UnknownCause::ClientGone);
    let (mut rig, _) = observed("");
    rig.claimed();
    let events = [("content-type", "text/event-stream")];
    assert_eq!(calls(&rig.head(200, &events, "via_upstream", false)), [paths::COMPLETE], "it never ends");
}

#[test]
fn what_the_store_says_of_an_observed_request_is_counted_and_changes_nothing() {
    let scheme = Scheme::parse("0-other").unwrap();
    let completed = ClaimReply::Completed { status: 201, headers_len: 4, body_len: 0, age_ms: 1, left_ms: 1 };
    for (reply, outcome) in [
        (completed, Outcome::WouldReplay),
        (ClaimReply::InProgress { lease_left_ms: 5, parked_ms: 0 }, Outcome::WouldConflict),
        (ClaimReply::Mismatch, Outcome::WouldMismatch),
        (ClaimReply::OtherScheme { scheme }, Outcome::WouldMismatch),
        (ClaimReply::Unknown { cause: UnknownCause::Timeout, left_ms: 5 }, Outcome::WouldUnknown),
        (ClaimReply::Dead, Outcome::WouldStoreUnavailable),
        (ClaimReply::OverQuota { retry_after_ms: 5 }, Outcome::WouldOverQuota),
    ] {
        let (mut rig, _) = observed("");
        assert_eq!(rig.reply(Call::Claim, reply, &[]), [Effect::Result(outcome)]);
        assert!(rig.head(201, &[], "via_upstream", false).is_empty());
        assert!(rig.body("x", true).is_empty() && rig.gone().is_empty());
        assert!(!rig.exchange.holds_request() && !rig.exchange.holds_response() && rig.exchange.is_over());
    }
}

#[test]
fn a_store_that_is_down_is_counted_and_the_observed_request_does_not_notice() {
    let (mut rig, _) = observed("");
    let effects = rig.step(Input::StoreReply { call: Call::Claim, reply: CallReply::Broken });
    assert_eq!(calls(&effects), [paths::RELEASE], "the claim may have been made");
    assert_eq!(rig.results(), [Outcome::WouldStoreUnavailable]);
    assert!(!rig.exchange.holds_request() && rig.replies().is_empty());
    let (mut rig, _) = observed("");
    assert!(rig.exchange.is_due(rig.now + 4_000));
    rig.tick(4_000);
    assert_eq!(rig.results(), [Outcome::WouldStoreUnavailable], "a reply that never comes");
}

#[test]
fn bodies_that_would_be_refused_are_counted_and_pass() {
    let mut rig = Rig::new(r#","mode":"observe","fingerprint":{"max_body":"4B"}"#);
    rig.step(Input::RequestBody { chunk: b"1234".to_vec(), end: false });
    rig.step(Input::RequestBody { chunk: b"5".to_vec(), end: false });
    rig.step(Input::RequestBody { chunk: b"6".to_vec(), end: true });
    assert_eq!(rig.results(), [Outcome::WouldRefuseBodyTooLarge]);
    assert_eq!(rig.exchange.kept_bytes(), 0);
    let mut rig = Rig::new(r#","mode":"observe""#);
    rig.step(Input::RequestBody { chunk: b"{".to_vec(), end: false });
    rig.has_room = false;
    rig.step(Input::RequestBody { chunk: b"}".to_vec(), end: true });
    assert_eq!(rig.results(), [Outcome::WouldStoreUnavailable], "a full VM copies no more bodies");
    assert_eq!((rig.exchange.kept_bytes(), rig.exchange.is_over()), (0, true));
    let reject = r#","mode":"observe","fingerprint":{"duplicate_members":"reject"}"#;
    let mut rig = Rig::new(reject);
    let head = rig.exchange.policy.fingerprint.options().duplicate_members;
    assert_eq!(head, crate::fingerprint::DuplicateMembers::Reject);
    rig.request(r#"{"a":1,"a":2}"#);
    assert_eq!(rig.results(), [Outcome::WouldRefuseBodyAmbiguous]);
    assert!(rig.done.iter().all(|effect| matches!(effect, Effect::Result(_))));
    // A request that leaves before its body is whole is nothing to count.
    let mut rig = Rig::new(r#","mode":"observe""#);
    rig.gone();
    assert!(rig.exchange.is_over() && rig.results().is_empty());
}

#[test]
fn an_observed_claim_is_renewed_while_its_request_runs() {
    let (mut rig, _) = observed("");
    rig.claimed();
    let renewal = rig.exchange.take_due_renewal(rig.now + 10_000).unwrap();
    assert_eq!((renewal.token, renewal.run_ms), (TOKEN, 50_000));
    rig.step(Input::Renewed(RenewResult::Renewed));
    assert!(rig.exchange.take_due_renewal(rig.now + 9_000).is_none());
}

#[test]
fn payloads_are_noted_while_observing_and_where_the_policy_asks() {
    let noted = |effects: &[Effect]| {
        effects.iter().find_map(|e| if let Effect::NotePayload(note) = e { Some(note.clone()) } else { None })
    };
    let (_, effects) = observed("");
    let note = noted(&effects).unwrap();
    assert_eq!(note.window_ms, 600_000);
    let mut rig = Rig::new(r#","same_payload_window":"1m""#);
    assert_eq!(noted(&rig.request(r#"{"a":1}"#)).unwrap().window_ms, 60_000);
    let mut other = Rig::new(r#","same_payload_window":"1m""#);
    assert_ne!(noted(&other.request(r#"{"a":2}"#)).unwrap().payload, note.payload);
    let mut rig = Rig::new("");
    assert_eq!(noted(&rig.request(r#"{"a":1}"#)), None);
}

#[test]
fn problems_of_an_exchange_are_in_the_words_of_its_policy() {
    let words = r#","errors":{"content_type":"text/plain","body":"{status} {code}"}"#;
    let mut rig = Rig::new(words);
    rig.request("{}");
    rig.reply(Call::Claim, ClaimReply::Mismatch, &[]);
    assert_eq!(rig.replies()[0].body.as_slice(), b"422 key_reused");
    assert!(rig.replies()[0].headers.contains(&(b"content-type".to_vec(), b"text/plain".to_vec())));
    let mut rig = Rig::running(words);
    rig.head(504, &[], "upstream_response_timeout", false);
    let effects = rig.body("upstream request timeout", true);
    let [Effect::RewriteResponse { body, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(body, b"504 upstream_lost");
    let mut rig = Rig::running(&format!(r#"{words},"response":{{"max_body":"4B"}}"#));
    rig.head(201, &[("content-length", "10")], "via_upstream", false);
    let effects = rig.body("1234567890", true);
    let text =
        effects.iter().find_map(|e| if let Effect::CallStore { frame, .. } = e { Some(frame) } else { None });
    assert!(String::from_utf8_lossy(text.unwrap()).contains("410 answer_oversized"));
}

#[test]
fn answers_to_other_origins_expose_the_markers_where_the_policy_says_so() {
    let cors = r#","response":{"cors_expose":true}"#;
    let origin = [("access-control-allow-origin", "https://a.example")];
    let mut rig = Rig::running(cors);
    let effects = rig.head(201, &origin, "via_upstream", false);
    let [Effect::SetResponse { name, value }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(*name, "access-control-expose-headers");
    assert!(value.starts_with(b"x-idempotent-replayed"));
    assert!(Rig::running("").head(201, &origin, "via_upstream", false).is_empty());
    let mut rig = Rig::new(cors);
    rig.request("{}");
    rig.reply(Call::Claim, ClaimReply::Mismatch, &[]);
    let present: Vec<Pair> =
        vec![(b":status".to_vec(), b"422".to_vec()), (origin[0].0.into(), origin[0].1.into())];
    let map = rig.exchange.own_reply_headers(&present).unwrap();
    assert_eq!(map.iter().filter(|(name, _)| name == b"access-control-expose-headers").count(), 1);
    assert_eq!(map.len(), 3);
    assert_eq!(rig.exchange.own_reply_headers(&present[..1]), None);
}
