//! The side that connects: verifies the server's chain and its name, and shows a certificate of its
//! own where there is one.

use super::files::{TlsFileError, authorities, certificates, private_key, read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// A setting and its file.
pub type Named<'a> = (&'static str, &'a Path);

/// What a client trusts and shows.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// From files: the authorities, and a certificate with its key.
    pub fn open(ca: Named<'_>, own: Option<(Named<'_>, Named<'_>)>) -> Result<Self, TlsFileError> {
        let roots = authorities(ca.0, ca.1, &read(ca.0, ca.1)?)?;
        Self::build(roots, ca, own)
    }

    /// Trusts nobody: for connections that never begin TLS.
    pub fn none() -> Result<Self, TlsFileError> {
        Self::build(RootCertStore::empty(), ("TLS", Path::new("")), None)
    }

    fn build(
        roots: RootCertStore,
        ca: Named<'_>,
        own: Option<(Named<'_>, Named<'_>)>,
    ) -> Result<Self, TlsFileError> {
        let broken = |(setting, path): Named<'_>| {
            let path: PathBuf = path.to_owned();
            move |error: Error| TlsFileError::new(setting, &path, error.to_string())
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(broken(ca))?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates(cert.0, cert.1, &read(cert.0, cert.1)?)?;
                let private = private_key(key.0, key.1, &read(key.0, key.1)?)?;
                builder.with_client_auth_cert(chain, private).map_err(broken(cert))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// As rustls takes it.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}
