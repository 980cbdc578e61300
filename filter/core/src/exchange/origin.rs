//! What the upstream itself may say about keeping its answer, in a response header that never
//! reaches the client.

use super::Pair;

/// Response header of the upstream: `no`, `not-final`, or a lifetime in seconds.
pub const STORE_HEADER: &str = "x-fencepost-store";

/// What our own errors say to a guard in front of this one: not an answer to keep. The next request
/// comes here again, and is told what is true then.
pub fn not_to_be_kept() -> Pair {
    (STORE_HEADER.into(), b"no".to_vec())
}

/// Longest lifetime that an upstream may ask for: that of a policy, 400 days.
const TTL_S_MAX: u64 = 400 * 24 * 3_600;

/// An upstream's word on its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Nothing: the policy decides.
    None,
    /// The answer is not to be kept, and an equal request may run again.
    DoNotStore,
    /// The answer is to be kept this long.
    StoreFor {
        /// Lifetime.
        ttl_ms: u64,
    },
    /// This is not the final answer: nothing is to be kept, and nothing is to run again.
    NotFinal,
    /// A value that means nothing.
    Unreadable,
}

/// Reads it. Several lines, or a value that means nothing, are not obeyed.
pub fn word(headers: &[Pair]) -> Word {
    let mut lines = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(STORE_HEADER.as_bytes()));
    let (first, second) = (lines.next(), lines.next());
    let value = match (first, second) {
        (None, _) => return Word::None,
        (Some((_, value)), None) => value.trim_ascii(),
        (Some(_), Some(_)) => return Word::Unreadable,
    };
    match value {
        b"no" => Word::DoNotStore,
        b"not-final" => Word::NotFinal,
        _ => match core::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(seconds @ 1..=TTL_S_MAX) => Word::StoreFor { ttl_ms: seconds.saturating_mul(1_000) },
            _ => Word::Unreadable,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(values: &[&str]) -> Word {
        let pairs = values.iter().map(|value| (b"X-Fencepost-Store".to_vec(), value.as_bytes().to_vec()));
        word(&pairs.collect::<Vec<_>>())
    }

    #[test]
    fn one_clear_word_is_obeyed_and_anything_else_is_not() {
        assert_eq!(said(&[]), Word::None);
        assert_eq!(said(&["no"]), Word::DoNotStore);
        assert_eq!(said(&[" not-final "]), Word::NotFinal);
        assert_eq!(said(&["30"]), Word::StoreFor { ttl_ms: 30_000 });
        for unclear in [&["0"][..], &["-1"], &["no", "no"], &["maybe"], &[""], &["99999999999"]] {
            assert_eq!(said(unclear), Word::Unreadable, "{unclear:?}");
        }
    }
}
