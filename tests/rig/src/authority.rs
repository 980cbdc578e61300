//! A certificate authority for tests, which lives as long as it is held.

pub use rcgen::SanType;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// An authority of its own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
    issued: AtomicU64,
}

/// A certificate with its key.
pub struct Issued {
    /// In PEM.
    pub cert_pem: String,
    /// In DER.
    pub cert_der: Vec<u8>,
    /// In PEM.
    pub key_pem: String,
    /// In DER, PKCS #8.
    pub key_der: Vec<u8>,
    /// Its number, as a revocation list names it.
    pub serial: u64,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

// Only tests make authorities; what can't be made fails them.
#[allow(clippy::unwrap_used)]
impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        // A subject other than that of what it issues, or these would look like their own issuers.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate, issued: AtomicU64::new(1) }
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Its own certificate, in DER.
    pub fn der(&self) -> Vec<u8> {
        self.certificate.der().to_vec()
    }

    /// A certificate with these names.
    ///
    /// # Panics
    /// When it can't be issued.
    pub fn issue(&self, names: Vec<SanType>) -> Issued {
        self.issue_until(4_000, names)
    }

    /// The same, good until this year begins.
    ///
    /// # Panics
    /// When it can't be issued.
    pub fn issue_until(&self, year: i32, names: Vec<SanType>) -> Issued {
        let mut params = CertificateParams::new([]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        params.distinguished_name.push(DnType::CommonName, "peer");
        params.subject_alt_names = names;
        let serial = self.issued.fetch_add(1, Ordering::SeqCst);
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            cert_pem: certificate.pem(),
            cert_der: certificate.der().to_vec(),
            key_pem: key.serialize_pem(),
            key_der: key.serialize_der(),
            serial,
        }
    }

    /// Its revocation list, in PEM, with these certificates in it.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn revocation_list(&self, revoked: &[&Issued]) -> String {
        let entry = |issued: &&Issued| RevokedCertParams {
            serial_number: SerialNumber::from(issued.serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(4_000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// A URI name.
///
/// # Panics
/// When it is not ASCII.
#[allow(clippy::unwrap_used)]
pub fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

/// A DNS name.
///
/// # Panics
/// When it is not ASCII.
#[allow(clippy::unwrap_used)]
pub fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// An address.
pub fn ip(address: impl Into<IpAddr>) -> SanType {
    SanType::IpAddress(address.into())
}
