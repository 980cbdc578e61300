//! The client's key: header lines, one per line feed of the input.
//!
//! Promised: a key never has control characters or more bytes than allowed, is not blank, and its
//! spellings agree: what two formats accept they read alike.

use fencepost_filter_core::key::{KeyFormat, parse_key};

const LENGTH_MAX: usize = 255;

pub fn run(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let read = |format| parse_key(&lines, format, LENGTH_MAX).ok();
    let keys = [KeyFormat::Lenient, KeyFormat::Structured, KeyFormat::Plain].map(read);
    for key in keys.iter().flatten() {
        let bytes = key.as_bytes();
        assert!(bytes.len() <= LENGTH_MAX && bytes.iter().any(|byte| *byte != b' '), "{bytes:?}");
        assert!(!bytes.iter().any(u8::is_ascii_control), "{bytes:?}");
        assert_eq!(lines.len(), 1);
        assert_eq!(format!("{key:?}"), "ClientKey(..)");
    }
    let [lenient, structured, plain] = keys;
    if let Some(structured) = &structured {
        assert_eq!(lenient.as_ref(), Some(structured), "lenient takes every structured key");
        // Written once more, it is the same key.
        let mut again = vec![b'"'];
        for byte in structured.as_bytes() {
            if matches!(byte, b'"' | b'\\') {
                again.push(b'\\');
            }
            again.push(*byte);
        }
        again.push(b'"');
        assert_eq!(parse_key(&[&again], KeyFormat::Structured, LENGTH_MAX).as_ref(), Ok(structured));
    }
    if let (Some(lenient), None) = (&lenient, &structured) {
        assert_eq!(plain.as_ref(), Some(lenient), "a bare key is its own text");
    }
}
