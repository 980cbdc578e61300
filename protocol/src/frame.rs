//! The frame: a 4-byte big-endian head length, a JSON head, and the rest is payload.
//!
//! ```text
//! +----------------+------------------+----------------------+
//! | head length u32| head (JSON text) | payload (raw bytes)  |
//! +----------------+------------------+----------------------+
//! ```
//! The payload has no length of its own: it ends where the HTTP body ends. A message that needs
//! to know says the lengths of its parts in the head, so a body that was cut is noticed.

use serde::{Serialize, de::DeserializeOwned};

/// Longest head, in bytes: a renewal of [`crate::claims::RENEW_MAX`] claims fits.
pub const HEAD_LEN_MAX: usize = 256 * 1024;

/// Longest payload, in bytes: Envoy's async client keeps at most 32 MiB of a reply.
pub const PAYLOAD_LEN_MAX: usize = 32 * 1024 * 1024;

/// Why bytes are not a frame of the expected kind.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes than the head length says, or than the length itself needs.
    #[error("frame is cut off: {have} bytes, at least {need} expected")]
    Truncated {
        /// Bytes at hand.
        have: usize,
        /// Bytes that must be there.
        need: usize,
    },
    /// The head is longer than [`HEAD_LEN_MAX`].
    #[error("frame head of {0} bytes is longer than {HEAD_LEN_MAX}")]
    HeadTooLong(usize),
    /// The payload is longer than [`PAYLOAD_LEN_MAX`].
    #[error("frame payload of {0} bytes is longer than {PAYLOAD_LEN_MAX}")]
    PayloadTooLong(usize),
    /// The head is not the JSON that was expected.
    #[error("frame head: {0}")]
    Head(#[from] serde_json::Error),
}

/// Builds a frame from a head and the parts of its payload.
pub fn encode<H: Serialize>(head: &H, payload: &[&[u8]]) -> Result<Vec<u8>, FrameError> {
    let payload_len = payload.iter().map(|part| part.len()).sum::<usize>();
    if payload_len > PAYLOAD_LEN_MAX {
        return Err(FrameError::PayloadTooLong(payload_len));
    }
    let mut frame = Vec::with_capacity(4 + 512 + payload_len);
    frame.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut frame, head)?;
    let head_len = frame.len() - 4;
    if head_len > HEAD_LEN_MAX {
        return Err(FrameError::HeadTooLong(head_len));
    }
    // Cannot fail: HEAD_LEN_MAX fits in 32 bits and the frame has its first four bytes.
    if let (Ok(len), Some(prefix)) = (u32::try_from(head_len), frame.first_chunk_mut::<4>()) {
        *prefix = len.to_be_bytes();
    }
    for part in payload {
        frame.extend_from_slice(part);
    }
    Ok(frame)
}

/// Splits a frame into its parsed head and its payload.
pub fn decode<H: DeserializeOwned>(frame: &[u8]) -> Result<(H, &[u8]), FrameError> {
    let (head, payload) = split(frame)?;
    Ok((serde_json::from_slice(head)?, payload))
}

/// Splits a frame into the text of its head and its payload.
pub fn split(frame: &[u8]) -> Result<(&[u8], &[u8]), FrameError> {
    let Some((prefix, rest)) = frame.split_first_chunk::<4>() else {
        return Err(FrameError::Truncated { have: frame.len(), need: 4 });
    };
    let head_len = u32::from_be_bytes(*prefix) as usize;
    if head_len > HEAD_LEN_MAX {
        return Err(FrameError::HeadTooLong(head_len));
    }
    let Some((head, payload)) = rest.split_at_checked(head_len) else {
        return Err(FrameError::Truncated { have: frame.len(), need: head_len.saturating_add(4) });
    };
    if payload.len() > PAYLOAD_LEN_MAX {
        return Err(FrameError::PayloadTooLong(payload.len()));
    }
    Ok((head, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(head in proptest::collection::vec(any::<String>(), 0..5),
                                       a in proptest::collection::vec(any::<u8>(), 0..200),
                                       b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let frame = encode(&head, &[&a, &b]).unwrap();
            let (back, payload) = decode::<Vec<String>>(&frame).unwrap();
            prop_assert_eq!(back, head);
            prop_assert_eq!(payload, [a, b].concat());
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<serde_json::Value>(&bytes);
        }
    }

    #[test]
    fn every_cut_of_the_head_is_noticed() {
        let frame = encode(&"head", &[b"payload"]).unwrap();
        for len in 0..4 + "\"head\"".len() {
            assert!(matches!(decode::<String>(&frame[..len]), Err(FrameError::Truncated { .. })), "{len}");
        }
    }

    #[test]
    fn a_huge_head_length_is_refused_before_anything_is_read() {
        assert!(matches!(split(&[0xff; 64]), Err(FrameError::HeadTooLong(_))));
    }
}
