//! A stored answer: what a replay sends again. Headers are bytes, not text.
//!
//! Header block: `u32` count, then for each pair `u32` name length, `u32` value length, name,
//! value; all integers big-endian. The service keeps the block as it came and never looks inside.

/// Most header pairs in an answer: Envoy's host calls carry at most 1,024 in one map.
pub const HEADERS_MAX: usize = 1024;

/// Header names and values as bytes, in order.
pub type HeaderPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// An upstream's answer, less what must not be kept.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoredAnswer {
    /// HTTP status, 200 to 599.
    pub status: u16,
    /// Header pairs in the order the filter saw them.
    pub headers: HeaderPairs,
    /// Body bytes.
    pub body: Vec<u8>,
}

impl core::fmt::Debug for StoredAnswer {
    /// Sizes only: an answer may hold a card number.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "StoredAnswer({}, {} headers, {} bytes)", self.status, self.headers.len(), self.body.len())
    }
}

/// Why a header block can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerDecodeError {
    /// The block ends inside a number, a name or a value.
    #[error("header block is cut off")]
    Truncated,
    /// More pairs than [`HEADERS_MAX`].
    #[error("header block names {0} pairs, more than {HEADERS_MAX}")]
    TooMany(u32),
    /// Bytes are left after the last pair.
    #[error("header block has {0} bytes after its last pair")]
    TrailingBytes(usize),
    /// The stated length of the block is more than there is.
    #[error("header block of {block} bytes in a payload of {payload}")]
    BlockLen {
        /// Stated length of the block.
        block: usize,
        /// Length of the payload.
        payload: usize,
    },
}

/// Writes the header block.
pub fn encode_headers(headers: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let len = headers.iter().map(|(name, value)| 8 + name.len() + value.len()).sum::<usize>();
    let mut block = Vec::with_capacity(4 + len);
    block.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    for (name, value) in headers {
        block.extend_from_slice(&(name.len() as u32).to_be_bytes());
        block.extend_from_slice(&(value.len() as u32).to_be_bytes());
        block.extend_from_slice(name);
        block.extend_from_slice(value);
    }
    block
}

/// Reads a header block.
pub fn decode_headers(mut block: &[u8]) -> Result<HeaderPairs, AnswerDecodeError> {
    let count = take_u32(&mut block)?;
    if count as usize > HEADERS_MAX {
        return Err(AnswerDecodeError::TooMany(count));
    }
    let mut headers = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let name_len = take_u32(&mut block)? as usize;
        let value_len = take_u32(&mut block)? as usize;
        let name = take(&mut block, name_len)?.to_vec();
        let value = take(&mut block, value_len)?.to_vec();
        headers.push((name, value));
    }
    if block.is_empty() { Ok(headers) } else { Err(AnswerDecodeError::TrailingBytes(block.len())) }
}

/// Splits a payload into header block and body.
pub fn split_payload(payload: &[u8], headers_len: usize) -> Result<(&[u8], &[u8]), AnswerDecodeError> {
    payload
        .split_at_checked(headers_len)
        .ok_or(AnswerDecodeError::BlockLen { block: headers_len, payload: payload.len() })
}

fn take<'a>(block: &mut &'a [u8], len: usize) -> Result<&'a [u8], AnswerDecodeError> {
    let (part, rest) = block.split_at_checked(len).ok_or(AnswerDecodeError::Truncated)?;
    *block = rest;
    Ok(part)
}

fn take_u32(block: &mut &[u8]) -> Result<u32, AnswerDecodeError> {
    let (number, rest) = block.split_first_chunk::<4>().ok_or(AnswerDecodeError::Truncated)?;
    *block = rest;
    Ok(u32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive_byte_for_byte(headers in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..20), proptest::collection::vec(any::<u8>(), 0..60)), 0..12)) {
            prop_assert_eq!(decode_headers(&encode_headers(&headers)).unwrap(), headers);
        }

        #[test]
        fn any_bytes_are_headers_or_an_error(block in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_headers(&block);
        }
    }

    #[test]
    fn every_cut_is_noticed() {
        let block = encode_headers(&[(b"a".to_vec(), b"\xe9".to_vec()), (b"bc".to_vec(), vec![])]);
        for len in 0..block.len() {
            assert_eq!(decode_headers(&block[..len]), Err(AnswerDecodeError::Truncated), "{len}");
        }
    }
}
