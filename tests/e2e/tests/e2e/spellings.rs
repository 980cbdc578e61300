//! One request in other letters: what may mean something else is another request, and what a client
//! or a proxy may change on its way is not. And one answer without what belongs to one exchange.

use crate::support::{start, start_on_postgres};
use fencepost_rig::client::Call;
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::Behaviour;
use serde_json::json;

/// The first runs, is replayed to itself and to all that are the same, and refused to all others.
async fn compared(stack: &Stack, first: Call, same: Vec<Call>, others: Vec<Call>) {
    let before = stack.upstream().executions();
    let answer = stack.send(&first).await.unwrap();
    assert_eq!((answer.status, answer.is_replay()), (201, false), "{}", answer.text());
    for (n, call) in [first].into_iter().chain(same).enumerate() {
        let answer = stack.send(&call).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, true), "same {n}: {}", answer.text());
    }
    for (n, call) in others.into_iter().enumerate() {
        let answer = stack.send(&call).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (422, "key_reused"), "other {n}");
    }
    assert_eq!(stack.upstream().executions(), before + 1);
}

fn to(key: &str, target: &str) -> Call {
    Call::post(target).user("alice").key(key).json(&json!({"amount": 1}))
}

#[tokio::test]
async fn a_target_is_compared_as_it_is_written() {
    let stack = start(json!({})).await;
    let first = "/pay/a%2Fb?x=a%20b&y=1&y=2";
    let others = [
        "/pay/a%2fb?x=a%20b&y=1&y=2",
        "/pay/a%2Fb/?x=a%20b&y=1&y=2",
        "/pay/%61%2Fb?x=a%20b&y=1&y=2",
        "/pay//a%2Fb?x=a%20b&y=1&y=2",
        "/pay/A%2Fb?x=a%20b&y=1&y=2",
        "/pay/a%2Fb?x=a+b&y=1&y=2",
        "/pay/a%2Fb?x=a%20b&y=2&y=1",
        "/pay/a%2Fb?y=1&y=2&x=a%20b",
        "/pay/a%2Fb?x=a%20b&y=1",
        "/pay/a%2Fb?x=a%20b&y=1&y=2&",
        "/pay/a%2Fb?x=a%20b&y=1&y=%32",
        "/pay/a%2Fb?X=a%20b&y=1&y=2",
        "/pay/a%2Fb?x=a%20b&y[]=1&y[]=2",
        "/pay/a%2Fb?",
        "/pay/a%2Fb",
    ];
    let others = others.iter().flat_map(|target| [to("k1", target), to("k1", target).http2()]);
    compared(&stack, to("k1", first), vec![to("k1", first).http2()], others.collect()).await;
}

#[tokio::test]
async fn a_sorted_query_keeps_the_order_of_equal_names() {
    let stack = start(json!({"fingerprint": {"query": "sorted"}})).await;
    let same = ["/pay?y=1&y=2&x=a%20b", "/pay?y=1&x=a%20b&y=2"].map(|target| to("k1", target));
    let others = ["/pay?x=a%20b&y=2&y=1", "/pay?x=a+b&y=1&y=2", "/pay?x=a%20b&y=1", "/pay/?x=a%20b&y=1&y=2"];
    let others = others.map(|target| to("k1", target));
    compared(&stack, to("k1", "/pay?x=a%20b&y=1&y=2"), same.into(), others.into()).await;
}

#[tokio::test]
async fn a_body_is_compared_under_its_media_type() {
    let stack = start_on_postgres(json!({})).await;
    let of = |media: &str, body: &[u8]| {
        let call = Call::post("/pay").user("alice").key("k1").body(body.to_vec());
        if media.is_empty() { call } else { call.header("content-type", media) }
    };
    let text = br#"{"id":12345678901234567,"memo":"a\u0000b"}"#;
    let spaced = br#" { "memo" : "\u0061\u0000b" , "id" : 12345678901234567 } "#;
    let json = "application/json";
    let same = vec![
        of("Application/JSON", spaced),
        of("application/json; charset=utf-8", text),
        of("application/json;charset=\"UTF-8\"", spaced).http2(),
    ];
    let others = vec![
        of("", text),
        of("text/plain", text),
        of("application/vnd.api+json", text),
        of("application/json; charset=utf-16", text),
        of("application/x-www-form-urlencoded", text),
        of(json, text).header("content-encoding", "gzip"),
        // One digit in 17, a double of the same value, text for a number, a mark before the text.
        of(json, br#"{"id":12345678901234568,"memo":"a\u0000b"}"#),
        of(json, br#"{"id":12345678901234567.0,"memo":"a\u0000b"}"#),
        of(json, br#"{"id":1.2345678901234567e16,"memo":"a\u0000b"}"#),
        of(json, br#"{"id":"12345678901234567","memo":"a\u0000b"}"#),
        of(json, &[b"\xef\xbb\xbf", &text[..]].concat()),
        of(json, &[&text[..], b"\0"].concat()),
        of(json, b"{}"),
        of(json, b""),
        of(json, b"null"),
    ];
    compared(&stack, of(json, text), same, others).await;
    let again = |body: &[u8]| {
        Call::post("/pay").user("alice").key("k2").header("content-type", json).body(body.to_vec())
    };
    compared(&stack, again(b""), vec![], vec![again(b"{}"), again(b" "), again(b"null"), again(b"\"\"")])
        .await;
}

#[tokio::test]
async fn what_belongs_to_one_exchange_is_in_no_replay_by_either_protocol() {
    let stack = start(json!({})).await;
    let once = [
        ("age", "7"),
        ("keep-alive", "timeout=5"),
        ("ratelimit-remaining", "5"),
        ("server-timing", "db;dur=53"),
        ("set-cookie", "a=b"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-request-id", "r1"),
    ];
    let mut answer = Behaviour::default().header("location", "/pay/1").header("x-r", b"caf\xe9");
    for (name, value) in once {
        answer = answer.header(name, value);
    }
    stack.upstream().script_next("/pay", answer);
    let first = stack.send(&to("k1", "/pay")).await.unwrap();
    assert_eq!((first.header("age"), first.header_lines("x-r")), (Some("7"), vec![b"caf\xe9".to_vec()]));
    for retry in [to("k1", "/pay"), to("k1", "/pay").http2()] {
        let retry = stack.send(&retry).await.unwrap();
        assert!(retry.is_replay());
        assert_eq!((retry.header("location"), &retry.body), (Some("/pay/1"), &first.body));
        assert_eq!(retry.header_lines("x-r"), [b"caf\xe9"], "byte for byte");
        for (name, value) in once {
            assert_ne!(retry.header(name), Some(value), "{name}");
        }
        assert_eq!(retry.header_lines("content-length"), [first.body.len().to_string().as_bytes()]);
    }
}
