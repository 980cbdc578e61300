//! SHA-256 over tagged, length-prefixed parts, so that no two lists of parts are the same bytes.
//!
//! Layout: the domain's length and text, then for each part its tag (one byte), its length
//! (`u64`, big-endian) and its bytes. Changing it moves every stored key: it is pinned by golden
//! values in the modules that use it.

use sha2::{Digest as _, Sha256};

/// Collects parts into one digest.
pub struct PartsDigest(Sha256);

impl PartsDigest {
    /// Starts a digest whose values never equal those of another domain.
    pub fn new(domain: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update((domain.len() as u64).to_be_bytes());
        hash.update(domain.as_bytes());
        Self(hash)
    }

    /// Adds a part.
    pub fn part(&mut self, tag: u8, bytes: &[u8]) -> &mut Self {
        self.0.update([tag]);
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// Begins a last part whose length is not known; it ends with the digest.
    pub fn into_stream(mut self, tag: u8) -> Sha256 {
        self.0.update([tag]);
        self.0
    }

    /// The digest of all parts.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// The first 16 bytes of the digest.
    pub fn finish_half(self) -> [u8; 16] {
        let [half, _] = halves(self.finish());
        half
    }
}

fn halves(whole: [u8; 32]) -> [[u8; 16]; 2] {
    let mut out = [[0; 16]; 2];
    for (to, from) in out.iter_mut().flatten().zip(whole) {
        *to = from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_bytes_between_parts_changes_the_digest() {
        let of = |parts: &[(u8, &[u8])]| {
            let mut digest = PartsDigest::new("test");
            for (tag, bytes) in parts {
                digest.part(*tag, bytes);
            }
            digest.finish()
        };
        assert_ne!(of(&[(1, b"ab"), (2, b"c")]), of(&[(1, b"a"), (2, b"bc")]));
        assert_ne!(of(&[(1, b"a")]), of(&[(2, b"a")]));
        assert_ne!(of(&[(1, b"")]), of(&[]));
    }

    #[test]
    fn half_is_the_first_half() {
        let make = || PartsDigest::new("x");
        assert_eq!(make().finish_half(), make().finish()[..16]);
    }
}
