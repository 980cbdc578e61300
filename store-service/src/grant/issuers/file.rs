//! The text of the file, and every check of it.

use super::{BoundKind, Claims, Form, Issuer, Issuers};
use crate::grant::duration::Span;
use crate::grant::key_source::{KeySource, KeySourceError};
use crate::grant::keys::{Algorithm, KeySet};
use crate::grant::timing::ExecutionTimings;
use fencepost_protocol::grants::TEXT_MAX;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    timings: ExecutionTimings,
    issuers: Vec<Entry>,
    #[serde(default)]
    allow_hmac: bool,
    #[serde(default = "revocations")]
    revocations_per_minute: u32,
    admissions_per_minute: Option<u32>,
    archive_rows_after: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    issuer: String,
    #[serde(default)]
    form: Form,
    #[serde(default)]
    audience: Vec<String>,
    #[serde(default)]
    algorithms: Vec<Algorithm>,
    keys: Option<Keys>,
    leeway: Span,
    #[serde(default)]
    leeways: BTreeMap<String, Span>,
    max_lifetime: Span,
    iat_skew: Span,
    #[serde(default)]
    claims: Claims,
    #[serde(default)]
    key_by_tenant: bool,
    caller_namespace: String,
    #[serde(default)]
    bound: BTreeMap<String, BoundKind>,
    operation_mac_key_file: Option<PathBuf>,
    admissions_per_minute: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    inline: Option<serde_json::Value>,
    file: Option<PathBuf>,
    url: Option<String>,
    ca_file: Option<PathBuf>,
    #[serde(default = "refresh_min")]
    refresh_min: Span,
    #[serde(default = "max_age")]
    max_age: Span,
}

impl Issuers {
    /// Reads the text; `base` is where relative paths start.
    pub fn parse(text: &str, base: &Path) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| {
            // The first line names place and cause; the rest would show the text, keys included.
            error.to_string().lines().next().unwrap_or("not YAML").to_owned()
        })?;
        file.timings.check()?;
        if file.issuers.is_empty() {
            return Err("issuers: found none; expected at least one".into());
        }
        if file.revocations_per_minute == 0 {
            return Err("revocations_per_minute: found 0; expected 1 or more".into());
        }
        not_zero(file.admissions_per_minute)?;
        let margin = file.timings.cleanup_margin;
        if let Some(after) = file.archive_rows_after.filter(|after| *after < margin) {
            return Err(format!(
                "archive_rows_after: found {after}; expected at least timings.cleanup_margin = {margin}, as long as \
                 an admission may still be waiting"
            ));
        }
        let mut issuers = BTreeMap::new();
        for (at, entry) in file.issuers.into_iter().enumerate() {
            let name = entry.issuer.clone();
            let issuer =
                entry.checked(base, file.allow_hmac).map_err(|why| format!("issuers[{at}].{why}"))?;
            if issuers.insert(name.clone(), issuer).is_some() {
                return Err(format!("issuers[{at}].issuer: found {name:?} twice"));
            }
        }
        Ok(Self {
            timings: file.timings,
            revocations_per_minute: file.revocations_per_minute,
            admissions_per_minute: file.admissions_per_minute,
            archive_rows_after: file.archive_rows_after,
            issuers,
        })
    }
}

impl Entry {
    fn checked(self, base: &Path, allow_hmac: bool) -> Result<Issuer, String> {
        if self.issuer.is_empty() || self.issuer.len() > TEXT_MAX {
            return Err(format!("issuer: found {} bytes; expected 1 to {TEXT_MAX}", self.issuer.len()));
        }
        if self.max_lifetime == Span::default() {
            return Err(
                "max_lifetime: found 0; expected more than zero: a record of use is kept for it".into()
            );
        }
        if self.caller_namespace.is_empty() || self.caller_namespace.len() > TEXT_MAX {
            return Err(format!("caller_namespace: expected 1 to {TEXT_MAX} bytes"));
        }
        if self.key_by_tenant && self.claims.tenant.is_none() && self.form == Form::Token {
            return Err("key_by_tenant: found true without claims.tenant; expected the claim's name".into());
        }
        if self.leeways.keys().any(|version| version.is_empty() || version.len() > TEXT_MAX) {
            return Err(format!("leeways: expected versions of 1 to {TEXT_MAX} bytes"));
        }
        let keys = match (self.form, self.keys) {
            (Form::Token, Some(keys)) => Some(keys.source(base).map_err(|why| format!("keys: {why}"))?),
            (Form::Token, None) => return Err("keys: missing; expected inline, file or url".into()),
            (Form::Row, None) => None,
            (Form::Row, Some(_)) => return Err("keys: found some, but form: row has no tokens".into()),
        };
        if self.form == Form::Token {
            if self.algorithms.is_empty() {
                return Err("algorithms: found none; expected those of this issuer, such as [EdDSA]".into());
            }
            if self.audience.is_empty() {
                return Err("audience: found none; expected the names that tokens for here carry".into());
            }
        }
        if self.algorithms.contains(&Algorithm::HS256) && !allow_hmac {
            return Err(
                "algorithms: found HS256, with which whoever verifies can issue; expected EdDSA, ES256, \
                        RS256 or PS256, or allow_hmac: true in tests"
                    .into(),
            );
        }
        not_zero(self.admissions_per_minute)?;
        let operation_mac_key =
            self.operation_mac_key_file.map(|file| mac_key(&base.join(file))).transpose()?;
        Ok(Issuer {
            name: self.issuer,
            form: self.form,
            audience: self.audience,
            algorithms: self.algorithms,
            keys,
            leeway: self.leeway,
            leeways: self.leeways,
            max_lifetime: self.max_lifetime,
            iat_skew: self.iat_skew,
            claims: self.claims,
            key_by_tenant: self.key_by_tenant,
            caller_namespace: self.caller_namespace,
            bound: self.bound,
            operation_mac_key,
            admissions_per_minute: self.admissions_per_minute,
        })
    }
}

fn not_zero(admissions_per_minute: Option<u32>) -> Result<(), String> {
    match admissions_per_minute {
        Some(0) => Err("admissions_per_minute: found 0; expected 1 or more, or none for no limit".into()),
        _ => Ok(()),
    }
}

impl Keys {
    fn source(self, base: &Path) -> Result<KeySource, String> {
        if self.ca_file.is_some() && self.url.is_none() {
            return Err("ca_file: found without url; expected it beside a url with https".into());
        }
        let ca = self.ca_file.map(|file| base.join(file));
        match (self.inline, self.file, self.url) {
            (Some(set), None, None) => Ok(KeySource::fixed(KeySet::parse(&set.to_string())?)),
            (None, Some(file), None) => {
                let path = base.join(file);
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("file {}: {error}", path.display()))?;
                Ok(KeySource::fixed(
                    KeySet::parse(&text).map_err(|why| format!("file {}: {why}", path.display()))?,
                ))
            }
            (None, None, Some(url)) => KeySource::url(&url, ca.as_deref(), self.refresh_min, self.max_age)
                .map_err(|KeySourceError(why)| format!("url: {why}")),
            _ => Err("expected exactly one of inline, file and url".into()),
        }
    }
}

fn mac_key(path: &Path) -> Result<Vec<u8>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("operation_mac_key_file {}: {error}", path.display()))?;
    match hex::decode(text.trim()) {
        Ok(key) if key.len() >= 32 => Ok(key),
        _ => Err(format!(
            "operation_mac_key_file {}: expected 64 or more hex digits of a random key",
            path.display()
        )),
    }
}

const fn revocations() -> u32 {
    60
}

const fn refresh_min() -> Span {
    Span::seconds(30)
}

const fn max_age() -> Span {
    Span::seconds(600)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
issuers:
  - issuer: https://approvals.example
    audience: [billing]
    algorithms: [EdDSA]
    keys: {inline: {keys: [{kty: OKP, crv: Ed25519, kid: k1, x: BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc}]}}
    leeway: 30s
    leeways: {"2": 5s}
    max_lifetime: 1h
    iat_skew: 60s
    caller_namespace: https://login.example
    bound: {account: text, amount: decimal}
"#;

    fn refused(text: &str) -> String {
        Issuers::parse(text, Path::new(".")).err().unwrap_or_else(|| panic!("accepted: {text}"))
    }

    #[test]
    fn a_good_file_is_read_in_yaml_and_json() {
        let issuers = Issuers::parse(GOOD, Path::new(".")).unwrap();
        let issuer = issuers.get("https://approvals.example").unwrap();
        assert_eq!(issuer.leeway(None), Some(Span::seconds(30)));
        assert_eq!(issuer.leeway(Some("2")), Some(Span::seconds(5)));
        assert_eq!(issuer.leeway(Some("3")), None);
        assert_eq!(issuer.retention_without_expiry(), Span::seconds(3_600 + 60 + 30));
        let value: serde_json::Value = serde_saphyr::from_str(GOOD).unwrap();
        assert!(Issuers::parse(&value.to_string(), Path::new(".")).is_ok());
    }

    #[test]
    fn each_mistake_is_named_with_its_place() {
        for (from, to, says) in [
            ("max_lifetime: 1h", "max_lifetime: 0s", "issuers[0].max_lifetime: found 0"),
            ("    max_lifetime: 1h\n", "", "max_lifetime"),
            ("    leeway: 30s\n", "", "leeway"),
            ("leeway: 30s", "leeway: -30s", "-30s"),
            ("    iat_skew: 60s\n", "", "iat_skew"),
            ("algorithms: [EdDSA]", "algorithms: [none]", "none"),
            ("algorithms: [EdDSA]", "algorithms: []", "issuers[0].algorithms: found none"),
            ("algorithms: [EdDSA]", "algorithms: [HS256]", "allow_hmac"),
            ("audience: [billing]", "audience: []", "issuers[0].audience"),
            ("audience: [billing]", "audiences: [billing]", "audiences"),
            ("form: token\n    ", "", ""),
            ("    audience", "    form: row\n    audience", "issuers[0].keys: found some"),
            ("    audience", "    key_by_tenant: true\n    audience", "key_by_tenant"),
            ("issuers:", "timings: {cleanup_margin: 0s}\nissuers:", "timings.cleanup_margin: found 0"),
            ("issuers:", "timings: {effect_timeout: 50s}\nissuers:", "execution_lease - lease_margin"),
            ("issuers:", "admissions_per_minute: 0\nissuers:", "admissions_per_minute: found 0"),
            (
                "    audience",
                "    admissions_per_minute: 0\n    audience",
                "issuers[0].admissions_per_minute",
            ),
            ("issuers:", "archive_rows_after: 1s\nissuers:", "timings.cleanup_margin = 5m"),
            ("issuers:", "revocations_per_minute: 0\nissuers:", "revocations_per_minute"),
            ("{inline:", "{file: nowhere.json, inline:", "exactly one of"),
            ("kty: OKP", "kty: EC", "none of its keys"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            if text != GOOD {
                let message = refused(&text);
                assert!(message.contains(says), "{from} -> {to}: {message}");
            }
        }
        assert!(refused("issuers: []").contains("found none"));
        assert!(refused(&format!("{GOOD}{}", &GOOD["\nissuers:\n".len()..])).contains("twice"));
    }
}
