//! A certificate authority, and TLS on both sides with what it issues.

use fencepost_rig::client::{Answer, Call};
use fencepost_rig::envoy::{Setup, typed};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority that lives as long as its test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A client certificate as a TLS configuration.
pub struct Client(Arc<ClientConfig>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        // A subject other than that of what it issues, or these would look like their own issuers.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn issue(&self, names: Vec<SanType>) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "peer");
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A client with these names in its certificate.
    pub fn client(&self, names: Vec<SanType>) -> Client {
        let (certificate, key) = self.issue(names);
        let builder = self.client_config();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Client(Arc::new(builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()))
    }

    /// A client without a certificate.
    pub fn stranger(&self) -> Client {
        Client(Arc::new(self.client_config().with_no_client_auth()))
    }

    fn client_config(
        &self,
    ) -> tokio_rustls::rustls::ConfigBuilder<ClientConfig, tokio_rustls::rustls::client::WantsClientCert>
    {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots)
    }

    /// TLS on the listener; client certificates are verified, and needed where `required`.
    pub fn on_listener(&self, setup: Setup, required: bool) -> Setup {
        let (certificate, key) = self.issue(vec![SanType::DnsName("proxy.example".try_into().unwrap())]);
        let inline = |text: String| json!({"inline_string": text});
        let context = json!({
            "require_client_certificate": required,
            "common_tls_context": {
                "tls_certificates": [{"certificate_chain": inline(certificate.pem()), "private_key": inline(key.serialize_pem())}],
                "validation_context": {"trusted_ca": inline(self.certificate.pem())},
            },
        });
        let kind = "extensions.transport_sockets.tls.v3.DownstreamTlsContext";
        let socket = typed("envoy.transport_sockets.tls", kind, context);
        setup.change(move |bootstrap| {
            let chain = bootstrap.pointer_mut("/static_resources/listeners/0/filter_chains/0").unwrap();
            chain["transport_socket"] = socket.clone();
        })
    }
}

impl Client {
    /// Sends a call over a TLS connection of its own.
    pub async fn send(&self, call: &Call, to: SocketAddr) -> anyhow::Result<Answer> {
        let stream = TcpStream::connect(to).await?;
        let name = ServerName::try_from("proxy.example")?;
        let stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await?;
        call.send_over(stream, to).await
    }
}

/// A URI name.
pub fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

/// A DNS name.
pub fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}
