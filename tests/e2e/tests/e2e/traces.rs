//! One trace through Envoy, the filter's call, the service and the statement. A sample upstream
//! stands for the collector.

use crate::support::*;
use fencepost_rig::authority::{Authority, dns};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Setup, cluster, connection_manager, loopback, typed};
use fencepost_rig::grants;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::{Builder, Stack, Store};
use fencepost_rig::tls_front::TlsFront;
use fencepost_rig::upstream::{AnswerBody, Behaviour, Upstream};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use prost::Message;
use serde_json::{Value, json};

const TRACES: &str = "/v1/traces";

/// A span as the collector got it.
#[derive(Debug, Clone)]
pub struct Span {
    pub service: String,
    pub name: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub async fn collector() -> Upstream {
    let collector = Upstream::start().await.unwrap();
    collector.script(TRACES, Behaviour::status(200).body(AnswerBody::Bytes(Vec::new().into())));
    collector
}

/// All spans that have come.
pub fn spans(seen: &[fencepost_rig::upstream::Seen]) -> Vec<Span> {
    let mut spans = Vec::new();
    for request in seen.iter().filter(|seen| seen.path == TRACES && seen.body_whole) {
        let export = ExportTraceServiceRequest::decode(&request.body[..]).unwrap();
        for of in export.resource_spans {
            let attributes = of.resource.unwrap_or_default().attributes;
            let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
            let service = match name.and_then(|name| name.value).and_then(|value| value.value) {
                Some(Attribute::StringValue(name)) => name,
                other => panic!("{other:?}"),
            };
            spans.extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans).map(|span| Span {
                service: service.clone(),
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
            }));
        }
    }
    spans
}

/// Envoy's own tracing, to the collector. `tells` writes Envoy's trace into the request before the
/// filter, as docs/operations.md shows.
pub fn traced(setup: Setup, collector: std::net::SocketAddr, tells: bool) -> Setup {
    let mut setup = setup.change(move |bootstrap: &mut Value| {
        let tracer = typed(
            "envoy.tracers.opentelemetry",
            "config.trace.v3.OpenTelemetryConfig",
            json!({
                "service_name": "envoy",
                "http_service": {"http_uri": {
                    "uri": format!("http://{collector}{TRACES}"), "cluster": "otlp", "timeout": "2s",
                }},
            }),
        );
        connection_manager(bootstrap).unwrap()["tracing"] =
            json!({"provider": tracer, "spawn_upstream_span": true});
        let clusters = bootstrap["static_resources"]["clusters"].as_array_mut().unwrap();
        clusters.push(cluster("otlp", &[collector], false));
        bootstrap["layered_runtime"] = json!({"layers": [{
            "name": "quick", "static_layer": {"tracing.opentelemetry.flush_interval_ms": 50},
        }]});
    });
    if tells {
        setup.before.push(typed(
            "envoy.filters.http.header_mutation",
            "extensions.filters.http.header_mutation.v3.HeaderMutation",
            json!({"mutations": {"request_mutations": [{"append": {
                "header": {"key": "traceparent", "value": "00-%TRACE_ID%-%SPAN_ID%-01"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }}]}}),
        ));
    }
    setup
}

fn stack_with(collector: &Upstream, tells: bool) -> Builder {
    let addr = collector.addr();
    stack(json!({}))
        .store(Store::Postgres)
        .service_arguments(&["--otlp-endpoint", &format!("http://{addr}{TRACES}")])
        .envoy(move |setup| traced(setup, addr, tells))
}

/// What a claim and its answer leave: two calls, two operations, two statements.
const FROM_THE_SERVICE: [(&str, usize); 4] =
    [("/v1/claims", 1), ("/v1/complete", 1), ("claim_acquire", 2), ("claim_complete", 2)];

/// All spans of a trace, once these are there, each as often as this: also Envoy's own, below `parent`.
async fn until_all(
    stack: Stack,
    collector: &Upstream,
    from_the_service: &[(&str, usize)],
    parent: &str,
    trace: impl Fn(&[Span]) -> Option<String>,
) -> Vec<Span> {
    // Stopping sends what is left.
    stack.envoy.wait_stat("cluster.otlp.upstream_rq_200", |count| count > 0).await.unwrap();
    stack.service.stop().await.unwrap();
    let complete = |spans: &[Span]| {
        let trace = trace(spans)?;
        let of: Vec<Span> = spans.iter().filter(|span| span.trace == trace).cloned().collect();
        let has = |(name, count): &(&str, usize)| {
            of.iter().filter(|span| span.service == "fencepost-store" && span.name == *name).count() == *count
        };
        let is_envoys = |span: &Span| span.service == "envoy" && span.parent == parent;
        (from_the_service.iter().all(has) && of.iter().any(is_envoys)).then_some(of)
    };
    collector.wait_until("the whole trace", |seen| complete(&spans(seen)).is_some()).await.unwrap();
    complete(&spans(&collector.seen())).unwrap()
}

fn one<'a>(spans: &'a [Span], name: &str, parent: Option<&Span>) -> &'a Span {
    let fits = |span: &&Span| span.name == name && parent.is_none_or(|parent| span.parent == parent.id);
    let found: Vec<_> = spans.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{name} below {parent:?} in {spans:#?}");
    found[0]
}

#[tokio::test]
async fn a_clients_trace_goes_through_envoy_the_service_and_the_statement() {
    let collector = collector().await;
    let stack = stack_with(&collector, false).start().await.unwrap();
    let (trace, client) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let call = pay("k1").header("traceparent", format!("00-{trace}-{client}-01"));
    assert_eq!(stack.send(&call).await.unwrap().status, 201);
    let upstream = stack.upstream().seen();
    assert!(upstream[0].header("traceparent").unwrap().starts_with(&format!("00-{trace}-")));
    let spans = until_all(stack, &collector, &FROM_THE_SERVICE, client, |_| Some(trace.to_owned())).await;
    for (path, statement) in [("/v1/claims", "claim_acquire"), ("/v1/complete", "claim_complete")] {
        let call = one(&spans, path, None);
        assert_eq!(call.parent, client);
        let operation = one(&spans, statement, Some(call));
        one(&spans, statement, Some(operation));
    }
}

#[tokio::test]
async fn a_trace_that_envoy_begins_goes_on_in_the_service() {
    let collector = collector().await;
    let stack = stack_with(&collector, true).start().await.unwrap();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
    let root = |spans: &[Span]| {
        let is_root = |span: &&Span| span.service == "envoy" && span.parent.is_empty();
        spans.iter().find(is_root).map(|span| span.trace.clone())
    };
    let spans = until_all(stack, &collector, &FROM_THE_SERVICE, "", root).await;
    let root = spans.iter().find(|span| span.parent.is_empty()).unwrap();
    let call = one(&spans, "/v1/claims", Some(root));
    one(&spans, "claim_acquire", Some(one(&spans, "claim_acquire", Some(call))));
}

/// The collector is known by its certificate, and knows the service by its own.
#[tokio::test]
async fn spans_go_over_https_to_a_collector_that_is_known() {
    let collector = collector().await;
    let authority = Authority::new();
    let (issued, own) = (authority.issue(vec![dns("localhost")]), authority.issue(vec![]));
    let front = TlsFront::start(&issued, Some(&authority), collector.addr()).await.unwrap();
    let folder = Scratch::new("collector").unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (ca, other) = (file("ca", &authority.pem()), file("other", &Authority::new().pem()));
    let (cert, key) = (file("cert", &own.cert_pem), file("key", &own.key_pem));
    let (named, unnamed) = (
        format!("https://localhost:{}{TRACES}", front.addr().port()),
        format!("https://{}{TRACES}", front.addr()),
    );
    for (endpoint, ca, is_known) in [(&named, &other, false), (&unnamed, &ca, false), (&named, &ca, true)] {
        let arguments =
            ["--otlp-endpoint", endpoint, "--otlp-ca", ca, "--otlp-cert", &cert, "--otlp-key", &key];
        let stack = stack(json!({})).service_arguments(&arguments).start().await.unwrap();
        assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
        // Stopping sends what is left.
        stack.service.stop().await.unwrap();
        if is_known {
            let has_claim = |spans: &[Span]| spans.iter().any(|span| span.name == "/v1/claims");
            collector.wait_until("a span", |seen| has_claim(&spans(seen))).await.unwrap();
        } else {
            assert_eq!((front.served(), collector.seen().len()), (0, 0), "{endpoint} {ca}");
        }
    }
}

#[tokio::test]
async fn a_collector_that_is_away_holds_nothing_up() {
    let collector = collector().await;
    let stack = stack_with(&collector, true).start().await.unwrap();
    collector.close().await;
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    stack.stop().await.unwrap();
}

#[tokio::test]
async fn a_clients_trace_goes_through_to_the_statement_that_admits_its_grant() {
    let collector = collector().await;
    let addr = collector.addr();
    let (_files, issuers) = grants::issuers(&Value::Null).unwrap();
    let stack = Stack::builder(grants::configuration(&grants::policy()))
        .route(grants::route())
        .store(Store::Postgres)
        .service_arguments(&["--issuers", &issuers, "--otlp-endpoint", &format!("http://{addr}{TRACES}")])
        .envoy(move |setup| traced(setup, addr, false).change(loopback::add));
    let stack = stack.start().await.unwrap();
    let (trace, client) = ("4bf92f3577b34da6a3ce929d0e0e4737", "00f067aa0ba902b8");
    let traceparent = format!("00-{trace}-{client}-01");
    let operation = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";
    let call = Call::post(grants::CREDITS)
        .user("alice")
        .header("x-grant", grants::credit("g-1", "250.00", 600))
        .header("x-operation-id", operation)
        .header("traceparent", &traceparent)
        .header("content-type", "application/json");
    let call = call.body(r#"{"amount":250.00,"currency":"USD"}"#);
    assert_eq!(stack.send(&call).await.unwrap().status, 201);

    let names = [
        ("/v1/grants/claim", "grant_admit"),
        ("/v1/operations/{id}/finish", "operation_finish"),
        ("/v1/operations/{id}/may-submit", "operation_may_submit"),
    ];
    let counts: Vec<_> = names.iter().flat_map(|(path, name)| [(*path, 1), (*name, 2)]).collect();
    let spans = until_all(stack, &collector, &counts, client, |_| Some(trace.to_owned())).await;
    for (path, statement) in names {
        let call = one(&spans, path, None);
        assert_eq!(call.parent, client, "{path}");
        let operation = one(&spans, statement, Some(call));
        one(&spans, statement, Some(operation));
    }
}
