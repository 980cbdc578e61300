//! What the host knows about the current request, as the core asks for it.

use crate::abi::{self, Status};
use fencepost_filter_core::exchange::Pair;
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::facts::{Facts, Property};
use std::cell::OnceCell;

/// The current stream's request. Its header map is read once, when first asked for.
#[derive(Default)]
pub struct HostFacts {
    headers: OnceCell<Option<Vec<Pair>>>,
}

impl HostFacts {
    /// All request headers, if the host can hand them over.
    pub fn headers(&self) -> Option<&[Pair]> {
        self.headers.get_or_init(|| abi::headers(abi::Map::Request).ok()).as_deref()
    }
}

impl Facts for HostFacts {
    fn property(&self, path: &[&str]) -> Property {
        match abi::property(path) {
            Ok(bytes) => Property::Bytes(bytes),
            Err(Status::NOT_FOUND) => Property::Absent,
            // A null, or anything else that the host can't hand over: there, but unreadable.
            Err(_) => Property::Unreadable,
        }
    }

    fn header(&self, name: &str) -> Vec<Vec<u8>> {
        let named = self
            .headers()
            .unwrap_or_default()
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        named.map(|(_, value)| value.clone()).collect()
    }
}

/// What the host says about the end of the effective stream.
pub fn evidence() -> Evidence {
    Evidence {
        code_details: abi::property(&["response", "code_details"]).ok(),
        flags: integer(&["response", "flags"]),
        attempts: match abi::property(&["upstream", "request_attempt_count"]) {
            Ok(bytes) => bytes.as_slice().try_into().ok().map(u64::from_le_bytes),
            Err(Status::NOT_FOUND) => Some(0),
            Err(_) => None,
        },
        bytes_sent: None,
    }
}

/// What the host has got of the effective stream's request so far: head and body.
pub fn request_size() -> Option<u64> {
    integer(&["request", "total_size"])
}

/// Numbers come as eight bytes, little-endian.
fn integer(path: &[&str]) -> Option<u64> {
    let bytes = abi::property(path).ok()?;
    bytes.as_slice().try_into().ok().map(u64::from_le_bytes)
}
