//! A sealed answer's two columns as whoever writes to the database may leave them. The first byte of the
//! input chooses: `e` takes the rest as edits of a good envelope, three bytes each: two say where, one is
//! exclusive-ored into the byte there; anything else takes the rest as the columns, told apart by its
//! second byte.
//!
//! Promised: what opens is what was sealed, or was never sealed and comes back as it is; and what is no
//! envelope begins as an open answer does.

use bytes::Bytes;
use fencepost_protocol::answer::{HEADERS_MAX, encode_headers};
use fencepost_protocol::{Fingerprint, Scheme, StoreKey};
use fencepost_store::seal::{KeyRing, Seal, Subject, headers_len, sealed_with};
use std::sync::{Arc, LazyLock};

const KEYS: &str =
    "a AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\nb AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

const BODY: &[u8] = b"a secret body";

struct Row {
    key: StoreKey,
    scheme: Scheme,
    fingerprint: Fingerprint,
}

impl Row {
    fn subject(&self) -> Subject<'_> {
        Subject::Entry { key: &self.key, scheme: &self.scheme, fingerprint: &self.fingerprint, status: 201 }
    }
}

static SEAL: LazyLock<(Arc<Seal>, Row)> = LazyLock::new(|| {
    let row = Row {
        key: StoreKey::new("test", &[1; 16]).unwrap(),
        scheme: Scheme::parse("1-test").unwrap(),
        fingerprint: Fingerprint::from_bytes([3; 32]),
    };
    (Seal::new(Some(KeyRing::parse(KEYS).unwrap())), row)
});

fn open_block() -> Bytes {
    encode_headers(&[(b"content-type".to_vec(), b"text/plain".to_vec())]).into()
}

pub fn run(data: &[u8]) {
    match data.split_first() {
        Some((b'e', edits)) => edited(edits),
        Some((_, rest)) => raw(rest),
        None => raw(&[]),
    }
}

fn edited(edits: &[u8]) {
    let (seal, row) = &*SEAL;
    let (mut headers, mut body) = (open_block(), Bytes::from_static(BODY));
    seal.close(row.subject(), &mut headers, &mut body).unwrap();
    let good = [&headers[..], &body[..]].concat();
    let border = headers.len();
    let mut bad = good.clone();
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % bad.len();
        bad[at] ^= edit[2];
    }
    let (mut headers, mut body) =
        (Bytes::copy_from_slice(&bad[..border]), Bytes::copy_from_slice(&bad[border..]));
    match seal.open(row.subject(), &mut headers, &mut body) {
        Ok(()) if bad == good => assert_eq!((&headers[..], &body[..]), (&open_block()[..], BODY)),
        // Only where every byte of the mark and of the length was made that of an open answer.
        Ok(()) => assert!(begins_open(&bad) && headers[..] == bad[..border], "{bad:x?} opens"),
        Err(_) => assert_ne!(bad, good, "the good one does not open"),
    }
}

fn raw(data: &[u8]) {
    let (seal, row) = &*SEAL;
    let (at, rest) = data.split_first().map_or((0, data), |(at, rest)| (usize::from(*at), rest));
    let (block, text) = rest.split_at(at.min(rest.len()));
    let (mut headers, mut body) = (Bytes::copy_from_slice(block), Bytes::copy_from_slice(text));
    let opened = seal.open(row.subject(), &mut headers, &mut body);
    assert_eq!(opened.is_ok(), begins_open(block), "nothing here was sealed: {block:x?}");
    assert_eq!(
        (&headers[..], &body[..]),
        (block, text),
        "what does not open is left, and so is what is open"
    );
    assert_eq!(begins_open(block), sealed_with(block) == Ok(None));
    assert!(headers_len(block) <= block.len());
}

/// As an open header block does: with the number of its pairs, or not at all.
fn begins_open(block: &[u8]) -> bool {
    let pairs = block.first_chunk().map(|pairs| u32::from_be_bytes(*pairs) as usize);
    pairs.map_or(block.is_empty(), |pairs| pairs <= HEADERS_MAX)
}
