//! Who the holder of a verified client certificate is: its subject alternative names.
//!
//! Only DNS and URI names count. The subject's common name does not: it is free text of the
//! authority, and two kinds of names must never be taken for each other, so a name carries its kind.

use serde::Deserialize;
use std::sync::Arc;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Longest name.
const NAME_LEN_MAX: usize = 2_048;

/// A name in a certificate, with its kind: `dns:envoy.prod.example`, `uri:spiffe://prod/envoy`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct PeerName(String);

impl PeerName {
    /// With its kind.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PeerName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let name = match text.split_once(':') {
            // DNS names are compared without regard to case (RFC 4343); URIs byte by byte.
            Some(("dns", name)) => {
                (!name.contains('*')).then(|| format!("dns:{}", name.to_ascii_lowercase()))
            }
            Some(("uri", name)) => name.contains(':').then(|| text.clone()),
            _ => None,
        };
        let plain = |name: &String| {
            name.len() > 4 && name.len() <= NAME_LEN_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        name.filter(plain).map(Self).ok_or_else(|| {
            format!("found client_san {text:?}; expected dns:NAME without a wildcard, or uri:SCHEME:REST")
        })
    }
}

/// The holder of a verified certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    names: Arc<[PeerName]>,
}

impl Peer {
    /// From the certificate in DER. One that can't be read has no name, so it may nothing.
    pub fn of(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::default() };
        let Ok(Some(names)) = certificate.subject_alternative_name() else { return Self::default() };
        let name = |name: &GeneralName<'_>| {
            let text = match name {
                GeneralName::DNSName(name) => format!("dns:{name}"),
                GeneralName::URI(name) => format!("uri:{name}"),
                _ => return None,
            };
            PeerName::try_from(text).ok()
        };
        Self { names: names.value.general_names.iter().filter_map(name).collect() }
    }

    /// Does the certificate have this name?
    pub fn is(&self, name: &PeerName) -> bool {
        self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_rig::authority::{Authority, dns, ip, uri};

    fn name(text: &str) -> Result<PeerName, String> {
        PeerName::try_from(text.to_owned())
    }

    #[test]
    fn names_of_a_certificate_are_its_dns_and_uri_names_each_with_its_kind() {
        let names = vec![dns("Envoy.Prod"), uri("spiffe://prod/envoy"), ip([127, 0, 0, 1])];
        let peer = Peer::of(&Authority::new().issue(names).cert_der);
        for found in ["dns:envoy.prod", "dns:ENVOY.prod", "uri:spiffe://prod/envoy"] {
            assert!(peer.is(&name(found).unwrap()), "{found}");
        }
        for other in ["uri:spiffe://prod/Envoy", "dns:prod", "dns:spiffe", "dns:peer", "dns:127.0.0.1"] {
            assert!(!peer.is(&name(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn a_certificate_without_names_or_without_sense_is_nobody() {
        assert_eq!(Peer::of(&Authority::new().issue(vec![]).cert_der), Peer::default());
        assert_eq!(Peer::of(b"no certificate"), Peer::default());
    }

    #[test]
    fn a_name_that_could_mean_many_is_refused() {
        for text in
            ["", "envoy.prod", "dns:", "dns:*.prod", "uri:", "uri:x", "cn:envoy", "dns:a b", "dns:a\nb"]
        {
            assert!(name(text).is_err(), "{text:?}");
        }
    }
}
