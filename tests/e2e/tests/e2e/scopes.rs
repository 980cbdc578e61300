//! Whose key it is: every source of identity as a real Envoy hands it over.

use crate::support::configuration;
use crate::tls::Authority;
use fencepost_rig::authority::{dns, uri};
use fencepost_rig::client::{Answer, Call};
use fencepost_rig::envoy::{Route, Setup, cluster, connection_manager, typed};
use fencepost_rig::stack::{Builder, Stack};
use fencepost_rig::token;
use fencepost_rig::upstream::{Behaviour, Upstream};
use serde_json::{Value, json};

/// A stack in which `/pay` is guarded under a scope.
fn scoped(scope: Value) -> Builder {
    Stack::builder(configuration(json!({"scope": scope}))).route(Route::guarded("/pay", "pay"))
}

fn call() -> Call {
    Call::post("/pay").key("k1").json(&json!({"amount": 1}))
}

fn with_claims(claims: Value) -> Call {
    call().header("authorization", format!("Bearer {}", token::with_claims(&claims)))
}

/// All of them are callers of their own: none gets another's answer, and each gets its own.
async fn are_told_apart(stack: &Stack, calls: &[Call]) {
    for (n, call) in calls.iter().enumerate() {
        let answer = stack.send(call).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, false), "caller {n}: {}", answer.text());
    }
    for (n, call) in calls.iter().enumerate() {
        let answer = stack.send(call).await.unwrap();
        assert_eq!((answer.is_replay(), answer.json()), (true, json!({"n": n + 1})), "caller {n}");
    }
    assert_eq!(stack.upstream().executions(), calls.len() as u64);
}

async fn refused(stack: &Stack, call: &Call, code: &str) {
    let before = stack.upstream().executions();
    let answer = stack.send(call).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (403, code));
    assert_eq!(stack.upstream().executions(), before);
}

/// A second issuer whose tokens pass the same filter.
fn second_issuer(setup: Setup) -> Setup {
    setup.change(|bootstrap| {
        let filters = connection_manager(bootstrap).unwrap()["http_filters"].as_array_mut().unwrap();
        let jwt = filters.iter_mut().find(|one| one["name"] == "envoy.filters.http.jwt_authn").unwrap();
        let config = &mut jwt["typed_config"];
        let mut second = config["providers"]["demo"].clone();
        second["issuer"] = "https://other.example".into();
        config["providers"]["second"] = second;
        let allowed = config.pointer_mut("/rules/0/requires/requires_any/requirements").unwrap();
        allowed.as_array_mut().unwrap().insert(1, json!({"provider_name": "second"}));
    })
}

#[tokio::test]
async fn one_subject_of_two_issuers_is_two_callers() {
    let scope = json!([{"jwt": {"payload": "jwt_payload", "claim": "sub"}}]);
    let stack = scoped(scope).envoy(second_issuer).start().await.unwrap();
    let of = |issuer: &str, subject: &str, more: u64| {
        with_claims(json!({"iss": issuer, "sub": subject, "exp": 4_102_444_800_u64, "iat": more}))
    };
    let calls = [
        of(token::ISSUER, "alice", 1),
        of("https://other.example", "alice", 1),
        of(token::ISSUER, "Alice", 1),
        of(token::ISSUER, "bob", 1),
    ];
    are_told_apart(&stack, &calls).await;
    let refreshed = stack.send(&of(token::ISSUER, "alice", 2)).await.unwrap();
    assert_eq!(
        (refreshed.is_replay(), refreshed.json()),
        (true, json!({"n": 1})),
        "a new token, the same person"
    );
    // Authentication comes first: a bad token gets its 401, and nothing of it is kept.
    let bad = call().header("authorization", "Bearer eyJhbGciOiJIUzI1NiJ9.e30.AAAA");
    assert_eq!(stack.send(&bad).await.unwrap().status, 401);
    refused(&stack, &call(), "scope_missing").await;
    refused(&stack, &with_claims(json!({"iss": token::ISSUER, "exp": 4_102_444_800_u64})), "scope_missing")
        .await;
}

#[tokio::test]
async fn a_claim_that_names_nobody_is_403_and_numbers_are_not_text() {
    let stack = scoped(json!([{"jwt": {"payload": "jwt_payload", "claim": "uid"}}])).start().await.unwrap();
    let of = |uid: Value| with_claims(json!({"iss": token::ISSUER, "uid": uid, "exp": 4_102_444_800_u64}));
    let safe = 9_007_199_254_740_992_u64;
    are_told_apart(&stack, &[of(json!(42)), of(json!("42")), of(json!(0)), of(json!(-1)), of(json!(safe))])
        .await;
    for (uid, code) in [
        (json!(""), "scope_missing"),
        (json!(" "), "scope_unusable"),
        (json!(1.5), "scope_unusable"),
        (json!(true), "scope_unusable"),
        (json!(["a"]), "scope_unusable"),
        (json!({"a": "b"}), "scope_unusable"),
        (json!(1e300), "scope_unusable"),
    ] {
        refused(&stack, &of(uid), code).await;
    }
    let null = stack.send(&of(Value::Null)).await.unwrap();
    assert_eq!(null.status, 403, "{}", null.text());
}

#[tokio::test]
async fn a_client_certificate_is_an_identity_by_its_first_uri_or_dns_name() {
    let authority = Authority::new();
    let tls = Authority::new();
    let clients = [
        authority.client(vec![uri("spiffe://example.org/alice")]),
        authority.client(vec![uri("spiffe://example.org/bob"), dns("alice.example.org")]),
        authority.client(vec![dns("alice.example.org")]),
    ];
    let nameless = authority.client(vec![]);
    let (stranger, forger) = (authority.stranger(), tls.client(vec![uri("spiffe://example.org/alice")]));
    let builder = scoped(json!(["peer_san"])).envoy(move |setup| authority.on_listener(setup, false));
    let stack = builder.start().await.unwrap();
    for replay in [false, true] {
        for (n, client) in clients.iter().enumerate() {
            let answer = client.send(&call(), stack.proxy()).await.unwrap();
            assert_eq!((answer.status, answer.is_replay()), (201, replay), "{n}: {}", answer.text());
            assert_eq!(answer.json(), json!({"n": n + 1}));
        }
    }
    let code = |answer: Answer| (answer.status, answer.problem_code());
    for nobody in [&nameless, &stranger] {
        let answer = nobody.send(&call(), stack.proxy()).await.unwrap();
        assert_eq!(code(answer), (403, "scope_missing".into()));
    }
    assert!(forger.send(&call(), stack.proxy()).await.is_err(), "another authority's certificate");
    assert_eq!(stack.upstream().executions(), 3);
}

#[tokio::test]
async fn a_trusted_header_is_an_identity_and_the_edge_removes_the_clients_copy() {
    let stack = scoped(json!([{"header": {"name": "X-Tenant", "trusted": true}}])).start().await.unwrap();
    are_told_apart(&stack, &[call().header("x-tenant", "a"), call().header("X-TENANT", "A")]).await;
    refused(&stack, &call(), "scope_missing").await;
    refused(&stack, &call().header("x-tenant", " "), "scope_unusable").await;
    refused(&stack, &call().header("x-tenant", "a").header("x-tenant", "a"), "scope_unusable").await;
    // As an edge does it: the header is set from the verified token, whatever the client sent.
    let builder = scoped(json!([{"header": {"name": "x-tenant", "trusted": true}}])).envoy(|setup| {
        setup.change(|bootstrap| {
            let mutation = json!({"mutations": {"request_mutations": [{"append": {
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                "header": {"key": "x-tenant", "value": "%DYNAMIC_METADATA(envoy.filters.http.jwt_authn:jwt_payload:sub)%"},
            }}]}});
            let kind = "extensions.filters.http.header_mutation.v3.HeaderMutation";
            let filter = typed("envoy.filters.http.header_mutation", kind, mutation);
            connection_manager(bootstrap).unwrap()["http_filters"].as_array_mut().unwrap().insert(1, filter);
        })
    });
    let stack = builder.start().await.unwrap();
    stack.send(&call().user("alice")).await.unwrap();
    let forged = stack.send(&call().user("bob").header("x-tenant", "alice")).await.unwrap();
    assert_eq!((forged.status, forged.is_replay()), (201, false));
}

#[tokio::test]
async fn host_and_constant_and_their_combination_with_a_person() {
    let host = |name: &str| call().header("host", name);
    let stack = scoped(json!(["host"])).start().await.unwrap();
    are_told_apart(&stack, &[host("a.example"), host("b.example"), host("a.example:8080")]).await;
    assert!(stack.send(&host("A.EXAMPLE")).await.unwrap().is_replay());
    let stack = scoped(json!([{"constant": {"value": "all"}}])).start().await.unwrap();
    are_told_apart(&stack, &[call().user("alice")]).await;
    assert!(stack.send(&call().user("bob")).await.unwrap().is_replay(), "said in so many words");
    let both = json!([{"jwt": {"payload": "jwt_payload", "claim": "sub"}}, "host"]);
    let stack = scoped(both).start().await.unwrap();
    let calls =
        [host("a.example").user("alice"), host("b.example").user("alice"), host("a.example").user("bob")];
    are_told_apart(&stack, &calls).await;
    refused(&stack, &host("a.example"), "scope_missing").await;
}

#[tokio::test]
async fn one_person_who_acts_for_two_tenants_is_two_callers() {
    let scope = json!([
        {"jwt": {"payload": "jwt_payload", "claim": "sub"}},
        {"header": {"name": "x-tenant", "trusted": true}},
        {"constant": {"value": "v2"}},
    ]);
    let stack = scoped(scope).start().await.unwrap();
    let of = |user: &str, tenant: &str| call().user(user).header("x-tenant", tenant);
    are_told_apart(&stack, &[of("root", "t1"), of("root", "t2"), of("t1", "root"), of("roo", "tt1")]).await;
    refused(&stack, &call().user("root"), "scope_missing").await;
    refused(&stack, &call().header("x-tenant", "t1"), "scope_missing").await;
}

#[tokio::test]
async fn dynamic_metadata_of_an_authorizing_service_is_an_identity() {
    let service = Upstream::start().await.unwrap();
    let address = service.addr();
    let scope = json!([{"metadata": {"filter": "envoy.filters.http.ext_authz", "path": ["x-auth-user"]}}]);
    let builder = scoped(scope).envoy(move |mut setup| {
        let config = json!({"http_service": {
            "server_uri": {"uri": "http://authz", "cluster": "authz", "timeout": "5s"},
            "authorization_request": {"allowed_headers": {"patterns": [{"exact": "x-session"}]}},
            "authorization_response": {"dynamic_metadata_from_headers": {"patterns": [{"exact": "x-auth-user"}]}},
        }});
        let kind = "extensions.filters.http.ext_authz.v3.ExtAuthz";
        setup.before.push(typed("envoy.filters.http.ext_authz", kind, config));
        setup.change(move |bootstrap| {
            let clusters = bootstrap.pointer_mut("/static_resources/clusters").unwrap();
            clusters.as_array_mut().unwrap().push(cluster("authz", &[address], false));
        })
    });
    let stack = builder.start().await.unwrap();
    let says = |user: &str| service.script("/pay", Behaviour::status(200).header("x-auth-user", user));
    for (user, replay) in [("alice", false), ("bob", false), ("alice", true)] {
        says(user);
        let answer = stack.send(&call()).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, replay), "{user}: {}", answer.text());
    }
    service.script("/pay", Behaviour::status(200));
    refused(&stack, &call(), "scope_missing").await;
    // Access that was taken away meanwhile: no replay.
    service.script("/pay", Behaviour::status(403));
    let answer = stack.send(&call()).await.unwrap();
    assert_eq!((answer.status, answer.is_replay(), answer.problem_code().as_str()), (403, false, ""));
    assert_eq!(stack.upstream().executions(), 2);
}

#[tokio::test]
async fn metadata_below_names_is_an_identity_and_what_others_set_is_none() {
    let scope = json!([{"metadata": {"filter": "acme.auth", "path": ["caller", "id"]}}]);
    let builder = scoped(scope).envoy(|mut setup| {
        let caller =
            json!({"metadata": [{"metadata_namespace": "acme.auth", "value": {"caller": {"id": "alice"}}}]});
        let kind = "extensions.filters.http.set_metadata.v3.Config";
        setup.before.push(typed("envoy.filters.http.set_metadata", kind, caller));
        setup
    });
    let stack = builder.start().await.unwrap();
    are_told_apart(&stack, &[call()]).await;
    let scope = json!([{"metadata": {"filter": "acme.auth", "path": ["caller"]}}]);
    let stack = scoped(scope).envoy(|mut setup| {
        let caller =
            json!({"metadata": [{"metadata_namespace": "acme.auth", "value": {"caller": {"id": "alice"}}}]});
        let kind = "extensions.filters.http.set_metadata.v3.Config";
        setup.before.push(typed("envoy.filters.http.set_metadata", kind, caller));
        setup
    });
    refused(&stack.start().await.unwrap(), &call(), "scope_unusable").await;
}

#[tokio::test]
async fn filter_state_is_an_identity() {
    let builder = scoped(json!([{"filter_state": {"key": "acme.caller"}}])).envoy(|mut setup| {
        let config = json!({"on_request_headers": [{
            "object_key": "acme.caller",
            "factory_key": "envoy.string",
            "skip_if_empty": true,
            "format_string": {"omit_empty_values": true, "text_format_source": {"inline_string": "%REQ(x-session)%"}},
        }]});
        let kind = "extensions.filters.http.set_filter_state.v3.Config";
        setup.before.push(typed("envoy.filters.http.set_filter_state", kind, config));
        setup
    });
    let stack = builder.start().await.unwrap();
    are_told_apart(&stack, &[call().header("x-session", "alice"), call().header("x-session", "bob")]).await;
    refused(&stack, &call(), "scope_missing").await;
}
