//! The rules of `jwt_authn` against a marked route: whether its requests need a token, and whether
//! every provider that may vouch for one leaves the payload that the scope reads.

use super::matching::{Cover, cover};
use super::place::Place;
use super::routes::Marked;
use super::switch::{entry, unwrapped};
use super::world::Filter;

/// What becomes of a route's requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    /// Each caller's token leaves it.
    Left,
    /// Some callers' tokens do; those of this provider do not.
    Partly(Place<'a>),
    /// Nobody's.
    Never,
    /// No token is needed, by the rule that stands here or because none matches.
    NotAsked(Place<'a>),
}

/// Of a filter, without a route: whether any provider leaves it.
pub(super) fn of_filter(filter: &Filter<'_>, payload: &str) -> bool {
    filter.config.get("providers").members().any(|(_, provider)| leaves(&provider, payload))
}

/// Of a filter on a marked route. The first rule that matches a request is its rule.
pub(super) fn of_route<'a>(filter: &Filter<'a>, marked: &Marked<'a>, payload: &str) -> Payload<'a> {
    let named = |name: Place<'a>| filter.config.get("requirement_map").get(name.text().unwrap_or_default());
    let own = marked.levels().into_iter().find_map(|level| entry(filter, &level));
    let own = own.map(|own| unwrapped(&own).1.get("requirement_name")).filter(Place::exists);
    if let Some(name) = own {
        return of_requirement(filter, named(name), payload, name);
    }
    let mut of_parts = Vec::new();
    for rule in filter.config.get("rules").items() {
        let covers = cover(&rule.get("match"), &marked.route.get("match"));
        if covers == Cover::None {
            continue;
        }
        let name = rule.get("requirement_name");
        let requirement = if name.exists() { named(name) } else { rule.get("requires") };
        match of_requirement(filter, requirement, payload, rule) {
            // An exception for a part of the route is taken for meant.
            Payload::NotAsked(_) if covers != Cover::Whole => {}
            of_rule => of_parts.push((of_rule, rule)),
        }
        if covers != Cover::Part {
            return together(of_parts);
        }
    }
    if filter.config.get("filter_state_rules").exists() {
        return together(of_parts);
    }
    Payload::NotAsked(filter.config.get("rules"))
}

fn leaves(provider: &Place<'_>, payload: &str) -> bool {
    provider.get("payload_in_metadata").is(payload)
}

fn of_requirement<'a>(filter: &Filter<'a>, of: Place<'a>, payload: &str, rule: Place<'a>) -> Payload<'a> {
    let providers = filter.config.get("providers");
    let by = |provider: Place<'a>| {
        let of = if leaves(&provider, payload) { Payload::Left } else { Payload::Never };
        (of, if provider.exists() { provider } else { rule })
    };
    let inner = |kind: &str| -> Vec<_> {
        let all = of.get(kind).get("requirements").items();
        all.map(|one| (of_requirement(filter, one, payload, rule), first_provider(&one, providers))).collect()
    };
    let asked = |of: &(Payload<'a>, Place<'a>)| !matches!(of.0, Payload::NotAsked(_));
    let name = [of.get("provider_name"), of.at("provider_and_audiences.provider_name")];
    if let Some(name) = name.into_iter().find_map(|name| name.text()) {
        return by(providers.get(name)).0;
    }
    let all = if of.get("requires_any").exists() {
        inner("requires_any").into_iter().filter(asked).collect()
    } else if of.get("requires_all").exists() {
        let all = inner("requires_all");
        if all.iter().any(|(one, _)| matches!(one, Payload::Left)) {
            return Payload::Left;
        }
        all.into_iter().filter(asked).collect()
    } else if of.get("allow_missing").exists() || of.get("allow_missing_or_failed").exists() {
        providers.members().map(|(_, provider)| by(provider)).collect()
    } else {
        Vec::new()
    };
    if all.is_empty() { Payload::NotAsked(rule) } else { together(all) }
}

/// Where the provider of a requirement stands.
fn first_provider<'a>(of: &Place<'a>, providers: Place<'a>) -> Place<'a> {
    let names = [of.get("provider_name"), of.at("provider_and_audiences.provider_name")];
    let name = names.into_iter().find_map(|name| name.text());
    name.map(|name| providers.get(name)).filter(Place::exists).unwrap_or(*of)
}

/// What several leave together, each with its place.
fn together<'a>(all: Vec<(Payload<'a>, Place<'a>)>) -> Payload<'a> {
    let not_asked = all.iter().find(|(of, _)| matches!(of, Payload::NotAsked(_)));
    let partly = all.iter().find(|(of, _)| matches!(of, Payload::Partly(_)));
    let never = all.iter().find(|(of, _)| matches!(of, Payload::Never));
    let left = all.iter().any(|(of, _)| matches!(of, Payload::Left));
    match (not_asked, partly, never) {
        (Some((of, _)), ..) | (None, Some((of, _)), _) => *of,
        (None, None, Some((_, place))) if left => Payload::Partly(*place),
        (None, None, Some(_)) => Payload::Never,
        (None, None, None) => Payload::Left,
    }
}
