//! One guarded exchange in the filter's core, with a store and an upstream that answer at once.

use anyhow::{Context, Result, bail};
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::exchange::store_reply::CallReply;
use fencepost_filter_core::exchange::{Call, Claimant, Effect, Exchange, Input, ResponseHead, World};
use fencepost_filter_core::policy::{Config, Policy};
use fencepost_protocol::claims::{ClaimReply, CompleteReply, Reply};
use fencepost_protocol::{ClaimToken, Fence, ScopeDigest, StoreId, StoreKey, frame};
use std::cell::RefCell;
use std::rc::Rc;

const CONFIGURATION: &str = r#"{"store":{"decide_cluster":"d","claim_cluster":"c","timeout":"2s"},"key_prefix":"bench",
    "policies":{"pay":{"namespace":"pay","scope":[{"constant":{"value":"x"}}]}}}"#;

/// Runs a request from its body to its end: claimed, forwarded, answered, stored.
pub fn guarded_exchange(body: &[u8]) -> Result<()> {
    thread_local! { static POLICY: RefCell<Option<Rc<Policy>>> = const { RefCell::new(None) }; }
    let policy = POLICY.with_borrow_mut(|policy| -> Result<Rc<Policy>> {
        if policy.is_none() {
            let config = Config::parse(CONFIGURATION.as_bytes())?;
            *policy = config.policies.get("pay").cloned();
        }
        policy.clone().context("no policy")
    })?;
    let mut exchange = Exchange::new(policy, claimant()?, 1_000);
    let mut pin = None;
    let mut step = |input: Input, now_ms: u64| {
        let mut world = World { now_ms, pin: &mut pin, store_timeout_ms: 2_000, has_room: true };
        exchange.step(input, &mut world)
    };
    let effects = step(Input::RequestBody { chunk: body.to_vec(), end: true }, 1_000);
    expect(&effects, |effect| matches!(effect, Effect::CallStore { .. }), "no claim")?;
    let claimed = ClaimReply::Claimed { fence: Fence::new(42)?, parked_ms: 0 };
    let effects = step(reply(Call::Claim, claimed)?, 1_001);
    expect(&effects, |effect| matches!(effect, Effect::ForwardRequest { .. }), "not forwarded")?;
    let headers = [(":status", "201"), ("content-type", "application/json"), ("server", "upstream")];
    step(
        Input::ResponseHead(ResponseHead {
            status: 201,
            headers: headers.iter().map(|(name, value)| pair(name, value)).collect(),
            evidence: Evidence {
                code_details: Some("via_upstream".into()),
                flags: Some(0),
                attempts: Some(1),
                bytes_sent: None,
            },
            end: false,
        }),
        1_010,
    );
    let effects = step(Input::ResponseBody { chunk: body.to_vec(), end: true }, 1_011);
    expect(&effects, |effect| matches!(effect, Effect::CallStore { .. }), "not stored")?;
    step(reply(Call::Duty, CompleteReply::Stored)?, 1_012);
    step(Input::StreamGone(Evidence::default()), 1_013);
    Ok(())
}

fn pair(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn claimant() -> Result<Claimant> {
    let headers =
        [(":method", "POST"), (":path", "/pay"), (":authority", "a"), ("content-type", "application/json")];
    Ok(Claimant {
        key: StoreKey::new("bench", &[1; 16])?,
        scope: ScopeDigest::from_bytes([2; 16]),
        token: ClaimToken::from_bytes([9; 16]),
        headers: headers.iter().map(|(name, value)| pair(name, value)).collect(),
        forward: vec![("x-fencepost-depth".into(), "1".into())],
        withhold: vec!["x-fencepost-fence".into()],
    })
}

fn reply<T: serde::Serialize>(call: Call, reply: T) -> Result<Input> {
    let body = frame::encode(&Reply::new(StoreId::from_bytes([7; 16]), reply), &[])?;
    Ok(Input::StoreReply {
        call,
        reply: CallReply::Answer { status: 200, from_service: true, store: None, body },
    })
}

fn expect(effects: &[Effect], wanted: impl Fn(&Effect) -> bool, or: &str) -> Result<()> {
    if effects.iter().any(wanted) { Ok(()) } else { bail!("{or}: {effects:?}") }
}
