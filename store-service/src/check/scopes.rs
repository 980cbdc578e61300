//! Whether a scope tells callers apart, and is the same when one of them comes back.
//!
//! Of a scope that all callers share, one caller's key meets another's: that may be meant, and then
//! `anonymous: true` says so. Of a scope that changes with each token, no retry meets its first
//! request, once the token was renewed in between.

use super::code::Code;
use super::place::{Findings, Place};
use super::settings::OF_ONE_ATTEMPT;
use fencepost_filter_core::policy::Policy;
use fencepost_filter_core::scope::{ScopePolicy, ScopeSource};

/// Claims that all tokens of an issuer share, or all tokens for an audience.
const SHARED_CLAIMS: [&str; 9] = ["iss", "aud", "typ", "ver", "scope", "scp", "acr", "amr", "token_use"];

/// Claims that another token of the same caller has otherwise (RFC 7519, OpenID Connect Core; the last
/// two of Microsoft's).
const TOKENS_CLAIMS: [&str; 11] =
    ["jti", "iat", "exp", "nbf", "auth_time", "nonce", "at_hash", "c_hash", "s_hash", "uti", "aio"];

/// Checks a policy. `place` says where its scope stands, and one of its sources.
pub(super) fn check<'a>(
    policy: &Policy,
    place: impl Fn(Option<usize>) -> Place<'a>,
    findings: &mut Findings,
) {
    let ScopePolicy::Sources(sources) = &policy.scope else { return };
    for (index, source) in sources.iter().enumerate() {
        if let Some(claim) = claim(source).filter(|claim| TOKENS_CLAIMS.contains(claim)) {
            let found = format!("policy {:?} scoped by claim {claim:?}, another in each token", policy.name);
            let expected = "a claim that stays with the caller, such as sub: a retry with a renewed token \
                            would be another caller, and run again";
            findings.error(place(Some(index)), Code::ScopeChanges, found, expected);
        }
        if let ScopeSource::Header { name } = source
            && OF_ONE_ATTEMPT.contains(&name.as_str())
        {
            let found =
                format!("policy {:?} scoped by header {name:?}, another in each request", policy.name);
            let expected = "what stays with the caller: a retry would be another caller, and run again";
            findings.error(place(Some(index)), Code::ScopeChanges, found, expected);
        }
    }
    if sources.iter().all(is_shared) {
        let names: Vec<_> = sources
            .iter()
            .map(|source| claim(source).map_or(source.name().to_owned(), |claim| format!("claim {claim:?}")))
            .collect();
        let found = format!("policy {:?} scoped by {} alone", policy.name, names.join(" and "));
        let expected = "a source that differs from caller to caller as well; or anonymous: true, if all \
                        callers are meant to share their keys";
        findings.warning(place(None), Code::ScopeShared, found, expected);
    }
}

/// The claim of a token that a source reads, if it reads one.
fn claim(source: &ScopeSource) -> Option<&str> {
    match source {
        ScopeSource::Jwt { claim, .. } => Some(claim),
        // The payload, and a claim in it.
        ScopeSource::Metadata { filter, path } if filter == "envoy.filters.http.jwt_authn" => {
            let [_, claim] = path.as_slice() else { return None };
            Some(claim)
        }
        _ => None,
    }
}

fn is_shared(source: &ScopeSource) -> bool {
    matches!(source, ScopeSource::Host | ScopeSource::Constant { .. })
        || claim(source).is_some_and(|claim| SHARED_CLAIMS.contains(&claim))
}
