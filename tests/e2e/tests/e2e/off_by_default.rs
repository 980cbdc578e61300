//! The filter off in the chain and turned on by routes: what Envoy makes of it, and where it ends.

use crate::support::{configuration, pay};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Route, connection_manager, typed};
use fencepost_rig::stack::{Builder, Stack};
use serde_json::{Value, json};

const FILTER: &str = "envoy.filters.http.wasm";

/// `/pay` is marked and turned on, `/forgotten` is marked only, the rest is neither.
fn stack() -> Builder {
    let on =
        json!({FILTER: {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}});
    Stack::builder(configuration(json!({})))
        .route(Route::guarded("/pay", "pay").extra("typed_per_filter_config", on))
        .route(Route::guarded("/forgotten", "pay"))
        .route(Route::to("/"))
        .envoy(|setup| setup.change(turn_off))
}

fn turn_off(bootstrap: &mut Value) {
    let filters = connection_manager(bootstrap).unwrap()["http_filters"].as_array_mut().unwrap();
    let filter = filters.iter_mut().find(|filter| filter["name"] == FILTER).unwrap();
    filter["disabled"] = json!(true);
}

#[tokio::test]
async fn a_route_that_turns_the_filter_on_is_guarded_and_others_do_not_meet_it() {
    let stack = stack().start().await.unwrap();
    let first = stack.send(&pay("k1")).await.unwrap();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, retry.status, retry.is_replay()), (201, 201, true));
    assert_eq!((stack.upstream().executions(), retry.body), (1, first.body));
    // A guarded route without a key is a 400; here nobody looks.
    let other = Call::post("/other").user("alice").json(&json!({}));
    assert_eq!(stack.send(&other).await.unwrap().status, 201);
}

#[tokio::test]
async fn a_marked_route_that_does_not_turn_the_filter_on_is_not_guarded() {
    // What `fencepost-store check` reports as filter_disabled: nothing at run time can see it.
    let stack = stack().start().await.unwrap();
    let call = Call::post("/forgotten").user("alice").key("k1").json(&json!({}));
    for _ in 0..2 {
        assert_eq!(stack.send(&call).await.unwrap().status, 201);
    }
    assert_eq!(stack.upstream().executions(), 2);
}

/// A filter that changes the route of a request while the chain runs.
fn rerouting() -> Value {
    let script = r#"
        function envoy_on_request(handle)
          local path = handle:headers():get("x-test-path")
          if path then
            handle:headers():replace(":path", path)
            handle:clearRouteCache()
          end
        end"#;
    let source = json!({"default_source_code": {"inline_string": script}});
    typed("envoy.filters.http.lua", "extensions.filters.http.lua.v3.Lua", source)
}

#[tokio::test]
async fn a_request_that_reaches_its_route_later_is_guarded_by_the_route_it_came_with() {
    // Envoy makes the chain for the first route that it finds. So this way is only for listeners
    // in which nothing changes a request's route.
    let stack = stack()
        .envoy(|mut setup| {
            setup.before.push(rerouting());
            setup
        })
        .start()
        .await
        .unwrap();
    for _ in 0..2 {
        let moved = Call::post("/other").header("x-test-path", "/pay");
        let moved = moved.user("alice").key("k1").json(&json!({"amount": 1}));
        assert_eq!(stack.send(&moved).await.unwrap().status, 201);
    }
    assert_eq!(stack.upstream().executions(), 2);
}
