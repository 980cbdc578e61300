//! The settings that make a guarded route one that admits a grant: as written, checked, and why a
//! combination is refused.
//!
//! A grant is spent by its admission, so whatever could run the request twice, or decide without
//! the service, is an error here and not a choice.

use super::error::found;
use super::layer::{Empty, ScopeEntry, UniqueMap, layer};
use super::resolve::At;
use super::{ConfigError, Execution, Mode, OnLost, Policy, Retries, identity};
use crate::scope::{ScopePolicy, ScopeSource};
use core::fmt;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// Most details of one operation that a policy binds; the service takes 64, and two are ours.
pub(super) const DETAILS_MAX: usize = 48;

/// Beginning of the names of the details that the filter adds.
pub const OWN_DETAILS: &str = "fencepost.";

/// Schemes of ordinary credentials.
pub(super) const ORDINARY_SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "negotiate", "dpop"];

/// Stands in `status_address` for the operation's id.
const OPERATION_ID: &str = "{operation_id}";

layer!(GrantLayer {
    token: SourceLayer,
    scheme: String,
    strip: bool,
    operation_id: SourceLayer,
    operation_mac: SourceLayer,
    caller_namespace: String,
    tenant: ScopeEntry,
    path: String,
    status_address: String,
} nested {
    details: UniqueMap<SourceLayer>,
    outcome: OutcomeLayer,
});

layer!(OutcomeLayer { succeeded: Vec<StatusName>, failed: Vec<StatusName>, } nested {});

/// Where a value is; the last three for details only.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceLayer {
    Header(String),
    Body(String),
    Path(String),
    Scope(Empty),
    Constant(String),
}

/// What a request on a route that admits grants has to bring, and what its answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantPolicy {
    /// Where the token is.
    pub token: Place,
    /// Word before the token in its header, such as `Grant`, compared without case.
    pub scheme: Option<String>,
    /// Whether the upstream does not get the token's header.
    pub strip: bool,
    /// Where the operation's id is.
    pub operation_id: Place,
    /// Where the MAC is that binds it to the grant.
    pub operation_mac: Option<Place>,
    /// Who asks.
    pub caller: ScopeSource,
    /// In which set of ids; none where the caller's source says so itself (a JWT's issuer).
    pub caller_namespace: Option<String>,
    /// The caller's tenant.
    pub tenant: Option<ScopeSource>,
    /// Template of the path, for details that are in it.
    pub path: Option<String>,
    /// Details with their sources.
    pub details: Vec<(String, DetailSource)>,
    /// Which statuses mean that the effect exists.
    pub succeeded: Vec<StatusName>,
    /// Which mean that there certainly is none.
    pub failed: Vec<StatusName>,
    /// Address of an operation's status, before and after its id.
    pub status_address: Option<(String, String)>,
}

/// Where in the request a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A header, by its lower-case name.
    Header(String),
    /// A member of the JSON body, by its pointer (RFC 6901).
    Body(String),
}

/// Where the value of a detail is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetailSource {
    /// In the request.
    At(Place),
    /// A variable of the path.
    Path(String),
    /// The caller's id.
    Caller,
    /// The same in every request.
    Constant(String),
}

/// A status, or a class of them: 2 stands for 2xx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusName {
    /// One status.
    Status(u16),
    /// A class.
    Class(u16),
}

impl StatusName {
    fn parse(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [class @ b'2'..=b'5', b'x', b'x'] => Some(Self::Class(u16::from(class.wrapping_sub(b'0')))),
            [b'2'..=b'5', b'0'..=b'9', b'0'..=b'9'] => text.parse().ok().map(Self::Status),
            _ => None,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::Class(class) => format!("{class}xx"),
        }
    }
}

impl<'de> Deserialize<'de> for StatusName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = StatusName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status from 200 to 599, or a class such as 2xx")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<StatusName, E> {
                StatusName::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_u64<E: Error>(self, status: u64) -> Result<StatusName, E> {
                let known = u16::try_from(status).ok().filter(|status| (200..=599).contains(status));
                known
                    .map(StatusName::Status)
                    .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(status), &self))
            }

            fn visit_f64<E: Error>(self, status: f64) -> Result<StatusName, E> {
                let whole = status.trunc() == status && (200.0..=599.0).contains(&status);
                if whole {
                    Ok(StatusName::Status(status as u16))
                } else {
                    Err(E::invalid_value(Unexpected::Float(status), &self))
                }
            }
        }
        d.deserialize_any(Name)
    }
}

impl GrantLayer {
    fn is_empty(&self) -> bool {
        let words = [&self.scheme, &self.caller_namespace, &self.path, &self.status_address];
        let sources = [&self.token, &self.operation_id, &self.operation_mac];
        words.iter().all(|word| word.is_none())
            && sources.iter().all(|source| source.is_none())
            && self.strip.is_none()
            && self.tenant.is_none()
            && self.details.0.is_empty()
            && self.outcome.succeeded.is_none()
            && self.outcome.failed.is_none()
    }
}

/// The grant of a policy, if it has one.
pub(super) fn grant(
    at: &At<'_>,
    layer: GrantLayer,
    scope: &ScopePolicy,
) -> Result<Option<GrantPolicy>, ConfigError> {
    if layer.is_empty() {
        return Ok(None);
    }
    let path = format!("{}.grant", at.0);
    let (policy, at) = (at, &At(&path));
    let required = |field: &str, what: &str| at.error(field, "nothing", what);
    let token = layer.token.ok_or_else(|| required("token", "{header: NAME} or {body: POINTER}"))?;
    let (token, scheme, strip) = self::token(at, token, layer.scheme, layer.strip)?;
    let operation_id = layer
        .operation_id
        .ok_or_else(|| required("operation_id", "where it is: the same in every retry of one operation"))?;
    let (caller, caller_namespace) = caller(policy, at, scope, layer.caller_namespace)?;
    let details = details(at, layer.details.0, layer.path.as_deref())?;
    let tenant = match layer.tenant {
        Some(ScopeEntry(source)) => Some(identity::scope_source(at, "tenant", source)?),
        None => None,
    };
    let listed = |names: Option<Vec<StatusName>>, otherwise: &[StatusName]| {
        names.unwrap_or_else(|| otherwise.to_vec())
    };
    let succeeded = listed(layer.outcome.succeeded, &[StatusName::Class(2)]);
    let failed = listed(layer.outcome.failed, &[StatusName::Status(402), StatusName::Status(422)]);
    for (field, names) in [("outcome.succeeded", &succeeded), ("outcome.failed", &failed)] {
        at.once(field, names, |name| name.shown())?;
    }
    if succeeded.iter().any(|name| failed.contains(name)) {
        let expected = "each status in one list: what means both means nothing";
        return Err(at.error("outcome.failed", "a status that is in succeeded too", expected));
    }
    Ok(Some(GrantPolicy {
        token,
        scheme,
        strip,
        operation_id: place(at, "operation_id", operation_id)?,
        operation_mac: layer.operation_mac.map(|mac| place(at, "operation_mac", mac)).transpose()?,
        caller,
        caller_namespace,
        tenant,
        path: layer.path,
        details,
        succeeded,
        failed,
        status_address: layer.status_address.map(|text| address(at, &text)).transpose()?,
    }))
}

fn token(
    at: &At<'_>,
    layer: SourceLayer,
    scheme: Option<String>,
    strip: Option<bool>,
) -> Result<(Place, Option<String>, bool), ConfigError> {
    let SourceLayer::Header(name) = layer else {
        if scheme.is_some() {
            return Err(at.error("scheme", "a scheme", "no such field: it needs a token in a header"));
        }
        if strip == Some(true) {
            return Err(at.error("strip", "true", "false: a body goes on as it came"));
        }
        return Ok((place(at, "token", layer)?, None, false));
    };
    let scheme = scheme.map(|word| at.header("scheme", &word)).transpose()?;
    let authorization = name.eq_ignore_ascii_case("authorization");
    let ordinary = |word: &str| ORDINARY_SCHEMES.contains(&word);
    if scheme.as_deref().map_or(authorization, ordinary) {
        let expected = "a scheme of its own, such as Grant: ordinary credentials are never consumed";
        return Err(at.error("scheme", found(scheme.map(Into::into).as_ref()), expected));
    }
    let name = if authorization { name.to_ascii_lowercase() } else { at.own_header("token.header", &name)? };
    Ok((Place::Header(name), scheme, strip.unwrap_or(true)))
}

fn place(at: &At<'_>, field: &str, layer: SourceLayer) -> Result<Place, ConfigError> {
    match layer {
        SourceLayer::Header(name) => at.own_header(&format!("{field}.header"), &name).map(Place::Header),
        SourceLayer::Body(pointer) => {
            let field = format!("{field}.body");
            if !pointer.starts_with('/') {
                let expected = "a JSON pointer, such as /amount";
                return Err(at.error(&field, found(Some(&pointer.into())), expected));
            }
            identity::check_property(at, &field, &pointer)?;
            Ok(Place::Body(pointer))
        }
        SourceLayer::Path(_) | SourceLayer::Scope(_) | SourceLayer::Constant(_) => {
            Err(at.error(field, "a source for details", "{header: NAME} or {body: POINTER}"))
        }
    }
}

/// The caller is the first source of the scope: an identity that the proxy verified.
fn caller(
    policy: &At<'_>,
    at: &At<'_>,
    scope: &ScopePolicy,
    namespace: Option<String>,
) -> Result<(ScopeSource, Option<String>), ConfigError> {
    let expected = "jwt, peer_san, metadata, filter_state or a trusted header first: a grant is one caller's";
    let first = match scope {
        ScopePolicy::Anonymous => return Err(policy.error("anonymous", "true", expected)),
        ScopePolicy::Sources(sources) => sources.first(),
    };
    let caller = match first {
        None | Some(ScopeSource::Host | ScopeSource::Constant { .. }) => {
            let found = first.map_or("nothing", ScopeSource::name);
            return Err(policy.error("scope[0]", found, expected));
        }
        Some(caller) => caller.clone(),
    };
    let namespace = namespace.map(|name| at.name("caller_namespace", &name)).transpose()?;
    match (&caller, &namespace) {
        (ScopeSource::Jwt { .. }, Some(_)) => {
            Err(at.error("caller_namespace", "a name", "no such field: that of a jwt is its issuer"))
        }
        (ScopeSource::Jwt { .. }, None) | (_, Some(_)) => Ok((caller, namespace)),
        (_, None) => {
            Err(at.error("caller_namespace", "nothing", "a constant: in which set of ids the caller's id is"))
        }
    }
}

fn details(
    at: &At<'_>,
    layers: std::collections::BTreeMap<String, SourceLayer>,
    template: Option<&str>,
) -> Result<Vec<(String, DetailSource)>, ConfigError> {
    let variables = match template {
        Some(template) => identity::template_variables(at, "path", template)?,
        None => Vec::new(),
    };
    if !(1..=DETAILS_MAX).contains(&layers.len()) {
        let expected = "1 to 48 details: what the grant is compared with";
        return Err(at.error("details", format!("{} of them", layers.len()), expected));
    }
    let mut details = Vec::with_capacity(layers.len());
    for (name, layer) in layers {
        let field = format!("details.{name}");
        at.name(&field, &name)?;
        if name.starts_with(OWN_DETAILS) {
            return Err(at.error(
                &field,
                "a name of the filter's own",
                "a name that does not begin with fencepost.",
            ));
        }
        let source = match layer {
            place @ (SourceLayer::Header(_) | SourceLayer::Body(_)) => {
                DetailSource::At(self::place(at, &field, place)?)
            }
            SourceLayer::Path(variable) if variables.contains(&variable.as_str()) => {
                DetailSource::Path(variable)
            }
            SourceLayer::Path(variable) => {
                let found = found(Some(&variable.into()));
                return Err(at.error(&format!("{field}.path"), found, "a {name} of grant.path"));
            }
            SourceLayer::Scope(_) => DetailSource::Caller,
            SourceLayer::Constant(text) => {
                DetailSource::Constant(at.name(&format!("{field}.constant"), &text)?)
            }
        };
        details.push((name, source));
    }
    Ok(details)
}

fn address(at: &At<'_>, text: &str) -> Result<(String, String), ConfigError> {
    let split = text.split_once(OPERATION_ID).filter(|(_, rest)| !rest.contains(OPERATION_ID));
    let printable = text.len() <= 1_024 && text.bytes().all(|b| (0x21..=0x7e).contains(&b));
    match split.filter(|_| printable && (text.starts_with('/') || text.starts_with("http"))) {
        Some((before, after)) => Ok((before.to_owned(), after.to_owned())),
        None => {
            let expected = "an address, or a path that starts with /, with {operation_id} in it once";
            Err(at.error("status_address", found(Some(&text.into())), expected))
        }
    }
}

/// What would break the one use of a grant.
pub(super) fn check(at: &At<'_>, policy: &Policy) -> Result<(), ConfigError> {
    if policy.grant.is_none() {
        return Ok(());
    }
    if policy.mode == Mode::Observe {
        return Err(at.error("mode", "\"observe\"", "enforce or off: an observed request spends no grant"));
    }
    if policy.execution == Execution::Inline {
        let expected = "detached: a client that leaves must not take the outcome of a spent grant with it";
        return Err(at.error("execution", "\"inline\"", expected));
    }
    if policy.on_lost == OnLost::Rerun {
        return Err(at.error("on_lost", "\"rerun\"", "hold: a grant allows one run"));
    }
    if policy.retries == Retries::Allow {
        return Err(at.error("retries", "\"allow\"", "suppress: a grant allows one run"));
    }
    if let Some(place) = policy.methods.iter().position(|method| method == "GET") {
        return Err(at.error(
            &format!("methods[{place}]"),
            "\"GET\"",
            "methods that are not safe: GET spends no grant",
        ));
    }
    Ok(())
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for StatusName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StatusName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"anyOf": [
            {"type": "integer", "minimum": 200, "maximum": 599},
            {"type": "string", "pattern": "^[2-5](xx|[0-9]{2})$"},
        ]})
    }
}
