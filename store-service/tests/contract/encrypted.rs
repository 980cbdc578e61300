//! TLS of the listener and to PostgreSQL.

use crate::bed::*;
use crate::served::*;
use crate::starting::program;
use bytes::Bytes;
use fencepost_protocol::paths;
use fencepost_rig::authority::{Authority, Issued, dns, ip, uri};
use fencepost_store::entry::ClaimOutcome;
use fencepost_store::http::Tokens;
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::{Clock, Hearing, OpenError, Store, StoreKind};
use fencepost_store::tls::listener::ListenerFiles;
use fencepost_store::tls::{ClientTls, ListenerTls, Trust};
use http_body_util::Full;
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Above every bound of the service, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

const ENVOY: &str = "spiffe://test/envoy";

/// Certificates in files.
struct Certified {
    folder: TempDir,
    authority: Authority,
}

impl Certified {
    fn new() -> Self {
        let certified = Self { folder: tempfile::tempdir().unwrap(), authority: Authority::new() };
        certified.write("ca", &certified.authority.pem());
        certified.put("service", &certified.authority.issue(vec![dns("store.example")]));
        let list =
            json!([{"client_san": format!("uri:{ENVOY}"), "roles": ["filter"], "key_prefixes": ["test"]}]);
        certified.write("tokens", &list.to_string());
        certified
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn put(&self, name: &str, issued: &Issued) {
        self.write(&format!("{name}.pem"), &issued.cert_pem);
        self.write(&format!("{name}.key"), &issued.key_pem);
    }

    async fn serve(&self) -> Served {
        let bed = Bed::real(StoreKind::Memory).await;
        let files = ListenerFiles {
            cert: self.path("service.pem"),
            key: self.path("service.key"),
            client_ca: Some(self.path("ca")),
            client_crl: self.path("crl").exists().then(|| self.path("crl")),
        };
        let tls = ListenerTls::open(files).unwrap();
        let tokens = Tokens::read(&self.path("tokens")).unwrap();
        Served::encrypted(bed.store.clone(), tokens, tls).await
    }

    /// A client that speaks these protocols, with a certificate of this name from some authority.
    fn client(&self, own: Option<(&Authority, &str)>, protocols: &[&str]) -> TlsConnector {
        self.holder(own.map(|(authority, name)| authority.issue(vec![uri(name)])).as_ref(), protocols)
    }

    /// A client with this certificate.
    fn holder(&self, issued: Option<&Issued>, protocols: &[&str]) -> TlsConnector {
        let ca = self.path("ca");
        let named = issued.map(|issued| {
            self.put("client", issued);
            (self.path("client.pem"), self.path("client.key"))
        });
        let own = named.as_ref().map(|(cert, key)| (("cert", cert as &Path), ("key", key as &Path)));
        let tls = ClientTls::open(Trust::File(("ca", &ca)), own).unwrap();
        let mut config: ClientConfig = (*tls.config()).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

async fn connect_tls(connector: &TlsConnector, addr: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(addr).await?;
    connector.connect(ServerName::try_from("store.example").unwrap(), stream).await
}

/// One request over a connection of its own, in the protocol that was agreed on.
async fn send(connector: &TlsConnector, served: &Served, request: Request<Full<Bytes>>) -> Reply {
    let stream = connect_tls(connector, served.addr).await.unwrap();
    let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let io = TokioIo::new(stream);
    if agreed.as_deref() == Some(b"h2") {
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        return read(send.send_request(request).await.unwrap()).await;
    }
    let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    read(send.send_request(request).await.unwrap()).await
}

#[tokio::test]
async fn client_certificate_is_a_credential_over_http_1_and_2() {
    let files = Certified::new();
    let served = files.serve().await;
    for (n, protocols) in [&["h2", "http/1.1"][..], &["http/1.1"], &[]].into_iter().enumerate() {
        let frame = || claim_frame(&claim(n as u64 + 1, 1), 0);
        let post = || served.request("POST", paths::CLAIMS, frame());
        let envoy = files.client(Some((&files.authority, ENVOY)), protocols);
        assert_eq!(send(&envoy, &served, post()).await.json()["outcome"], "claimed", "{protocols:?}");
        let metrics = served.request("GET", "/metrics", "");
        assert_eq!(send(&envoy, &served, metrics).await.code(), (403, "role".to_owned()));
        let mut wrong = post();
        wrong.headers_mut().insert("authorization", "Bearer guess".parse().unwrap());
        assert_eq!(send(&envoy, &served, wrong).await.code(), (401, "unauthorized".to_owned()));
        for own in [None, Some((&files.authority, "spiffe://test/other"))] {
            let other = files.client(own, protocols);
            assert_eq!(send(&other, &served, post()).await.code(), (401, "unauthorized".to_owned()));
            assert_eq!(send(&other, &served, served.request("GET", "/healthz", "")).await.status, 200);
        }
    }
}

#[tokio::test]
async fn certificate_of_another_authority_and_plain_http_get_nothing() {
    let files = Certified::new();
    let served = files.serve().await;
    let strangers = Authority::new();
    let stranger = files.client(Some((&strangers, ENVOY)), &["http/1.1"]);
    assert!(!is_answered(&stranger, &served).await);
    let answer = raw(served.addr, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(!answer.starts_with(b"HTTP/"), "plain HTTP was answered");
}

/// Whether this client gets an answer to a question that needs no role.
async fn is_answered(client: &TlsConnector, served: &Served) -> bool {
    let asked = async {
        // Under TLS 1.3 the client learns of a refusal when it reads.
        let mut stream = connect_tls(client, served.addr).await?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, asked).await.unwrap();
    answer.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

#[tokio::test]
async fn a_revoked_client_certificate_is_refused_and_so_is_one_that_no_list_covers() {
    let files = Certified::new();
    let (good, stolen) = (files.authority.issue(vec![uri(ENVOY)]), files.authority.issue(vec![uri(ENVOY)]));
    files.write("crl", &files.authority.revocation_list(&[&stolen]));
    let served = files.serve().await;
    for (issued, is_served) in [(Some(&good), true), (Some(&stolen), false), (None, true)] {
        assert_eq!(is_answered(&files.holder(issued, &[]), &served).await, is_served);
    }
    // The list of another authority says nothing about this one's.
    files.write("crl", &Authority::new().revocation_list(&[]));
    let served = files.serve().await;
    assert!(!is_answered(&files.holder(Some(&good), &[]), &served).await);
}

#[tokio::test]
async fn an_expired_client_certificate_is_refused() {
    let files = Certified::new();
    let served = files.serve().await;
    for (year, is_served) in [(2026, false), (4_000, true)] {
        let issued = files.authority.issue_until(year, vec![uri(ENVOY)]);
        assert_eq!(is_answered(&files.holder(Some(&issued), &[]), &served).await, is_served, "{year}");
    }
}

/// What an operator's command says, and whether it was content.
async fn operator(url: &str, arguments: &[&str], roots: &Path) -> (bool, String) {
    let mut command = program(&["entries", "list", "--url", url]);
    command.args(arguments).env("FENCEPOST_TOKEN", "t").env("SSL_CERT_FILE", roots);
    let output = command.env_remove("SSL_CERT_DIR").output().await.unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn an_operators_command_knows_its_service_by_a_file_or_by_the_systems_authorities() {
    let files = Certified::new();
    files.put("service", &files.authority.issue(vec![dns("localhost")]));
    let digest = "e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8"; // of "t"
    files.write(
        "tokens",
        &json!([{"token_sha256": digest, "roles": ["operator"]},
                                  {"client_san": "uri:spiffe://x/y", "roles": ["operator"]}])
        .to_string(),
    );
    let served = files.serve().await;
    let (ca, strangers) = (files.path("ca"), files.write("strangers", &Authority::new().pem()));
    let port = served.addr.port();
    let (named, other) = (format!("https://localhost:{port}"), format!("https://127.0.0.1:{port}"));
    let ca_file = ["--ca", ca.to_str().unwrap()];
    for (url, arguments, roots, says) in [
        (&named, &ca_file[..], &strangers, None),
        (&named, &[], &ca, None),
        (&named, &[], &strangers, Some("expected a certificate of an authority that is trusted here")),
        (&named, &["--ca", strangers.to_str().unwrap()], &ca, Some("expected a certificate of an authority")),
        (&other, &ca_file, &ca, Some("not valid for name")),
        (&other, &[], &ca, Some("not valid for name")),
        (&named, &[], &files.path("nothing"), Some("(the system's authorities): found none")),
        (&format!("http://localhost:{port}"), &ca_file, &ca, Some("without https")),
    ] {
        let (content, told) = operator(url, arguments, roots).await;
        assert_eq!(content, says.is_none(), "{url} {arguments:?}: {told}");
        assert!(told.contains(says.unwrap_or_default()), "{url} {arguments:?}: {told}");
    }
    let (_, told) = operator("http://store.invalid:1", &[], &ca).await;
    assert!(told.contains("the token travels in clear"), "{told}");
}

/// What a plain connection gets until it is closed.
async fn raw(addr: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let _ = stream.write_all(sent).await;
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("was not closed");
    answer
}

/// Speaks TLS with this certificate in front of a server: the packaged one is built without. Whoever
/// does not ask for TLS is counted and gets nothing.
struct Front {
    addr: SocketAddr,
    encrypted: Arc<AtomicUsize>,
    plain: Arc<AtomicUsize>,
}

impl Front {
    async fn start(issued: &Issued, server: SocketAddr) -> Self {
        let key = PrivateKeyDer::try_from(issued.key_der.clone()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert_der.clone().into()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front =
            Self { addr: listener.local_addr().unwrap(), encrypted: Arc::default(), plain: Arc::default() };
        let (encrypted, plain) = (front.encrypted.clone(), front.plain.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (acceptor, encrypted, plain) = (acceptor.clone(), encrypted.clone(), plain.clone());
                tokio::spawn(async move {
                    // SSLRequest: its length and its code (PostgreSQL manual, Message Formats).
                    let mut request = [0; 8];
                    client.read_exact(&mut request).await?;
                    if request != [0, 0, 0, 8, 4, 210, 22, 47] {
                        plain.fetch_add(1, Ordering::SeqCst);
                        return Ok(());
                    }
                    client.write_all(b"S").await?;
                    let mut client = acceptor.accept(client).await?;
                    encrypted.fetch_add(1, Ordering::SeqCst);
                    let mut server = TcpStream::connect(server).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
                });
            }
        });
        front
    }
}

async fn open(url: &str) -> Result<Postgres, OpenError> {
    Postgres::open(url, Clock::Real, true, Options::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_postgresql_are_encrypted_and_know_their_server() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let direct = database().await;
    let port = direct.split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap();
    let server = format!("127.0.0.1:{port}").parse().unwrap();
    let front = Front::start(&authority.issue(vec![ip([127, 0, 0, 1])]), server).await;
    let plain = direct.replace(&format!(":{port}/"), &format!(":{}/", front.addr.port()));
    let write = |name: &str, authority: &Authority| {
        let path = folder.path().join(name);
        std::fs::write(&path, authority.pem()).unwrap();
        path.display().to_string()
    };
    let with = |ca: &str| format!("{plain}?sslmode=verify-full&sslrootcert={}", ca.replace('/', "%2F"));
    let other = open(&with(&write("other", &Authority::new()))).await.err().unwrap().to_string();
    assert!(other.contains("certificate"), "{other}");
    let ca = write("ca", &authority);
    // The certificate is for the address, not for the name that leads to the same server.
    let named = open(&with(&ca).replace("127.0.0.1", "localhost")).await.err().unwrap().to_string();
    assert!(named.contains("certificate"), "{named}");
    assert_eq!(front.encrypted.load(Ordering::SeqCst), 0, "a server that is not known was spoken to");

    let store = open(&with(&ca)).await.unwrap();
    assert!(matches!(store.claim(Arc::new(claim(1, 1)), CALM).await.unwrap(), ClaimOutcome::Claimed { .. }));
    // All of them: for claims, for the rest, and the one that listens.
    let listening = async {
        while store.hearing() != Hearing::Notified {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, listening).await.expect("it never listens");
    assert!(front.encrypted.load(Ordering::SeqCst) >= 3);
    assert_eq!(front.plain.load(Ordering::SeqCst), 0, "a connection is not encrypted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_is_known_by_the_systems_authorities_and_refused_when_revoked() {
    let files = Certified::new();
    let direct = database().await;
    let port = direct.split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap();
    let server = format!("127.0.0.1:{port}").parse().unwrap();
    let issued = files.authority.issue(vec![ip([127, 0, 0, 1])]);
    let front = Front::start(&issued, server).await;
    let plain = direct.replace(&format!(":{port}/"), &format!(":{}/", front.addr.port()));
    let encoded = |path: PathBuf| path.display().to_string().replace('/', "%2F");
    let with = |crl: &str| {
        let (ca, crl) = (encoded(files.path("ca")), encoded(files.path(crl)));
        format!("{plain}?sslmode=verify-full&sslrootcert={ca}&sslcrl={crl}")
    };
    files.write("revoked", &files.authority.revocation_list(&[&issued]));
    files.write("clean", &files.authority.revocation_list(&[]));
    let revoked = open(&with("revoked")).await.err().unwrap().to_string();
    assert!(revoked.contains("Revoked"), "{revoked}");
    let missing = open(&with("nothing")).await.err().unwrap().to_string();
    assert!(missing.contains("sslcrl"), "{missing}");
    assert_eq!(front.encrypted.load(Ordering::SeqCst), 0);
    open(&with("clean")).await.unwrap();

    let system = format!("{plain}?sslmode=verify-full&sslrootcert=system");
    let migrate = async |roots: PathBuf| {
        let mut command = program(&["migrate", "--store", &system]);
        let output = command.env("SSL_CERT_FILE", roots).env_remove("SSL_CERT_DIR").output().await.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (content, told) = migrate(files.write("strangers", &Authority::new().pem())).await;
    assert!(!content && told.contains("certificate"), "{told}");
    let (content, told) = migrate(files.path("ca")).await;
    assert!(content, "{told}");
}

#[tokio::test]
async fn server_without_tls_is_refused_where_tls_is_asked_for() {
    let files = Certified::new();
    let ca = files.path("ca").display().to_string().replace('/', "%2F");
    let url = format!("{}?sslmode=verify-full&sslrootcert={ca}", database().await);
    let error = open(&url).await.err().unwrap().to_string();
    assert!(error.contains("TLS"), "{error}");
}
