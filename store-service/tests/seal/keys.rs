//! Keys for tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fencepost_store::seal::{KeyRing, Seal};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// Lines of a key file: each id with a key that comes from a number.
pub fn lines(keys: &[(&str, u8)]) -> String {
    keys.iter().map(|(id, number)| format!("{id} {}\n", STANDARD.encode([*number; 32]))).collect()
}

/// A boundary with these keys.
pub fn seal(keys: &[(&str, u8)]) -> Arc<Seal> {
    Seal::new(Some(KeyRing::parse(&lines(keys)).unwrap()))
}

/// A key file that only its owner can read.
pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}
