//! Decides, from a request's headers alone, whether it is guarded, passes or is refused.
//!
//! Only "not found" means unmarked: metadata that is there and can't be read, or that names a
//! policy which does not exist, refuses the request before the upstream. The same holds for every
//! later question: what can't be told is never taken for "no".

use crate::downstream::downstream_key;
use crate::exchange::{Claimant, Exchange, LocalReply, Outcome, Pair};
use crate::facts::{Facts, Property};
use crate::grant::{self, Beside, OPERATION_HEADER, Presented};
use crate::key::{ClientKey, parse_key};
use crate::policy::{
    Config, ConfigError, GrantPolicy, Marks, Mode, Policy, Retries, RoutePolicies, UnmarkedRoutes,
    route_fields,
};
use crate::problem::{Problem, ProblemKind};
use crate::router_commands::{is_router_command, makes_up_an_answer};
use crate::scope::{Scope, resolve_scope, scope_digest};
use crate::store_key::{derive_observed_key, derive_store_key};
use fencepost_protocol::{ClaimToken, ScopeDigest, StoreKey};
use std::rc::Rc;

/// Namespace of our metadata on routes and virtual hosts.
pub const METADATA_NAMESPACE: &str = "fencepost";

/// Request header that counts the guards on a request's way. It is part of the store key, so a
/// gateway and a sidecar that guard the same request never wait for each other.
pub const DEPTH_HEADER: &str = "x-fencepost-depth";

/// Request header that carries the fence to the upstream; a client's own copy is removed.
pub const FENCE_HEADER: &str = "x-fencepost-fence";

/// Whether another guard has passed a request on to this one.
pub fn is_nested(headers: &[Pair]) -> bool {
    value(headers, DEPTH_HEADER).is_some()
}

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
    Refuse(Refusal),
    /// It is held until the store has decided, or passes and is observed, as its policy says.
    Guard(Box<Request>),
    /// It passes; a policy that enforces would have refused it.
    Observed(Outcome),
}

/// A refused request.
#[derive(Debug)]
pub struct Refusal {
    /// What the client is told.
    pub problem: Problem,
    /// Under which policy, if that is known.
    pub policy: Option<Rc<Policy>>,
    /// For the operator's log.
    pub warning: Option<Warning>,
}

/// A mistake in the configuration of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Seen for the first time.
    New(String),
    /// Found on every request, so not every one is worth a line.
    Repeated(String),
}

impl Refusal {
    /// The answer.
    pub fn reply(&self, config: &Config) -> LocalReply {
        let template = self.policy.as_ref().map_or(&config.errors, |policy| &policy.errors);
        LocalReply::problem(&self.problem, template.as_deref())
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, policy: None, warning: None }
    }
}

/// A request that is to be guarded.
#[derive(Debug)]
pub struct Request {
    policy: Rc<Policy>,
    wants: Wants,
}

/// What decides about a request.
#[derive(Debug)]
enum Wants {
    /// Its key.
    Claim {
        key: StoreKey,
        scope: ScopeDigest,
        headers: Vec<Pair>,
        forward: Vec<(String, String)>,
        withhold: Vec<String>,
    },
    /// Its grant.
    Admission(Box<Presented>),
}

impl Request {
    /// Headers to set now on a request that passes and is observed.
    pub fn observed_headers(&self) -> &[(String, String)] {
        match &self.wants {
            Wants::Claim { forward, .. } if self.policy.mode == Mode::Observe => forward,
            Wants::Claim { .. } | Wants::Admission(_) => &[],
        }
    }

    /// The first line of one of its headers.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        match &self.wants {
            Wants::Claim { headers, .. } => value(headers, name),
            Wants::Admission(presented) => value(&presented.headers, name),
        }
    }

    /// Begins the exchange, with the token of a claim to come.
    pub fn into_exchange(self, token: ClaimToken, now_ms: u64) -> Exchange {
        match self.wants {
            Wants::Claim { key, scope, headers, forward, withhold } => {
                let claimant = Claimant { key, scope, token, headers, forward, withhold };
                Exchange::new(self.policy, claimant, now_ms)
            }
            Wants::Admission(presented) => Exchange::with_grant(self.policy, presented, now_ms),
        }
    }
}

/// Decides about one request. `headers` gives all of its headers, pseudo headers included, or
/// nothing where the host can't hand them over.
pub fn judge(
    config: &Config,
    routes: &mut RoutePolicies,
    facts: &dyn Facts,
    headers: &dyn Fn() -> Option<Vec<Pair>>,
) -> Verdict {
    let (policy, marked) = match find_policy(config, routes, facts) {
        Ok(Some(found)) => found,
        Ok(None) => return Verdict::Pass,
        Err(refusal) => return Verdict::Refuse(refusal),
    };
    if policy.mode == Mode::Off {
        return Verdict::Pass;
    }
    let hidden = || unreadable("the proxy could not hand over the request's headers");
    let guarded =
        headers().ok_or_else(hidden).and_then(|headers| guard(config, &policy, marked, facts, headers));
    match guarded {
        Ok(Some(request)) => Verdict::Guard(Box::new(request)),
        Ok(None) => Verdict::Pass,
        Err(problem) if policy.mode == Mode::Observe => {
            Verdict::Observed(Outcome::would_refuse(problem.kind))
        }
        Err(problem) => Verdict::Refuse(Refusal { problem, policy: Some(policy), warning: None }),
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

fn find_policy(
    config: &Config,
    routes: &mut RoutePolicies,
    facts: &dyn Facts,
) -> Result<Option<(Rc<Policy>, Marked)>, Refusal> {
    let marks = Marks {
        route: marks_of(facts, "route_metadata")?,
        virtual_host: marks_of(facts, "virtual_host_metadata")?,
    };
    if marks.route.is_some() || marks.virtual_host.is_some() {
        return match routes.resolve(config, marks) {
            Ok(policy) => Ok(Some((policy, Marked::Route))),
            Err((error, is_new)) => Err(Refusal {
                warning: is_new.then(|| Warning::New(refused(&error))),
                ..unreadable("the metadata of this route is wrong: the proxy's log says where").into()
            }),
        };
    }
    let (name, marked) = match &config.unmarked_routes {
        UnmarkedRoutes::Ignore => return Ok(None),
        UnmarkedRoutes::GuardWhenKeyPresent { policy } => (policy, Marked::KeyPresent),
        UnmarkedRoutes::RequireKey { policy } => (policy, Marked::Always),
    };
    match config.policies.get(name) {
        Some(policy) => Ok(Some((Rc::clone(policy), marked))),
        None => Err(unreadable("unmarked routes name a policy that does not exist").into()),
    }
}

fn marks_of(facts: &dyn Facts, whose: &str) -> Result<Option<Vec<u8>>, Refusal> {
    let path = ["xds", whose, "filter_metadata", METADATA_NAMESPACE];
    match facts.property(&path) {
        Property::Absent => Ok(None),
        Property::Bytes(bytes) => Ok(Some(bytes)),
        Property::Unreadable => {
            // The host can't hand over an object with a null inside: it is looked for, so that the
            // operator need not.
            let is_null =
                |field: &&str| facts.property(&[&path[..], &[*field]].concat()) == Property::Unreadable;
            let field = route_fields().find(is_null).map_or(String::new(), |field| format!(".{field}"));
            let at = format!("{whose}.filter_metadata.{METADATA_NAMESPACE}{field}");
            let expected = "a value, or no such field, here and below";
            let error = ConfigError::new(at, "null, or what the proxy can't hand over", expected);
            Err(Refusal {
                warning: Some(Warning::Repeated(refused(&error))),
                ..unreadable("the metadata of this route can't be read: the proxy's log says where").into()
            })
        }
    }
}

fn refused(error: &ConfigError) -> String {
    format!("requests of a route are refused: {error}")
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
    let granted = policy.grant.as_ref();
    if !listed || !is_guardable(&headers) {
        return if key_required || granted.is_some() { Err(unguardable(listed)) } else { Ok(None) };
    }
    if !has_key && !key_required && granted.is_none() {
        return Ok(None);
    }
    for filter in &policy.require_metadata {
        if facts.property(&["metadata", "filter_metadata", filter]) == Property::Absent {
            let detail = "a filter that this policy requires left no metadata: check the filter order";
            return Err(Problem::new(ProblemKind::MetadataMissing, detail));
        }
    }
    let depth = depth(&headers)?;
    let observed = policy.mode == Mode::Observe;
    let derive = if observed { derive_observed_key } else { derive_store_key };
    let stored_as = |scope: &Scope, key: &ClientKey| {
        derive(&config.key_prefix, &policy.namespace, depth, scope, key)
            .map_err(|_| unreadable("the configured key prefix can't be used"))
    };
    let too_large = policy.fingerprint.needs_body()
        && content_length(&headers).is_some_and(|length| length > policy.max_body as u64);
    let wants = match granted {
        Some(granted) => {
            let presented = presented(config, policy, granted, facts, headers, depth, &stored_as)?;
            Wants::Admission(Box::new(presented))
        }
        None => {
            let key = parse_key(&lines, policy.key.format, policy.key.max_length)?;
            let scope = resolve_scope(&policy.scope, facts)?;
            let store_key = stored_as(&scope, &key)?;
            let (forward, withhold) = if observed {
                (vec![deeper(depth)], Vec::new())
            } else {
                forwarded_headers(config, policy, &headers, depth, &scope, &key)
            };
            Wants::Claim { key: store_key, scope: scope_digest(&scope), headers, forward, withhold }
        }
    };
    if too_large {
        return Err(crate::exchange::body_too_large(policy.max_body));
    }
    Ok(Some(Request { policy: Rc::clone(policy), wants }))
}

/// What stands in a request for a route that admits grants. A key is a detail of its operation, and
/// needed only where the policy says so.
fn presented(
    config: &Config,
    policy: &Policy,
    granted: &GrantPolicy,
    facts: &dyn Facts,
    headers: Vec<Pair>,
    depth: u32,
    stored_as: &dyn Fn(&Scope, &ClientKey) -> Result<StoreKey, Problem>,
) -> Result<Presented, Problem> {
    // A second admission of the same operation is told a status, which the first would take for
    // the upstream's answer.
    if depth > 0 && value(&headers, OPERATION_HEADER).is_some() {
        let detail = "the request was admitted by another filter before this one";
        return Err(Problem::new(ProblemKind::Unguardable, detail));
    }
    let scope = resolve_scope(&policy.scope, facts)?;
    let lines = key_lines(policy, &headers);
    let key = if lines.is_empty() && !policy.key.required {
        None
    } else {
        let key = parse_key(&lines, policy.key.format, policy.key.max_length)?;
        Some(stored_as(&scope, &key)?)
    };
    let (forward, withhold) = (vec![deeper(depth)], withheld(policy, &headers));
    let beside =
        Beside { key_prefix: &config.key_prefix, key, scope: scope_digest(&scope), forward, withhold };
    grant::present(policy, granted, facts, headers, beside)
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

fn deeper(depth: u32) -> (String, String) {
    (DEPTH_HEADER.to_owned(), depth.saturating_add(1).to_string())
}

type HeaderChanges = (Vec<(String, String)>, Vec<String>);

fn forwarded_headers(
    config: &Config,
    policy: &Policy,
    headers: &[Pair],
    depth: u32,
    scope: &Scope,
    key: &ClientKey,
) -> HeaderChanges {
    let mut set = vec![deeper(depth)];
    let mut withhold = withheld(policy, headers);
    for target in &policy.downstream_keys {
        set.push((target.header.clone(), downstream_key(&config.key_prefix, scope, key, target)));
        withhold.push(target.header.clone());
    }
    (set, withhold)
}

/// Headers that no client may send on.
fn withheld(policy: &Policy, headers: &[Pair]) -> Vec<String> {
    let mut withhold = vec![FENCE_HEADER.to_owned()];
    let suppressed = policy.retries == Retries::Suppress;
    for (name, _) in headers {
        if makes_up_an_answer(name) || (suppressed && is_router_command(name)) {
            withhold.extend(String::from_utf8(name.clone()));
        }
    }
    withhold
}

#[cfg(test)]
mod tests;
