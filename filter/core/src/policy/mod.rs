//! The filter's configuration, resolved: every setting has a value and was checked.
//!
//! `layer` is the configuration as written, `resolve` merges and checks it. What this version
//! can't do yet is refused at load, never ignored.

mod error;
#[cfg(test)]
mod every_field_tests;
mod grant;
mod identity;
mod layer;
#[cfg(feature = "schema")]
mod limits;
mod metadata;
pub mod quantity;
mod resolve;
mod route;
#[cfg(feature = "schema")]
mod schema;
mod shape;
mod struct_config;
#[cfg(test)]
mod tests;
mod upstream;

pub use error::ConfigError;
pub use grant::{DetailSource, GrantPolicy, OWN_DETAILS, Place, StatusName};
pub use route::{Level, Marks, RoutePolicies, route_fields};
#[cfg(feature = "schema")]
pub use schema::schema;

use crate::downstream::DownstreamKey;
use crate::error_template::ErrorTemplate;
use crate::fingerprint::FingerprintPolicy;
use crate::key::KeyFormat;
use crate::scope::ScopePolicy;
pub use fencepost_protocol::claims::OnLost;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The whole configuration of one filter.
#[derive(Debug, Clone)]
pub struct Config {
    /// How to reach the store service.
    pub store: StoreConfig,
    /// Readable beginning of every store key.
    pub key_prefix: String,
    /// What happens on routes that name no policy.
    pub unmarked_routes: UnmarkedRoutes,
    /// Policies by name.
    pub policies: BTreeMap<String, Rc<Policy>>,
    /// How answers of the filter itself are written where no policy is known.
    pub errors: Option<Rc<ErrorTemplate>>,
    layers: Layers,
}

/// The configuration as written, for routes that override parts of it.
#[derive(Debug, Clone)]
struct Layers {
    policies: BTreeMap<String, layer::PolicyLayer>,
    defaults: layer::PolicyLayer,
}

impl Config {
    /// Reads and checks the configuration: JSON text, or the wire bytes of a
    /// `google.protobuf.Struct`.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        // A Struct begins with a byte that is white space in JSON, so JSON is tried first.
        if serde_json::from_slice::<serde::de::IgnoredAny>(text).is_err()
            && let Some(value) = struct_config::decode(text)
        {
            return resolve::parse(value.to_string().as_bytes());
        }
        resolve::parse(text)
    }

    /// A policy by its name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.get(name).map(Rc::as_ref)
    }
}

/// How to reach the store service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Envoy cluster for calls that decide at once: complete, release, unknown, renew.
    pub decide_cluster: String,
    /// Envoy cluster for claims, which may park.
    pub claim_cluster: String,
    /// Longest wait for a reply, beyond the time that a claim parks.
    pub timeout_ms: u32,
    /// `:authority` of the calls, if not the cluster's name.
    pub authority: Option<String>,
}

/// What happens on routes that name no policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnmarkedRoutes {
    /// Nothing.
    Ignore,
    /// A request with a key is guarded by this policy.
    GuardWhenKeyPresent {
        /// Name of the policy; it exists.
        policy: String,
    },
    /// Every request of the policy's methods needs a key.
    RequireKey {
        /// Name of the policy; it exists.
        policy: String,
    },
}

/// A named set of rules for guarded routes.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Constant that keeps its keys apart from those of other namespaces.
    pub namespace: String,
    /// Whether it guards.
    pub mode: Mode,
    /// Guarded methods, upper case.
    pub methods: Vec<String>,
    /// Key header.
    pub key: KeyPolicy,
    /// Whose key it is.
    pub scope: ScopePolicy,
    /// What makes two requests the same.
    pub fingerprint: FingerprintPolicy,
    /// What a request does while another one with its key runs.
    pub concurrency: Concurrency,
    /// How long it waits, with [`Concurrency::Wait`].
    pub wait_ms: u32,
    /// Lease of a claim.
    pub claim_ttl_ms: u32,
    /// Longest run of the upstream.
    pub max_run_ms: u32,
    /// What a lost answer means.
    pub on_lost: OnLost,
    /// What is kept of answers.
    pub response: ResponsePolicy,
    /// How the upstream is called.
    pub execution: Execution,
    /// Whether the proxy's own retries are suppressed.
    pub retries: Retries,
    /// Keys for the upstream's own providers.
    pub downstream_keys: Vec<DownstreamKey>,
    /// Filters that must have left metadata before this one runs.
    pub require_metadata: Vec<String>,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// How answers of the filter itself are written, if not as problem+json.
    pub errors: Option<Rc<ErrorTemplate>>,
    /// How far back the same payload under another key is looked for and counted.
    pub same_payload_window_ms: Option<u32>,
    /// The grant that a request spends, where the route admits grants.
    pub grant: Option<GrantPolicy>,
}

impl Policy {
    /// Headers that an answer to another origin has to name for its scripts; none where it names
    /// them already, or the policy leaves that to others.
    pub fn exposed(&self, headers: &[(Vec<u8>, Vec<u8>)]) -> Option<Vec<u8>> {
        let response = &self.response;
        if response.cors_expose { crate::capture::exposed(&response.markers, headers) } else { None }
    }
}

/// Whether a policy guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
    /// It lets every request pass as it is, and counts what it would have done.
    Observe,
    /// It does not: requests pass as if the route were unmarked.
    Off,
}

/// The key header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Lower-case names: the header and its aliases.
    pub names: Vec<String>,
    /// Whether a request without a key is refused.
    pub required: bool,
    /// How the key is written.
    pub format: KeyFormat,
    /// Most bytes of its value.
    pub max_length: usize,
}

/// What a request does while another one with its key runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// It waits for the answer.
    Wait,
    /// It is answered 409 at once.
    Conflict,
}

/// How the upstream is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Execution {
    /// The request goes on through the filter chain.
    Inline,
    /// The filter sends it itself, so that a client that leaves takes nothing with it.
    Detached {
        /// Cluster that it is sent to.
        cluster: String,
        /// Whether that is the proxy's own internal listener, whose reports are believed.
        loopback: bool,
        /// Timeout of the call.
        timeout_ms: u32,
    },
}

/// Whether the proxy's own retries are suppressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// They are: the router retries below this filter and would run a request again.
    Suppress,
    /// They are left on.
    Allow,
}

/// What is kept of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePolicy {
    /// Lifetime of an answer.
    pub ttl_ms: u64,
    /// Lifetime of an unknown outcome.
    pub unknown_ttl_ms: u64,
    /// How much of an answer is kept.
    pub keep: Keep,
    /// Largest response body that is kept, in bytes.
    pub max_body: usize,
    /// What a larger one means.
    pub oversized: Oversized,
    /// Rules for single statuses.
    pub statuses: BTreeMap<u16, StatusRule>,
    /// Rules for classes: 2 stands for 2xx.
    pub classes: BTreeMap<u16, StatusRule>,
    /// Which headers are kept.
    pub headers: HeaderRules,
    /// Names of the filter's own response headers.
    pub markers: Markers,
    /// Whether answers to other origins name the markers as headers that scripts may read.
    pub cors_expose: bool,
}

impl Default for ResponsePolicy {
    fn default() -> Self {
        Self {
            ttl_ms: 24 * 3_600_000,
            unknown_ttl_ms: 24 * 3_600_000,
            keep: Keep::Answer,
            max_body: 512 * 1024,
            oversized: Oversized::Gone,
            statuses: BTreeMap::new(),
            classes: BTreeMap::new(),
            headers: HeaderRules::default(),
            markers: Markers::default(),
            cors_expose: false,
        }
    }
}

/// How much of an answer is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Status, headers and body: it is sent again.
    Answer,
    /// That there was one, and its status: a 410 is stored in its place.
    Status,
}

/// What an answer means that is too large to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversized {
    /// A 410 is stored in its place: it ran.
    Gone,
    /// The claim is given back: an equal request runs again.
    Rerun,
}

/// What happens to a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRule {
    /// It is stored.
    Store {
        /// Lifetime, if not the policy's.
        ttl_ms: Option<u64>,
    },
    /// The claim is given back.
    Release,
}

/// Which response headers are kept, beyond those that never are. Names are lower case; one that
/// ends in `*` stands for all that begin with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderRules {
    /// These are not kept.
    pub deny: Vec<String>,
    /// If set, only these are.
    pub allow: Option<Vec<String>>,
}

impl HeaderRules {
    /// Whether a lower-case name is kept.
    pub fn keeps(&self, name: &[u8]) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix.as_bytes()),
            None => name == pattern.as_bytes(),
        };
        !self.deny.iter().any(matches) && self.allow.as_ref().is_none_or(|allow| allow.iter().any(matches))
    }
}

/// Lower-case names of the filter's own response headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Markers {
    /// `true` on a replay.
    pub replayed: String,
    /// Status of an answer that was too large to keep.
    pub original_status: String,
    /// Seconds until the replayed answer expires.
    pub expires: String,
}

impl Markers {
    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&self.replayed, &self.original_status, &self.expires].into_iter().map(String::as_str)
    }
}

impl Default for Markers {
    fn default() -> Self {
        Self {
            replayed: "x-idempotent-replayed".to_owned(),
            original_status: "x-idempotent-original-status".to_owned(),
            expires: "x-idempotent-expires".to_owned(),
        }
    }
}
