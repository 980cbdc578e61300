//! PEM files: certificate chains, private keys, authorities.

use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// A file that can't be used; the text names the setting, what was found and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {path}: {detail}")]
pub struct TlsFileError {
    setting: &'static str,
    path: String,
    detail: String,
}

impl TlsFileError {
    /// About a file of a setting.
    pub fn new(setting: &'static str, path: &Path, detail: impl Into<String>) -> Self {
        Self { setting, path: path.display().to_string(), detail: detail.into() }
    }
}

/// What a file holds.
pub fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsFileError> {
    std::fs::read(path)
        .map_err(|error| TlsFileError::new(setting, path, format!("{error}; expected a readable PEM file")))
}

/// The certificates in a PEM text, at least one.
pub fn certificates(
    setting: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let wrong = |found: String| {
        let detail = format!("found {found}; expected PEM with at least one BEGIN CERTIFICATE");
        TlsFileError::new(setting, path, detail)
    };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let read = read.map_err(|error| wrong(error.to_string()))?;
    if read.is_empty() { Err(wrong("no certificate".into())) } else { Ok(read) }
}

/// The private key in a PEM text: PKCS #8, PKCS #1 or SEC 1, not encrypted.
pub fn private_key(
    setting: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|_| {
        let detail = "found no private key; expected PEM with an unencrypted BEGIN PRIVATE KEY";
        TlsFileError::new(setting, path, detail)
    })
}

/// The authorities in a PEM text, at least one.
pub fn authorities(setting: &'static str, path: &Path, text: &[u8]) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(setting, path, text)? {
        roots.add(certificate).map_err(|error| {
            let detail = format!("found a certificate that can't be an authority: {error}");
            TlsFileError::new(setting, path, detail)
        })?;
    }
    Ok(roots)
}

/// The revocation lists in a PEM text, at least one.
pub fn revocations(
    setting: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
    let wrong = |found: String| {
        let detail = format!("found {found}; expected PEM with at least one BEGIN X509 CRL");
        TlsFileError::new(setting, path, detail)
    };
    let read: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(text).collect();
    let read = read.map_err(|error| wrong(error.to_string()))?;
    if read.is_empty() { Err(wrong("no revocation list".into())) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_holds_something_else_is_refused_and_named() {
        let path = Path::new("/etc/x.pem");
        for text in ["", "hello", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"] {
            let error = certificates("--tls-cert", path, text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("--tls-cert /etc/x.pem: found"), "{error}");
            assert!(private_key("--tls-key", path, text.as_bytes()).is_err());
            assert!(authorities("--tls-client-ca", path, text.as_bytes()).is_err());
            assert!(revocations("--tls-client-crl", path, text.as_bytes()).is_err());
        }
        let error = read("--tls-key", Path::new("/does/not/exist")).unwrap_err().to_string();
        assert!(error.contains("--tls-key /does/not/exist"), "{error}");
    }
}
