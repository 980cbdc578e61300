//! The rules of `jwt_authn` against a marked route: whether its requests need a token, and whether
//! every provider that may vouch for one leaves the payload that the scope reads.

use super::matching::{Cover, Match, Table};
use super::place::Place;
use super::routes::Marked;
use super::shadow::is_exception;
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

/// The rules of a filter.
pub(super) fn rules<'a>(filter: &Filter<'a>) -> Rules<'a> {
    let places: Vec<_> = filter.config.get("rules").items().collect();
    let table = Table::new(places.iter().map(|rule| Match::new(rule.get("match"))));
    Rules { places, table }
}

/// See [`rules`].
pub(super) struct Rules<'a> {
    places: Vec<Place<'a>>,
    table: Table<'a>,
}

/// Of a filter on a marked route. The first rule that matches a request is its rule.
pub(super) fn of_route<'a>(
    filter: &Filter<'a>,
    rules: &Rules<'a>,
    marked: &Marked<'a>,
    payload: &str,
) -> Payload<'a> {
    let named = |name: Place<'a>| filter.config.get("requirement_map").get(name.text().unwrap_or_default());
    if let Some(name) = own_requirement(filter, marked) {
        return of_requirement(filter, named(name), payload, name);
    }
    let mut of_parts = Vec::new();
    for (index, covers) in rules.table.covering(&Match::new(marked.route.get("match")), true) {
        let Some(rule) = rules.places.get(index).copied() else { continue };
        match of_requirement(filter, requirement(filter, &rule), payload, rule) {
            // See `exceptions`.
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

/// Rules that ask for nothing on a part of a marked route, which no route before it takes.
pub(super) fn exceptions<'a>(filter: &Filter<'a>, rules: &Rules<'a>, marked: &Marked<'a>) -> Vec<Place<'a>> {
    if own_requirement(filter, marked).is_some() {
        return Vec::new();
    }
    let of = Match::new(marked.route.get("match"));
    let mut exceptions = Vec::new();
    for (index, covers) in rules.table.covering(&of, true) {
        if covers != Cover::Part {
            break;
        }
        let (Some(rule), Some(part)) = (rules.places.get(index), rules.table.get(index)) else { continue };
        let asks =
            !matches!(of_requirement(filter, requirement(filter, rule), "", *rule), Payload::NotAsked(_));
        let elsewhere = marked.order.as_ref().is_some_and(|(routes, own)| {
            routes.covering(part, false).any(|(index, covers)| index < *own && covers == Cover::Whole)
        });
        if !asks && !elsewhere && is_exception(part, &of, &marked.policy) {
            exceptions.push(*rule);
        }
    }
    exceptions
}

/// What the route itself says, or what is around it.
fn own_requirement<'a>(filter: &Filter<'a>, marked: &Marked<'a>) -> Option<Place<'a>> {
    let own = marked.levels().into_iter().find_map(|level| entry(filter, &level));
    own.map(|own| unwrapped(&own).1.get("requirement_name")).filter(Place::exists)
}

fn requirement<'a>(filter: &Filter<'a>, rule: &Place<'a>) -> Place<'a> {
    let name = rule.get("requirement_name");
    match name.text() {
        Some(name) => filter.config.get("requirement_map").get(name),
        None => rule.get("requires"),
    }
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
