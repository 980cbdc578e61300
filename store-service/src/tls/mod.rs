//! TLS: of the listener, and towards whoever this program calls: PostgreSQL, issuers' key sets,
//! providers, collectors, and a running service.
//!
//! Rooms: [`files`] reads certificates, keys and authorities, [`listener`] serves with them and
//! notices when they are replaced, [`peer`] says who the holder of a client certificate is,
//! [`client`] is the side that connects, [`dial`] a connection of it. TLS 1.2 and 1.3, by rustls on ring. There is no way to
//! leave verification out.

pub mod client;
pub mod dial;
pub mod files;
pub mod listener;
pub mod peer;

pub use client::{ClientTls, Trust};
pub use dial::Dial;
pub use files::TlsFileError;
pub use listener::ListenerTls;
pub use peer::{Peer, PeerName};
