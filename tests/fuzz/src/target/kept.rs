//! An upstream's answer on its way into the store and out of it. The input is the answer's headers: lines
//! of name and value, told apart by a colon.
//!
//! Promised: what is kept has no header of one hop, client or moment, none of the filter's own, no
//! second line by a line break; it is written and read unchanged; and a replay has one status and one
//! length.

use fencepost_filter_core::capture::{
    is_never_kept, keep_headers, replay_headers, replayable, strip_markers,
};
use fencepost_filter_core::policy::{HeaderRules, Markers};
use fencepost_protocol::StoredAnswer;
use fencepost_protocol::answer::{decode_headers, encode_headers};

pub fn run(data: &[u8]) {
    let pair = |line: &[u8]| {
        // A pseudo header's name begins with the colon.
        let at = line.iter().skip(1).position(|byte| *byte == b':').map_or(line.len(), |at| at + 1);
        (line[..at].to_vec(), line.get(at + 1..).unwrap_or_default().to_vec())
    };
    let headers: Vec<_> = data.split(|byte| *byte == b'\n').map(pair).collect();
    let markers = Markers::default();
    let kept = keep_headers(&HeaderRules::default(), &markers, &headers);
    for (name, value) in &kept {
        assert!(!is_never_kept(name) && !markers.names().any(|marker| marker.as_bytes() == name), "{name:?}");
        assert!(
            !name.is_empty() && !name.starts_with(b":") && *name == name.to_ascii_lowercase(),
            "{name:?}"
        );
        assert!(!value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')), "{value:?}");
    }
    assert_eq!(decode_headers(&encode_headers(&kept)).as_ref(), Ok(&kept));
    assert_eq!(keep_headers(&HeaderRules::default(), &markers, &kept), kept, "kept twice, kept the same");
    // Whoever wrote it: even the headers as they came.
    for headers in [&kept, &headers] {
        let answer = StoredAnswer { status: 201, headers: headers.clone(), body: b"{}".to_vec() };
        let answer = replayable(answer, &markers);
        let present = [(b":status".to_vec(), b"500".to_vec()), (b"content-type".to_vec(), b"x".to_vec())];
        let map = replay_headers(&answer, &markers, &present, Some(5_000));
        let lines = |wanted: &[u8]| map.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).count();
        assert_eq!((lines(b"content-length"), lines(markers.replayed.as_bytes())), (1, 1));
        assert!(!map.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"set-cookie")));
    }
    for name in strip_markers(&markers, &headers) {
        assert_eq!(name, name.to_ascii_lowercase());
    }
}
