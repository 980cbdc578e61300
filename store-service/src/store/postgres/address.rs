//! The server's address: what the driver reads, and what it can't: how TLS is to be.
//!
//! `sslmode=verify-full` verifies the chain and the name. The modes between it and `disable` are
//! refused: they encrypt towards whoever answers, or leave TLS out when somebody on the way wishes
//! so, and look safe in a file.

use super::OpenError;
use crate::tls::{ClientTls, Trust};
use std::path::{Path, PathBuf};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// An address with its TLS.
#[derive(Clone)]
pub struct Address {
    /// For the driver.
    pub config: Config,
    /// Used where the configuration asks for TLS.
    pub tls: MakeRustlsConnect,
}

/// How TLS is asked for in an address.
#[derive(Default, Debug, PartialEq, Eq)]
struct Wish {
    mode: Option<String>,
    root: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    crl: Option<PathBuf>,
}

impl Address {
    /// Reads it. No message holds a part of it that may be a password.
    pub fn read(url: &str) -> Result<Self, OpenError> {
        let (plain, wish) = Wish::take(url)?;
        let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            // The parser's own words name the option, never its value.
            OpenError::Unusable(format!(
                "found an address that can't be read ({error}); expected postgres://USER@HOST:5432/DATABASE"
            ))
        })?;
        let (mode, tls) = wish.tls()?;
        config.ssl_mode(mode);
        let tls = MakeRustlsConnect::new((*tls.config()).clone());
        Ok(Self { config, tls })
    }
}

impl Wish {
    /// Splits an address into what the driver reads and what is about TLS.
    fn take(url: &str) -> Result<(String, Self), OpenError> {
        let mut wish = Self::default();
        let Some((front, query)) = url.split_once('?') else { return Ok((url.to_owned(), wish)) };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let path = || decoded(name, value).map(PathBuf::from);
            match name {
                "sslmode" => wish.mode = Some(decoded(name, value)?),
                "sslrootcert" => wish.root = Some(path()?),
                "sslcert" => wish.cert = Some(path()?),
                "sslkey" => wish.key = Some(path()?),
                "sslcrl" => wish.crl = Some(path()?),
                _ => rest.push(pair),
            }
        }
        let plain = if rest.is_empty() { front.to_owned() } else { format!("{front}?{}", rest.join("&")) };
        Ok((plain, wish))
    }

    fn tls(&self) -> Result<(SslMode, ClientTls), OpenError> {
        let unusable = |error: crate::tls::TlsFileError| OpenError::Unusable(error.to_string());
        match self.mode.as_deref() {
            None | Some("disable") => {
                if [&self.root, &self.cert, &self.key, &self.crl].into_iter().any(Option::is_some) {
                    return Err(OpenError::Unusable(
                        "found sslrootcert, sslcert, sslkey or sslcrl without TLS; expected sslmode=verify-full beside \
                         them"
                            .into(),
                    ));
                }
                Ok((SslMode::Disable, ClientTls::none().map_err(unusable)?))
            }
            Some("verify-full") => {
                let root = self.root.as_deref().ok_or_else(|| {
                    OpenError::Unusable(
                        "found sslmode=verify-full without sslrootcert; expected sslrootcert=FILE with the \
                         authorities in PEM, or sslrootcert=system for those of the system"
                            .into(),
                    )
                })?;
                let own = match (self.cert.as_deref(), self.key.as_deref()) {
                    (None, None) => None,
                    (Some(cert), Some(key)) => Some((("sslcert", cert as &Path), ("sslkey", key as &Path))),
                    _ => {
                        return Err(OpenError::Unusable(
                            "found one of sslcert and sslkey; expected both or none".into(),
                        ));
                    }
                };
                // As libpq has it: this one word is no file.
                let is_system = root.as_os_str() == "system";
                let trust = Trust::of("sslrootcert", Some(root).filter(|_| !is_system));
                let crl = self.crl.as_deref().map(|crl| ("sslcrl", crl));
                Ok((SslMode::Require, ClientTls::open_checking(trust, own, crl).map_err(unusable)?))
            }
            Some(other) => Err(OpenError::Unusable(format!(
                "found sslmode={}; expected sslmode=verify-full with sslrootcert=FILE, or sslmode=disable on a \
                 trusted path: a socket, loopback, or a tunnel beside the service",
                other.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(20).collect::<String>()
            ))),
        }
    }
}

fn decoded(name: &str, value: &str) -> Result<String, OpenError> {
    let wrong = || OpenError::Unusable(format!("found a value of {name} that is not percent-encoded UTF-8"));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>().ok_or_else(wrong)?;
        let mut decoded = [0];
        hex::decode_to_slice(digits, &mut decoded).map_err(|_| wrong())?;
        bytes.push(decoded[0]);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Address::read(url).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_about_tls_is_taken_out_and_the_rest_is_left() {
        let (plain, wish) = Wish::take(
            "postgres://u:p%3F@h/d?application_name=a&sslmode=verify-full&sslrootcert=%2Fa%20b&connect_timeout=3",
        )
        .unwrap();
        assert_eq!(plain, "postgres://u:p%3F@h/d?application_name=a&connect_timeout=3");
        assert_eq!((wish.mode.as_deref(), wish.root), (Some("verify-full"), Some(PathBuf::from("/a b"))));
        assert_eq!(Wish::take("postgres://h/d").unwrap(), ("postgres://h/d".into(), Wish::default()));
    }

    #[test]
    fn tls_that_does_not_know_its_server_is_refused() {
        for mode in ["require", "prefer", "allow", "verify-ca", "VERIFY-FULL", ""] {
            let refused = refusal(&format!("postgres://u:secret@h/d?sslmode={mode}"));
            assert!(refused.contains(&format!("sslmode={mode};")), "{mode}: {refused}");
            assert!(!refused.contains("secret"));
        }
        assert!(refusal("postgres://h/d?sslmode=verify-full").contains("sslrootcert"));
        assert!(refusal("postgres://h/d?sslrootcert=/x").contains("sslmode=verify-full"));
        assert!(
            refusal("postgres://h/d?sslmode=verify-full&sslrootcert=/does/not/exist")
                .contains("/does/not/exist")
        );
        assert!(refusal("postgres://h/d?sslmode=%ff").contains("percent-encoded"));
        assert_eq!(refusal("postgres://h/d?sslmode=disable"), "");
        assert_eq!(Address::read("postgres://h/d").unwrap().config.get_ssl_mode(), SslMode::Disable);
    }
}
