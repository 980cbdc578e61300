//! What somebody tried who wanted a promise to break, kept from breaking it again.

use crate::detached::detached;
use crate::support::{configuration, pay, stack, start};
use fencepost_rig::envoy::{Route, UPSTREAM, connection_manager, loopback};
use fencepost_rig::raw::RawConnection;
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::{AnswerBody, Behaviour, Ending};
use serde_json::{Value, json};

/// Detached, straight to the upstream's own cluster.
fn direct(overrides: Value) -> Value {
    let mut overrides = overrides;
    overrides["execution"] = json!({"detached": {"cluster": UPSTREAM, "loopback": false, "timeout": "65s"}});
    configuration(overrides)
}

/// Inline, detached through the loopback, and detached straight to the upstream, in which a
/// client's own Envoy headers are believed, as they are inside a mesh.
async fn trusting_stacks() -> Vec<(&'static str, Stack)> {
    let mut stacks = Vec::new();
    for (name, build) in
        [("inline", configuration as fn(Value) -> Value), ("loopback", detached), ("direct", direct)]
    {
        let stack = Stack::builder(build(json!({}))).route(Route::guarded("/pay", "pay")).envoy(|setup| {
            setup.change(loopback::add).change(|bootstrap| {
                connection_manager(bootstrap).unwrap()["internal_address_config"] =
                    json!({"cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]});
            })
        });
        stacks.push((name, stack.start().await.unwrap()));
    }
    stacks
}

#[tokio::test]
async fn no_header_of_a_client_makes_the_router_run_a_guarded_request_again() {
    for (name, stack) in trusting_stacks().await {
        let unavailable = Behaviour::status(200).header("grpc-status", "14");
        for (key, header, value, behaviour) in [
            ("a", "x-envoy-retry-on", "5xx,reset", Behaviour::status(500)),
            ("b", "x-envoy-retry-grpc-on", "unavailable", unavailable),
            ("c", "x-envoy-max-retries", "5", Behaviour::status(503)),
        ] {
            stack.upstream().script("/pay", behaviour);
            let before = stack.upstream().executions();
            let call = pay(key).header("x-forwarded-for", "10.1.2.3").header(header, value);
            let call =
                call.header("x-envoy-retry-on", "5xx").header("x-envoy-retriable-status-codes", "200,503");
            stack.send(&call).await.unwrap();
            assert_eq!(stack.upstream().executions(), before + 1, "{name} {header}");
        }
    }
}

#[tokio::test]
async fn a_retry_policy_of_the_cluster_does_not_run_a_detached_request_again() {
    let stack = Stack::builder(direct(json!({}))).route(Route::guarded("/pay", "pay")).envoy(|setup| {
        setup.change(|bootstrap| {
            let options = "/static_resources/clusters/0/typed_extension_protocol_options";
            let options = bootstrap.pointer_mut(options).unwrap();
            options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["retry_policy"] =
                json!({"retry_on": "5xx", "num_retries": 2});
        })
    });
    let stack = stack.start().await.unwrap();
    stack.upstream().script("/pay", Behaviour::status(500));
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 500);
    assert_eq!(stack.upstream().executions(), 1);
    assert_eq!(stack.upstream().seen()[0].header("x-fencepost-max-run-ms"), None);
}

#[tokio::test]
async fn no_header_of_a_client_turns_an_unknown_outcome_into_a_success() {
    let stack =
        Stack::builder(configuration(json!({"max_run": "500ms"}))).route(Route::guarded("/pay", "pay"));
    let stack = stack.envoy(|setup| {
        setup.change(|bootstrap| {
            connection_manager(bootstrap).unwrap()["internal_address_config"] =
                json!({"cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}]});
        })
    });
    let stack = stack.start().await.unwrap();
    stack.upstream().script("/pay", Behaviour::default().ending(Ending::Hang));
    let call = pay("k1").header("x-forwarded-for", "10.1.2.3");
    let call = call.header("x-envoy-upstream-rq-timeout-alt-response", "204");
    let answer = stack.send(&call).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (504, "upstream_lost"));
}

#[tokio::test]
async fn local_reply_config_changes_neither_a_replay_nor_a_detached_answer() {
    for (build, text) in
        [(configuration as fn(Value) -> Value, "much longer than what was stored"), (detached, "x")]
    {
        let stack =
            Stack::builder(build(json!({}))).route(Route::guarded("/pay", "pay")).envoy(move |setup| {
                setup.change(loopback::add).change(move |bootstrap| {
                    connection_manager(bootstrap).unwrap()["local_reply_config"] = json!({"mappers": [{
                        "filter": {"status_code_filter": {"comparison": {
                            "op": "GE", "value": {"default_value": 400, "runtime_key": "none"},
                        }}},
                        "status_code": 500,
                        "body": {"inline_string": text},
                    }]});
                })
            });
        let stack = stack.start().await.unwrap();
        stack.upstream().script("/pay", Behaviour::status(404));
        let first = stack.send(&pay("k1")).await.unwrap();
        assert_eq!((first.status, first.json()), (404, json!({"n": 1})), "{text}");
        let retry = stack.send(&pay("k1")).await.unwrap();
        assert_eq!((retry.status, &retry.body, retry.is_replay()), (404, &first.body, true), "{text}");
        assert_eq!(retry.header_lines("content-length"), [b"7"]);
    }
}

#[tokio::test]
async fn a_large_answer_that_breaks_off_is_not_remembered_as_done() {
    let stack = start(json!({"response": {"max_body": "64KiB"}})).await;
    for (key, behaviour) in [
        ("stated", Behaviour::default().body(AnswerBody::Size(300_000))),
        ("chunked", Behaviour::default().body(AnswerBody::Size(300_000)).chunked()),
    ] {
        stack.upstream().script_next("/pay", behaviour.ending(Ending::Cut(150_000)));
        let first = pay(key).send(stack.proxy()).await;
        assert!(first.is_err(), "{key}: the client sees that it is cut");
        let code = loop {
            let code = stack.send(&pay(key)).await.unwrap().problem_code();
            if code != "in_progress" {
                break code;
            }
        };
        assert_eq!(code, "outcome_unknown", "{key}");
    }
}

#[tokio::test]
async fn bodies_that_never_end_do_not_fill_the_vm() {
    let stack = stack(json!({})).envoy(|setup| setup).start().await.unwrap();
    let token = fencepost_rig::token::for_user("alice");
    let part = vec![b'a'; 500 * 1024];
    let mut held = Vec::new();
    let mut refused = false;
    // 128 MiB are kept at the most; each of these keeps half a MiB.
    for n in 0..400 {
        let mut client = RawConnection::open(stack.proxy()).await.unwrap();
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nidempotency-key: k{n}\r\n\
             content-length: 520000\r\n\r\n"
        );
        if client.send(head).await.is_err() || client.send(&part).await.is_err() {
            refused = true;
            break;
        }
        held.push(client);
        if stack.envoy.stat("wasmcustom.fencepost.refused").await.unwrap() > 0 {
            refused = true;
            break;
        }
    }
    if !refused {
        // The sockets took all of them in before the proxy could look.
        let wait = stack.envoy.wait_stat("wasmcustom.fencepost.refused", |n| n > 0);
        wait.await.expect("all of the bodies were taken in");
    }
    drop(held);
    let after = loop {
        let answer = stack.send(&pay("after")).await.unwrap();
        if answer.problem_code() != "too_busy" {
            break answer;
        }
    };
    assert_eq!(after.status, 201);
    assert!(!stack.envoy.log().contains("memory allocation"), "the VM ran out of memory");
}
