//! A certificate authority, and TLS on both sides with what it issues.

use fencepost_rig::authority::{self, SanType, dns};
use fencepost_rig::client::{Answer, Call};
use fencepost_rig::envoy::{Setup, typed};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority, and what it issues in use.
pub struct Authority(authority::Authority);

/// A client certificate as a TLS configuration.
pub struct Client(Arc<ClientConfig>);

impl Authority {
    pub fn new() -> Self {
        Self(authority::Authority::new())
    }

    /// A client with these names in its certificate.
    pub fn client(&self, names: Vec<SanType>) -> Client {
        let issued = self.0.issue(names);
        let builder = self.client_config();
        let key = PrivateKeyDer::try_from(issued.key_der).unwrap();
        Client(Arc::new(builder.with_client_auth_cert(vec![issued.cert_der.into()], key).unwrap()))
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
        roots.add(self.0.der().into()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots)
    }

    /// TLS on the listener; client certificates are verified, and needed where `required`.
    pub fn on_listener(&self, setup: Setup, required: bool) -> Setup {
        let issued = self.0.issue(vec![dns("proxy.example")]);
        let inline = |text: String| json!({"inline_string": text});
        let context = json!({
            "require_client_certificate": required,
            "common_tls_context": {
                "tls_certificates": [{"certificate_chain": inline(issued.cert_pem), "private_key": inline(issued.key_pem)}],
                "validation_context": {"trusted_ca": inline(self.0.pem())},
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
