//! SHA-256 over tagged, length-prefixed parts, so that no two lists of parts are the same bytes.
//!
//! Layout: the domain's length and text, then for each part its tag (one byte), its length
//! (`u64`, big-endian) and its bytes. Changing it moves every stored key: it is pinned by golden
//! values in the modules that use it.

use sha2::{Digest as _, Sha256};

/// Bytes gathered before they are hashed; a piece of a quarter of it goes directly.
const GATHER: usize = 512;

/// SHA-256 that gathers small pieces, since each call of the hash costs more than a copy.
#[derive(Clone)]
pub struct Gathered {
    hash: Sha256,
    /// Longer by a word than what is gathered, so that there is room to copy whole words.
    buffer: [u8; GATHER + 8],
    len: usize,
}

impl Gathered {
    fn new() -> Self {
        Self { hash: Sha256::new(), buffer: [0; GATHER + 8], len: 0 }
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        if bytes.len() >= GATHER / 4 {
            return self.update_large(bytes);
        }
        if self.len.wrapping_add(bytes.len()) > GATHER {
            self.flush();
        }
        if let Some(to) = self.buffer.get_mut(self.len..) {
            copy(bytes, to);
            self.len = self.len.wrapping_add(bytes.len());
        }
    }

    #[inline(never)]
    fn update_large(&mut self, bytes: &[u8]) {
        self.flush();
        self.hash.update(bytes);
    }

    #[inline(never)]
    fn flush(&mut self) {
        self.hash.update(self.buffer.get(..self.len).unwrap_or_default());
        self.len = 0;
    }

    /// The digest of all bytes.
    pub fn finish(mut self) -> [u8; 32] {
        self.flush();
        self.hash.finalize().into()
    }
}

/// Copies a short piece to the beginning of a place that is longer by at least a word. A call of
/// the runtime's copy costs more.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    let words = from.chunks_exact(8);
    let rest = words.remainder();
    let mut places = to.chunks_exact_mut(8);
    for (word, place) in words.zip(&mut places) {
        place.copy_from_slice(word);
    }
    let left = places.next().unwrap_or_default();
    for (byte, place) in rest.iter().zip(left) {
        *place = *byte;
    }
}

/// Collects parts into one digest.
pub struct PartsDigest(Gathered);

impl PartsDigest {
    /// Starts a digest whose values never equal those of another domain.
    pub fn new(domain: &str) -> Self {
        let mut hash = Gathered::new();
        hash.update(&(domain.len() as u64).to_be_bytes());
        hash.update(domain.as_bytes());
        Self(hash)
    }

    /// Adds a part.
    pub fn part(&mut self, tag: u8, bytes: &[u8]) -> &mut Self {
        self.0.update(&[tag]);
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// Begins a last part whose length is not known; it ends with the digest.
    pub fn into_stream(mut self, tag: u8) -> Gathered {
        self.0.update(&[tag]);
        self.0
    }

    /// The digest of all parts.
    pub fn finish(self) -> [u8; 32] {
        self.0.finish()
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
    fn pieces_of_any_length_are_hashed_as_one_text() {
        let text: Vec<u8> = (0..9_000u32).map(|n| (n * 7) as u8).collect();
        for step in [1, 3, 7, 8, 9, 100, 255, 256, 257, 1_023, 1_024, 1_025, 5_000] {
            for skew in 0..9 {
                let mut gathered = Gathered::new();
                gathered.update(&text[..skew]);
                text[skew..].chunks(step).for_each(|piece| gathered.update(piece));
                assert_eq!(gathered.finish(), <[u8; 32]>::from(Sha256::digest(&text)), "{step} {skew}");
            }
        }
    }

    #[test]
    fn half_is_the_first_half() {
        let make = || PartsDigest::new("x");
        assert_eq!(make().finish_half(), make().finish()[..16]);
    }
}
