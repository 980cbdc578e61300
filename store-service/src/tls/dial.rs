//! One connection to somebody else's server, with TLS or without.
//!
//! With TLS the server's chain and name are verified before a byte is sent. There is no fallback.

use super::ClientTls;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, Error};

/// What can be read and written.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// An open connection.
pub type Stream = Box<dyn Io>;

/// Where it leads.
#[derive(Clone)]
pub struct Dial {
    host: String,
    port: u16,
    tls: Option<(ClientTls, ServerName<'static>)>,
}

/// For logs.
impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl Dial {
    /// To an authority, `HOST`, `HOST:PORT` or `[IPV6]:PORT`; without a port to 443 with TLS, and to 80
    /// without. Says what is wrong with it.
    pub fn new(authority: &str, tls: Option<ClientTls>) -> Result<Self, String> {
        let wrong = || format!("found {authority:?}; expected HOST or HOST:PORT");
        let parsed: hyper::http::uri::Authority = authority.parse().map_err(|_| wrong())?;
        // What is no port is not read as one, and must not become the usual one.
        let port = match authority.strip_prefix(parsed.host()).ok_or_else(wrong)? {
            "" if tls.is_some() => 443,
            "" => 80,
            rest => {
                let port = rest.strip_prefix(':').and_then(|port| port.parse().ok());
                port.filter(|port: &u16| *port > 0).ok_or_else(wrong)?
            }
        };
        let host = parsed.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong());
        }
        let named = |tls| {
            let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
            Ok::<_, String>((tls, name))
        };
        Ok(Self { tls: tls.map(named).transpose()?, host, port })
    }

    /// Is it encrypted?
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Does it stay on this machine, by its name?
    pub fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
            || self.host.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Opens a connection; says why there is none.
    pub async fn connect(&self) -> Result<Stream, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some((tls, name)) = &self.tls else { return Ok(Box::new(stream)) };
        match TlsConnector::from(tls.config()).connect(name.clone(), stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("TLS with {}: {}", self.host, told(&error))),
        }
    }
}

/// What went wrong in a handshake, and what would be right where that is plain.
fn told(error: &std::io::Error) -> String {
    let hint = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        // An authority of the same name and another key is unknown as well.
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "; expected a certificate of an authority that is trusted here"
        }
        Some(Error::InvalidMessage(_)) => "; is that TLS?",
        _ => "",
    };
    format!("{error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_and_a_port_that_connects() {
        let tls = || Some(ClientTls::none().unwrap());
        for (authority, is_encrypted, shown, is_loopback) in [
            ("a.example", false, "http://a.example:80", false),
            ("a.example", true, "https://a.example:443", false),
            ("127.0.0.1.example", false, "http://127.0.0.1.example:80", false),
            ("localhost:1", false, "http://localhost:1", true),
            ("127.0.0.1:8080", true, "https://127.0.0.1:8080", true),
            ("[::1]:8443", true, "https://::1:8443", true),
            ("[::1]", false, "http://::1:80", true),
        ] {
            let dial = Dial::new(authority, if is_encrypted { tls() } else { None }).unwrap();
            assert_eq!(format!("{dial:?}"), shown);
            assert_eq!((dial.is_encrypted(), dial.is_loopback()), (is_encrypted, is_loopback), "{authority}");
        }
        for wrong in ["", ":80", "a:", "a:0", "a:65536", "u@a", "u:p@a:80", "a b", "a/b"] {
            assert!(Dial::new(wrong, None).is_err(), "{wrong}");
            assert!(Dial::new(wrong, tls()).is_err(), "{wrong}");
        }
    }
}
