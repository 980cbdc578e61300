//! The form of a sealed answer in its row's two columns.
//!
//! `headers`: mark, version, key id (16 bytes, filled with zeros), nonce (12), tag (16), then the
//! encrypted header block. `body`: the encrypted body. One AES-256-GCM message covers both, so a
//! body keeps its length, and header block and body of two answers can't be put together.
//!
//! The mark is no beginning of an open answer: a header block begins with the number of its pairs in
//! four bytes, which is at most 1,024, so its first two bytes are zero. What begins with neither was
//! changed, and is no answer: a sealed one whose mark is damaged is never taken for an open one, for
//! where the number's lower bytes would be it has the first letters of the key's id.
//!
//! A nonce is 96 random bits. By the birthday bound, 2^32 answers under one key have a chance below
//! 2^-32 of a pair with the same nonce (NIST SP 800-38D, section 8.3): renew the key before that.

use super::{KeyId, KeyRing, SealFault, Subject};
use bytes::Bytes;
use fencepost_protocol::answer::HEADERS_MAX;
use ring::aead::{Aad, NONCE_LEN, Nonce};

/// First byte of a sealed header block.
const MARK: u8 = 0xf5;

/// Version of the form.
const VERSION: u8 = 1;

/// Bytes of the key id's field.
const ID_LEN: usize = KeyId::LEN_MAX;

/// Bytes of the tag.
const TAG_LEN: usize = 16;

/// Mark, version and key id: what the tag covers as it is.
const HEAD_LEN: usize = 2 + ID_LEN;

/// Bytes before the encrypted header block.
pub const PREFIX_LEN: usize = HEAD_LEN + NONCE_LEN + TAG_LEN;

/// Whether a stored header block is an envelope.
pub fn is_sealed(headers: &[u8]) -> bool {
    headers.first() == Some(&MARK)
}

/// Whether a stored header block begins as an open answer's does. An empty one is the answer of an
/// operation whose application gave no headers.
pub fn is_open(headers: &[u8]) -> bool {
    match headers.first_chunk() {
        Some(pairs) => u32::from_be_bytes(*pairs) as usize <= HEADERS_MAX,
        None => headers.is_empty(),
    }
}

/// Length of the header block, sealed or not.
pub fn headers_len(headers: &[u8]) -> usize {
    if is_sealed(headers) { headers.len().saturating_sub(PREFIX_LEN) } else { headers.len() }
}

/// The key that a stored header block was sealed with, as far as its beginning says; `None`: it is
/// open.
pub fn sealed_with(headers: &[u8]) -> Result<Option<KeyId>, SealFault> {
    if is_open(headers) {
        return Ok(None);
    }
    if !is_sealed(headers) {
        return Err(SealFault::Form);
    }
    let field =
        headers.get(2..HEAD_LEN).filter(|_| headers.get(1) == Some(&VERSION)).ok_or(SealFault::Form)?;
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(ID_LEN);
    let (text, filling) = field.split_at_checked(end).ok_or(SealFault::Form)?;
    let text = core::str::from_utf8(text).ok().filter(|_| filling.iter().all(|byte| *byte == 0));
    text.and_then(|text| text.parse().ok()).map(Some).ok_or(SealFault::Form)
}

fn head(id: &KeyId) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    let text = id.as_str().as_bytes();
    for (place, byte) in head.iter_mut().zip([MARK, VERSION].iter().chain(text)) {
        *place = *byte;
    }
    head
}

/// Seals an answer for its row with the current key.
pub fn seal(
    ring: &KeyRing,
    subject: Subject<'_>,
    headers: &[u8],
    body: &[u8],
) -> Result<(Bytes, Bytes), SealFault> {
    let (id, key) = ring.current();
    let head = head(id);
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|_| SealFault::Random)?;
    // Prefix, header block and body in one piece: copied once, encrypted in place, then shared.
    let mut sealed = Vec::with_capacity(PREFIX_LEN + headers.len() + body.len());
    sealed.extend_from_slice(&head);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(&[0; TAG_LEN]);
    sealed.extend_from_slice(headers);
    sealed.extend_from_slice(body);
    let bound = subject.bind(&head, headers.len());
    let (prefix, text) = sealed.split_at_mut(PREFIX_LEN);
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound), text)
        // Cannot fail: a message is far below the bound of the cipher, 64 GiB.
        .map_err(|_| SealFault::Random)?;
    if let Some(place) = prefix.last_chunk_mut::<TAG_LEN>() {
        place.copy_from_slice(tag.as_ref());
    }
    let mut headers_column = Bytes::from(sealed);
    let body_column = headers_column.split_off(PREFIX_LEN + headers.len());
    Ok((headers_column, body_column))
}

/// Opens an answer of this row.
pub fn open(
    ring: Option<&KeyRing>,
    subject: Subject<'_>,
    headers: &[u8],
    body: &[u8],
) -> Result<(Bytes, Bytes), SealFault> {
    let id = sealed_with(headers)?.ok_or(SealFault::Form)?;
    let key = ring.ok_or(SealFault::NoKeys)?.get(&id).ok_or_else(|| SealFault::UnknownKey(id.clone()))?;
    let (head, rest) = headers.split_first_chunk::<HEAD_LEN>().ok_or(SealFault::Form)?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealFault::Form)?;
    let (tag, block) = rest.split_first_chunk::<TAG_LEN>().ok_or(SealFault::Form)?;
    let mut text = Vec::with_capacity(block.len() + body.len() + TAG_LEN);
    text.extend_from_slice(block);
    text.extend_from_slice(body);
    text.extend_from_slice(tag);
    let bound = subject.bind(head, block.len());
    let len = key
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(bound), &mut text)
        .map_err(|_| SealFault::Altered(id))?
        .len();
    text.truncate(len);
    let mut opened_headers = Bytes::from(text);
    let opened_body = opened_headers.split_off(block.len());
    Ok((opened_headers, opened_body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_protocol::{Fingerprint, Scheme, StoreKey};
    use proptest::prelude::*;

    const HEADERS: &[u8] = &[0, 0, 0, 0];

    fn ring(lines: &str) -> KeyRing {
        KeyRing::parse(lines).unwrap()
    }

    fn one() -> KeyRing {
        ring("a AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")
    }

    /// Rows that differ in one thing each.
    fn with_each<R>(check: impl Fn(usize, Subject<'_>) -> R) -> Vec<R> {
        let keys = [StoreKey::new("t", &[1; 16]).unwrap(), StoreKey::new("t", &[2; 16]).unwrap()];
        let schemes = [Scheme::parse("a1").unwrap(), Scheme::parse("a2").unwrap()];
        let prints = [Fingerprint::from_bytes([3; 32]), Fingerprint::from_bytes([4; 32])];
        let ids: [fencepost_protocol::grants::OperationId; 2] =
            ["0a4f7d4e-6f5e-4a51-8a4b-0f7c4fbb4a01", "0a4f7d4e-6f5e-4a51-8a4b-0f7c4fbb4a02"]
                .map(|text| fencepost_protocol::grants::OperationId::parse(text).unwrap());
        let entry = |k: usize, s: usize, p: usize, status| Subject::Entry {
            key: &keys[k],
            scheme: &schemes[s],
            fingerprint: &prints[p],
            status,
        };
        let all = [
            entry(0, 0, 0, 200),
            entry(1, 0, 0, 200),
            entry(0, 1, 0, 200),
            entry(0, 0, 1, 200),
            entry(0, 0, 0, 201),
            Subject::Operation { id: &ids[0], status: 200 },
            Subject::Operation { id: &ids[1], status: 200 },
            Subject::Operation { id: &ids[0], status: 201 },
        ];
        all.into_iter().enumerate().map(|(n, subject)| check(n, subject)).collect()
    }

    #[test]
    fn an_envelope_opens_for_its_own_row_and_no_other() {
        let ring = one();
        let sealed = with_each(|_, subject| seal(&ring, subject, HEADERS, b"secret").unwrap());
        for (n, (headers, body)) in sealed.iter().enumerate() {
            let opened = with_each(|m, subject| (m, open(Some(&ring), subject, headers, body)));
            for (m, result) in opened {
                match result {
                    Ok((h, b)) => assert_eq!((n, &h[..], &b[..]), (m, HEADERS, &b"secret"[..])),
                    Err(fault) => assert!(n != m && matches!(fault, SealFault::Altered(_)), "{n} {m}"),
                }
            }
        }
    }

    #[test]
    fn no_flipped_bit_and_no_cut_byte_opens() {
        let ring = one();
        let refused = with_each(|n, subject| {
            let (headers, body) = seal(&ring, subject, HEADERS, b"secret").unwrap();
            for bit in 0..(headers.len() + body.len()) * 8 {
                let mut all = [headers.as_ref(), body.as_ref()].concat();
                all[bit / 8] ^= 1 << (bit % 8);
                let (h, b) = all.split_at(headers.len());
                assert!(open(Some(&ring), subject, h, b).is_err(), "row {n}, bit {bit}");
            }
            for cut in 1..headers.len() {
                assert!(open(Some(&ring), subject, &headers[..cut], &body).is_err(), "row {n}, {cut}");
            }
            assert!(open(Some(&ring), subject, &headers, &body[1..]).is_err());
            // The border between header block and body may not move.
            let all = [headers.as_ref(), body.as_ref()].concat();
            let (h, b) = all.split_at(headers.len() + 1);
            assert!(open(Some(&ring), subject, h, b).is_err());
            // However its mark is damaged, it is not taken for an open answer.
            for mark in 0..=u16::MAX {
                let mut damaged = headers.to_vec();
                damaged[..2].copy_from_slice(&mark.to_be_bytes());
                assert!(!is_open(&damaged), "row {n}, {mark:04x}");
            }
        });
        assert_eq!(refused.len(), 8);
    }

    #[test]
    fn other_keys_and_none_open_nothing_and_old_ones_go_on() {
        let (other, both) = (
            ring("a AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="),
            ring(
                "b AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\na AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
            ),
        );
        let stranger = ring("c AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=");
        with_each(|_, subject| {
            let (headers, body) = seal(&one(), subject, HEADERS, b"secret").unwrap();
            let a: KeyId = "a".parse().unwrap();
            assert_eq!(sealed_with(&headers), Ok(Some(a.clone())));
            assert_eq!(open(None, subject, &headers, &body), Err(SealFault::NoKeys));
            assert_eq!(
                open(Some(&stranger), subject, &headers, &body),
                Err(SealFault::UnknownKey(a.clone()))
            );
            assert_eq!(open(Some(&other), subject, &headers, &body), Err(SealFault::Altered(a)));
            assert_eq!(open(Some(&both), subject, &headers, &body).unwrap().1, &b"secret"[..]);
            let (again, _) = seal(&both, subject, HEADERS, b"secret").unwrap();
            assert_eq!(sealed_with(&again), Ok(Some("b".parse().unwrap())), "the first seals");
        });
    }

    #[test]
    fn an_open_answer_is_no_envelope_and_lengths_are_those_of_the_answer() {
        let open_block = fencepost_protocol::answer::encode_headers(&[(vec![0xf5; 3], vec![0xf5; 9])]);
        assert!(!is_sealed(&open_block) && is_open(&open_block) && is_open(&[]) && !is_open(&[0]));
        assert_eq!(headers_len(&open_block), open_block.len());
        with_each(|_, subject| {
            let (headers, body) = seal(&one(), subject, &open_block, b"secret").unwrap();
            assert_eq!((headers_len(&headers), body.len()), (open_block.len(), 6));
        });
    }

    #[test]
    fn the_same_answer_is_never_sealed_the_same_way() {
        let ring = one();
        let sealed = with_each(|n, subject| {
            (n, seal(&ring, subject, HEADERS, b""), seal(&ring, subject, HEADERS, b""))
        });
        for (n, once, twice) in sealed {
            assert_ne!(once.unwrap().0, twice.unwrap().0, "{n}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_comes_back(headers in proptest::collection::vec(any::<u8>(), 0..200),
                                 body in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let ring = one();
            with_each(|_, subject| {
                let (h, b) = seal(&ring, subject, &headers, &body).unwrap();
                let (h, b) = open(Some(&ring), subject, &h, &b).unwrap();
                assert_eq!((&h[..], &b[..]), (&headers[..], &body[..]));
            });
        }

        #[test]
        fn any_bytes_are_told_apart(headers in proptest::collection::vec(any::<u8>(), 0..80)) {
            let ring = one();
            with_each(|_, subject| {
                assert!(open(Some(&ring), subject, &headers, b"").is_err());
            });
            let _ = sealed_with(&headers);
        }
    }
}
