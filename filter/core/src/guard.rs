//! Decides, from a request's headers alone, whether it is guarded, passes or is refused.
//!
//! Only "not found" means unmarked: metadata that is there and can't be read, or that names a
//! policy which does not exist, refuses the request before the upstream. The same holds for every
//! later question: what can't be told is never taken for "no".

use crate::downstream::downstream_key;
use crate::exchange::{Claimant, Pair};
use crate::facts::{Facts, Property};
use crate::host_value::decode_pairs;
use crate::key::{ClientKey, parse_key};
use crate::policy::{Config, Mode, Policy, UnmarkedRoutes};
use crate::problem::{Problem, ProblemKind};
use crate::scope::{Scope, resolve_scope, scope_digest};
use crate::store_key::derive_store_key;
use fencepost_protocol::{ClaimToken, ScopeDigest, StoreKey};
use std::rc::Rc;

/// Namespace of our metadata on routes and virtual hosts.
pub const METADATA_NAMESPACE: &str = "fencepost";

/// Request header that counts the guards on a request's way. It is part of the store key, so a
/// gateway and a sidecar that guard the same request never wait for each other.
pub const DEPTH_HEADER: &str = "x-fencepost-depth";

/// Request header that carries the fence to the upstream; a client's own copy is removed.
pub const FENCE_HEADER: &str = "x-fencepost-fence";

/// Most guards on one request's way.
const DEPTH_MAX: u32 = 32;

/// Methods that change nothing (RFC 9110, section 9.2.1): never guarded unless listed.
const SAFE_METHODS: [&[u8]; 4] = [b"GET", b"HEAD", b"OPTIONS", b"TRACE"];

/// What is to be done with a request.
#[derive(Debug)]
pub enum Verdict {
    /// It goes on as if the filter were not there.
    Pass,
    /// It is answered with a problem.
    Refuse(Problem),
    /// It is held until the store has decided.
    Guard(Box<Request>),
}

/// A request that is to be guarded.
#[derive(Debug)]
pub struct Request {
    policy: Rc<Policy>,
    key: StoreKey,
    scope: ScopeDigest,
    headers: Vec<Pair>,
    forward: Vec<(String, String)>,
    withhold: Vec<String>,
}

impl Request {
    /// Adds the token of the claim to come.
    pub fn into_claimant(self, token: ClaimToken) -> (Rc<Policy>, Claimant) {
        let Self { policy, key, scope, headers, forward, withhold } = self;
        (policy, Claimant { key, scope, token, headers, forward, withhold })
    }
}

/// Decides about one request. `headers` gives all of its headers, pseudo headers included, or
/// nothing where the host can't hand them over.
pub fn judge(config: &Config, facts: &dyn Facts, headers: &dyn Fn() -> Option<Vec<Pair>>) -> Verdict {
    let (policy, marked) = match find_policy(config, facts) {
        Ok(Some(found)) => found,
        Ok(None) => return Verdict::Pass,
        Err(problem) => return Verdict::Refuse(problem),
    };
    if policy.mode == Mode::Off {
        return Verdict::Pass;
    }
    let Some(headers) = headers() else {
        return Verdict::Refuse(unreadable("the proxy could not hand over the request's headers"));
    };
    match guard(config, &policy, marked, facts, headers) {
        Ok(Some(request)) => Verdict::Guard(Box::new(request)),
        Ok(None) => Verdict::Pass,
        Err(problem) => Verdict::Refuse(problem),
    }
}

/// How a request came to its policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marked {
    /// Its route or virtual host names it.
    Route,
    /// The rule for unmarked routes does, for requests with a key.
    KeyPresent,
    /// The rule for unmarked routes does, for all requests.
    Always,
}

fn find_policy(config: &Config, facts: &dyn Facts) -> Result<Option<(Rc<Policy>, Marked)>, Problem> {
    for metadata in ["route_metadata", "virtual_host_metadata"] {
        match facts.property(&["xds", metadata, "filter_metadata", METADATA_NAMESPACE]) {
            Property::Absent => {}
            Property::Unreadable => return Err(unreadable("the route's metadata can't be read")),
            Property::Bytes(bytes) => {
                return named_policy(config, &bytes).map(|policy| Some((policy, Marked::Route)));
            }
        }
    }
    let (name, marked) = match &config.unmarked_routes {
        UnmarkedRoutes::Ignore => return Ok(None),
        UnmarkedRoutes::GuardWhenKeyPresent { policy } => (policy, Marked::KeyPresent),
        UnmarkedRoutes::RequireKey { policy } => (policy, Marked::Always),
    };
    match config.policies.get(name) {
        Some(policy) => Ok(Some((Rc::clone(policy), marked))),
        None => Err(unreadable("unmarked routes name a policy that does not exist")),
    }
}

/// Reads `{policy: NAME}`. A field that this version does not know could change what the route's
/// author meant, so it is refused.
fn named_policy(config: &Config, bytes: &[u8]) -> Result<Rc<Policy>, Problem> {
    let pairs = decode_pairs(bytes).map_err(|_| unreadable("the route's metadata can't be read"))?;
    let mut name = None;
    for (field, value) in pairs {
        if field != b"policy" {
            return Err(unreadable("the route's metadata has a field other than `policy`"));
        }
        name = core::str::from_utf8(value).ok();
    }
    let name = name.ok_or_else(|| unreadable("the route's metadata names no policy"))?;
    let policy = config.policies.get(name).map(Rc::clone);
    policy.ok_or_else(|| unreadable("the route names a policy that does not exist"))
}

fn unreadable(detail: &str) -> Problem {
    Problem::new(ProblemKind::PolicyUnreadable, detail)
}

fn guard(
    config: &Config,
    policy: &Rc<Policy>,
    marked: Marked,
    facts: &dyn Facts,
    headers: Vec<Pair>,
) -> Result<Option<Request>, Problem> {
    let lines = key_lines(policy, &headers);
    let has_key = !lines.is_empty();
    if marked == Marked::KeyPresent && !has_key {
        return Ok(None);
    }
    let key_required = policy.key.required && marked != Marked::KeyPresent || marked == Marked::Always;
    let method = value(&headers, ":method").unwrap_or_default();
    let listed = policy.methods.iter().any(|name| name.as_bytes() == method);
    if !listed && SAFE_METHODS.contains(&method) {
        return Ok(None);
    }
    if !listed || !is_guardable(&headers) {
        return if key_required { Err(unguardable(listed)) } else { Ok(None) };
    }
    if !has_key && !key_required {
        return Ok(None);
    }
    for filter in &policy.require_metadata {
        if facts.property(&["metadata", "filter_metadata", filter]) == Property::Absent {
            let detail = "a filter that this policy requires left no metadata: check the filter order";
            return Err(Problem::new(ProblemKind::MetadataMissing, detail));
        }
    }
    let key = parse_key(&lines, policy.key.format, policy.key.max_length)?;
    let scope = resolve_scope(&policy.scope, facts)?;
    let depth = depth(&headers)?;
    let store_key = derive_store_key(&config.key_prefix, &policy.namespace, depth, &scope, &key)
        .map_err(|_| unreadable("the configured key prefix can't be used"))?;
    let (forward, withhold) = forwarded_headers(config, policy, depth, &scope, &key);
    if let Some(length) = content_length(&headers)
        && policy.fingerprint.needs_body()
        && length > policy.max_body as u64
    {
        return Err(crate::exchange::body_too_large(policy.max_body));
    }
    Ok(Some(Request {
        policy: Rc::clone(policy),
        key: store_key,
        scope: scope_digest(&scope),
        headers,
        forward,
        withhold,
    }))
}

fn key_lines<'a>(policy: &Policy, headers: &'a [Pair]) -> Vec<&'a [u8]> {
    let named = headers
        .iter()
        .filter(|(name, _)| policy.key.names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())));
    named.map(|(_, value)| value.as_slice()).collect()
}

fn value<'a>(headers: &'a [Pair], name: &str) -> Option<&'a [u8]> {
    let found = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(_, value)| value.as_slice())
}

/// CONNECT and upgrades have no request body that ends; gRPC has no answer that a local reply
/// could replay.
fn is_guardable(headers: &[Pair]) -> bool {
    let is = |name: &str, wanted: &[u8]| value(headers, name).is_some_and(|v| v.eq_ignore_ascii_case(wanted));
    let content_type = value(headers, "content-type").unwrap_or_default().to_ascii_lowercase();
    !(is(":method", b"CONNECT")
        || value(headers, ":protocol").is_some()
        || value(headers, "upgrade").is_some()
        || content_type.starts_with(b"application/grpc"))
}

fn unguardable(listed: bool) -> Problem {
    let detail = if listed {
        "gRPC, CONNECT and upgraded connections can't be guarded"
    } else {
        "this route is guarded, and its policy does not cover this method"
    };
    Problem::new(ProblemKind::Unguardable, detail)
}

/// How many guards the request has passed. A value that no guard writes is refused: taken for
/// zero, it would let one request run under two keys.
fn depth(headers: &[Pair]) -> Result<u32, Problem> {
    let lines: Vec<_> =
        headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(DEPTH_HEADER.as_bytes())).collect();
    let depth = match lines.as_slice() {
        [] => Some(0),
        [(_, value)] => core::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok()),
        _ => None,
    };
    depth.filter(|depth| *depth < DEPTH_MAX).ok_or_else(|| {
        Problem::new(ProblemKind::Unguardable, format!("{DEPTH_HEADER} is not a number below {DEPTH_MAX}"))
    })
}

fn content_length(headers: &[Pair]) -> Option<u64> {
    core::str::from_utf8(value(headers, "content-length")?).ok()?.trim().parse().ok()
}

type HeaderChanges = (Vec<(String, String)>, Vec<String>);

fn forwarded_headers(
    config: &Config,
    policy: &Policy,
    depth: u32,
    scope: &Scope,
    key: &ClientKey,
) -> HeaderChanges {
    let mut set = vec![(DEPTH_HEADER.to_owned(), depth.saturating_add(1).to_string())];
    let mut withhold = vec![FENCE_HEADER.to_owned()];
    for target in &policy.downstream_keys {
        set.push((target.header.clone(), downstream_key(&config.key_prefix, scope, key, target)));
        withhold.push(target.header.clone());
    }
    (set, withhold)
}
