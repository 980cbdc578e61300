//! Mutations of a corpus: small damage of every kind, the same for the same seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Longest input that is made, in bytes.
const LEN_MAX: usize = 4_096;

/// Pieces that parsers look for.
const PIECES: [&[u8]; 24] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"1e999",
    b"-0",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b".",
    b"=",
    b";",
    b"\xef\xbb\xbf",
    b"9007199254740993",
    b"'); DROP TABLE fencepost.entry; --",
];

/// Makes inputs from a corpus.
pub struct Mutator {
    random: StdRng,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// Of a corpus, which is not empty.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        assert!(!corpus.is_empty(), "a corpus is needed");
        Self { random: StdRng::seed_from_u64(seed), corpus }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end.max(1))
    }

    fn seed_input(&mut self) -> Vec<u8> {
        let which = self.below(self.corpus.len());
        self.corpus[which].clone()
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seed_input();
        for _ in 0..=self.below(4) {
            self.damage(&mut input);
        }
        input.truncate(LEN_MAX);
        input
    }

    fn damage(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(16)).min(input.len());
        match self.below(9) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.random.random(),
            2 => input.truncate(at),
            3 => drop(input.drain(at..end)),
            4 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece.repeat(1 + self.below(40)));
            }
            5 => {
                let piece = PIECES[self.below(PIECES.len())];
                input.splice(at..at, piece.iter().copied());
            }
            6 => {
                let piece = PIECES[self.below(PIECES.len())];
                input.splice(at..end, piece.iter().copied());
            }
            7 => {
                // The head of one input and the tail of another.
                let other = self.seed_input();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.insert(at, self.random.random()),
        }
    }
}
