//! Over which connection a request came. It is an extension of the request, set by the listener
//! alone, so no header can say it.

use crate::tls::Peer;
use axum::http::Extensions;

/// A connection.
#[derive(Clone, Debug, Default)]
pub struct Link {
    encrypted: bool,
    peer: Option<Peer>,
}

impl Link {
    /// With TLS, and the holder of the client certificate if one was shown.
    pub fn encrypted(peer: Option<Peer>) -> Self {
        Self { encrypted: true, peer }
    }

    /// The holder of the verified client certificate of a request's connection.
    pub fn peer(extensions: &Extensions) -> Option<&Peer> {
        extensions.get::<Self>()?.peer.as_ref()
    }

    /// Did the request come over TLS?
    pub fn is_encrypted(extensions: &Extensions) -> bool {
        extensions.get::<Self>().is_some_and(|link| link.encrypted)
    }
}
