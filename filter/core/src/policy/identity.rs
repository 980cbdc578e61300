//! The two settings that say what a repeated request is: whose it is, and what is compared.

use super::ConfigError;
use super::error::found;
use super::layer::{
    BodyLayer, DuplicatesLayer, FingerprintLayer, NumbersLayer, QueryLayer, QueryWord, ScopeEntry, ScopeLayer,
};
use super::resolve::At;
use crate::fingerprint::{
    BodyRule, DuplicateMembers, FingerprintOptions, FingerprintPolicy, PathTemplate, QueryRule,
};
use crate::scope::{ScopePolicy, ScopeSource};

/// Most scope sources, properties, headers and the like in one list.
pub(super) const LIST_LEN_MAX: usize = 32;

/// Longest name or pointer of a property, in characters.
pub(super) const PROPERTY_LEN_MAX: usize = 1_024;

pub(super) fn scope(
    at: &At<'_>,
    sources: Option<Vec<ScopeEntry>>,
    anonymous: Option<bool>,
) -> Result<ScopePolicy, ConfigError> {
    let sources = match (sources, anonymous.unwrap_or(false)) {
        (None, true) => return Ok(ScopePolicy::Anonymous),
        (Some(_), true) => {
            return Err(at.error("anonymous", "true beside a scope", "either a scope or anonymous: true"));
        }
        (None, false) => {
            return Err(at.error(
                "scope",
                "nothing",
                "whose keys they are (jwt, peer_san, metadata, filter_state, header, host, constant), \
                 or anonymous: true",
            ));
        }
        (Some(sources), false) => sources,
    };
    if !(1..=LIST_LEN_MAX).contains(&sources.len()) {
        return Err(at.error("scope", format!("{} sources", sources.len()), "1 to 32 sources"));
    }
    let mut resolved = Vec::with_capacity(sources.len());
    for (i, ScopeEntry(source)) in sources.into_iter().enumerate() {
        let source = scope_source(at, &format!("scope[{i}]"), source)?;
        if resolved.contains(&source) {
            return Err(at.error(&format!("scope[{i}]"), "the same source again", "each source once"));
        }
        resolved.push(source);
    }
    Ok(ScopePolicy::Sources(resolved))
}

pub(super) fn scope_source(at: &At<'_>, field: &str, source: ScopeLayer) -> Result<ScopeSource, ConfigError> {
    let name = |inner: &str, text: &str| at.name(&format!("{field}.{inner}"), text);
    Ok(match source {
        ScopeLayer::Jwt(jwt) => ScopeSource::Jwt {
            filter: name("jwt.filter", jwt.filter.as_deref().unwrap_or("envoy.filters.http.jwt_authn"))?,
            payload: name("jwt.payload", &jwt.payload)?,
            claim: name("jwt.claim", &jwt.claim)?,
        },
        ScopeLayer::PeerSan(_) => ScopeSource::PeerSan,
        ScopeLayer::Metadata(metadata) => {
            if !(1..=LIST_LEN_MAX).contains(&metadata.path.len()) {
                let found = format!("{} names", metadata.path.len());
                return Err(at.error(&format!("{field}.metadata.path"), found, "1 to 32 names"));
            }
            ScopeSource::Metadata {
                filter: name("metadata.filter", &metadata.filter)?,
                path: metadata
                    .path
                    .iter()
                    .enumerate()
                    .map(|(i, text)| name(&format!("metadata.path[{i}]"), text))
                    .collect::<Result<_, _>>()?,
            }
        }
        ScopeLayer::FilterState(state) => {
            ScopeSource::FilterState { key: name("filter_state.key", &state.key)? }
        }
        ScopeLayer::Header(header) => {
            if !header.trusted {
                return Err(at.error(
                    &format!("{field}.header.trusted"),
                    "nothing or false",
                    "true, if no client can send this header past the proxy",
                ));
            }
            ScopeSource::Header { name: at.header(&format!("{field}.header.name"), &header.name)? }
        }
        ScopeLayer::Host(_) => ScopeSource::Host,
        ScopeLayer::Constant(constant) => {
            ScopeSource::Constant { value: name("constant.value", &constant.value)? }
        }
    })
}

pub(super) fn fingerprint(at: &At<'_>, layer: FingerprintLayer) -> Result<FingerprintPolicy, ConfigError> {
    // The only way there is; the field says so where a reader looks for it.
    let (None | Some(NumbersLayer::Text)) = layer.numbers;
    let body = match layer.body {
        None | Some(BodyLayer::Json) => BodyRule::Json,
        Some(BodyLayer::Bytes) => BodyRule::Bytes,
        Some(BodyLayer::None) => BodyRule::None,
    };
    let properties = layer.properties.unwrap_or_default();
    if body != BodyRule::Json {
        let json_only = "no such field: it needs body: json";
        if !properties.is_empty() {
            return Err(at.error("properties", format!("{} of them", properties.len()), json_only));
        }
        if layer.duplicate_members.is_some_and(|rule| rule != DuplicatesLayer::Raw) {
            return Err(at.error("duplicate_members", "a rule", json_only));
        }
    }
    for (i, property) in properties.iter().enumerate() {
        check_property(at, &format!("properties[{i}]"), property)?;
    }
    let hosts = layer.hosts.unwrap_or_default();
    for (i, host) in hosts.iter().enumerate() {
        at.name(&format!("hosts[{i}]"), host)?;
    }
    let options = FingerprintOptions {
        body,
        properties,
        duplicate_members: match layer.duplicate_members {
            None | Some(DuplicatesLayer::Raw) => DuplicateMembers::Raw,
            Some(DuplicatesLayer::Last) => DuplicateMembers::Last,
            Some(DuplicatesLayer::Reject) => DuplicateMembers::Reject,
        },
        query: match layer.query {
            None | Some(QueryLayer::Word(QueryWord::All)) => QueryRule::All,
            Some(QueryLayer::Word(QueryWord::Sorted)) => QueryRule::Sorted,
            Some(QueryLayer::Word(QueryWord::None)) => QueryRule::None,
            Some(QueryLayer::Names(names)) => {
                for (i, name) in names.iter().enumerate() {
                    at.name(&format!("query[{i}]"), name)?;
                }
                at.each_once("query", &names)?;
                QueryRule::Names(names)
            }
        },
        path: layer.path.map(|path| path_template(at, path.template, path.variables)).transpose()?,
        headers: at.headers("headers", layer.headers)?,
        hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
    };
    for (field, list) in
        [("properties", &options.properties), ("headers", &options.headers), ("hosts", &options.hosts)]
    {
        if list.len() > LIST_LEN_MAX {
            return Err(at.error(field, format!("{} of them", list.len()), "at most 32"));
        }
        at.each_once(field, list)?;
    }
    FingerprintPolicy::compile(options)
        .map_err(|error| at.error("body", error.to_string(), "rules that name a scheme"))
}

/// A name, or a JSON pointer whose escapes are `~0` and `~1`.
pub(super) fn check_property(at: &At<'_>, field: &str, property: &str) -> Result<(), ConfigError> {
    let mut escapes = property.split('~').skip(1);
    let good = !property.is_empty()
        && property.chars().count() <= PROPERTY_LEN_MAX
        && (!property.starts_with('/') || escapes.all(|rest| rest.starts_with(['0', '1'])));
    let expected = "a property's name, or a JSON pointer that starts with / and escapes only as ~0 and ~1";
    if good { Ok(()) } else { Err(at.error(field, found(Some(&property.into())), expected)) }
}

fn path_template(at: &At<'_>, template: String, variables: Vec<String>) -> Result<PathTemplate, ConfigError> {
    let names = template_variables(at, "path.template", &template)?;
    let unknown = variables.iter().enumerate().find(|(_, name)| !names.contains(&name.as_str()));
    if let Some((i, unknown)) = unknown {
        let found = found(Some(&unknown.as_str().into()));
        return Err(at.error(&format!("path.variables[{i}]"), found, "a {name} of the template"));
    }
    at.each_once("path.variables", &variables)?;
    Ok(PathTemplate { template, variables })
}

/// The names of a path template's variables.
pub(super) fn template_variables<'a>(
    at: &At<'_>,
    field: &str,
    template: &'a str,
) -> Result<Vec<&'a str>, ConfigError> {
    let mut names = Vec::new();
    for segment in template.split('/') {
        let variable = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let literal = !segment.contains(['{', '}', '?', '#']);
        match variable {
            Some(name) if !name.is_empty() && !name.contains(['{', '}']) && !names.contains(&name) => {
                names.push(name)
            }
            None if literal => {}
            _ => {
                return Err(at.error(
                    field,
                    found(Some(&template.into())),
                    "segments that are text or {name}, each name once",
                ));
            }
        }
    }
    if !template.starts_with('/') {
        return Err(at.error(field, found(Some(&template.into())), "a path that starts with /"));
    }
    Ok(names)
}
