//! The fingerprint of two bodies, told apart by the first NUL byte of the input.
//!
//! Promised: only JSON is compared by meaning, white space never counts there, and bodies that
//! share a fingerprint have one meaning for another reader of JSON as well.

use fencepost_filter_core::fingerprint::{FingerprintOptions, FingerprintPolicy, RequestParts};
use serde_json::Value;

/// Nesting that serde_json follows.
const DEPTH_MAX: usize = 120;

/// How many neighbours of the first body are looked at.
const NEIGHBOURS: usize = 8;

pub fn run(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == 0);
    let (first, second) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    assert_eq!(of(first), of(first), "the same bytes are one request");
    compare(first, second);
    // Bodies that differ in a bit are the ones to be mistaken for each other.
    for number in 1..=NEIGHBOURS.min(first.len()) {
        let mut neighbour = first.to_vec();
        let at = (data.len() * 31 + number * 7_919) % neighbour.len();
        neighbour[at] ^= 1 << (number % 4);
        compare(first, &neighbour);
    }
}

fn compare(first: &[u8], second: &[u8]) {
    let (one, two) = (of(first), of(second));
    let meanings = (meaning(first, &one), meaning(second, &two));
    if one == two && first != second {
        let (Some(a), Some(b)) = meanings else {
            panic!("bodies that are compared by bytes share a fingerprint");
        };
        assert!(same(&a, &b), "{a} and {b} share a fingerprint");
    }
}

fn of(body: &[u8]) -> String {
    let policy = FingerprintPolicy::compile(FingerprintOptions::default()).unwrap();
    let headers = [
        (b":method".to_vec(), b"POST".to_vec()),
        (b":path".to_vec(), b"/pay".to_vec()),
        (b"content-type".to_vec(), b"application/json".to_vec()),
    ];
    RequestParts::new(&headers).fingerprint(&policy, body).unwrap().to_hex()
}

/// What another reader takes a body for that is compared by meaning: space around it changes
/// nothing. `Null` where it is nested deeper than that reader follows.
fn meaning(body: &[u8], fingerprint: &str) -> Option<Value> {
    if of(&[b" ", body, b"\n"].concat()) != *fingerprint {
        return None;
    }
    match serde_json::from_slice(body) {
        Ok(value) => Some(value),
        Err(error) => {
            let depth = body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
            // serde_json refuses numbers that leave the range of its own.
            let is_number = error.to_string().contains("number out of range");
            assert!(depth > DEPTH_MAX || is_number, "no JSON, and compared as such: {error}");
            Some(Value::Null)
        }
    }
}

/// Equal, numbers by their value as far as another reader sees it.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        // Not read by serde_json, see above.
        (Value::Null, _) | (_, Value::Null) => true,
        (a, b) => a == b,
    }
}
