//! The shape of the file of `--recovery`, with what holds where nothing is said. What must be true of
//! the values is checked in [`super::settings`]; each
//! field is told in docs/recovery.md.

use crate::grant::duration::Span;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default = "every")]
    pub every: Span,
    #[serde(default = "batch")]
    pub batch: u32,
    #[serde(default)]
    pub give_up: GiveUpIn,
    #[serde(default)]
    pub backoff: BackoffIn,
    pub providers: BTreeMap<String, ProviderIn>,
}

/// When recovery stops trying.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GiveUpIn {
    pub attempts: u32,
    pub age: Span,
}

impl Default for GiveUpIn {
    fn default() -> Self {
        Self { attempts: 8, age: Span::seconds(24 * 3_600) }
    }
}

/// How long it rests.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackoffIn {
    pub first: Span,
    pub max: Span,
}

impl Default for BackoffIn {
    fn default() -> Self {
        Self { first: Span::seconds(10), max: Span::seconds(600) }
    }
}

/// One provider.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderIn {
    pub sign: SignIn,
    pub operations: Option<OperationsIn>,
    pub keys: Option<KeysIn>,
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    #[serde(default)]
    pub breaker: BreakerIn,
    #[serde(default)]
    pub allow_plaintext_network: bool,
    #[serde(default)]
    pub tls: Option<TlsIn>,
}

/// What TLS with a provider needs beyond the system's authorities.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsIn {
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// The key that signs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    pub key_id: String,
    pub key_file: PathBuf,
}

/// What a provider serves of operations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationsIn {
    pub issuers: Vec<String>,
    pub lookup: Option<EndpointIn>,
    pub submit: Option<SubmitIn>,
    pub contract: ContractIn,
}

/// What a provider serves of keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysIn {
    pub prefixes: Vec<String>,
    pub lookup: EndpointIn,
}

/// A method.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MethodIn {
    Get,
    Post,
}

/// One endpoint.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointIn {
    pub method: Option<MethodIn>,
    pub url: String,
    pub timeout: Option<Span>,
}

/// The endpoint that does something, and the keys that its provider knows requests by.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitIn {
    pub method: Option<MethodIn>,
    pub url: String,
    pub timeout: Option<Span>,
    pub key_prefix: Option<String>,
    pub downstream_keys: Option<serde_json::Value>,
}

/// What a provider promises.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractIn {
    pub lookup: bool,
    pub atomic_concurrent_keys: bool,
    pub same_parameters: bool,
    pub key_retention: Option<Span>,
}

/// When a provider is left alone.
#[derive(Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerIn {
    pub failures: u32,
    pub open_for: Span,
}

impl Default for BreakerIn {
    fn default() -> Self {
        Self { failures: 5, open_for: Span::seconds(30) }
    }
}

const fn every() -> Span {
    Span::seconds(5)
}

const fn batch() -> u32 {
    64
}

const fn concurrency() -> usize {
    4
}
