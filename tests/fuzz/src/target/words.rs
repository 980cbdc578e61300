//! Texts that operators, lists and settings give: cursors, versions, ids, durations, key files, names of clients.
//!
//! Promised: what is read is written again as a text that is read the same, and nothing else is taken.

use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{ClaimToken, Fingerprint, Scheme, ScopeDigest, StoreId, StoreKey};
use fencepost_store::desk::{AuditPlace, EraseCursor, OperationVersion};
use fencepost_store::entry::Version;
use fencepost_store::grant::duration::Span;
use fencepost_store::seal::{KeyId, KeyRing};
use fencepost_store::store::StoreUrl;
use fencepost_store::tls::{Peer, PeerName};
use std::fmt::Debug;
use std::str::FromStr;

pub fn run(data: &[u8]) {
    // A certificate as well: names of a client come from it.
    let _ = Peer::of(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    again::<EraseCursor>(text);
    again::<AuditPlace>(text);
    again::<OperationVersion>(text);
    again::<Version>(text);
    again::<KeyId>(text);
    if let Ok(span) = Span::parse(text) {
        assert_eq!(Span::parse(&span.to_string()), Ok(span));
    }
    if let Ok(name) = PeerName::try_from(text.to_owned()) {
        assert_eq!(PeerName::try_from(name.as_str().to_owned()), Ok(name));
    }
    if let Ok(key) = StoreKey::parse(text) {
        assert_eq!(key.as_str(), text);
    }
    if let Ok(id) = OperationId::parse(text) {
        assert_eq!(id.as_str(), text.to_ascii_lowercase());
    }
    if let Ok(scheme) = Scheme::parse(text) {
        assert_eq!(scheme.as_str(), text);
    }
    hex(text);
    if let Ok(ring) = KeyRing::parse(text) {
        let ids: Vec<_> = ring.ids().collect();
        assert!(ids.iter().all(|id| text.contains(id.as_str()) && ring.get(id).is_some()));
        assert_eq!(ring.current().0, ids[0]);
        assert!(!format!("{ring:?}").contains('='), "a key in words");
    }
    let _ = StoreUrl::from_str(text);
}

fn again<T: FromStr<Err: Debug> + ToString + PartialEq + Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string().parse::<T>().unwrap(), read, "{text}");
    }
}

fn hex(text: &str) {
    let lower = text.to_ascii_lowercase();
    for written in [
        ClaimToken::parse(text).ok().map(|token| token.to_hex()),
        StoreId::parse(text).ok().map(|id| id.to_hex()),
        ScopeDigest::parse(text).ok().map(|scope| scope.to_hex()),
        Fingerprint::parse(text).ok().map(|fingerprint| fingerprint.to_hex()),
    ]
    .into_iter()
    .flatten()
    {
        assert_eq!(written, lower);
    }
}
