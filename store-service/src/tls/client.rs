//! The side that connects: verifies the server's chain and its name, and shows a certificate of its
//! own where there is one.
//!
//! Whom it trusts: the authorities in a file, or the system's. The system's are those of the machine
//! or the image, so that whoever runs it adds and removes authorities without another build of this
//! program; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.

use super::files::{TlsFileError, authorities, certificates, private_key, read, revocations};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// A setting and its file.
pub type Named<'a> = (&'static str, &'a Path);

/// Whose certificates are believed.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those of the authorities in a file.
    File(Named<'a>),
    /// Those of the system's authorities; with the setting that would name a file.
    System(&'static str),
}

impl<'a> Trust<'a> {
    /// A file where there is one, else the system.
    pub fn of(setting: &'static str, file: Option<&'a Path>) -> Self {
        file.map_or(Self::System(setting), |path| Self::File((setting, path)))
    }

    fn named(self) -> Named<'a> {
        match self {
            Self::File(named) => named,
            Self::System(setting) => (setting, Path::new("(the system's authorities)")),
        }
    }

    fn roots(self) -> Result<RootCertStore, TlsFileError> {
        match self {
            Self::File((setting, path)) => authorities(setting, path, &read(setting, path)?),
            Self::System(_) => self.system(),
        }
    }

    /// Certificates that can't be used are left out, as every other program on the machine does.
    fn system(self) -> Result<RootCertStore, TlsFileError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable > 0 {
            return Ok(roots);
        }
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let (setting, path) = self.named();
        let detail = format!("found none{why}; expected the package ca-certificates, or a file of your own");
        Err(TlsFileError::new(setting, path, detail))
    }
}

/// What a client trusts and shows.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Trusts authorities, and shows a certificate with its key.
    pub fn open(trust: Trust<'_>, own: Option<(Named<'_>, Named<'_>)>) -> Result<Self, TlsFileError> {
        Self::open_checking(trust, own, None)
    }

    /// The same, and refuses what a revocation list names.
    pub fn open_checking(
        trust: Trust<'_>,
        own: Option<(Named<'_>, Named<'_>)>,
        crl: Option<Named<'_>>,
    ) -> Result<Self, TlsFileError> {
        let lists = match crl {
            Some((setting, path)) => Some(revocations(setting, path, &read(setting, path)?)?),
            None => None,
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(broken(trust.named()))?;
        let roots = trust.roots()?;
        let builder = match (lists, crl) {
            (Some(lists), Some((setting, path))) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                    .with_crls(lists)
                    .build()
                    .map_err(|error| TlsFileError::new(setting, path, error.to_string()))?;
                builder.with_webpki_verifier(verifier)
            }
            _ => builder.with_root_certificates(roots),
        };
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

    /// Trusts nobody: for connections that never begin TLS.
    pub fn none() -> Result<Self, TlsFileError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(broken(("TLS", Path::new(""))))?;
        let config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// As rustls takes it.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

fn broken((setting, path): Named<'_>) -> impl FnOnce(Error) -> TlsFileError {
    let path = path.to_owned();
    move |error| TlsFileError::new(setting, &path, error.to_string())
}
