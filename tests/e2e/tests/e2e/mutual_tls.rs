//! Envoy and the service over TLS, Envoy known by its client certificate alone.

use crate::support::*;
use fencepost_rig::authority::{Authority, dns, uri};
use fencepost_rig::envoy::typed;
use fencepost_rig::scratch::Scratch;
use serde_json::{Value, json};

const ENVOY: &str = "spiffe://prod/envoy";

/// A stack whose Envoy shows a certificate with this name to the service.
async fn started(shown: &str) -> fencepost_rig::stack::Stack {
    let files = Scratch::new("certificates").unwrap();
    let authority = Authority::new();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let service = authority.issue(vec![dns("fencepost-store")]);
    let client = authority.issue(vec![uri(shown)]);
    let tokens =
        json!([{"client_san": format!("uri:{ENVOY}"), "roles": ["filter"], "key_prefixes": ["test"]}]);
    let (cert, key) = (write("service.pem", &service.cert_pem), write("service.key", &service.key_pem));
    let (ca, tokens) = (write("ca.pem", &authority.pem()), write("tokens.json", &tokens.to_string()));
    let inline = |text: &str| json!({"inline_string": text});
    let context = json!({
        "sni": "fencepost-store",
        "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificates": [
                {"certificate_chain": inline(&client.cert_pem), "private_key": inline(&client.key_pem)},
            ],
            "validation_context": {
                "trusted_ca": inline(&authority.pem()),
                "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "fencepost-store"}}],
            },
        },
    });
    let kind = "extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let socket = typed("envoy.transport_sockets.tls", kind, context);
    let builder = stack(json!({}))
        .service_arguments(&["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca])
        .service_arguments(&["--token-file", &tokens])
        .envoy(move |setup| {
            setup.change(move |bootstrap: &mut Value| {
                let clusters = bootstrap["static_resources"]["clusters"].as_array_mut().unwrap();
                let stores = clusters.iter_mut().filter(|cluster| {
                    cluster["name"].as_str().is_some_and(|name| name.starts_with("fencepost_store"))
                });
                stores.for_each(|cluster| cluster["transport_socket"] = socket.clone());
            })
        });
    // The service has read its files when it is ready.
    builder.start().await.unwrap()
}

#[tokio::test]
async fn envoy_with_the_right_certificate_is_served_and_needs_no_token() {
    let stack = started(ENVOY).await;
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(first.status, 201, "{}", first.text());
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    assert_eq!(stack.upstream().seen().len(), 1);
}

#[tokio::test]
async fn envoy_with_another_certificate_executes_nothing() {
    let stack = started("spiffe://prod/other").await;
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 503);
    assert_eq!(stack.upstream().seen().len(), 0);
}
