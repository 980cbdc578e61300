//! The filter's configuration, as JSON text and as a Struct's wire bytes, and a route's metadata.
//!
//! Promised: a configuration or an error that names a place; a configuration that is good as JSON
//! is the same one as a Struct; metadata never makes a policy of what it can't read.

use fencepost_filter_core::policy::{Config, Marks, RoutePolicies};
use serde_json::Value;

pub fn run(data: &[u8]) {
    match Config::parse(data) {
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 2_000, "{text}");
        }
        Ok(config) => {
            if let Ok(value) = serde_json::from_slice::<Value>(data)
                && is_exact(&value)
            {
                let wire = wire(&value);
                let again = Config::parse(&wire).expect("good as JSON, and refused as a Struct");
                assert_eq!(format!("{config:?}"), format!("{again:?}"));
            }
        }
    }
}

pub fn run_route(data: &[u8]) {
    let config = Config::parse(include_bytes!("../../corpus/policy/usual.json")).unwrap();
    let mut halves = data.splitn(2, |byte| *byte == 0xfe);
    let marks =
        Marks { route: halves.next().map(<[u8]>::to_vec), virtual_host: halves.next().map(<[u8]>::to_vec) };
    let named =
        config.policies.keys().any(|name| data.windows(name.len()).any(|window| window == name.as_bytes()));
    let mut routes = RoutePolicies::default();
    let first = routes.resolve(&config, marks.clone());
    match &first {
        Ok(policy) => assert!(named, "a policy of metadata that names none: {}", policy.name),
        Err((error, is_new)) => assert!(*is_new && error.to_string().contains("filter_metadata.fencepost")),
    }
    assert_eq!(first.is_ok(), routes.resolve(&config, marks).is_ok(), "asked twice, told twice");
}

/// A Struct's numbers are doubles.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|float| float.abs() < 9e15),
        Value::Array(list) => list.iter().all(is_exact),
        Value::Object(map) => map.values().all(is_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

/// `google.protobuf.Struct` of an object.
fn wire(value: &Value) -> Vec<u8> {
    let Value::Object(map) = value else { return Vec::new() };
    let entry = |(name, value): (&String, &Value)| {
        field(1, &[field(1, name.as_bytes()), field(2, &wire_value(value))].concat())
    };
    map.iter().flat_map(entry).collect()
}

fn wire_value(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(number) => {
            [&[0x11], number.as_f64().unwrap_or_default().to_le_bytes().as_slice()].concat()
        }
        Value::String(text) => field(3, text.as_bytes()),
        Value::Bool(bool) => vec![0x20, u8::from(*bool)],
        Value::Object(_) => field(5, &wire(value)),
        Value::Array(list) => {
            field(6, &list.iter().flat_map(|value| field(1, &wire_value(value))).collect::<Vec<_>>())
        }
    }
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = bytes.len();
    while len > 127 {
        out.push((len & 127) as u8 | 128);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
    out
}
