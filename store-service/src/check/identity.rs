//! Whether what the scope reads was made by somebody before our filter, on each marked route.

use super::code::Code;
use super::finding::Severity::{self, Error, Warning};
use super::guard::Guard;
use super::jwt::{self, Payload, Rules};
use super::matching::example;
use super::origin::{self, ANYTHING, Reader, is_overwritten};
use super::peer;
use super::place::{Findings, Place};
use super::routes::Marked;
use super::switch::{Switch, switch};
use super::world::{Chain, Filter, typed};
use fencepost_filter_core::policy::{Mode, Policy};
use fencepost_filter_core::scope::{ScopePolicy, ScopeSource};

const JWT_AUTHN: &str = "envoy.filters.http.jwt_authn";

/// What is before our filter, on one route or on any.
struct Seen<'c, 'a> {
    chain: &'c Chain<'a>,
    before: Vec<&'c Filter<'a>>,
    /// The rules of each `jwt_authn`.
    rules: &'c [(&'c Filter<'a>, Rules<'a>)],
    marked: Option<&'c Marked<'a>>,
}

/// What is wrong with a source.
struct Wrong<'a> {
    severity: Severity,
    code: Code,
    /// Where, if not where the source is named.
    place: Option<Place<'a>>,
    found: String,
    expected: &'static str,
}

impl Wrong<'_> {
    fn missing(found: String, expected: &'static str) -> Self {
        Self { severity: Error, code: Code::AuthenticationMissing, place: None, found, expected }
    }
}

/// What a policy needs.
enum Need<'p> {
    Source(&'p ScopeSource),
    Metadata(&'p str),
}

/// Checks the policies in use; all of them, if the routes are not known.
pub(super) fn check(
    chain: &Chain<'_>,
    index: usize,
    guard: &Guard<'_>,
    marked: &[Marked<'_>],
    findings: &mut Findings,
) {
    let before = chain.filters.get(..index).unwrap_or_default();
    let authn = before.iter().filter(|filter| filter.word() == "jwt_authn");
    let rules: Vec<_> = authn.map(|filter| (filter, jwt::rules(filter))).collect();
    let written = || {
        let before = before.iter().filter(|filter| !filter.disabled).collect();
        Seen { chain, before, rules: &rules, marked: None }
    };
    if chain.routes.is_none() {
        for policy in guard.configuration.policies() {
            check_policy(&written(), &written(), guard, policy, findings);
        }
        return;
    }
    for marked in marked.iter().filter(|marked| marked.policy.mode != Mode::Off) {
        let on = before.iter().filter(|filter| switch(filter, &marked.levels()).is_on()).collect();
        let seen = Seen { chain, before: on, rules: &rules, marked: Some(marked) };
        check_policy(&seen, &written(), guard, &marked.policy, findings);
    }
}

fn check_policy(
    seen: &Seen<'_, '_>,
    written: &Seen<'_, '_>,
    guard: &Guard<'_>,
    policy: &Policy,
    findings: &mut Findings,
) {
    let mut needs = Vec::new();
    if let ScopePolicy::Sources(sources) = &policy.scope {
        needs.extend((0..).zip(sources).map(|(i, source)| (format!("scope[{i}]"), Need::Source(source))));
    }
    let tenant = policy.grant.as_ref().and_then(|grant| grant.tenant.as_ref());
    needs.extend(tenant.map(|tenant| ("grant.tenant".to_owned(), Need::Source(tenant))));
    let required = (0..).zip(&policy.require_metadata);
    needs.extend(required.map(|(i, name)| (format!("require_metadata[{i}]"), Need::Metadata(name))));
    for (setting, need) in needs {
        let place = match seen.marked {
            Some(marked) => marked.place_of(guard, &setting),
            None => guard.configuration.line_of_setting(&policy.name, &setting),
        };
        if let Need::Source(source) = need {
            let levels = seen.marked.map(Marked::levels).unwrap_or_default();
            let reader = Reader { source, place, name: format!("{setting} of policy {:?}", policy.name) };
            origin::check(seen.chain, &seen.before, &levels, &reader, findings);
        }
        let Some(wrong) = judge(seen, &need, policy) else {
            if matches!(need, Need::Source(ScopeSource::Jwt { .. })) {
                report_exceptions(seen, findings);
            }
            continue;
        };
        // Right without the route's word: then that is what is wrong.
        let off = judge(written, &need, policy).is_none().then(|| switched_off(seen, written)).flatten();
        if let Some((name, off)) = off {
            let found = format!("{name:?} off on a route under policy {:?}", policy.name);
            let expected = "it on: the policy needs what it leaves";
            findings.add(Error, off, Code::AuthenticationOff, found, expected);
        } else {
            let Wrong { severity, code, place: own, found, expected } = wrong;
            findings.add(severity, own.unwrap_or(place), code, found, expected);
        }
    }
}

/// Rules of the only `jwt_authn` that let a part of the route's requests through without a token.
fn report_exceptions(seen: &Seen<'_, '_>, findings: &mut Findings) {
    let (Some(marked), [(filter, rules)]) = (seen.marked, seen.rules) else { return };
    for rule in jwt::exceptions(filter, rules, marked) {
        let of = marked.route.get("match");
        let found = format!(
            "no token asked for on a part of {:?}, a route under policy {:?} ({}:{})",
            example(&of).unwrap_or("a route"),
            marked.policy.name,
            of.file,
            of.line(),
        );
        let expected = "a token asked for there, or a route before for this part, with mode: \"off\": its \
                        guarded requests get 403 without a token";
        findings.warning(rule, Code::AuthenticationException, found, expected);
    }
}

/// The first filter that is on by default and off on the route.
fn switched_off<'c, 'a>(seen: &Seen<'c, 'a>, written: &Seen<'c, 'a>) -> Option<(&'c str, Place<'a>)> {
    let levels = seen.marked?.levels();
    written.before.iter().find_map(|filter| match switch(filter, &levels) {
        Switch::Off(place) => Some((filter.name.as_str(), place)),
        Switch::On => None,
    })
}

fn judge<'a>(seen: &Seen<'_, 'a>, need: &Need<'_>, policy: &Policy) -> Option<Wrong<'a>> {
    let before = &seen.before;
    match need {
        Need::Metadata(name) if !leaves_metadata(before, name) => Some(Wrong {
            severity: Error,
            code: Code::RequiredMetadataMissing,
            place: None,
            found: format!("no filter before that leaves metadata as {name:?}"),
            expected: "that filter before this one",
        }),
        Need::Source(ScopeSource::Jwt { filter, payload, .. }) => judge_jwt(seen, filter, payload, policy),
        Need::Source(ScopeSource::PeerSan) => {
            peer::judge(seen.chain).map(|(severity, place, found, expected)| Wrong {
                severity,
                code: Code::PeerCertificateUnverified,
                place,
                found: found.to_owned(),
                expected,
            })
        }
        Need::Source(ScopeSource::Metadata { filter, .. }) if !leaves_metadata(before, filter) => {
            let found = format!("no filter before that leaves metadata as {filter:?}");
            Some(Wrong::missing(found, "that filter before this one"))
        }
        Need::Source(ScopeSource::FilterState { key }) if !sets_filter_state(seen) => Some(Wrong::missing(
            format!("no filter before that sets filter state {key:?}"),
            "it before the filter",
        )),
        Need::Source(ScopeSource::Header { name }) => judge_header(seen, name, policy),
        _ => None,
    }
}

fn judge_header<'a>(seen: &Seen<'_, 'a>, name: &str, policy: &Policy) -> Option<Wrong<'a>> {
    if !is_overwritten(seen.chain, &seen.before, name) {
        return Some(Wrong {
            severity: Warning,
            code: Code::TrustedHeaderOpen,
            place: None,
            found: format!("header {name:?} declared trusted, and nothing before that always overwrites it"),
            expected: "a filter before this one that sets or removes it, whatever the client sent",
        });
    }
    // jwt_authn leaves the headers of claims as they came where no rule asks for a token.
    let marked = seen.marked?;
    let not_asked: Vec<_> = seen
        .rules
        .iter()
        .filter_map(|(filter, rules)| match jwt::of_route(filter, rules, marked, "") {
            Payload::NotAsked(rule) if filter.config.exists() => Some((filter.place.node, rule)),
            Payload::NotAsked(_) | Payload::Left | Payload::Partly(_) | Payload::Never => None,
        })
        .collect();
    let (_, rule) = *not_asked.first()?;
    let is_asking =
        |filter: &&Filter<'_>| !not_asked.iter().any(|(node, _)| std::ptr::eq(*node, filter.place.node));
    let asking: Vec<_> = seen.before.iter().copied().filter(is_asking).collect();
    (!is_overwritten(seen.chain, &asking, name)).then(|| Wrong {
        severity: Error,
        code: Code::AuthenticationOff,
        place: Some(rule),
        found: format!(
            "no token asked for on {:?}, where policy {:?} trusts header {name:?}",
            example(&marked.route.get("match")).unwrap_or("a route"),
            policy.name
        ),
        expected: "a rule of jwt_authn for this path: without one, the header is the client's",
    })
}

fn judge_jwt<'a>(seen: &Seen<'_, 'a>, name: &str, payload: &str, policy: &Policy) -> Option<Wrong<'a>> {
    let jwt: Vec<_> = seen.before.iter().filter(|filter| filter.word() == "jwt_authn").collect();
    // A JWT may be verified by another filter, if the scope names it.
    if jwt.is_empty() && (name == JWT_AUTHN || !leaves_metadata(&seen.before, name)) {
        let found = format!("policy {:?} scoped by a JWT, and no jwt_authn before the filter", policy.name);
        return Some(Wrong::missing(found, "jwt_authn before the filter"));
    }
    // Under another name its configuration may be elsewhere.
    if jwt.is_empty() || name != JWT_AUTHN || jwt.iter().any(|filter| !filter.config.exists()) {
        return None;
    }
    let without = |place, severity, found| Wrong {
        severity,
        code: Code::JwtPayloadMissing,
        place,
        found,
        expected: "the name that the scope reads in payload_in_metadata of every provider",
    };
    let nobody = || format!("no provider of jwt_authn with payload_in_metadata: {payload}");
    let Some(marked) = seen.marked else {
        let left = jwt.iter().any(|filter| jwt::of_filter(filter, payload));
        return (!left).then(|| without(None, Error, nobody()));
    };
    let mut wrongs = Vec::new();
    for (filter, rules) in seen.rules.iter().filter(|(filter, _)| is_seen(seen, filter)) {
        wrongs.push(match jwt::of_route(filter, rules, marked, payload) {
            Payload::Left => return None,
            Payload::Partly(provider) => {
                let found = format!("a provider without payload_in_metadata: {payload}: its callers get 403");
                without(Some(provider), Warning, found)
            }
            Payload::Never => without(None, Error, nobody()),
            Payload::NotAsked(rule) => Wrong {
                severity: Error,
                code: Code::AuthenticationOff,
                place: Some(rule),
                found: format!(
                    "no token asked for on {:?}, a route under policy {:?}",
                    example(&marked.route.get("match")).unwrap_or("a route"),
                    policy.name
                ),
                expected: "a rule of jwt_authn for this path, with its providers",
            },
        });
    }
    wrongs.into_iter().next()
}

fn is_seen(seen: &Seen<'_, '_>, filter: &Filter<'_>) -> bool {
    seen.before.iter().any(|one| std::ptr::eq(*one, filter))
}

fn leaves_metadata(before: &[&Filter<'_>], name: &str) -> bool {
    before.iter().any(|filter| {
        let canonical = format!("envoy.filters.http.{}", filter.word());
        canonical == name
            || filter.name == name
            || ANYTHING.contains(&filter.word())
            || matches!(
                filter.word(),
                "set_metadata" | "header_to_metadata" | "json_to_metadata" | "ext_authz"
            )
    })
}

fn sets_filter_state(seen: &Seen<'_, '_>) -> bool {
    let network = seen.chain.filter_chain.is_some_and(|chain| {
        let mut filters = chain.get("filters").items();
        filters.any(|filter| typed(&filter.get("typed_config")).0.contains("set_filter_state"))
    });
    let sets = |word: &str| word == "set_filter_state" || ANYTHING.contains(&word);
    network || seen.before.iter().any(|filter| sets(filter.word()))
}
