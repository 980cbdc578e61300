//! The edges of the HTTP interface: what is refused, how, and to whom.

use crate::bed::*;
use crate::served::*;
use bytes::Bytes;
use fencepost_protocol::answer::encode_headers;
use fencepost_protocol::claims::{RenewRequest, Renewal};
use fencepost_protocol::{encode, paths};
use fencepost_store::entry::Claim;
use fencepost_store::http::Tokens;
use fencepost_store::store::StoreKind;
use http_body_util::Full;
use hyper::Request;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CALLS: [&str; 5] = [paths::CLAIMS, paths::COMPLETE, paths::RELEASE, paths::UNKNOWN, paths::RENEW];

async fn open() -> Served {
    let bed = Bed::real(StoreKind::Memory).await;
    Served::start(bed.store.clone(), Tokens::open()).await
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn every_reply_names_the_database_and_the_protocol() {
    let served = open().await;
    let id = served.service.store().store_id().to_hex();
    for (method, path) in
        [("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/nowhere"), ("GET", paths::CLAIMS)]
    {
        let reply = served.send(served.request(method, path, "")).await;
        assert_eq!(reply.header("x-fencepost-store-id"), id, "{path}");
        assert_eq!(reply.header("x-fencepost-protocol"), "1", "{path}");
    }
    for path in CALLS {
        let reply = served.post(path, "").await;
        assert_eq!(reply.header("x-fencepost-store-id"), id, "{path}");
    }
    let reply = served.post(paths::CLAIMS, claim_frame(&claim(1, 1), 0)).await;
    assert_eq!((reply.status, reply.header("x-fencepost-store-id")), (200, &id[..]));
    assert_eq!(reply.json()["store_id"], id);
    let ready = served.send(served.request("GET", "/readyz", "")).await;
    assert_eq!((ready.status, ready.json()["store_id"].as_str()), (200, Some(&id[..])));
}

#[tokio::test]
async fn http_2_without_tls_is_answered_on_the_same_port() {
    let served = open().await;
    let reply = served.send_h2(served.request("POST", paths::CLAIMS, claim_frame(&claim(1, 1), 0))).await;
    assert_eq!((reply.status, reply.json()["outcome"].as_str()), (200, Some("claimed")));
}

#[tokio::test]
async fn bytes_that_are_no_frame_are_refused_on_every_call() {
    let served = open().await;
    let frames: [&[u8]; 7] = [
        b"",
        b"\0\0\0",
        b"\0\0\0\x05{}",
        b"\xff\xff\xff\xff{}",
        b"\0\0\0\x02{}",
        b"\0\0\0\x04nope",
        b"\0\0\0\x04\xff\xfe\xfd\xfc",
    ];
    for path in CALLS {
        for frame in frames {
            assert_eq!(served.post(path, frame).await.code(), code(400, "frame"), "{path} {frame:?}");
        }
    }
}

#[tokio::test]
async fn values_out_of_range_are_refused() {
    let served = open().await;
    let usual = claim(1, 1);
    let with = |change: fn(&mut Claim)| {
        let mut claim = usual.clone();
        change(&mut claim);
        claim_frame(&claim, 0)
    };
    for frame in [
        with(|claim| claim.claim_ttl_ms = 0),
        with(|claim| claim.claim_ttl_ms = 999),
        with(|claim| claim.claim_ttl_ms = 3_600_001),
        with(|claim| claim.unknown_ttl_ms = 0),
        with(|claim| claim.unknown_ttl_ms = u64::MAX),
        with(|claim| claim.max_run_ms = u32::MAX),
        claim_frame(&usual, 2_001),
    ] {
        assert_eq!(served.post(paths::CLAIMS, frame).await.code(), code(400, "out_of_range"));
    }
    for version in [0, 3] {
        let mut request = claim_request(&usual, 0);
        request.v = version;
        let reply = served.post(paths::CLAIMS, encode(&request, &[]).unwrap()).await;
        assert_eq!(reply.code(), code(400, "protocol_version"), "{version}");
    }
    // The next version's messages are understood, with members that this one does not know.
    let mut newer = serde_json::to_value(claim_request(&usual, 0)).unwrap();
    newer["v"] = 2.into();
    newer["from_the_future"] = true.into();
    assert_eq!(served.post(paths::CLAIMS, encode(&newer, &[]).unwrap()).await.status, 200);
    let mut broken = serde_json::to_value(claim_request(&usual, 0)).unwrap();
    broken["token"] = "12".into();
    assert_eq!(served.post(paths::CLAIMS, encode(&broken, &[]).unwrap()).await.code(), code(400, "frame"));
}

#[tokio::test]
async fn answers_whose_lengths_do_not_add_up_are_refused() {
    let served = open().await;
    let usual = complete(&claim(1, 1), 1, b"body");
    let good = complete_request(&usual);
    let payload = [&usual.headers[..], &usual.body[..]];
    let post = async |request: &_, payload: &[&[u8]]| {
        served.post(paths::COMPLETE, encode(request, payload).unwrap()).await
    };
    for cut in [&payload[..1], &[&payload[0][1..], payload[1]], &[payload[0], payload[1], b"x"]] {
        assert_eq!(post(&good, cut).await.code(), code(400, "payload_length"));
    }
    let mut shifted = good.clone();
    (shifted.headers_len, shifted.body_len) = (good.headers_len + 1, good.body_len - 1);
    assert_eq!(post(&shifted, &payload).await.code(), code(400, "header_block"));
    for (name, value) in [
        (b"x-a".as_slice(), b"1\r\nset-cookie: a=b".as_slice()),
        (b"x-a", b"1\nset-cookie: a=b"),
        (b"x-a", b"\0"),
        (b"x-a: b\r\nset-cookie", b"a=b"),
        (b":status", b"200"),
        (b"", b"1"),
    ] {
        let block = encode_headers(&[(b"x-b".to_vec(), b"2".to_vec()), (name.to_vec(), value.to_vec())]);
        let mut split = good.clone();
        split.headers_len = block.len().try_into().unwrap();
        assert_eq!(post(&split, &[&block, payload[1]]).await.code(), code(400, "header_block"), "{name:?}");
    }
    let mut huge = good.clone();
    (huge.headers_len, huge.body_len) = (u32::MAX, u32::MAX);
    assert_eq!(post(&huge, &payload).await.code(), code(400, "payload_length"));
    for (status, ttl_ms) in [(199, 1), (600, 1), (200, 0), (200, u64::MAX)] {
        let mut request = good.clone();
        (request.status, request.ttl_ms) = (status, ttl_ms);
        assert_eq!(post(&request, &payload).await.code(), code(400, "out_of_range"));
    }
    assert_eq!(post(&good, &payload).await.json()["outcome"], "stored");
}

#[tokio::test]
async fn a_renewal_names_each_key_once_and_is_bounded() {
    let served = open().await;
    let renewals = |keys: &[u64]| {
        let claims: Vec<Renewal> = keys.iter().map(|number| renewal(&claim(*number, 1))).collect();
        encode(&RenewRequest { v: 1, claims }, &[]).unwrap()
    };
    assert_eq!(served.post(paths::RENEW, renewals(&[1, 2, 1])).await.code(), code(400, "key_twice"));
    let many: Vec<u64> = (0..513).collect();
    assert_eq!(served.post(paths::RENEW, renewals(&many)).await.code(), code(400, "out_of_range"));
    let most = served.post(paths::RENEW, renewals(&many[..512])).await;
    assert_eq!(most.json()["results"].as_array().unwrap().len(), 512);
}

#[tokio::test]
async fn wrong_methods_paths_types_and_sizes_have_their_own_codes() {
    let served = open().await;
    for path in CALLS {
        let reply = served.send(served.request("GET", path, "")).await;
        assert_eq!(reply.code(), code(405, "method_not_allowed"), "{path}");
    }
    assert_eq!(served.post("/healthz", "").await.code(), code(405, "method_not_allowed"));
    assert_eq!(served.post("/v1/claim", "").await.code(), code(404, "not_found"));
    let mut request = served.request("POST", paths::CLAIMS, claim_frame(&claim(1, 1), 0));
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(served.send(request).await.code(), code(415, "media_type"));
    let long = vec![0; 300 * 1024];
    for path in [paths::CLAIMS, paths::RELEASE, paths::UNKNOWN, paths::RENEW] {
        assert_eq!(served.post(path, long.clone()).await.code(), code(413, "too_large"), "{path}");
    }
    let long = vec![0; 34 * 1024 * 1024];
    assert_eq!(served.post(paths::COMPLETE, long).await.code(), code(413, "too_large"));
}

#[tokio::test]
async fn a_body_that_ends_early_decides_nothing() {
    let served = open().await;
    let frame = claim_frame(&claim(1, 1), 0);
    for cut in [0, 3, 10, frame.len() - 1] {
        let mut stream = tokio::net::TcpStream::connect(served.addr).await.unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/vnd.fencepost.frame\r\ncontent-length: {}\r\n\r\n",
            paths::CLAIMS,
            frame.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&frame[..cut]).await.unwrap();
        stream.shutdown().await.unwrap();
        // Whatever it says to a peer that is gone: it is no grant.
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        assert!(!String::from_utf8_lossy(&reply).contains("claimed"));
    }
    let reply = served.post(paths::CLAIMS, claim_frame(&claim(1, 2), 0)).await;
    assert_eq!(reply.json()["outcome"], "claimed");
}

#[tokio::test]
async fn callers_need_a_token_with_the_role_and_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens.json");
    let entry = |token: &str, role: &str, prefix: &str| {
        serde_json::json!({
            "token_sha256": hex::encode(Sha256::digest(token)), "roles": [role], "key_prefixes": [prefix],
        })
    };
    let list = serde_json::json!([
        entry("filter-token", "filter", "test"),
        entry("elsewhere", "filter", "prod"),
        entry("people", "operator", "test"),
    ]);
    std::fs::write(&file, list.to_string()).unwrap();
    let bed = Bed::real(StoreKind::Memory).await;
    let served = Served::start(bed.store.clone(), Tokens::read(&file).unwrap()).await;
    let with = |path: &str, token: &str, body: Vec<u8>| -> Request<Full<Bytes>> {
        let mut request = served.request("POST", path, body);
        if !token.is_empty() {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    };
    let frame = || claim_frame(&claim(1, 1), 0);
    for path in CALLS {
        let reply = served.send(with(path, "", frame())).await;
        assert_eq!(reply.header("www-authenticate"), "Bearer");
        assert_eq!(reply.code(), code(401, "unauthorized"), "{path}");
        assert_eq!(served.send(with(path, "guess", frame())).await.code(), code(401, "unauthorized"));
        assert_eq!(served.send(with(path, "people", frame())).await.code(), code(403, "role"));
    }
    let reply = served.send(with(paths::CLAIMS, "elsewhere", frame())).await;
    assert_eq!(reply.code(), code(403, "key_prefix"));
    let mixed = RenewRequest { v: 1, claims: vec![renewal(&claim(1, 1))] };
    let reply = served.send(with(paths::RENEW, "elsewhere", encode(&mixed, &[]).unwrap())).await;
    assert_eq!(reply.code(), code(403, "key_prefix"));
    let reply = served.send(with(paths::CLAIMS, "filter-token", frame())).await;
    assert_eq!(reply.json()["outcome"], "claimed");
    // Health is for everybody, numbers are for operators.
    assert_eq!(served.send(served.request("GET", "/readyz", "")).await.status, 200);
    assert_eq!(served.send(served.request("GET", "/metrics", "")).await.status, 401);
}

#[tokio::test]
async fn stopping_finishes_what_is_in_flight_and_is_not_ready_meanwhile() {
    let served = open().await;
    assert_eq!(served.post(paths::CLAIMS, claim_frame(&claim(1, 1), 0)).await.json()["outcome"], "claimed");
    let waiting = served.post(paths::CLAIMS, claim_frame(&claim(1, 2), 2_000));
    let service = served.service.clone();
    let stopping = async {
        until("a caller is parked", async || service.waiters().len() == 1).await;
        service.drain();
        let ready = served.send(served.request("GET", "/readyz", "")).await;
        assert_eq!(ready.status, 503);
        assert!(!ready.json()["reasons"].as_array().unwrap().is_empty());
    };
    let (reply, ()) = tokio::join!(waiting, stopping);
    assert_eq!(reply.json()["outcome"], "in_progress");
    assert!(served.stop().await);
}

#[tokio::test]
async fn every_golden_request_of_the_protocol_is_read() {
    let text = include_str!("../../../protocol/fixtures/frames.txt");
    let frame = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        hex::decode(line.unwrap_or_else(|| panic!("no frame {name}"))).unwrap()
    };
    for (name, path, outcome) in [
        ("request.complete", paths::COMPLETE, "stored"),
        ("request.release", paths::RELEASE, "released"),
        ("request.unknown", paths::UNKNOWN, "marked"),
    ] {
        let served = open().await;
        let claimed = served.post(paths::CLAIMS, frame("request.claim")).await;
        assert_eq!((claimed.status, claimed.json()["outcome"].as_str()), (200, Some("claimed")));
        let renewed = served.post(paths::RENEW, frame("request.renew")).await;
        assert_eq!(
            (renewed.status, renewed.json()["results"][0]["outcome"].as_str()),
            (200, Some("renewed"))
        );
        let ended = served.post(path, frame(name)).await;
        assert_eq!((ended.status, ended.json()["outcome"].as_str()), (200, Some(outcome)), "{name}");
    }
}
