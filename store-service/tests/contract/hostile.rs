//! Callers that mean harm: too slow, too many, or with text that would like to be a statement.

use crate::bed::*;
use crate::served::*;
use fencepost_protocol::claims::UnknownReply;
use fencepost_protocol::paths;
use fencepost_store::entry::{Ruling, Settle, SettleReply};
use fencepost_store::http::{Limits, Tokens};
use fencepost_store::store::StoreKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What is text for people and a statement for a careless program.
const TEXTS: [&str; 5] = [
    "'; DROP TABLE fencepost.entry; --",
    "' || (SELECT string_agg(key, ',') FROM fencepost.entry) || '",
    "$1 \\' \" \u{2019} %s {} \\x00",
    "line\r\nSet-Cookie: a=b\r\n\r\n<script>",
    "\u{202e}\u{feff}\u{1f4a3}",
];

pub async fn text_of_people_is_kept_as_text(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    for (number, text) in (1..).zip(TEXTS) {
        let claim = claim(number, 1);
        bed.granted(&claim).await;
        assert_eq!(bed.store.unknown(unknown(&claim)).await.unwrap(), UnknownReply::Marked);
        let order = order(&claim, Ruling::Free(fencepost_protocol::claims::ReleaseCause::NotRun));
        let order = Settle { reason: text.to_owned(), who: text.to_owned(), ..order };
        assert_eq!(bed.settle(order).await, SettleReply::Settled, "{text}");
        let audit = bed.store.audit(&key(number)).await.unwrap();
        assert_eq!((&audit[0].who[..], &audit[0].reason[..]), (text, text));
    }
    // Everything is still there.
    for number in 1..=TEXTS.len() as u64 {
        assert!(bed.store.entry(&key(number), false).await.unwrap().is_some(), "{number}");
    }
}

#[tokio::test]
async fn questions_that_would_like_to_be_statements_find_nothing() {
    for kind in [StoreKind::Sqlite, StoreKind::Postgres] {
        let bed = Bed::real(kind).await;
        bed.granted(&claim(1, 1)).await;
        let served = Served::start(bed.store.clone(), Tokens::open()).await;
        let ask = async |path: &str| served.send(served.request("GET", path, "")).await;
        for text in TEXTS {
            let coded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            for name in ["state", "prefix", "scope", "after", "limit"] {
                let reply = ask(&format!("/v1/entries?{name}={coded}")).await;
                let none =
                    reply.status == 200 && reply.json()["entries"].as_array().is_some_and(Vec::is_empty);
                assert!(none || reply.status == 400, "{name}={text}: {} {:?}", reply.status, reply.body);
            }
            assert_eq!(ask(&format!("/v1/entries/{coded}")).await.code().0, 400);
        }
        assert_eq!(ask("/v1/entries?state=claimed").await.json()["entries"].as_array().unwrap().len(), 1);
    }
}

async fn limited(limits: Limits) -> Served {
    let bed = Bed::real(StoreKind::Memory).await;
    Served::limited(bed.store.clone(), Tokens::open(), limits).await
}

async fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).await.unwrap()
}

/// One request on a connection that stays; its status.
async fn health(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut part = [0; 1_024];
        let len = stream.read(&mut part).await.unwrap();
        assert!(len > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..len]);
    }
    String::from_utf8_lossy(&answer[9..12]).into_owned()
}

#[tokio::test]
async fn more_connections_than_allowed_wait_for_a_place() {
    let served = limited(Limits { connections_max: 2, ..Limits::default() }).await;
    let (mut first, mut second) = (connect(served.addr).await, connect(served.addr).await);
    assert_eq!(health(&mut first).await, "200");
    assert_eq!(health(&mut second).await, "200");
    let mut third = connect(served.addr).await;
    let mut waiting = Box::pin(health(&mut third));
    // It is sent, and a connection that has a place is answered meanwhile.
    assert!(futures_util::poll!(&mut waiting).is_pending());
    for _ in 0..20 {
        assert_eq!(health(&mut first).await, "200");
        assert!(futures_util::poll!(&mut waiting).is_pending(), "a third connection got a place");
    }
    drop(second);
    assert_eq!(waiting.await, "200");
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_ends_its_connection_and_no_other() {
    let served = limited(Limits { head_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let mut slow = connect(served.addr).await;
    slow.write_all(b"POST /v1/claims HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
    let mut rest = Vec::new();
    // Only the service ends this: nothing is closed here.
    tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 2"), "{:?}", String::from_utf8_lossy(&rest));
    assert_eq!(health(&mut connect(served.addr).await).await, "200");
}

#[tokio::test]
async fn a_connection_that_does_not_begin_a_request_loses_its_place() {
    let limits = Limits { head_timeout: Duration::from_millis(300), connections_max: 3 };
    let served = limited(limits).await;
    // All places are taken by peers of whom nobody can tell which version they speak.
    let mut silent = Vec::new();
    for begun in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n"] {
        let mut stream = connect(served.addr).await;
        stream.write_all(begun).await.unwrap();
        silent.push(stream);
    }
    // Only the service ends them: nothing is closed here.
    let served_next = async { health(&mut connect(served.addr).await).await };
    let next = tokio::time::timeout(Duration::from_secs(20), served_next).await;
    assert_eq!(next.expect("the places are held for ever"), "200");
    for mut stream in silent {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        ended.expect("held for ever").unwrap();
        assert!(rest.is_empty(), "{rest:?}");
    }
}

/// The service's own patience, 30 s, is waited for.
#[tokio::test]
async fn a_body_that_comes_too_slowly_is_told_so() {
    let served = limited(Limits::default()).await;
    let slow = async |path: &str, media: &str| {
        let mut stream = connect(served.addr).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {media}\r\ncontent-length: 100\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(b"{").await.unwrap();
        let mut answer = [0; 1_024];
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read(&mut answer));
        let len = read.await.expect("no patience ends").unwrap();
        String::from_utf8_lossy(&answer[..len]).into_owned()
    };
    let order = format!("/v1/entries/{}/release", key(1));
    let frame = "application/vnd.fencepost.frame";
    let (claims, complete, order) = tokio::join!(
        slow(paths::CLAIMS, frame),
        slow(paths::COMPLETE, frame),
        slow(&order, "application/json")
    );
    for answer in [claims, complete, order] {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(health(&mut connect(served.addr).await).await, "200");
}
