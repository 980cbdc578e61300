//! A configuration given as `google.protobuf.Struct`: hosts hand it over as its wire bytes, not as
//! JSON text.
//!
//! Source: `google/protobuf/struct.proto` and the protobuf encoding guide. Fields that these
//! messages do not have make the bytes no Struct.

use serde_json::{Map, Number, Value};

/// Deepest nesting that is read; a configuration has a handful of levels.
const DEPTH_MAX: u8 = 32;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LEN: u64 = 2;

/// Reads a Struct; nothing if the bytes are no whole Struct.
pub(super) fn decode(bytes: &[u8]) -> Option<Value> {
    object(bytes, DEPTH_MAX)
}

fn object(mut bytes: &[u8], depth: u8) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut map = Map::new();
    while !bytes.is_empty() {
        let (field, wire) = tag(&mut bytes)?;
        if (field, wire) != (1, LEN) {
            return None;
        }
        let (name, value) = entry(take(&mut bytes)?, depth)?;
        map.insert(name, value);
    }
    Some(Value::Object(map))
}

fn entry(mut bytes: &[u8], depth: u8) -> Option<(String, Value)> {
    // A map entry leaves out what is empty.
    let (mut name, mut found) = (String::new(), Value::Null);
    while !bytes.is_empty() {
        match tag(&mut bytes)? {
            (1, LEN) => name = text(take(&mut bytes)?)?,
            (2, LEN) => found = value(take(&mut bytes)?, depth)?,
            _ => return None,
        }
    }
    Some((name, found))
}

fn value(mut bytes: &[u8], depth: u8) -> Option<Value> {
    let mut found = Value::Null;
    while !bytes.is_empty() {
        found = match tag(&mut bytes)? {
            (1, VARINT) => {
                varint(&mut bytes)?;
                Value::Null
            }
            (2, FIXED64) => {
                let (number, rest) = bytes.split_first_chunk::<8>()?;
                bytes = rest;
                number_value(f64::from_le_bytes(*number))
            }
            (3, LEN) => Value::String(text(take(&mut bytes)?)?),
            (4, VARINT) => Value::Bool(varint(&mut bytes)? != 0),
            (5, LEN) => object(take(&mut bytes)?, depth)?,
            (6, LEN) => list(take(&mut bytes)?, depth)?,
            _ => return None,
        };
    }
    Some(found)
}

fn list(mut bytes: &[u8], depth: u8) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let mut values = Vec::new();
    while !bytes.is_empty() {
        match tag(&mut bytes)? {
            (1, LEN) => values.push(value(take(&mut bytes)?, depth)?),
            _ => return None,
        }
    }
    Some(Value::Array(values))
}

/// A Struct has doubles only; a whole number is one in the configuration as well. What JSON has no
/// number for is a null, which is refused where it stands.
fn number_value(number: f64) -> Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT_MAX {
        Value::Number(Number::from(number as i64))
    } else {
        Number::from_f64(number).map_or(Value::Null, Value::Number)
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn tag(bytes: &mut &[u8]) -> Option<(u64, u64)> {
    let tag = varint(bytes)?;
    Some((tag >> 3, tag & 7))
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(varint(bytes)?).ok()?;
    let (part, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(part)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn field(number: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut len = body.len();
        while len >= 0x80 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        bytes.extend(body);
        bytes
    }

    fn encode_value(value: &Value) -> Vec<u8> {
        match value {
            Value::Null => vec![8, 0],
            Value::Bool(b) => vec![32, u8::from(*b)],
            Value::Number(n) => [&[17], n.as_f64().unwrap().to_le_bytes().as_slice()].concat(),
            Value::String(s) => field(3, s.as_bytes()),
            Value::Array(list) => {
                field(6, &list.iter().flat_map(|v| field(1, &encode_value(v))).collect::<Vec<_>>())
            }
            Value::Object(_) => field(5, &encode(value)),
        }
    }

    /// The wire bytes of a Struct.
    pub(in crate::policy) fn encode(object: &Value) -> Vec<u8> {
        let entries = object.as_object().unwrap().iter();
        entries
            .flat_map(|(name, value)| {
                field(1, &[field(1, name.as_bytes()), field(2, &encode_value(value))].concat())
            })
            .collect()
    }

    #[test]
    fn a_struct_is_read_as_the_json_that_it_stands_for() {
        let config = json!({
            "store": {"timeout": "2s"}, "list": [1, 2.5, true, null, {"a": "b"}], "long": "x".repeat(300), "": {},
        });
        let bytes = encode(&config);
        assert_eq!(decode(&bytes), Some(config));
        for len in 1..bytes.len() {
            assert_ne!(decode(&bytes[..len]), decode(&bytes), "{len}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let mut bytes = Vec::new();
        for _ in 0..100 {
            bytes = field(1, &[field(1, b"a"), field(2, &field(5, &bytes))].concat());
        }
        assert_eq!(decode(&bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_struct_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            decode(&bytes);
        }
    }
}
