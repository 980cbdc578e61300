//! A service that says what it should not: cut frames, wrong JSON, numbers out of range. What can't
//! be read decides nothing, and costs no answer.

use crate::support::{configuration, pay};
use fencepost_rig::between::Between;
use fencepost_rig::envoy::{Envoy, Route, Setup};
use fencepost_rig::scratch::Scratch;
use fencepost_rig::service::{Options, Service};
use fencepost_rig::upstream::Upstream;
use serde_json::{Value, json};

struct Rig {
    envoy: Envoy,
    between: Between,
    upstream: Upstream,
    service: Service,
    _files: Scratch,
}

async fn rig() -> Rig {
    let files = Scratch::new("between").unwrap();
    let url = format!("sqlite:{}", files.path().join("fencepost.sqlite").display());
    let service = Service::start(Options::on(&url)).await.unwrap();
    let between = Between::to(service.addr()).await.unwrap();
    let upstream = Upstream::start().await.unwrap();
    let setup = Setup::new(upstream.addr()).guarded(configuration(json!({"wait": "100ms"})), between.addr());
    let envoy = Envoy::start(&setup.route(Route::guarded("/pay", "pay"))).await.unwrap();
    Rig { envoy, between, upstream, service, _files: files }
}

/// A frame with another head.
fn with_head(frame: &[u8], change: impl Fn(&mut Value)) -> Vec<u8> {
    let len = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    let mut head: Value = serde_json::from_slice(&frame[4..4 + len]).unwrap();
    change(&mut head);
    framed(head.to_string().as_bytes(), &frame[4 + len..])
}

fn framed(head: &[u8], payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(head.len()).unwrap().to_be_bytes(), head, payload].concat()
}

type Wrong = (&'static str, fn(&[u8]) -> Vec<u8>);

/// What no reply is, whatever was asked.
const NO_REPLY: [Wrong; 16] = [
    ("nothing", |_| Vec::new()),
    ("three bytes", |frame| frame[..3].to_vec()),
    ("a length alone", |frame| frame[..4].to_vec()),
    ("half of its head", |frame| frame[..frame.len().min(40)].to_vec()),
    ("a length beyond its end", |frame| [b"\xff\xff\xff\xff", &frame[4..]].concat()),
    ("a length one beyond its end", |frame| {
        let len = u32::try_from(frame.len() - 3).unwrap();
        [&len.to_be_bytes(), &frame[4..]].concat()
    }),
    ("a head longer than allowed", |frame| with_head(frame, |head| head["x"] = "x".repeat(300_000).into())),
    ("no JSON", |_| framed(b"{\"outcome\":\"claimed\"", b"")),
    ("bytes outside of UTF-8", |_| framed(b"{\"outcome\":\"\xff\"}", b"")),
    ("a list", |_| framed(b"[\"claimed\"]", b"")),
    ("null", |_| framed(b"null", b"")),
    ("a head as deep as it is long", |_| framed("[".repeat(200_000).as_bytes(), b"")),
    ("no outcome", |frame| with_head(frame, |head| drop(head.as_object_mut().unwrap().remove("outcome")))),
    ("an outcome that is a number", |frame| with_head(frame, |head| head["outcome"] = 1.into())),
    ("a later version", |frame| with_head(frame, |head| head["v"] = 900.into())),
    ("no database", |frame| with_head(frame, |head| drop(head.as_object_mut().unwrap().remove("store_id")))),
];

const NO_CLAIM: [Wrong; 5] = [
    ("an outcome that is not known", |frame| with_head(frame, |head| head["outcome"] = "granted".into())),
    ("a fence that is text", |frame| with_head(frame, |head| head["fence"] = "7".into())),
    ("a fence below zero", |frame| with_head(frame, |head| head["fence"] = (-7).into())),
    ("a fence with a fraction", |frame| with_head(frame, |head| head["fence"] = 7.5.into())),
    ("no fence", |frame| with_head(frame, |head| drop(head.as_object_mut().unwrap().remove("fence")))),
];

const NO_REPLAY: [Wrong; 9] = [
    ("a body cut by one byte", |frame| frame[..frame.len() - 1].to_vec()),
    ("a body longer by one byte", |frame| [frame, b"x"].concat()),
    ("no payload", |frame| {
        let len = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
        frame[..4 + len].to_vec()
    }),
    ("a status below all", |frame| with_head(frame, |head| head["status"] = 99.into())),
    ("a status that is none", |frame| with_head(frame, |head| head["status"] = 1000.into())),
    ("a status that is text", |frame| with_head(frame, |head| head["status"] = "201".into())),
    ("headers as long as all", |frame| {
        with_head(frame, |head| {
            head["headers_len"] =
                (head["headers_len"].as_u64().unwrap() + head["body_len"].as_u64().unwrap()).into();
            head["body_len"] = 0.into();
        })
    }),
    ("a body longer than memory", |frame| with_head(frame, |head| head["body_len"] = u32::MAX.into())),
    ("a number below zero", |frame| with_head(frame, |head| head["body_len"] = (-1).into())),
];

#[tokio::test]
async fn a_claim_that_can_not_be_read_runs_nothing_and_its_key_is_free_again() {
    let rig = rig().await;
    for (n, (what, wrong)) in NO_REPLY.into_iter().chain(NO_CLAIM).enumerate() {
        let key = format!("k{n}");
        rig.between.change(move |path, frame| if path == "/v1/claims" { wrong(&frame) } else { frame });
        let answer = pay(&key).send(rig.envoy.proxy()).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (503, "store_unavailable"), "{what}");
        assert_eq!(rig.upstream.executions(), n as u64, "{what}");
        rig.between.leave();
        // The claim that was made all the same is given back in the background.
        let after = loop {
            let answer = pay(&key).send(rig.envoy.proxy()).await.unwrap();
            if answer.problem_code() != "in_progress" {
                break answer;
            }
        };
        assert_eq!((after.status, after.is_replay()), (201, false), "{what}");
    }
    assert!(!rig.envoy.log().contains("wasm log fencepost: panicked"), "{}", rig.envoy.log_tail());
    drop(rig.service);
}

#[tokio::test]
async fn a_replay_that_can_not_be_read_is_503_and_is_whole_afterwards() {
    let rig = rig().await;
    let first = pay("k1").send(rig.envoy.proxy()).await.unwrap();
    assert_eq!(first.status, 201);
    for (what, wrong) in NO_REPLY.into_iter().chain(NO_REPLAY) {
        rig.between.change(move |path, frame| if path == "/v1/claims" { wrong(&frame) } else { frame });
        let answer = pay("k1").send(rig.envoy.proxy()).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (503, "store_unavailable"), "{what}");
        rig.between.leave();
        let retry = pay("k1").send(rig.envoy.proxy()).await.unwrap();
        assert_eq!((retry.status, &retry.body, retry.is_replay()), (201, &first.body, true), "{what}");
    }
    assert_eq!(rig.upstream.executions(), 1);
}

#[tokio::test]
async fn an_answer_whose_receipt_can_not_be_read_reaches_its_client_and_is_stored_once() {
    let rig = rig().await;
    for (n, (what, wrong)) in NO_REPLY.into_iter().enumerate() {
        let key = format!("k{n}");
        rig.between.change(move |path, frame| if path == "/v1/complete" { wrong(&frame) } else { frame });
        let first = pay(&key).send(rig.envoy.proxy()).await.unwrap();
        assert_eq!((first.status, first.header("x-fencepost-result")), (201, Some("unstored")), "{what}");
        let retry = pay(&key).send(rig.envoy.proxy()).await.unwrap();
        assert_eq!((retry.status, &retry.body, retry.is_replay()), (201, &first.body, true), "{what}");
        assert_eq!(rig.upstream.executions(), n as u64 + 1, "{what}");
    }
}
