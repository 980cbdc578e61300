//! Each line of the loopback chain matters: with it a promise holds, without it the same promise
//! is shown to break.

use crate::detached::detached;
use crate::support::pay;
use fencepost_rig::envoy::{Route, loopback};
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::Behaviour;
use serde_json::{Value, json};

const MANAGER: &str = "/static_resources/listeners/1/filter_chains/0/filters/0/typed_config";

/// A detached stack whose loopback chain is changed in one place.
async fn chain(route: Route, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Stack {
    let stack = Stack::builder(detached(json!({}))).route(route);
    let stack = stack.envoy(move |setup| {
        setup.change(loopback::add).change(move |bootstrap| change(bootstrap.pointer_mut(MANAGER).unwrap()))
    });
    stack.start().await.unwrap()
}

fn guarded() -> Route {
    Route::guarded("/pay", "pay")
}

fn whole(_: &mut Value) {}

/// Takes one request mutation out of the chain's header_mutation filter.
fn without_mutation(manager: &mut Value, n: usize) {
    let mutations = manager.pointer_mut("/http_filters/0/typed_config/mutations/request_mutations").unwrap();
    mutations.as_array_mut().unwrap().remove(n);
}

#[tokio::test]
async fn the_retries_line_keeps_a_failing_request_at_one_run() {
    let route = || guarded().retry_policy(json!({"retry_on": "5xx", "num_retries": 2}));
    let runs = |stack: Stack| async move {
        stack.upstream().script("/pay", Behaviour::status(500));
        assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 500);
        stack.upstream().executions()
    };
    assert_eq!(runs(chain(route(), whole).await).await, 1);
    assert_eq!(runs(chain(route(), |manager| without_mutation(manager, 0)).await).await, 3);
}

#[tokio::test]
async fn the_timeout_line_bounds_the_run_by_max_run() {
    // The router tells the upstream what it was given.
    let told = |stack: Stack| async move {
        stack.send(&pay("k1")).await.unwrap();
        stack.upstream().seen()[0].header("x-envoy-expected-rq-timeout-ms").map(str::to_owned)
    };
    assert_eq!(told(chain(guarded(), whole).await).await.as_deref(), Some("10000"));
    assert_eq!(
        told(chain(guarded(), |manager| without_mutation(manager, 1)).await).await.as_deref(),
        Some("15000")
    );
}

#[tokio::test]
async fn the_removal_line_keeps_our_own_header_from_the_upstream() {
    let header = |stack: Stack| async move {
        stack.send(&pay("k1")).await.unwrap();
        stack.upstream().seen()[0].header("x-fencepost-max-run-ms").map(str::to_owned)
    };
    assert_eq!(header(chain(guarded(), whole).await).await, None);
    assert_eq!(
        header(chain(guarded(), |manager| without_mutation(manager, 2)).await).await.as_deref(),
        Some("10000")
    );
}

#[tokio::test]
async fn the_overwriting_report_keeps_an_upstream_from_lying() {
    let lie = "no_healthy_upstream|UH|-|0";
    let runs = |stack: Stack| async move {
        stack.upstream().script("/pay", Behaviour::default().header("x-fencepost-ending", lie));
        for _ in 0..2 {
            assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
        }
        stack.upstream().executions()
    };
    assert_eq!(runs(chain(guarded(), whole).await).await, 1);
    let added_only = |manager: &mut Value| {
        *manager
            .pointer_mut("/route_config/virtual_hosts/0/response_headers_to_add/0/append_action")
            .unwrap() = json!("ADD_IF_ABSENT");
    };
    assert_eq!(runs(chain(guarded(), added_only).await).await, 2);
}

#[tokio::test]
async fn the_catch_all_route_makes_no_route_a_positive_ending() {
    let answers = |stack: Stack| async move {
        let first = stack.send(&pay("k1")).await.unwrap();
        let second = stack.send(&pay("k1")).await.unwrap();
        (first.status, second.status)
    };
    let no_route = |manager: &mut Value| {
        let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes").unwrap();
        routes.as_array_mut().unwrap().remove(0);
    };
    assert_eq!(answers(chain(guarded(), no_route).await).await, (404, 404));
    let nothing_at_all = move |manager: &mut Value| {
        no_route(manager);
        no_route(manager);
    };
    assert_eq!(answers(chain(guarded(), nothing_at_all).await).await, (504, 409));
}

#[tokio::test]
async fn the_certificate_line_keeps_the_clients_certificate_header() {
    let header = |stack: Stack| async move {
        // The outer listener trusts the header, as one behind another proxy would.
        stack.send(&pay("k1").header("x-forwarded-client-cert", "By=spiffe://a;Hash=1")).await.unwrap();
        stack.upstream().seen()[0].header("x-forwarded-client-cert").map(str::to_owned)
    };
    let trusting = |change: fn(&mut Value)| async move {
        let stack = Stack::builder(detached(json!({}))).route(guarded()).envoy(move |setup| {
            let setup = setup.change(loopback::add);
            setup.change(move |bootstrap| {
                let outer = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
                bootstrap.pointer_mut(outer).unwrap()["forward_client_cert_details"] =
                    json!("ALWAYS_FORWARD_ONLY");
                change(bootstrap.pointer_mut(MANAGER).unwrap());
            })
        });
        stack.start().await.unwrap()
    };
    assert_eq!(header(trusting(whole).await).await.as_deref(), Some("By=spiffe://a;Hash=1"));
    let without = |manager: &mut Value| {
        manager.as_object_mut().unwrap().remove("forward_client_cert_details");
    };
    assert_eq!(header(trusting(without).await).await, None);
}

/// `use_remote_address: false` is Envoy's default, written down: an internal connection has no IP
/// address, so the opposite changes nothing in the versions tried.
#[tokio::test]
async fn forwarded_for_passes_the_loopback_as_the_edge_made_it() {
    let stack = chain(guarded(), whole).await;
    stack.send(&pay("k1").header("x-forwarded-for", "192.0.2.7")).await.unwrap();
    assert_eq!(stack.upstream().seen()[0].header("x-forwarded-for"), Some("192.0.2.7"));
}

#[tokio::test]
async fn the_calls_own_timeout_proves_nothing() {
    // Neither the timeout line nor the route ends the run, so the call's own timeout does.
    let configuration = crate::support::configuration(json!({
        "max_run": "500ms",
        "execution": {"detached": {"cluster": loopback::LOOPBACK, "loopback": true, "timeout": "1s"}},
    }));
    let stack = Stack::builder(configuration).route(guarded().timeout("0s")).envoy(|setup| {
        setup
            .change(loopback::add)
            .change(|bootstrap| without_mutation(bootstrap.pointer_mut(MANAGER).unwrap(), 1))
    });
    let stack = stack.start().await.unwrap();
    let gate = fencepost_rig::upstream::Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.problem_code().as_str()), (504, "upstream_lost"));
    gate.open();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().problem_code(), "outcome_unknown");
    assert_eq!(stack.upstream().executions(), 1);
}
