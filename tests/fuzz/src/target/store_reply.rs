//! Replies of the store service as the filter reads them. The first byte of the input chooses the call
//! that is answered, the second the status, and whether the service is known by its header; the rest is
//! the body.
//!
//! Promised: a request is forwarded only by a readable 200 of the service that says `claimed` in its
//! own words, from the database that was seen before; a replay is what the payload holds, without a
//! header that could break it; a renewal counts only where each claim has a result.

use fencepost_filter_core::capture::is_never_kept;
use fencepost_filter_core::exchange::store_reply::{CallReply, decode_json};
use fencepost_filter_core::exchange::{Call, Claimant, Effect, Exchange, Input, World, renewal};
use fencepost_filter_core::policy::{Config, Policy};
use fencepost_protocol::grants::{MaySubmitReply, OwnedReply, RecordReply};
use fencepost_protocol::{ClaimToken, ScopeDigest, StoreId, StoreKey, frame};
use serde_json::Value;
use std::rc::Rc;

/// The database that was seen before; the corpus has it in hex.
const STORE: StoreId = StoreId::from_bytes([7; 16]);

thread_local! {
    static POLICY: Rc<Policy> = {
        let config = Config::parse(include_bytes!("../../corpus/policy/usual.json")).unwrap();
        let (_, policy) = config.policies.iter().next().unwrap();
        Rc::clone(policy)
    };
}

pub fn run(data: &[u8]) {
    let (call, rest) = data.split_first().unwrap_or((&b'c', b""));
    let (how, body) = rest.split_first().unwrap_or((&b'2', b""));
    let (status, from_service) = match how {
        b'2' => (200, true),
        b'n' => (200, false),
        b'5' => (503, true),
        b'4' => (409, true),
        _ => (u16::from(*how) + 300, true),
    };
    let reply = CallReply::Answer { status, from_service, store: Some(STORE), body: body.to_vec() };
    match call {
        b'r' => renewed(&reply),
        b'j' => {
            let mut pin = Some(STORE);
            let _ = decode_json::<RecordReply>(&reply, &mut pin);
            let _ = decode_json::<OwnedReply>(&reply, &mut pin);
            let _ = decode_json::<MaySubmitReply>(&reply, &mut pin);
            assert_eq!(pin, Some(STORE), "the database that was seen before is another one");
        }
        b'd' => duty(&reply),
        _ => claim(&reply),
    }
}

struct Asked {
    exchange: Exchange,
    pin: Option<StoreId>,
}

impl Asked {
    fn new() -> Self {
        let headers = [(":method", "POST"), (":path", "/pay")];
        let claimant = Claimant {
            key: StoreKey::new("test", &[1; 16]).unwrap(),
            scope: ScopeDigest::from_bytes([2; 16]),
            token: ClaimToken::from_bytes([9; 16]),
            headers: headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect(),
            forward: vec![],
            withhold: vec![],
        };
        let exchange = Exchange::new(POLICY.with(Rc::clone), claimant, 0);
        let mut asked = Self { exchange, pin: Some(STORE) };
        asked.step(Input::RequestBody { chunk: b"{}".to_vec(), end: true });
        asked
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut world = World { now_ms: 0, pin: &mut self.pin, store_timeout_ms: 2_000, has_room: true };
        let effects = self.exchange.step(input, &mut world);
        assert_eq!(self.pin, Some(STORE), "the database that was seen before is another one");
        effects
    }
}

fn claim(reply: &CallReply) {
    let mut asked = Asked::new();
    let effects = asked.step(Input::StoreReply { call: Call::Claim, reply: reply.clone() });
    let said = said(reply);
    let word =
        |name: &str| said.as_ref().and_then(|(head, _)| head.get(name)).cloned().unwrap_or(Value::Null);
    for effect in &effects {
        match effect {
            Effect::ForwardRequest { .. } | Effect::CallUpstream(_) => {
                assert_eq!((word("outcome"), word("store_id")), ("claimed".into(), STORE.to_hex().into()));
                assert!(word("fence").as_i64().is_some_and(|fence| fence > 0), "no fence: {said:?}");
            }
            Effect::LocalReply(reply) if reply.details == "fencepost_replayed" => {
                assert_eq!((word("outcome"), word("status")), ("completed".into(), reply.status.into()));
                let (_, payload) = said.as_ref().unwrap();
                assert!(payload.ends_with(&reply.body), "a body that is not in the reply");
                for (name, _) in &reply.headers {
                    assert!(!name.is_empty() && !name.starts_with(b":"), "{name:?}");
                    assert!(!is_never_kept(&name.to_ascii_lowercase()), "{name:?}");
                }
            }
            _ => {}
        }
    }
}

/// The end of an exchange that is owed something.
fn duty(reply: &CallReply) {
    let mut asked = Asked::new();
    asked.step(Input::StoreReply { call: Call::Claim, reply: CallReply::Broken });
    asked.step(Input::StoreReply { call: Call::Claim, reply: CallReply::Broken });
    asked.step(Input::StoreReply { call: Call::Duty, reply: reply.clone() });
    let CallReply::Answer { status, .. } = reply else { return };
    let is_final = matches!(status, 400 | 404 | 405 | 413 | 415);
    let said = said(reply).is_some_and(|(head, _)| head["store_id"] == STORE.to_hex());
    assert!(!asked.exchange.is_over() || said || is_final, "done, and nobody said so");
}

fn renewed(reply: &CallReply) {
    for claims in [0, 1, 2] {
        let mut pin = Some(STORE);
        let inputs = renewal::decode(reply, claims, &mut pin);
        assert_eq!((inputs.len(), pin), (claims, Some(STORE)));
        let renewed = inputs.iter().any(|input| matches!(input, Input::Renewed(_)));
        let results = said(reply).map(|(head, _)| head["results"].as_array().map_or(0, Vec::len));
        assert!(!renewed || results == Some(claims), "renewed without a result for each");
    }
}

/// What another reader finds in a 200 of the service.
fn said(reply: &CallReply) -> Option<(Value, Vec<u8>)> {
    let CallReply::Answer { status: 200, from_service: true, body, .. } = reply else { return None };
    let (head, payload) = frame::split(body).ok()?;
    Some((serde_json::from_slice(head).ok()?, payload.to_vec()))
}
