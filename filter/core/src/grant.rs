//! What a request on a grant route presents: its grant, its operation, its caller, and what it is
//! about.
//!
//! Headers, path and identity are read before the body is there, so that a request without a grant
//! costs nothing; the rest at its end. Every value goes to the service as the text that stands in the
//! request, and the service alone compares it with the grant. The fingerprint of the whole request is
//! one more detail: the same operation with another request is refused, never answered.

use crate::downstream::operation_key;
use crate::exchange::Pair;
use crate::facts::Facts;
use crate::fingerprint::{BodyTexts, FingerprintError, NoText, RequestParts, variable};
use crate::policy::{DetailSource, GrantPolicy, OWN_DETAILS, Place, Policy};
use crate::problem::{Problem, ProblemKind};
use crate::scope::{ScopeError, resolve_identity};
use fencepost_protocol::grant_claims::GrantClaimRequest;
use fencepost_protocol::grants::{Caller, DETAIL_MAX, Details, GrantToken, OperationId, TEXT_MAX, TOKEN_MAX};
use fencepost_protocol::{PROTOCOL_VERSION, ScopeDigest, StoreKey};

/// Request header that carries the operation's id to the upstream; a client's own copy is removed.
pub const OPERATION_HEADER: &str = "x-fencepost-operation-id";

/// What is known before the body is there.
#[derive(Debug)]
pub struct Presented {
    /// The request's headers.
    pub headers: Vec<Pair>,
    /// Headers that the upstream gets.
    pub forward: Vec<(String, String)>,
    /// Client headers that it does not get.
    pub withhold: Vec<String>,
    key_prefix: String,
    token: Option<GrantToken>,
    operation_id: Option<OperationId>,
    operation_mac: Option<String>,
    caller: Caller,
    tenant: Option<String>,
    details: Details,
}

/// A request that can be admitted.
#[derive(Debug)]
pub struct Bound {
    /// What the service is asked.
    pub request: GrantClaimRequest,
    /// The request's headers.
    pub headers: Vec<Pair>,
    /// Headers that the upstream gets.
    pub forward: Vec<(String, String)>,
    /// Client headers that it does not get.
    pub withhold: Vec<String>,
}

/// What stands beside a grant in a request.
pub struct Beside<'a> {
    /// Prefix of the configuration, for downstream keys.
    pub key_prefix: &'a str,
    /// Entry of the idempotency key, if one was sent.
    pub key: Option<StoreKey>,
    /// Digest of all sources of the policy's scope, of which the caller is the first.
    pub scope: ScopeDigest,
    /// Headers that the upstream gets.
    pub forward: Vec<(String, String)>,
    /// Client headers that it does not get.
    pub withhold: Vec<String>,
}

/// Reads what does not need the body.
pub fn present(
    policy: &Policy,
    grant: &GrantPolicy,
    facts: &dyn Facts,
    headers: Vec<Pair>,
    beside: Beside<'_>,
) -> Result<Presented, Problem> {
    let Beside { key_prefix, key, scope, forward, mut withhold } = beside;
    let token = match &grant.token {
        Place::Header(name) => Some(token(grant, line(&headers, name))?),
        Place::Body(_) => None,
    };
    let operation_id = match &grant.operation_id {
        Place::Header(name) => Some(operation_id(line(&headers, name))?),
        Place::Body(_) => None,
    };
    let operation_mac = match &grant.operation_mac {
        Some(Place::Header(name)) if has(&headers, name) => {
            Some(text(line(&headers, name)).ok_or_else(no_mac)?)
        }
        Some(Place::Header(_) | Place::Body(_)) | None => None,
    };
    let (issuer, id) = resolve_identity(&grant.caller, facts)?;
    let namespace = grant.caller_namespace.clone().or(issuer);
    let namespace = namespace.ok_or(ScopeError::Missing { source_name: grant.caller.name() })?;
    let tenant = grant.tenant.as_ref().map(|source| resolve_identity(source, facts)).transpose()?;
    let tenant = tenant.map(|(_, tenant)| tenant);
    if [Some(&namespace), Some(&id), tenant.as_ref()].into_iter().flatten().any(|name| name.len() > TEXT_MAX)
    {
        return Err(ScopeError::Unusable { source_name: grant.caller.name() }.into());
    }
    let mut details = Details::default();
    for (name, source) in &grant.details {
        let value = match source {
            DetailSource::At(Place::Header(header)) => text(line(&headers, header)),
            DetailSource::At(Place::Body(_)) => continue,
            DetailSource::Path(of) => grant.path.as_deref().and_then(|template| {
                text(variable(template, line(&headers, ":path")?, of).filter(|value| !value.is_empty()))
            }),
            DetailSource::Caller => Some(id.clone()),
            DetailSource::Constant(value) => Some(value.clone()),
        };
        details.0.insert(name.clone(), value.ok_or_else(|| no_detail(name, NoText::Absent))?);
    }
    details.0.insert(format!("{OWN_DETAILS}scope"), scope.to_hex());
    if let Some(key) = key {
        details.0.insert(format!("{OWN_DETAILS}key"), key.to_string());
    }
    if let (Place::Header(name), true) = (&grant.token, grant.strip) {
        withhold.push(name.clone());
    }
    withhold.push(OPERATION_HEADER.to_owned());
    withhold.extend(policy.downstream_keys.iter().map(|target| target.header.clone()));
    let caller = Caller { namespace, id };
    let key_prefix = key_prefix.to_owned();
    Ok(Presented {
        headers,
        forward,
        withhold,
        key_prefix,
        token,
        operation_id,
        operation_mac,
        caller,
        tenant,
        details,
    })
}

impl Presented {
    /// Adds what the body has, and the fingerprint of all.
    pub fn bind(self, policy: &Policy, grant: &GrantPolicy, body: &[u8]) -> Result<Bound, Problem> {
        let Self { headers, mut forward, withhold, key_prefix, caller, tenant, mut details, .. } = self;
        let parts = RequestParts::new(&headers);
        let texts = BodyTexts::read(&parts, body);
        let at = |pointer: &str| match &texts {
            Ok(texts) => texts.at(pointer).and_then(|text| {
                if text.len() > DETAIL_MAX.max(TOKEN_MAX) { Err(NoText::Absent) } else { Ok(text) }
            }),
            Err(error) => Err(*error),
        };
        let token = match (self.token, &grant.token) {
            (Some(token), _) => token,
            (None, Place::Body(pointer)) => token(grant, at(pointer).map_err(no_grant)?.as_bytes().into())?,
            (None, Place::Header(_)) => return Err(no_grant(NoText::Absent)),
        };
        let operation_id = match (self.operation_id, &grant.operation_id) {
            (Some(id), _) => id,
            (None, Place::Body(pointer)) => self::operation_id(
                at(pointer).map_err(|why| ambiguous(why).unwrap_or_else(no_id))?.as_bytes().into(),
            )?,
            (None, Place::Header(_)) => return Err(no_id()),
        };
        let operation_mac = match (self.operation_mac, &grant.operation_mac) {
            (None, Some(Place::Body(pointer))) => match at(pointer) {
                Ok(mac) => Some(mac),
                Err(NoText::Absent) => None,
                Err(why) => return Err(ambiguous(why).unwrap_or_else(no_mac)),
            },
            (mac, _) => mac,
        };
        for (name, source) in &grant.details {
            if let DetailSource::At(Place::Body(pointer)) = source {
                let value = at(pointer).map_err(|why| no_detail(name, why))?;
                details.0.insert(name.clone(), value);
            }
        }
        if details.0.values().any(|value| value.len() > DETAIL_MAX) {
            let detail = format!("a detail is longer than {DETAIL_MAX} bytes");
            return Err(Problem::new(ProblemKind::GrantDetailMissing, detail));
        }
        let fingerprint = parts.fingerprint(&policy.fingerprint, body).map_err(|error| match error {
            FingerprintError::DuplicateMember => ambiguous_body(),
        })?;
        let fingerprint = format!("{}:{}", policy.fingerprint.scheme().as_str(), fingerprint.to_hex());
        details.0.insert(format!("{OWN_DETAILS}request"), fingerprint);
        forward.push((OPERATION_HEADER.to_owned(), operation_id.to_string()));
        for target in &policy.downstream_keys {
            forward.push((target.header.clone(), operation_key(&key_prefix, operation_id.as_str(), target)));
        }
        let request = GrantClaimRequest {
            v: PROTOCOL_VERSION,
            token: Some(token),
            grant: None,
            operation_id,
            operation_mac,
            caller,
            tenant,
            details,
        };
        Ok(Bound { request, headers, forward, withhold })
    }
}

/// The one line of a header; nothing where there is none, or more than one.
fn line<'a>(headers: &'a [Pair], name: &str) -> Option<&'a [u8]> {
    let mut lines = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
    match (lines.next(), lines.next()) {
        (Some((_, value)), None) => Some(value),
        _ => None,
    }
}

fn has(headers: &[Pair], name: &str) -> bool {
    headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
}

/// Text that is not blank and has no control characters. Only what HTTP takes for blanks around a
/// value goes (RFC 9110, section 5.5): the upstream reads every other one.
fn text(bytes: Option<&[u8]>) -> Option<String> {
    let text = core::str::from_utf8(bytes?).ok()?.trim_matches([' ', '\t']);
    (!text.trim().is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn token(grant: &GrantPolicy, bytes: Option<&[u8]>) -> Result<GrantToken, Problem> {
    let text = text(bytes).ok_or_else(|| no_grant(NoText::Absent))?;
    let token = match &grant.scheme {
        None => text.as_str(),
        Some(scheme) => match text.split_once(' ') {
            Some((word, token)) if word.eq_ignore_ascii_case(scheme) => token.trim_start(),
            _ => return Err(no_grant(NoText::Absent)),
        },
    };
    if token.len() > TOKEN_MAX || token.contains(char::is_whitespace) {
        return Err(no_grant(NoText::Absent));
    }
    Ok(GrantToken::new(token))
}

fn operation_id(bytes: Option<&[u8]>) -> Result<OperationId, Problem> {
    text(bytes).and_then(|text| OperationId::parse(&text).ok()).ok_or_else(no_id)
}

fn ambiguous_body() -> Problem {
    let detail = "a member name occurs twice in one object, which readers resolve differently";
    Problem::new(ProblemKind::BodyAmbiguous, detail)
}

fn ambiguous(why: NoText) -> Option<Problem> {
    (why == NoText::Ambiguous).then(ambiguous_body)
}

fn no_grant(why: NoText) -> Problem {
    let detail = "this route needs one grant, where its policy says; nothing was admitted";
    ambiguous(why).unwrap_or_else(|| Problem::new(ProblemKind::GrantMissing, detail))
}

fn no_id() -> Problem {
    let detail = "this route needs one operation id, a UUID of version 4 or 7, the same in every retry";
    Problem::new(ProblemKind::OperationIdInvalid, detail)
}

fn no_mac() -> Problem {
    Problem::new(ProblemKind::OperationIdInvalid, "the operation's MAC is not one line of text")
}

fn no_detail(name: &str, why: NoText) -> Problem {
    let absent =
        || Problem::new(ProblemKind::GrantDetailMissing, format!("{name}: {why}; nothing was admitted"));
    ambiguous(why).unwrap_or_else(absent)
}

#[cfg(test)]
pub(crate) mod tests;
