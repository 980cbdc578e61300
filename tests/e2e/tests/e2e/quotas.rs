//! Quotas of callers, as clients and upstreams see them.

use crate::support::{configuration, last_result, pay, stack};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::Route;
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::{Behaviour, Gate};
use serde_json::json;

fn bobs(key: &str) -> Call {
    Call::post("/pay").user("bob").key(key).json(&json!({"amount": 1}))
}

/// Alice has two new claims in a long time; Bob has his own, whatever she does.
#[tokio::test]
async fn a_caller_over_its_quota_is_refused_and_still_gets_its_answers_while_others_are_served() {
    let stack = stack(json!({})).service_arguments(&["--scope-claims-per-minute", "2"]);
    let stack = stack.start().await.unwrap();
    for key in ["k1", "k2"] {
        assert_eq!(stack.send(&pay(key)).await.unwrap().status, 201);
    }
    let refused = stack.send(&pay("k3")).await.unwrap();
    assert_eq!((refused.status, refused.problem_code()), (429, "quota_exceeded".into()));
    let retry_after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&retry_after), "{retry_after}");
    assert_eq!(refused.header("x-fencepost-result"), None);
    assert_eq!(last_result(&stack, 3).await, "over_quota");
    assert_eq!(stack.upstream().executions(), 2, "nothing of a refused request is forwarded");
    for key in ["k1", "k2"] {
        assert!(stack.send(&pay(key)).await.unwrap().is_replay(), "what has run is told again");
    }
    let changed = Call::post("/pay").user("alice").key("k1").json(&json!({"amount": 2}));
    assert_eq!(stack.send(&changed).await.unwrap().problem_code(), "key_reused");
    for key in ["k3", "k4"] {
        assert_eq!(stack.send(&bobs(key)).await.unwrap().status, 201);
    }
    assert_eq!(stack.upstream().executions(), 4);
}

/// Her request in progress is all that she may have; a repeat of it waits and is answered, and its
/// end makes room.
#[tokio::test]
async fn a_caller_with_too_many_requests_in_progress_is_refused_until_one_ends() {
    let stack = stack(json!({})).service_arguments(&["--scope-claims-live", "1"]).start().await.unwrap();
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (one, same) = (pay("k1"), pay("k1"));
    let others = async {
        gate.wait_arrived(1).await.unwrap();
        let refused = stack.send(&pay("k2")).await.unwrap();
        assert_eq!((refused.status, refused.problem_code()), (429, "quota_exceeded".into()));
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(stack.send(&bobs("k2")).await.unwrap().status, 201);
        gate.open();
    };
    let (first, again, ()) = tokio::join!(stack.send(&one), stack.send(&same), others);
    let (first, again) = (first.unwrap(), again.unwrap());
    assert_eq!((first.status, again.status), (201, 201));
    assert!(first.is_replay() != again.is_replay(), "one ran, the other waited");
    assert_eq!(stack.send(&pay("k2")).await.unwrap().status, 201);
}

/// While a policy only observes, nobody is refused.
#[tokio::test]
async fn a_quota_refuses_nothing_that_is_only_observed() {
    let stack = Stack::builder(configuration(json!({"mode": "observe"})))
        .route(Route::guarded("/pay", "pay"))
        .service_arguments(&["--scope-claims-per-minute", "1"]);
    let stack = stack.start().await.unwrap();
    let counted = async |counter: &str, n: u64| {
        stack.envoy.wait_stat(&format!("wasmcustom.fencepost.{counter}"), |count| count == n).await.unwrap();
    };
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
    counted("would_execute", 1).await;
    for key in ["k2", "k3"] {
        assert_eq!(stack.send(&pay(key)).await.unwrap().status, 201);
    }
    counted("would_over_quota", 2).await;
    assert_eq!(stack.upstream().executions(), 3);
}
