//! From the configuration as written to policies: defaults, limits, impossible combinations.

use super::error::{found, reject_nulls, value_at};
use super::layer::{
    ConcurrencyLayer, Document, ErrorsLayer, KeepLayer, KeyFormatLayer, KeyLayer, MarkersLayer, ModeLayer,
    OversizedLayer, PolicyLayer, ResponseLayer, RetriesLayer, StatusLayer, StatusWord, StoreLayer,
    UnmarkedLayer,
};
use super::quantity::{Bytes, Millis};
use super::shape::reject_misplaced_lists;
use super::{
    Concurrency, Config, ConfigError, HeaderRules, Keep, KeyPolicy, Layers, Markers, Mode, OnLost, Oversized,
    Policy, ResponsePolicy, Retries, StatusRule, StoreConfig, UnmarkedRoutes, grant, identity, upstream,
};
use crate::capture::is_token;
use crate::error_template::{ErrorTemplate, TemplateError};
use crate::key::KeyFormat;
use crate::problem::{PROBLEM_BODY, PROBLEM_MEDIA_TYPE};
use core::ops::RangeInclusive;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{CLAIM_TTL_MS, TTL_MS_MAX};
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Longest time that a request may wait for another one: clients give up before.
pub(super) const WAIT_MS_MAX: u32 = 60_000;
/// Longest timeout of a call to the store.
pub(super) const STORE_TIMEOUT_MS_MAX: u32 = 60_000;
/// Longest run: a day.
pub(super) const MAX_RUN_MS_MAX: u32 = 86_400_000;
/// Largest body that is buffered or kept: each one is held in the proxy's memory.
pub(super) const BODY_MAX: u64 = 16 << 20;
/// How far back a payload under another key is looked for; longer would outgrow the memory.
pub(super) const WINDOW_MS: RangeInclusive<u32> = 1_000..=86_400_000;
/// The same while observing, unless set.
const OBSERVED_WINDOW_MS: u32 = 600_000;
/// Longest key.
pub(super) const KEY_LENGTH_MAX: u64 = 1_024;
/// Longest name of a policy, namespace, cluster or the like, in characters.
pub(super) const NAME_LEN_MAX: usize = 255;

/// Headers that the proxy or the filter itself uses.
pub(super) const PROXY_HEADERS: [&str; 4] = ["host", "content-length", "transfer-encoding", "connection"];
/// Beginnings of others.
pub(super) const PROXY_PREFIXES: [&str; 2] = ["x-envoy-", "x-fencepost-"];
/// Headers that have a meaning in HTTP.
pub(super) const HTTP_HEADERS: [&str; 40] = [
    "accept",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "location",
    "proxy-authorization",
    "set-cookie",
    "te",
    "trailer",
    "upgrade",
    "user-agent",
    "vary",
    "www-authenticate",
    // What proxies make or replace themselves, or browsers send: no client's word.
    "b3",
    "etag",
    "grpc-trace-bin",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "range",
    "referer",
    "traceparent",
    "tracestate",
    "x-b3-flags",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-forwarded-client-cert",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-request-id",
];

/// Where an error is: the path so far.
pub(super) struct At<'a>(pub &'a str);

impl At<'_> {
    pub(super) fn error(
        &self,
        field: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> ConfigError {
        let path = if self.0.is_empty() { field.to_owned() } else { format!("{}.{field}", self.0) };
        ConfigError::new(path, found, expected)
    }

    pub(super) fn millis(
        &self,
        field: &str,
        value: Option<Millis>,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, ConfigError> {
        let Some(Millis(ms)) = value else { return Ok(default) };
        u32::try_from(ms).ok().filter(|ms| range.contains(ms)).ok_or_else(|| {
            self.error(field, format!("{ms} ms"), format!("{} ms to {} ms", range.start(), range.end()))
        })
    }

    fn ttl(&self, field: &str, value: Option<Millis>, default: u64) -> Result<u64, ConfigError> {
        let ms = value.map_or(default, |Millis(ms)| ms);
        if ms <= TTL_MS_MAX { Ok(ms) } else { Err(self.error(field, format!("{ms} ms"), "at most 400d")) }
    }

    fn size(&self, field: &str, value: Option<Bytes>) -> Result<usize, ConfigError> {
        let size = value.map_or(512 << 10, |Bytes(bytes)| bytes);
        let fits = usize::try_from(size).ok().filter(|_| size <= BODY_MAX);
        fits.ok_or_else(|| self.error(field, format!("{size} bytes"), "at most 16MiB"))
    }

    /// Not empty, not too long, no control characters.
    pub(super) fn name(&self, field: &str, text: &str) -> Result<String, ConfigError> {
        let fits = !text.trim().is_empty()
            && text.chars().count() <= NAME_LEN_MAX
            && !text.chars().any(char::is_control);
        let expected = "1 to 255 characters, none of them a control character";
        if fits { Ok(text.to_owned()) } else { Err(self.error(field, found(Some(&text.into())), expected)) }
    }

    /// A header name, made lower case. Names that the proxy or the filter itself uses are refused.
    pub(super) fn header(&self, field: &str, name: &str) -> Result<String, ConfigError> {
        let lower = name.to_ascii_lowercase();
        if !is_token(lower.as_bytes()) || lower.len() > NAME_LEN_MAX {
            return Err(self.error(field, found(Some(&name.into())), "a header name"));
        }
        let taken = PROXY_PREFIXES.iter().any(|prefix| lower.starts_with(prefix))
            || PROXY_HEADERS.contains(&lower.as_str());
        if taken {
            return Err(self.error(
                field,
                found(Some(&name.into())),
                "a header that the proxy does not use itself",
            ));
        }
        Ok(lower)
    }

    /// A header name that the filter may give a meaning of its own.
    pub(super) fn own_header(&self, field: &str, name: &str) -> Result<String, ConfigError> {
        let lower = self.header(field, name)?;
        if HTTP_HEADERS.contains(&lower.as_str()) {
            let expected = "a header that has no meaning of its own in HTTP";
            return Err(self.error(field, found(Some(&name.into())), expected));
        }
        Ok(lower)
    }

    /// Refuses a list in which a value stands twice: the second was meant to be another.
    pub(super) fn once<T: PartialEq>(
        &self,
        field: &str,
        list: &[T],
        shown: impl Fn(&T) -> String,
    ) -> Result<(), ConfigError> {
        for (i, value) in list.iter().enumerate() {
            if list.iter().take(i).any(|other| other == value) {
                let found = format!("{} again", shown(value));
                return Err(self.error(&format!("{field}[{i}]"), found, "each once"));
            }
        }
        Ok(())
    }

    /// The same for text.
    pub(super) fn each_once(&self, field: &str, list: &[String]) -> Result<(), ConfigError> {
        self.once(field, list, |text| found(Some(&text.as_str().into())))
    }

    pub(super) fn headers(
        &self,
        field: &str,
        names: Option<Vec<String>>,
    ) -> Result<Vec<String>, ConfigError> {
        self.list(field, names, Self::header)
    }

    fn names(&self, field: &str, names: Option<Vec<String>>) -> Result<Vec<String>, ConfigError> {
        self.list(field, names, Self::name)
    }

    fn list(
        &self,
        field: &str,
        names: Option<Vec<String>>,
        read: fn(&Self, &str, &str) -> Result<String, ConfigError>,
    ) -> Result<Vec<String>, ConfigError> {
        let names = names.unwrap_or_default().into_iter().enumerate();
        let names: Vec<_> =
            names.map(|(i, name)| read(self, &format!("{field}[{i}]"), &name)).collect::<Result<_, _>>()?;
        self.each_once(field, &names)?;
        Ok(names)
    }
}

/// Reads and checks a whole configuration.
pub(super) fn parse(text: &[u8]) -> Result<Config, ConfigError> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| ConfigError::new("configuration", format!("no JSON: {error}"), "a JSON object"))?;
    reject_nulls(&value, &mut String::new())?;
    if !value.is_object() {
        return Err(ConfigError::new("configuration", found(Some(&value)), "a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let document: Document = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| ConfigError::from_serde(error, |path| found(value_at(&value, path))))?;
    // What is left is read, but maybe by position.
    reject_misplaced_lists(&value)?;

    let top = At("");
    StoreKey::check_prefix(&document.key_prefix).map_err(|_| {
        top.error("key_prefix", found(value.get("key_prefix")), "1 to 63 characters from [a-z0-9._-]")
    })?;
    if document.defaults.namespace.is_some() {
        return Err(At("defaults").error("namespace", "a namespace for all policies", "one in each policy"));
    }
    let of_all = document.defaults.errors.clone();
    // A content type alone waits for the body of a policy.
    let errors = match (&of_all.body, &of_all.type_base) {
        (None, None) => None,
        _ => errors(&At("defaults.errors"), of_all)?,
    };
    let mut policies = BTreeMap::new();
    for (name, layer) in &document.policies.0 {
        let path = format!("policies.{name}");
        At("policies").name(name, name)?;
        let layers = [layer, &document.defaults];
        policies.insert(name.clone(), Rc::new(policy(&At(&path), name.clone(), &layers)?));
    }
    Ok(Config {
        store: store(document.store)?,
        key_prefix: document.key_prefix,
        unmarked_routes: unmarked(document.unmarked_routes, document.unmarked_policy, &policies)?,
        policies,
        errors,
        layers: Layers { policies: document.policies.0, defaults: document.defaults },
    })
}

fn store(layer: StoreLayer) -> Result<StoreConfig, ConfigError> {
    let at = At("store");
    Ok(StoreConfig {
        decide_cluster: at.name("decide_cluster", &layer.decide_cluster)?,
        claim_cluster: at.name("claim_cluster", &layer.claim_cluster)?,
        timeout_ms: at.millis("timeout", layer.timeout, 2_000, 1..=STORE_TIMEOUT_MS_MAX)?,
        authority: layer.authority.map(|name| at.name("authority", &name)).transpose()?,
    })
}

fn unmarked(
    layer: UnmarkedLayer,
    policy: Option<String>,
    policies: &BTreeMap<String, Rc<Policy>>,
) -> Result<UnmarkedRoutes, ConfigError> {
    let at = At("");
    let known = |policy: Option<String>| {
        let name = policy.ok_or_else(|| {
            at.error("unmarked_policy", "nothing", "the name of the policy for routes that name none")
        })?;
        if let Some(policy) = policies.get(&name) {
            if policy.grant.is_some() {
                let expected =
                    "a policy without a grant: requests of unmarked routes are chosen by their key";
                return Err(at.error("unmarked_policy", found(Some(&name.as_str().into())), expected));
            }
            return Ok(name);
        }
        Err(at.error("unmarked_policy", found(Some(&name.as_str().into())), "the name of a policy"))
    };
    match layer {
        UnmarkedLayer::Ignore if policy.is_some() => {
            Err(at.error("unmarked_policy", "a name", "no such field while unmarked_routes is ignore"))
        }
        UnmarkedLayer::Ignore => Ok(UnmarkedRoutes::Ignore),
        UnmarkedLayer::GuardWhenKeyPresent => {
            Ok(UnmarkedRoutes::GuardWhenKeyPresent { policy: known(policy)? })
        }
        UnmarkedLayer::RequireKey => Ok(UnmarkedRoutes::RequireKey { policy: known(policy)? }),
    }
}

/// A policy of layers, the most specific first. An error is named below `at`, whichever layer it
/// comes from.
pub(super) fn policy(at: &At<'_>, name: String, layers: &[&PolicyLayer]) -> Result<Policy, ConfigError> {
    // Scope and `anonymous` are one setting: the layer that has either decides.
    let own = layers.iter().find(|layer| layer.scope.is_some() || layer.anonymous.is_some());
    let (sources, anonymous) = own.map_or((None, None), |layer| (layer.scope.clone(), layer.anonymous));
    let scope = identity::scope(at, sources, anonymous)?;
    let layer = layers.iter().fold(PolicyLayer::default(), |layer, below| layer.or(below));
    let namespace = layer.namespace.as_deref().ok_or_else(|| {
        at.error(
            "namespace",
            "nothing",
            "a constant that keeps this policy's keys apart, even if it is renamed",
        )
    })?;
    let mode = match layer.mode {
        None | Some(ModeLayer::Enforce) => Mode::Enforce,
        Some(ModeLayer::Off) => Mode::Off,
        Some(ModeLayer::Observe) => Mode::Observe,
    };
    let concurrency = match layer.concurrency {
        None | Some(ConcurrencyLayer::Wait) => Concurrency::Wait,
        Some(ConcurrencyLayer::Conflict) => Concurrency::Conflict,
    };
    let max_run_ms = at.millis("max_run", layer.max_run, 60_000, 1..=MAX_RUN_MS_MAX)?;
    let grant = grant::grant(at, layer.grant, &scope)?;
    let policy = Policy {
        namespace: at.name("namespace", namespace)?,
        mode,
        methods: methods(at, layer.methods)?,
        key: key(&At(&format!("{}.key", at.0)), layer.key, grant.is_none())?,
        scope,
        max_body: At(&format!("{}.fingerprint", at.0)).size("max_body", layer.fingerprint.max_body)?,
        fingerprint: identity::fingerprint(&At(&format!("{}.fingerprint", at.0)), layer.fingerprint)?,
        concurrency,
        wait_ms: at.millis("wait", layer.wait, 5_000, 1..=WAIT_MS_MAX)?,
        claim_ttl_ms: at.millis("claim_ttl", layer.claim_ttl, 30_000, CLAIM_TTL_MS)?,
        max_run_ms,
        on_lost: layer.on_lost.unwrap_or(OnLost::Hold),
        response: response(&At(&format!("{}.response", at.0)), layer.response)?,
        execution: upstream::execution(&At(&format!("{}.execution", at.0)), layer.execution, max_run_ms)?,
        retries: match layer.retries {
            None | Some(RetriesLayer::Suppress) => Retries::Suppress,
            Some(RetriesLayer::Allow) => Retries::Allow,
        },
        downstream_keys: upstream::downstream_keys(at, layer.downstream_keys.unwrap_or_default())?,
        require_metadata: at.names("require_metadata", layer.require_metadata)?,
        errors: errors(&At(&format!("{}.errors", at.0)), layer.errors)?,
        same_payload_window_ms: match (layer.same_payload_window, mode) {
            (Some(_), _) => {
                Some(at.millis("same_payload_window", layer.same_payload_window, 0, WINDOW_MS)?)
            }
            (None, Mode::Observe) => Some(OBSERVED_WINDOW_MS),
            (None, Mode::Enforce | Mode::Off) => None,
        },
        grant,
        name,
    };
    grant::check(at, &policy)?;
    Ok(policy)
}

fn errors(at: &At<'_>, layer: ErrorsLayer) -> Result<Option<Rc<ErrorTemplate>>, ConfigError> {
    let (content_type, body) = match (layer.content_type, layer.body) {
        (None, None) if layer.type_base.is_none() => return Ok(None),
        (None, None) => (None, PROBLEM_BODY.to_owned()),
        (Some(_), None) => return Err(at.error("body", "nothing", "a body for this content type")),
        (content_type, Some(body)) => (content_type, body),
    };
    let body = match layer.type_base {
        None => body,
        Some(base) if is_type_base(&base) => body.replace("{type}", &format!("{base}{{code}}")),
        Some(base) => {
            let expected = "the beginning of a URI, such as https://docs.example/problems#";
            return Err(at.error("type_base", found(Some(&base.into())), expected));
        }
    };
    let template = match content_type {
        None => ErrorTemplate::parse(PROBLEM_MEDIA_TYPE, &body),
        Some(content_type) => ErrorTemplate::parse(&content_type, &body),
    };
    template.map(|template| Some(Rc::new(template))).map_err(|error| match error {
        TemplateError::ContentType(found) => {
            at.error("content_type", found, "a media type, such as text/plain")
        }
        TemplateError::Placeholder(found) => {
            at.error("body", found, format!("{} or no placeholder", ErrorTemplate::PLACEHOLDERS.join(", ")))
        }
        TemplateError::NotJson => {
            at.error("body", "no JSON", "JSON, as the content type says, with placeholders inside strings")
        }
        TemplateError::TooLong(len) => at.error("body", format!("{len} bytes"), "at most 16384 bytes"),
    })
}

/// The beginning of an absolute URI, of characters that need no escape in JSON and are no placeholder.
fn is_type_base(base: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b);
    let scheme = base.split_once(':').map_or("", |(scheme, _)| scheme);
    base.len() <= NAME_LEN_MAX
        && base.bytes().all(allowed)
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn methods(at: &At<'_>, methods: Option<Vec<String>>) -> Result<Vec<String>, ConfigError> {
    let Some(methods) = methods else { return Ok(["POST", "PUT", "PATCH"].map(str::to_owned).to_vec()) };
    if methods.is_empty() {
        return Err(at.error("methods", "[]", "at least one method (mode: off guards nothing)"));
    }
    for (i, method) in methods.iter().enumerate() {
        let token = is_token(method.as_bytes()) && !method.bytes().any(|b| b.is_ascii_lowercase());
        let guardable = !["CONNECT", "HEAD", "OPTIONS", "TRACE"].contains(&method.as_str());
        if !token || !guardable {
            let expected = "a method in upper case other than CONNECT, HEAD, OPTIONS and TRACE";
            return Err(at.error(&format!("methods[{i}]"), found(Some(&method.as_str().into())), expected));
        }
    }
    at.each_once("methods", &methods)?;
    Ok(methods)
}

fn key(at: &At<'_>, layer: KeyLayer, required: bool) -> Result<KeyPolicy, ConfigError> {
    let mut names = vec![at.own_header("header", layer.header.as_deref().unwrap_or("idempotency-key"))?];
    for (i, alias) in at.headers("aliases", layer.aliases)?.into_iter().enumerate() {
        if names.contains(&alias) {
            return Err(at.error(&format!("aliases[{i}]"), format!("{alias:?} again"), "each name once"));
        }
        names.push(alias);
    }
    let max_length = layer.max_length.map_or(255, |count| count.0);
    Ok(KeyPolicy {
        names,
        required: layer.required.unwrap_or(required),
        format: match layer.format {
            None | Some(KeyFormatLayer::Lenient) => KeyFormat::Lenient,
            Some(KeyFormatLayer::Structured) => KeyFormat::Structured,
            Some(KeyFormatLayer::Plain) => KeyFormat::Plain,
        },
        max_length: usize::try_from(max_length)
            .ok()
            .filter(|_| (1..=KEY_LENGTH_MAX).contains(&max_length))
            .ok_or_else(|| at.error("max_length", max_length.to_string(), "1 to 1024"))?,
    })
}

fn response(at: &At<'_>, layer: ResponseLayer) -> Result<ResponsePolicy, ConfigError> {
    let ttl_ms = at.ttl("ttl", layer.ttl, 24 * 3_600_000)?;
    let mut policy = ResponsePolicy {
        ttl_ms,
        unknown_ttl_ms: at.ttl("unknown_ttl", layer.unknown_ttl, ttl_ms)?,
        max_body: at.size("max_body", layer.max_body)?,
        keep: match layer.keep {
            None | Some(KeepLayer::Answer) => Keep::Answer,
            Some(KeepLayer::Status) => Keep::Status,
        },
        oversized: match layer.oversized {
            None | Some(OversizedLayer::Gone) => Oversized::Gone,
            Some(OversizedLayer::Rerun) => Oversized::Rerun,
        },
        headers: HeaderRules {
            deny: patterns(at, "headers.deny", layer.headers.deny.unwrap_or_default())?,
            allow: layer.headers.allow.map(|names| patterns(at, "headers.allow", names)).transpose()?,
        },
        cors_expose: layer.cors_expose.unwrap_or(false),
        markers: markers(&At(&format!("{}.markers", at.0)), layer.markers)?,
        ..ResponsePolicy::default()
    };
    for (status, rule) in layer.statuses.0 {
        let field = format!("statuses.{status}");
        let rule = match rule {
            StatusLayer::Word(StatusWord::Store) => StatusRule::Store { ttl_ms: None },
            StatusLayer::Word(StatusWord::Release) => StatusRule::Release,
            StatusLayer::Store(store) => {
                StatusRule::Store { ttl_ms: Some(at.ttl(&field, Some(store.ttl), 0)?) }
            }
        };
        match status.as_bytes() {
            [class @ b'2'..=b'5', b'x', b'x'] => {
                policy.classes.insert(u16::from(class.wrapping_sub(b'0')), rule);
            }
            [b'2'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
                policy.statuses.insert(status.parse().unwrap_or_default(), rule);
            }
            _ => {
                return Err(at.error(
                    &field,
                    format!("{status:?}"),
                    "a status from 200 to 599, or a class such as 2xx",
                ));
            }
        }
    }
    Ok(policy)
}

fn patterns(at: &At<'_>, field: &str, names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let mut patterns = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let lower = name.to_ascii_lowercase();
        let stem = lower.strip_suffix('*').unwrap_or(&lower);
        if !is_token(stem.as_bytes()) || stem.contains('*') {
            let expected = "a header name, or the beginning of one with a * at its end";
            return Err(at.error(&format!("{field}[{i}]"), found(Some(&name.as_str().into())), expected));
        }
        patterns.push(lower);
    }
    at.each_once(field, &patterns)?;
    Ok(patterns)
}

fn markers(at: &At<'_>, layer: MarkersLayer) -> Result<Markers, ConfigError> {
    let mut markers = Markers::default();
    let fields = [
        ("replayed", layer.replayed, &mut markers.replayed),
        ("original_status", layer.original_status, &mut markers.original_status),
        ("expires", layer.expires, &mut markers.expires),
    ];
    for (field, name, marker) in fields {
        if let Some(name) = name {
            *marker = at.own_header(field, &name)?;
        }
    }
    let Markers { replayed, original_status, expires } = &markers;
    if replayed == original_status || replayed == expires || original_status == expires {
        return Err(at.error("replayed", "a name used twice", "three different header names"));
    }
    Ok(markers)
}
