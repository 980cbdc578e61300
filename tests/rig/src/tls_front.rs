//! TLS with a certificate of the test's, in front of a server that speaks none.

use crate::authority::{Authority, Issued};
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A listener on a free port of 127.0.0.1 that ends TLS and passes on what it carries.
pub struct TlsFront {
    addr: SocketAddr,
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsFront {
    /// With this certificate, to that server; a client without a certificate of `clients` is refused
    /// where they are given.
    pub async fn start(issued: &Issued, clients: Option<&Authority>, to: SocketAddr) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .context("TLS versions")?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.der().into())?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build()?)
            }
        };
        let key = PrivateKeyDer::try_from(issued.key_der.clone()).map_err(anyhow::Error::msg)?;
        let config = builder.with_single_cert(vec![issued.cert_der.clone().into()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (addr, served) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let counter = served.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(acceptor.clone(), client, to, counter.clone()));
            }
        });
        Ok(Self { addr, served, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many connections were passed on: those of clients that were content with the certificate
    /// and showed what was asked for.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

async fn pass(
    acceptor: TlsAcceptor,
    client: TcpStream,
    to: SocketAddr,
    served: Arc<AtomicUsize>,
) -> Result<()> {
    let mut client = acceptor.accept(client).await?;
    served.fetch_add(1, Ordering::SeqCst);
    let mut server = TcpStream::connect(to).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
