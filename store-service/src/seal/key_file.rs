//! The file of sealing keys: one line for each, `id base64(32 bytes)`, the current one first.
//!
//! Whoever can read the file can read the answers, so nobody but its owner may: a file that group or
//! others can read is refused, and so are an id or a key twice and a key of another length. No message has anything of a key in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use zeroize::Zeroizing;

/// Most keys in a file: rotation needs two.
const KEYS_MAX: usize = 64;

/// Bytes of a key.
const KEY_LEN: usize = 32;

/// Most bytes of a file.
const FILE_MAX: u64 = 64 * 1024;

/// Name of a key; no secret. 1 to 16 characters from `[a-z0-9._-]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// Longest id, in bytes: the field of an envelope.
    pub const LEN_MAX: usize = 16;

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no key id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 1 to 16 characters from [a-z0-9._-]")]
pub struct KeyIdError;

impl FromStr for KeyId {
    type Err = KeyIdError;

    fn from_str(text: &str) -> Result<Self, KeyIdError> {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let right = (1..=Self::LEN_MAX).contains(&text.len()) && text.bytes().all(known);
        if right { Ok(Self(text.to_owned())) } else { Err(KeyIdError) }
    }
}

/// Why a key file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system says no.
    #[error("--seal-keys {path}: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Others may read it.
    #[error(
        "--seal-keys {path}: found mode {mode:03o}, which lets others than its owner read or write the keys; \
         expected 600 or 400"
    )]
    Mode {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no list of keys.
    #[error("--seal-keys {path}: {reason}")]
    Contents {
        /// Which.
        path: PathBuf,
        /// Where, what was found and what would be right.
        reason: String,
    },
}

/// Sealing keys: one that seals, and all that open.
pub struct KeyRing {
    keys: Vec<(KeyId, LessSafeKey)>,
    current: (KeyId, LessSafeKey),
}

impl fmt::Debug for KeyRing {
    /// Ids only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids().map(KeyId::as_str)).finish()
    }
}

impl KeyRing {
    /// Reads a file that only its owner can read.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let failed = |error| KeyFileError::Read { path: path.to_owned(), error };
        let contents = |reason: String| KeyFileError::Contents { path: path.to_owned(), reason };
        // Of the open file: its name may lead elsewhere a moment later.
        let mut file = std::fs::File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mode = metadata.mode() & 0o777;
        if !metadata.is_file() || metadata.len() > FILE_MAX {
            return Err(contents(format!("expected a file of at most {FILE_MAX} bytes")));
        }
        if mode & 0o077 != 0 {
            return Err(KeyFileError::Mode { path: path.to_owned(), mode });
        }
        let len = usize::try_from(metadata.len()).unwrap_or(0);
        let mut text = Zeroizing::new(String::with_capacity(len + 1));
        std::io::Read::read_to_string(&mut file, &mut text).map_err(failed)?;
        Self::parse(&text).map_err(contents)
    }

    /// Reads lines `id base64`; empty ones and those that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys: Vec<(KeyId, LessSafeKey)> = Vec::new();
        let mut current = None;
        let mut digests: Vec<[u8; 32]> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("line {number}: {what}");
            let mut words = line.split_ascii_whitespace();
            let (Some(id), Some(coded), None) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("expected an id and the base64 of 32 bytes, with a blank between them"));
            };
            let id: KeyId = id.parse().map_err(|error: KeyIdError| wrong(&format!("its id: {error}")))?;
            let mut bytes = Zeroizing::new([0; KEY_LEN + 3]);
            let len = STANDARD
                .decode_slice(coded, &mut bytes[..])
                .map_err(|_| wrong("expected the base64 of exactly 32 bytes, with its padding"))?;
            let bytes = bytes.get(..len).filter(|bytes| bytes.len() == KEY_LEN).ok_or_else(|| {
                wrong(&format!("found a key of {len} bytes; expected the base64 of exactly 32"))
            })?;
            if keys.iter().any(|(other, _)| *other == id) {
                return Err(wrong(&format!("found the id {id} again; expected each once")));
            }
            let digest: [u8; 32] = Sha256::digest(bytes).into();
            if digests.contains(&digest) {
                return Err(wrong("found a key again under another id; expected each once"));
            }
            digests.push(digest);
            // Cannot fail: the length is right.
            let key =
                || UnboundKey::new(&AES_256_GCM, bytes).map(LessSafeKey::new).map_err(|_| wrong("no key"));
            if current.is_none() {
                current = Some((id.clone(), key()?));
            }
            keys.push((id, key()?));
            if keys.len() > KEYS_MAX {
                return Err(wrong(&format!("found more than {KEYS_MAX} keys")));
            }
        }
        let current = current.ok_or("found no key; expected a line with an id and the base64 of 32 bytes")?;
        Ok(Self { keys, current })
    }

    /// The one that seals.
    pub fn current(&self) -> (&KeyId, &LessSafeKey) {
        (&self.current.0, &self.current.1)
    }

    /// The one with this id.
    pub fn get(&self, id: &KeyId) -> Option<&LessSafeKey> {
        self.keys.iter().find(|(other, _)| other == id).map(|(_, key)| key)
    }

    /// All ids, the current one first.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.iter().map(|(id, _)| id)
    }
}
