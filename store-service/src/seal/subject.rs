//! Whose answer it is: what an envelope is bound to, so that it opens nowhere else.

use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{Fingerprint, Scheme, StoreKey};

/// The row of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// An entry.
    Entry {
        /// Its stored key.
        key: &'a StoreKey,
        /// Rules that made its fingerprint.
        scheme: &'a Scheme,
        /// Its fingerprint.
        fingerprint: &'a Fingerprint,
        /// Status of the answer.
        status: u16,
    },
    /// An operation that a grant admitted.
    Operation {
        /// Its id.
        id: &'a OperationId,
        /// Status of the answer.
        status: u16,
    },
}

impl Subject<'_> {
    /// The bytes that the seal covers beside the answer. Each part has a fixed length or comes behind
    /// its own, so that no two subjects have the same.
    pub fn bind(&self, prefix: &[u8], headers_len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        part(&mut bytes, b"fencepost answer");
        part(&mut bytes, prefix);
        bytes.extend_from_slice(&(headers_len as u64).to_be_bytes());
        match self {
            Self::Entry { key, scheme, fingerprint, status } => {
                bytes.push(1);
                bytes.extend_from_slice(&status.to_be_bytes());
                part(&mut bytes, key.as_str().as_bytes());
                part(&mut bytes, scheme.as_str().as_bytes());
                part(&mut bytes, fingerprint.as_bytes());
            }
            Self::Operation { id, status } => {
                bytes.push(2);
                bytes.extend_from_slice(&status.to_be_bytes());
                part(&mut bytes, id.as_str().as_bytes());
            }
        }
        bytes
    }
}

fn part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
    bytes.extend_from_slice(part);
}
