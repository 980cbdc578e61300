//! What a mesh does around a guarded request: several guards on its way, mirrors, redirects,
//! draining, a worker that traps.

use crate::detached::detached;
use crate::support::{configuration, pay, start};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Envoy, Route, Setup, cluster, loopback};
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::{Behaviour, Gate, Upstream};
use serde_json::json;

#[tokio::test]
async fn a_gateway_and_a_sidecar_on_one_store_guard_their_own_hops() {
    let sidecar = start(json!({})).await;
    let setup = Setup::new(sidecar.proxy()).guarded(configuration(json!({})), sidecar.service.addr());
    let gateway = Envoy::start(&setup.route(Route::guarded("/pay", "pay"))).await.unwrap();
    let first = pay("k1").send(gateway.proxy()).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    let retry = pay("k1").send(gateway.proxy()).await.unwrap();
    assert_eq!((retry.json(), retry.is_replay()), (json!({"n": 1}), true));
    // The gateway loses its upstream connection while the inner hop runs: the retry finds the
    // outer outcome unknown and runs nothing.
    let gate = Gate::new();
    sidecar.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (gateway.proxy(), pay("k2"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    client.abort();
    sidecar.upstream().wait_until("a cut", |seen| seen.iter().any(|seen| seen.cut)).await.unwrap();
    gate.open();
    gateway.wait_stat("wasmcustom.fencepost.unknown", |n| n == 1).await.unwrap();
    loop {
        let retry = pay("k2").send(gateway.proxy()).await.unwrap();
        if retry.problem_code() != "in_progress" {
            assert_eq!(retry.problem_code(), "outcome_unknown");
            break;
        }
    }
    let seen = sidecar.upstream().seen();
    assert_eq!((seen.len(), seen[0].header("x-fencepost-depth")), (2, Some("2")));
}

#[tokio::test]
async fn what_the_inner_guard_refuses_is_no_answer_to_the_outer_one() {
    let sidecar = start(json!({"max_run": "1s"})).await;
    let setup = Setup::new(sidecar.proxy()).guarded(configuration(json!({})), sidecar.service.addr());
    let gateway = Envoy::start(&setup.route(Route::guarded("/pay", "pay"))).await.unwrap();
    let gate = Gate::new();
    sidecar.upstream().script_next("/pay", Behaviour::gated(&gate));
    let lost = pay("k1").send(gateway.proxy()).await.unwrap();
    assert_eq!((lost.status, lost.problem_code().as_str()), (504, "upstream_lost"));
    // Not a replay of what was true then: the inner guard is asked again.
    let retry = pay("k1").send(gateway.proxy()).await.unwrap();
    assert_eq!((retry.status, retry.problem_code().as_str()), (409, "outcome_unknown"));
    assert!(!lost.is_replay() && !retry.is_replay());
    assert_eq!(retry.header("x-fencepost-store"), None);
    gate.open();
    // The same before anything runs.
    let refused = Call::post("/pay").key("k2").json(&json!({"amount": 1}));
    let direct = refused.header("x-fencepost-depth", "1").send(sidecar.proxy()).await.unwrap();
    assert_eq!((direct.status, direct.header("x-fencepost-store")), (403, Some("no")));
    assert_eq!(sidecar.upstream().executions(), 1);
}

#[tokio::test]
async fn a_mirror_sees_each_run_once_and_no_replay() {
    let mirror = Upstream::start().await.unwrap();
    let addr = mirror.addr();
    let route =
        Route::guarded("/pay", "pay").action("request_mirror_policies", json!([{"cluster": "mirror"}]));
    let stack = Stack::builder(configuration(json!({}))).route(route).envoy(move |setup| {
        setup.change(move |bootstrap| {
            let clusters = bootstrap.pointer_mut("/static_resources/clusters").unwrap();
            clusters.as_array_mut().unwrap().push(cluster("mirror", &[addr], false));
        })
    });
    let stack = stack.start().await.unwrap();
    stack.send(&pay("k1")).await.unwrap();
    for _ in 0..3 {
        assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    }
    mirror.wait_until("the mirrored run", |seen| seen.iter().any(|seen| seen.body_whole)).await.unwrap();
    assert_eq!((stack.upstream().executions(), mirror.executions()), (1, 1));
}

fn redirecting() -> Route {
    Route::guarded("/pay", "pay")
        .action("internal_redirect_policy", json!({"redirect_response_codes": [303]}))
}

#[tokio::test]
async fn an_internal_redirect_runs_each_hop_once_and_never_waits_for_itself() {
    let stack = Stack::builder(configuration(json!({}))).route(redirecting()).start().await.unwrap();
    stack.upstream().script(
        "/pay",
        Behaviour::status(303).header("location", format!("http://{}/pay/done", stack.proxy())),
    );
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(first.status, 201);
    let runs = stack.upstream().executions();
    assert_eq!(runs, 2);
    // The redirected stream ended without an answer of its own: its key is held, nothing runs.
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(retry.problem_code(), "outcome_unknown");
    assert_eq!(stack.upstream().executions(), runs);
}

#[tokio::test]
async fn an_internal_redirect_inside_the_loopback_is_replayed_like_any_answer() {
    let stack = Stack::builder(detached(json!({}))).route(redirecting());
    let stack = stack.envoy(|setup| setup.change(loopback::add)).start().await.unwrap();
    stack.upstream().script(
        "/pay",
        Behaviour::status(303).header("location", format!("http://{}/pay/done", stack.proxy())),
    );
    let first = stack.send(&pay("k1")).await.unwrap();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, retry.status, retry.is_replay()), (201, 201, true));
    assert_eq!(first.body, retry.body);
    assert_eq!(stack.upstream().executions(), 2);
}

#[tokio::test]
async fn draining_lets_guarded_requests_finish_and_be_stored() {
    for build in [configuration, detached] {
        let stack = Stack::builder(build(json!({}))).route(Route::guarded("/pay", "pay"));
        let stack = stack.envoy(|setup| setup.change(loopback::add)).start().await.unwrap();
        let gate = Gate::new();
        stack.upstream().script_next("/pay", Behaviour::gated(&gate));
        let (proxy, call) = (stack.proxy(), pay("k1"));
        let client = tokio::spawn(async move { call.send(proxy).await });
        gate.wait_arrived(1).await.unwrap();
        stack.envoy.drain().await.unwrap();
        gate.open();
        assert_eq!(client.await.unwrap().unwrap().status, 201);
        stack.envoy.wait_stat("wasmcustom.fencepost.executed", |n| n == 1).await.unwrap();
        assert_eq!(stack.upstream().executions(), 1);
    }
}

#[tokio::test]
async fn a_trap_in_a_worker_refuses_what_it_hit_and_passes_nothing_unguarded() {
    let stack = Stack::builder(configuration(json!({"claim_ttl": "1s", "wait": "100ms"})));
    let stack = stack.route(Route::guarded("/pay", "pay")).envoy(|mut setup| {
        setup.wasm = Some(fencepost_rig::envoy::trapping_filter_binary());
        setup
    });
    let stack = stack.start().await.unwrap();
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("running"));
    let running = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    let hit = stack.send(&pay("hit").header("x-test-trap", "1")).await.unwrap();
    assert_eq!(hit.status, 503);
    // Until the VM is there again, requests are refused; then they are guarded as before.
    let next = loop {
        let answer = stack.send(&pay("next")).await.unwrap();
        if answer.status != 503 {
            break answer;
        }
    };
    assert_eq!((next.status, next.is_replay()), (201, false));
    assert!(stack.send(&pay("next")).await.unwrap().is_replay());
    // What ran when the VM ended is nobody's now: its key is held once its lease is over.
    gate.open();
    let _ = running.await.unwrap();
    let retry = loop {
        let retry = stack.send(&pay("running")).await.unwrap();
        if retry.problem_code() != "in_progress" {
            break retry;
        }
    };
    assert_eq!((retry.status, retry.problem_code().as_str()), (409, "outcome_unknown"));
    assert_eq!(stack.upstream().executions(), 2);
}

/// The filter's configuration in a listener resource.
fn filter_config(listeners: &mut serde_json::Value) -> &mut serde_json::Value {
    let filters = listeners.pointer_mut("/0/filter_chains/0/filters/0/typed_config/http_filters").unwrap();
    let filter =
        filters.as_array_mut().unwrap().iter_mut().find(|filter| filter["name"] == "envoy.filters.http.wasm");
    filter.unwrap().pointer_mut("/typed_config/config").unwrap()
}

#[tokio::test]
async fn a_new_configuration_with_or_without_a_new_vm_loses_no_answer_of_a_live_stream() {
    for new_vm in [false, true] {
        let stack = Stack::builder(configuration(json!({}))).route(Route::guarded("/pay", "pay"));
        let stack = stack.envoy(|mut setup| {
            setup.dynamic_listeners = true;
            setup
        });
        let stack = stack.start().await.unwrap();
        let gate = Gate::new();
        stack.upstream().script_next("/pay", Behaviour::gated(&gate));
        let (proxy, call) = (stack.proxy(), pay("k1"));
        let client = tokio::spawn(async move { call.send(proxy).await });
        gate.wait_arrived(1).await.unwrap();
        let changed = configuration(json!({"wait": "4s"})).to_string();
        stack
            .envoy
            .update_listeners(|listeners| {
                let config = filter_config(listeners);
                config["configuration"]["value"] = json!(changed);
                if new_vm {
                    config["vm_config"]["vm_id"] = json!("another");
                }
            })
            .unwrap();
        stack.envoy.wait_stat("listener_manager.listener_modified", |n| n >= 1).await.unwrap();
        stack.envoy.wait_stat("listener_manager.total_listeners_warming", |n| n == 0).await.unwrap();
        // The new filter guards, and the old one's claim is respected.
        assert_eq!(stack.send(&pay("k2")).await.unwrap().status, 201);
        gate.open();
        assert_eq!(client.await.unwrap().unwrap().status, 201, "new VM: {new_vm}");
        let retry = stack.send(&pay("k1")).await.unwrap();
        assert!(retry.is_replay(), "new VM: {new_vm}: {} {}", retry.status, retry.text());
        assert_eq!(stack.upstream().executions(), 2);
    }
}

#[tokio::test]
async fn a_detached_run_whose_client_left_survives_a_new_configuration_or_ends_unknown() {
    for new_vm in [false, true] {
        let configuration = detached(json!({"claim_ttl": "1s", "wait": "100ms"}));
        let stack = Stack::builder(configuration.clone()).route(Route::guarded("/pay", "pay"));
        let stack = stack.envoy(|mut setup| {
            setup.dynamic_listeners = true;
            setup.change(loopback::add)
        });
        let stack = stack.start().await.unwrap();
        let gate = Gate::new();
        stack.upstream().script_next("/pay", Behaviour::gated(&gate));
        let (proxy, call) = (stack.proxy(), pay("k1"));
        let client = tokio::spawn(async move { call.send(proxy).await });
        gate.wait_arrived(1).await.unwrap();
        client.abort();
        stack.envoy.wait_stat("http.ingress.downstream_rq_active", |n| n == 0).await.unwrap();
        stack
            .envoy
            .update_listeners(|listeners| {
                let config = filter_config(listeners);
                config["configuration"]["value"] = json!(configuration.to_string() + " ");
                if new_vm {
                    config["vm_config"]["vm_id"] = json!("another");
                }
            })
            .unwrap();
        stack.envoy.wait_stat("listener_manager.listener_modified", |n| n >= 1).await.unwrap();
        stack.envoy.wait_stat("listener_manager.total_listeners_draining", |n| n == 0).await.unwrap();
        gate.open();
        let retry = loop {
            let retry = stack.send(&pay("k1")).await.unwrap();
            if retry.problem_code() != "in_progress" {
                break retry;
            }
        };
        assert!(retry.is_replay() || retry.problem_code() == "outcome_unknown", "{}", retry.text());
        assert_eq!(stack.upstream().executions(), 1);
    }
}
