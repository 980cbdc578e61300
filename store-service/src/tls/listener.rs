//! TLS of the listener.
//!
//! Certificates are replaced while the service runs: the files are looked at again, at most every
//! few seconds and only when somebody connects, and compared by their bytes, because neither the
//! time nor the inode of a mounted secret says reliably that it changed. Files that can't be used
//! leave the old ones in use; the log says so, once for each content.
//!
//! A client certificate is verified if one is shown, and is not needed to connect: probes have
//! none. What a connection without one may do is decided call by call, as for any other caller.
//!
//! With revocation lists every certificate of a shown chain must be covered by one of them: an
//! authority without a list would be a way around it.

use super::files::{TlsFileError, authorities, certificates, private_key, read, revocations};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{Error, ServerConfig};

/// How often the files are looked at, at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Which files.
#[derive(Debug, Clone)]
pub struct ListenerFiles {
    /// The service's chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of client certificates; none: no certificate is asked for.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists of these authorities; none: nothing is revoked.
    pub client_crl: Option<PathBuf>,
}

/// What the files held.
#[derive(PartialEq, Eq, Clone)]
struct Texts {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    client_crl: Option<Vec<u8>>,
}

struct Current {
    config: Arc<ServerConfig>,
    looked: Instant,
    texts: Texts,
}

/// The listener's side of TLS.
pub struct ListenerTls {
    files: ListenerFiles,
    current: Mutex<Current>,
}

impl ListenerTls {
    /// Reads the files.
    pub fn open(files: ListenerFiles) -> Result<Self, TlsFileError> {
        let texts = files.read()?;
        let config = Arc::new(files.config(&texts)?);
        let current = Mutex::new(Current { config, looked: Instant::now(), texts });
        Ok(Self { files, current })
    }

    /// What the next connection is served with.
    pub fn config(&self, now: Instant) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(current.looked) >= LOOK_INTERVAL {
            current.looked = now;
            self.look(&mut current);
        }
        current.config.clone()
    }

    fn look(&self, current: &mut Current) {
        let texts = match self.files.read() {
            Ok(texts) if texts == current.texts => return,
            Ok(texts) => texts,
            Err(error) => {
                tracing::warn!(%error, "the certificate can't be read again; the old one stays in use");
                return;
            }
        };
        match self.files.config(&texts) {
            Ok(config) => {
                current.config = Arc::new(config);
                tracing::info!("a new certificate is in use");
            }
            Err(error) => tracing::warn!(%error, "the new certificate can't be used; the old one stays"),
        }
        // Also of files that can't be used: they are told of once.
        current.texts = texts;
    }
}

impl ListenerFiles {
    fn read(&self) -> Result<Texts, TlsFileError> {
        let client_ca = self.client_ca.as_deref().map(|path| read("--tls-client-ca", path)).transpose()?;
        let client_crl = self.client_crl.as_deref().map(|path| read("--tls-client-crl", path)).transpose()?;
        let (cert, key) = (read("--tls-cert", &self.cert)?, read("--tls-key", &self.key)?);
        Ok(Texts { cert, key, client_ca, client_crl })
    }

    fn config(&self, texts: &Texts) -> Result<ServerConfig, TlsFileError> {
        let chain = certificates("--tls-cert", &self.cert, &texts.cert)?;
        let key = private_key("--tls-key", &self.key, &texts.key)?;
        let broken = |error: Error| {
            let detail = format!("found a certificate and a key that can't serve together: {error}");
            TlsFileError::new("--tls-cert", &self.cert, detail)
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(broken)?;
        let builder = match (&self.client_ca, &texts.client_ca) {
            (Some(path), Some(text)) => {
                let roots = Arc::new(authorities("--tls-client-ca", path, text)?);
                let lists = match (&self.client_crl, &texts.client_crl) {
                    (Some(path), Some(text)) => revocations("--tls-client-crl", path, text)?,
                    _ => Vec::new(),
                };
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .with_crls(lists)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| TlsFileError::new("--tls-client-ca", path, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(broken)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would go on with a certificate that was verified once, long ago.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(tokio_rustls::rustls::server::NoServerSessionStorage {});
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_rig::authority::{Authority, dns};
    use std::path::Path;

    fn write(folder: &Path, authority: &Authority) {
        let issued = authority.issue(vec![dns("store.example")]);
        std::fs::write(folder.join("cert"), &issued.cert_pem).unwrap();
        std::fs::write(folder.join("key"), &issued.key_pem).unwrap();
        std::fs::write(folder.join("ca"), authority.pem()).unwrap();
        std::fs::write(folder.join("crl"), authority.revocation_list(&[&issued])).unwrap();
    }

    #[test]
    fn a_replaced_certificate_is_taken_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        write(folder.path(), &authority);
        let path = |name: &str| folder.path().join(name);
        let files = ListenerFiles {
            cert: path("cert"),
            key: path("key"),
            client_ca: Some(path("ca")),
            client_crl: Some(path("crl")),
        };
        let tls = ListenerTls::open(files).unwrap();
        let start = Instant::now();
        let first = tls.config(start);
        let later = |n: u32| start + LOOK_INTERVAL * n;
        assert!(Arc::ptr_eq(&first, &tls.config(later(2))), "the same files are the same certificate");
        write(folder.path(), &authority);
        assert!(Arc::ptr_eq(&first, &tls.config(later(2))), "looked at a moment ago");
        let second = tls.config(later(4));
        assert!(!Arc::ptr_eq(&first, &second));
        for broken in ["", "no certificate"] {
            std::fs::write(path("cert"), broken).unwrap();
            assert!(Arc::ptr_eq(&second, &tls.config(later(6))));
        }
        std::fs::remove_file(path("cert")).unwrap();
        assert!(Arc::ptr_eq(&second, &tls.config(later(8))));
        write(folder.path(), &authority);
        let third = tls.config(later(10));
        assert!(!Arc::ptr_eq(&second, &third));
        std::fs::write(path("crl"), "no list").unwrap();
        assert!(Arc::ptr_eq(&third, &tls.config(later(12))), "a broken list opens nothing");
        std::fs::write(path("crl"), authority.revocation_list(&[])).unwrap();
        assert!(!Arc::ptr_eq(&third, &tls.config(later(14))));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        write(folder.path(), &authority);
        let other = authority.issue(vec![dns("other.example")]);
        std::fs::write(folder.path().join("key"), &other.key_pem).unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = ListenerFiles { cert: path("cert"), key: path("key"), client_ca: None, client_crl: None };
        let error = ListenerTls::open(files).err().unwrap().to_string();
        assert!(error.contains("can't serve together"), "{error}");
    }
}
