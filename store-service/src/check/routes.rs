//! Routes under policies, and what on them would undo a guard.

use super::code::Code;
use super::guard::{Configuration, Guard};
use super::matching::{Match, Table};
use super::place::{Findings, Place};
use super::scopes;
use super::settings;
use super::shadow;
use super::switch::{Switch, switch};
use super::world::{Chain, Filter, routes_of};
use fencepost_filter_core::guard::METADATA_NAMESPACE;
use fencepost_filter_core::policy::{ConfigError, Execution, Level, Mode, Policy, Retries, UnmarkedRoutes};
use serde_json::Value;
use std::rc::Rc;

/// A route that our filter guards.
pub(super) struct Marked<'a> {
    /// The route configuration, if it is in the files.
    pub config: Option<Place<'a>>,
    pub host: Place<'a>,
    pub route: Place<'a>,
    pub policy: Rc<Policy>,
    /// Named by the route itself, not by its virtual host or the rule for unmarked routes.
    pub own: bool,
    /// The routes of its virtual host and its own place among them, if they are known and in order.
    pub order: Option<(Rc<Table<'a>>, usize)>,
}

impl<'a> Marked<'a> {
    pub(super) fn action(&self) -> Place<'a> {
        self.route.get("route")
    }

    /// The retry policy that applies.
    pub(super) fn retry_policy(&self) -> Place<'a> {
        let own = self.action().get("retry_policy");
        if own.exists() { own } else { self.host.get("retry_policy") }
    }

    pub(super) fn is_inline(&self) -> bool {
        self.policy.execution == Execution::Inline
    }

    /// What may say something about the route, most specific first.
    pub(super) fn levels(&self) -> Vec<Place<'a>> {
        [Some(self.route), Some(self.host), self.config].into_iter().flatten().collect()
    }

    /// Whether it leads anywhere, so that times and buffers matter.
    pub(super) fn calls_upstream(&self) -> bool {
        !["redirect", "direct_response"].iter().any(|word| self.route.get(word).exists())
    }

    /// Where a setting of the policy stands: in the metadata of the route or virtual host, or in the
    /// configuration.
    pub(super) fn place_of(&self, guard: &Guard<'a>, setting: &str) -> Place<'a> {
        let first = setting.split(['.', '[']).next().unwrap_or_default();
        let own =
            [self.route, self.host].map(|level| mark(&level).get(first)).into_iter().find(Place::exists);
        own.unwrap_or_else(|| guard.configuration.line_of_setting(&self.policy.name, setting))
    }
}

/// The guarded routes of a chain.
pub(super) struct Guarded<'a> {
    pub marked: Vec<Marked<'a>>,
    /// Whether metadata could not be resolved: that is a finding already.
    pub unreadable: bool,
}

/// The filter's metadata on a route or virtual host.
pub(super) fn mark<'a>(place: &Place<'a>) -> Place<'a> {
    place.at("metadata.filter_metadata").get(METADATA_NAMESPACE)
}

/// Finds the guarded routes of a chain and checks them.
pub(super) fn check<'a>(chain: &Chain<'a>, guard: &Guard<'a>, findings: &mut Findings) -> Guarded<'a> {
    let mut guarded = Guarded { marked: Vec::new(), unreadable: false };
    let Some(config) = &guard.configuration.config else { return guarded };
    let unmarked = match &config.unmarked_routes {
        UnmarkedRoutes::Ignore => None,
        UnmarkedRoutes::GuardWhenKeyPresent { policy } | UnmarkedRoutes::RequireKey { policy } => {
            config.policies.get(policy)
        }
    };
    if let Some(discovered) = chain.routes.map(|routes| routes.get("vhds")).filter(Place::exists) {
        let found = "virtual hosts that are discovered (vhds)";
        findings.note(discovered, Code::NotChecked, found, "a dump of the running Envoy, which has them");
    }
    for host in chain.virtual_hosts() {
        let mut order = Vec::new();
        let listed = host.get("routes").items().map(|route| Match::new(route.get("match")));
        let table = Rc::new(Table::new(listed));
        for (route, in_order) in routes_of(&host) {
            let own = mark(&route);
            let resolved = resolve(&guard.configuration, mark(&host), own, findings);
            let place = in_order.then(|| (Rc::clone(&table), order.len()));
            if in_order {
                let guarded = match &resolved {
                    Ok(None) => unmarked
                        .map_or(shadow::Guarded::No, |policy| shadow::Guarded::By(Some(Rc::clone(policy)))),
                    Ok(Some(policy)) => shadow::Guarded::By(Some(Rc::clone(policy))),
                    Err(()) => shadow::Guarded::By(None),
                };
                order.push((route, guarded));
            }
            let policy = match resolved {
                Ok(Some(policy)) => policy,
                Ok(None) => match unmarked {
                    Some(policy) => Rc::clone(policy),
                    None => continue,
                },
                Err(()) => {
                    guarded.unreadable = true;
                    continue;
                }
            };
            let config = chain.routes;
            let marked = Marked { config, host, route, policy, own: own.exists(), order: place };
            check_route(&guard.filter, &marked, findings);
            guarded.marked.push(marked);
        }
        shadow::check(&order, findings);
    }
    guarded
}

/// The policy of a route: its name, with the overrides of virtual host and route, which are checked.
pub(super) fn resolve(
    configuration: &Configuration<'_>,
    host: Place<'_>,
    route: Place<'_>,
    findings: &mut Findings,
) -> Result<Option<Rc<Policy>>, ()> {
    let Some(config) = &configuration.config else { return Err(()) };
    if !host.exists() && !route.exists() {
        return Ok(None);
    }
    let name_place = [route, host].map(|mark| mark.get("policy")).into_iter().find(Place::exists);
    let nearest = if route.exists() { route } else { host };
    let Some(name_place) = name_place else {
        let found = "metadata of the filter that names no policy";
        findings.error(nearest, Code::RoutePolicyMissing, found, "policy: NAME, or the route answers 500");
        return Err(());
    };
    // What is a number or a word of YAML is no text for Envoy either.
    let name = if let Value::String(name) = name_place.node.to_json() { name } else { String::new() };
    let name = name.as_str();
    if !config.policies.contains_key(name) {
        let known = config.policies.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        findings.error(
            name_place,
            Code::RoutePolicyUnknown,
            format!("policy {}", name_place.shown()),
            format!("one of: {known}"),
        );
        return Err(());
    }
    let [of_route, of_host] = [route, host].map(|mark| mark.exists().then(|| mark.node.to_json()));
    match config.route_policy(of_route.as_ref(), of_host.as_ref()) {
        Ok(policy) => {
            let own = [route, host].iter().map(|mark| mark.get("scope")).find(Place::exists);
            if let Some(own) = own
                && policy.mode != Mode::Off
            {
                let at = |index: Option<usize>| index.and_then(|index| own.items().nth(index)).unwrap_or(own);
                scopes::check(&policy, at, findings);
            }
            if policy.mode != Mode::Off {
                settings::check(&policy, |setting| overridden(&[route, host], setting), findings);
            }
            Ok(Some(policy))
        }
        Err((level, error)) => {
            let levels = match level {
                Level::Route => vec![route],
                Level::VirtualHost => vec![host],
                Level::Together => vec![route, host],
            };
            report_override(&levels, nearest, error, findings);
            Err(())
        }
    }
}

/// Where an override makes a setting what it is.
fn overridden<'a>(marks: &[Place<'a>; 2], setting: &str) -> Option<Place<'a>> {
    let written = |path: &str| {
        let ways = marks.iter().map(|mark| path.split('.').fold(*mark, |place, name| place.get(name)));
        ways.into_iter().find(Place::exists)
    };
    let path = setting.split('[').next().unwrap_or_default();
    // A lifetime is short against another setting, and one takes the other's value.
    let beside: &[&str] = match path {
        "response.unknown_ttl" => &["response.ttl", "max_run", "on_lost"],
        path if path.starts_with("response.") => &["max_run"],
        _ => &[],
    };
    written(path).or_else(|| beside.iter().find_map(|path| written(path)))
}

/// Overrides that the filter refuses, where they are written.
fn report_override(levels: &[Place<'_>], nearest: Place<'_>, error: ConfigError, findings: &mut Findings) {
    let first = error.path.split(['.', '[']).next().unwrap_or_default();
    let written = levels.iter().map(|mark| mark.get(first)).find(Place::exists);
    let expected = if first == "mode" && error.found == "false" {
        format!("{}, in quotes: {:?} without them is a boolean", error.expected, "off")
    } else {
        error.expected
    };
    let found = format!("{}: {}", error.path, error.found);
    findings.error(written.unwrap_or(nearest), Code::RouteOverrideInvalid, found, expected);
}

/// Checks what a route says, under its policy. `filter` is ours.
pub(super) fn check_route(filter: &Filter<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let Marked { route, policy, own, .. } = marked;
    if policy.mode == Mode::Off {
        return;
    }
    if let Switch::Off(place) = switch(filter, &marked.levels()) {
        let found = format!("the filter off on a route under policy {:?}", policy.name);
        findings.error(place, Code::FilterDisabled, found, "it on, or no metadata of it on this route");
    }
    if *own {
        for word in ["redirect", "direct_response"] {
            let answer = route.get(word);
            if answer.exists() {
                let found = format!("{word} on a route under policy {:?}", policy.name);
                findings.note(
                    answer,
                    Code::RouteAnswersItself,
                    found,
                    "a guarded route that leads to a cluster",
                );
            }
        }
        for header in route.at("match.headers").items().filter(|header| header.get("name").is(":method")) {
            let exact = [header.at("string_match.exact"), header.get("exact_match")];
            let Some(method) = exact.into_iter().find(Place::exists) else { continue };
            let inverted = header.get("invert_match").is_true();
            let listed = method
                .text()
                .is_some_and(|text| policy.methods.iter().any(|known| (known == text) != inverted));
            if !listed {
                let found = format!("a route for {} under policy {:?}", method.shown(), policy.name);
                let expected = format!("a method that the policy guards ({})", policy.methods.join(", "));
                findings.warning(method, Code::MethodNeverGuarded, found, expected);
            }
        }
    }
    if marked.is_inline() {
        check_action(&marked.levels(), findings);
        let retries = marked.retry_policy();
        if policy.retries == Retries::Allow && retries.exists() && !retries.get("num_retries").is("0") {
            let found = format!("a retry policy, and retries: allow in policy {:?}", policy.name);
            let expected = "retries: suppress, unless the upstream itself tells repetitions";
            findings.warning(retries, Code::RouteRetries, found, expected);
        }
    }
}

/// What the router would do more than once.
/// Levels are the route, its virtual host and its route configuration.
pub(super) fn check_action(levels: &[Place<'_>], findings: &mut Findings) {
    let Some((route, above)) = levels.split_first() else { return };
    let action = route.get("route");
    let redirect = action.get("internal_redirect_policy");
    if redirect.exists() {
        let found = "internal redirects on a guarded route";
        let expected = "none: the redirected request would meet its own claim";
        findings.error(redirect, Code::RouteInternalRedirect, found, expected);
    }
    let mut hedges = [action].into_iter().chain(above.iter().copied()).map(|level| level.get("hedge_policy"));
    let hedge = hedges.find(Place::exists).unwrap_or_else(|| action.get("hedge_policy"));
    let more = hedge.get("initial_requests").number().is_some_and(|n| n > 1);
    if more || hedge.get("hedge_on_per_try_timeout").is_true() {
        let expected = "none: it sends a request again while the first one runs";
        findings.error(hedge, Code::RouteHedging, "hedging on a guarded route", expected);
    }
    let mirrors = [action].into_iter().chain(above.iter().copied());
    let mirrors = mirrors.map(|level| level.get("request_mirror_policies"));
    for mirror in mirrors.flat_map(|list| list.items()) {
        let cluster = mirror.get("cluster");
        let found = format!("guarded requests mirrored to {}", cluster.shown());
        if cluster.exists() && cluster.text() == action.get("cluster").text() {
            let expected = "no mirror to the route's own cluster: it would run everything twice";
            findings.error(mirror, Code::RouteMirror, found, expected);
        } else {
            let expected = "no mirror, unless what runs there has no effect";
            findings.warning(mirror, Code::RouteMirror, found, expected);
        }
    }
}

/// Marked routes where there is no filter.
pub(super) fn check_without_filter(chain: &Chain<'_>, findings: &mut Findings) {
    if chain.is_internal() {
        return;
    }
    // A filter that is discovered may be ours.
    let elsewhere = chain.filters.iter().any(|filter| filter.word() == "wasm" && !filter.config.exists());
    for host in chain.virtual_hosts() {
        let routes = routes_of(&host).into_iter().map(|(route, _)| mark(&route));
        for mark in routes.chain([mark(&host)]).filter(Place::exists) {
            if elsewhere {
                let found = "metadata of the filter, and a wasm filter that is not in the files";
                findings.note(mark, Code::NotChecked, found, "the file that has it, to check it as well");
                continue;
            }
            let found = "metadata of the filter in a chain without it";
            findings.error(
                mark,
                Code::RouteWithoutFilter,
                found,
                "the filter in this chain: nothing is guarded",
            );
        }
    }
}
