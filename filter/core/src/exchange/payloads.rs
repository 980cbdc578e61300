//! The same payload under new keys: a client that makes a key per attempt defeats every guard, and
//! only a count can show it. Nothing is ever decided by this memory.

use fencepost_protocol::StoreKey;
use std::collections::{HashMap, VecDeque};

/// Most payloads that one VM remembers: some 600 KiB.
const PAYLOADS_MAX: usize = 4_096;

/// Most keys remembered for one payload.
const KEYS_MAX: usize = 8;

/// Digest of a payload with its caller and rules.
pub type PayloadId = [u8; 16];

/// A payload under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The payload.
    pub payload: PayloadId,
    /// Entry of the key that it came under.
    pub key: StoreKey,
    /// How far back the payload is looked for.
    pub window_ms: u32,
}

/// Payloads seen lately, with digests of the keys that they came under.
#[derive(Debug, Default)]
pub struct RecentPayloads {
    seen: HashMap<PayloadId, Seen>,
    order: VecDeque<(PayloadId, u64)>,
}

#[derive(Debug)]
struct Seen {
    keys: VecDeque<StoreKey>,
    at: u64,
}

impl RecentPayloads {
    /// Notes a payload under a key. True where it came under another key within the window before,
    /// and never yet under this one.
    pub fn note(&mut self, note: Note, now_ms: u64) -> bool {
        let Note { payload, key, window_ms } = note;
        while let Some((oldest, at)) = self.order.front().copied()
            && self.order.len() >= PAYLOADS_MAX
        {
            self.order.pop_front();
            // A payload that came again stands further back once more.
            if self.seen.get(&oldest).is_some_and(|seen| seen.at == at) {
                self.seen.remove(&oldest);
            }
        }
        self.order.push_back((payload, now_ms));
        let seen = self.seen.entry(payload).or_insert_with(|| Seen { keys: VecDeque::new(), at: now_ms });
        if seen.at.saturating_add(u64::from(window_ms)) < now_ms {
            seen.keys.clear();
        }
        seen.at = now_ms;
        if seen.keys.contains(&key) {
            return false;
        }
        let other_key = !seen.keys.is_empty();
        if seen.keys.len() >= KEYS_MAX {
            seen.keys.pop_front();
        }
        seen.keys.push_back(key);
        other_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> StoreKey {
        StoreKey::new("test", &[n; 16]).unwrap()
    }

    fn note(recent: &mut RecentPayloads, payload: PayloadId, key: StoreKey, at: u64, window_ms: u32) -> bool {
        recent.note(Note { payload, key, window_ms }, at)
    }

    #[test]
    fn a_payload_counts_once_for_each_new_key_within_the_window() {
        let mut recent = RecentPayloads::default();
        assert!(!note(&mut recent, [1; 16], key(1), 1_000, 500));
        assert!(!note(&mut recent, [1; 16], key(1), 1_100, 500), "a retry is no new key");
        assert!(note(&mut recent, [1; 16], key(2), 1_600, 500));
        assert!(!note(&mut recent, [1; 16], key(2), 1_700, 500));
        assert!(!note(&mut recent, [1; 16], key(1), 1_800, 500));
        assert!(!note(&mut recent, [2; 16], key(3), 1_800, 500), "another payload");
        assert!(!note(&mut recent, [1; 16], key(4), 2_301, 500), "the window is over");
    }

    #[test]
    fn memory_is_bounded_and_keeps_what_came_last() {
        let mut recent = RecentPayloads::default();
        let id = |n: u64| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&n.to_le_bytes());
            id
        };
        for n in 0..20_000u64 {
            note(&mut recent, id(n), key(1), n, u32::MAX);
            note(&mut recent, id(0), key(1), n, u32::MAX);
            assert!(recent.order.len() <= PAYLOADS_MAX && recent.seen.len() <= PAYLOADS_MAX);
        }
        assert!(note(&mut recent, id(0), key(2), 20_000, u32::MAX));
        assert!(note(&mut recent, id(19_999), key(2), 20_000, u32::MAX));
        assert!(!note(&mut recent, id(1), key(2), 20_000, u32::MAX));
        for n in 0..200u8 {
            note(&mut recent, id(0), key(n), 20_000, u32::MAX);
        }
        assert!(recent.seen[&id(0)].keys.len() <= KEYS_MAX);
    }
}
