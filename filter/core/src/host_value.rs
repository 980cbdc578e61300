//! Decoding of the bytes in which a proxy-wasm host hands over structured properties.
//!
//! Text comes raw, a number as 8 bytes of a little-endian double, a bool as one byte, a map as
//! pairs: `u32` count, then for each pair `u32` name length and `u32` value length, then for each
//! pair name, NUL, value, NUL; integers are little-endian. Nothing in the bytes says which it is.

/// Most pairs that are read from one map.
pub const PAIRS_MAX: usize = 1024;

/// Why bytes are no pairs map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PairsError {
    /// The bytes end too early.
    #[error("map is cut off")]
    Truncated,
    /// More pairs than [`PAIRS_MAX`].
    #[error("map has more than {PAIRS_MAX} pairs")]
    TooMany,
    /// A name or value is not followed by NUL, or bytes are left over.
    #[error("map is not well formed")]
    Malformed,
}

/// Names and values of a map, borrowed from its bytes.
pub type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Reads a map; names and values borrow from the input.
pub fn decode_pairs(bytes: &[u8]) -> Result<Pairs<'_>, PairsError> {
    let mut rest = bytes;
    let count = take_u32(&mut rest)?;
    if count > PAIRS_MAX {
        return Err(PairsError::TooMany);
    }
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        lengths.push((take_u32(&mut rest)?, take_u32(&mut rest)?));
    }
    let mut pairs = Vec::with_capacity(count);
    for (name_len, value_len) in lengths {
        pairs.push((take_text(&mut rest, name_len)?, take_text(&mut rest, value_len)?));
    }
    if rest.is_empty() { Ok(pairs) } else { Err(PairsError::Malformed) }
}

/// Reads a number: exactly 8 bytes.
pub fn decode_f64(bytes: &[u8]) -> Option<f64> {
    bytes.try_into().ok().map(f64::from_le_bytes)
}

/// Reads a bool: exactly one byte, 0 or 1.
pub fn decode_bool(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn take_u32(rest: &mut &[u8]) -> Result<usize, PairsError> {
    let (number, tail) = rest.split_first_chunk::<4>().ok_or(PairsError::Truncated)?;
    *rest = tail;
    usize::try_from(u32::from_le_bytes(*number)).map_err(|_| PairsError::Truncated)
}

fn take_text<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], PairsError> {
    let (text, tail) = rest.split_at_checked(len).ok_or(PairsError::Truncated)?;
    let (nul, tail) = tail.split_first().ok_or(PairsError::Truncated)?;
    if *nul != 0 {
        return Err(PairsError::Malformed);
    }
    *rest = tail;
    Ok(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A value as a host hands it over.
    pub(crate) fn host_bytes(value: &serde_json::Value) -> Vec<u8> {
        use serde_json::Value;
        match value {
            Value::Null => panic!("a host can't hand over a null"),
            Value::Bool(value) => vec![u8::from(*value)],
            Value::Number(number) => number.as_f64().unwrap().to_le_bytes().to_vec(),
            Value::String(text) => text.clone().into_bytes(),
            Value::Array(items) => {
                encode(&items.iter().map(|item| (host_bytes(item), Vec::new())).collect::<Vec<_>>())
            }
            Value::Object(members) => {
                let pair = |(name, value): (&String, &Value)| (name.clone().into_bytes(), host_bytes(value));
                encode(&members.iter().map(pair).collect::<Vec<_>>())
            }
        }
    }

    fn encode(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = (pairs.len() as u32).to_le_bytes().to_vec();
        for (name, value) in pairs {
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend((value.len() as u32).to_le_bytes());
        }
        for (name, value) in pairs {
            bytes.extend(name);
            bytes.push(0);
            bytes.extend(value);
            bytes.push(0);
        }
        bytes
    }

    proptest! {
        #[test]
        fn pairs_are_read_back(pairs in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..9), proptest::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            let bytes = encode(&pairs);
            let back: Vec<_> = decode_pairs(&bytes).unwrap().iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            prop_assert_eq!(back, pairs);
        }

        #[test]
        fn any_bytes_are_a_value_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode_pairs(&bytes);
            let _ = decode_f64(&bytes);
            let _ = decode_bool(&bytes);
        }
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_noticed() {
        let mut bytes = encode(&[(b"policy".to_vec(), b"payments".to_vec()), (b"x".to_vec(), vec![])]);
        for len in 0..bytes.len() {
            assert!(decode_pairs(&bytes[..len]).is_err(), "{len}");
        }
        bytes.push(0);
        assert_eq!(decode_pairs(&bytes), Err(PairsError::Malformed));
    }

    #[test]
    fn a_huge_count_is_refused_before_memory_is_taken() {
        assert_eq!(decode_pairs(&[0xff; 8]), Err(PairsError::TooMany));
    }
}
