//! Routes under policies, and what on them would undo a guard.

use super::code::Code;
use super::guard::{Configuration, Guard};
use super::place::{Findings, Place};
use super::world::{Chain, World, typed};
use fencepost_filter_core::guard::METADATA_NAMESPACE;
use fencepost_filter_core::policy::{Config, Execution, Policy, Retries, UnmarkedRoutes};
use serde_json::{Value, json};
use std::rc::Rc;

/// A route that our filter guards.
pub(super) struct Marked<'a> {
    pub host: Place<'a>,
    pub route: Place<'a>,
    pub policy: Rc<Policy>,
    /// Named by the route itself, not by its virtual host or the rule for unmarked routes.
    pub own: bool,
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
}

/// The filter's metadata on a route or virtual host.
fn mark<'a>(place: &Place<'a>) -> Place<'a> {
    place.at("metadata.filter_metadata").get(METADATA_NAMESPACE)
}

/// Finds the guarded routes of a chain and checks them.
pub(super) fn check<'a>(chain: &Chain<'a>, guard: &Guard<'a>, findings: &mut Findings) -> Vec<Marked<'a>> {
    let Some(config) = &guard.configuration.config else { return Vec::new() };
    let unmarked = match &config.unmarked_routes {
        UnmarkedRoutes::Ignore => None,
        UnmarkedRoutes::GuardWhenKeyPresent { policy } | UnmarkedRoutes::RequireKey { policy } => {
            config.policies.get(policy)
        }
    };
    let mut all = Vec::new();
    for host in chain.virtual_hosts() {
        for route in host.get("routes").items() {
            let own = mark(&route);
            let policy = match resolve(&guard.configuration, mark(&host), own, findings) {
                Ok(Some(policy)) => policy,
                Ok(None) => match unmarked {
                    Some(policy) => Rc::clone(policy),
                    None => continue,
                },
                Err(()) => continue,
            };
            let marked = Marked { host, route, policy, own: own.exists() };
            check_route(chain, guard, &marked, findings);
            all.push(marked);
        }
    }
    all
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
    let name = name_place.text().unwrap_or_default();
    let Some(policy) = config.policies.get(name) else {
        let known = config.policies.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        findings.error(
            name_place,
            Code::RoutePolicyUnknown,
            format!("policy {}", name_place.shown()),
            format!("one of: {known}"),
        );
        return Err(());
    };
    let overrides: Vec<_> = [host, route].into_iter().filter(has_overrides).collect();
    if overrides.is_empty() {
        return Ok(Some(Rc::clone(policy)));
    }
    let mut layer =
        configuration.json.get("policies").and_then(|all| all.get(name)).cloned().unwrap_or_default();
    for over in &overrides {
        let mut over = over.node.to_json();
        if let Some(over) = over.as_object_mut() {
            over.remove("policy");
        }
        merge(&mut layer, over);
    }
    let document = json!({
        "store": configuration.json.get("store"),
        "key_prefix": configuration.json.get("key_prefix"),
        "defaults": configuration.json.get("defaults").cloned().unwrap_or_else(|| json!({})),
        "policies": {name: layer},
    });
    match Config::parse(document.to_string().as_bytes()) {
        Ok(config) => Ok(config.policies.get(name).map(Rc::clone)),
        Err(error) => {
            let field =
                error.path.strip_prefix(&format!("policies.{name}.")).unwrap_or(&error.path).to_owned();
            let first = field.split(['.', '[']).next().unwrap_or_default();
            let written = [route, host].into_iter().map(|mark| mark.get(first)).find(Place::exists);
            findings.error(
                written.unwrap_or(nearest),
                Code::RouteOverrideInvalid,
                format!("{field}: {}", error.found),
                error.expected,
            );
            Err(())
        }
    }
}

fn has_overrides(mark: &Place<'_>) -> bool {
    mark.members().any(|(name, _)| name != "policy")
}

/// Maps are merged, everything else replaces. Scope and `anonymous` are one setting.
fn merge(below: &mut Value, over: Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            if over.contains_key("scope") || over.contains_key("anonymous") {
                below.remove("scope");
                below.remove("anonymous");
            }
            for (name, value) in over {
                // A list of sources or an execution of another kind replaces the one below.
                match below.get_mut(&name) {
                    Some(inner) if name != "execution" => merge(inner, value),
                    _ => {
                        below.insert(name, value);
                    }
                }
            }
        }
        (below, over) => *below = over,
    }
}

fn check_route(chain: &Chain<'_>, guard: &Guard<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let Marked { host, route, policy, own } = marked;
    if let Some(place) = switched_off(chain, guard, host, route) {
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
            let listed = method.text().is_some_and(|text| policy.methods.iter().any(|known| known == text));
            if !listed {
                let found = format!("a route for {} under policy {:?}", method.shown(), policy.name);
                let expected = format!("a method that the policy guards ({})", policy.methods.join(", "));
                findings.warning(method, Code::MethodNeverGuarded, found, expected);
            }
        }
    }
    if marked.is_inline() {
        check_action(chain, host, route, findings);
        let retries = marked.retry_policy();
        if policy.retries == Retries::Allow && retries.exists() && !retries.get("num_retries").is("0") {
            let found = format!("a retry policy, and retries: allow in policy {:?}", policy.name);
            let expected = "retries: suppress, unless the upstream itself tells repetitions";
            findings.warning(retries, Code::RouteRetries, found, expected);
        }
    }
}

/// Where the filter is switched off for a route, if it is.
fn switched_off<'a>(
    chain: &Chain<'a>,
    guard: &Guard<'a>,
    host: &Place<'a>,
    route: &Place<'a>,
) -> Option<Place<'a>> {
    let levels = [Some(*route), Some(*host), chain.routes];
    let mut entries = levels.into_iter().flatten();
    let entry = entries.find_map(|level| {
        let entry = level.get("typed_per_filter_config").get(&guard.filter.name);
        entry.exists().then_some(entry)
    });
    match entry {
        Some(entry) => {
            let (kind, config) = typed(&entry);
            let off = kind.ends_with(".FilterConfig") && config.get("disabled").is_true();
            off.then(|| config.get("disabled"))
        }
        None if guard.filter.disabled => Some(guard.filter.place.get("disabled")),
        None => None,
    }
}

/// What the router would do more than once.
pub(super) fn check_action(chain: &Chain<'_>, host: &Place<'_>, route: &Place<'_>, findings: &mut Findings) {
    let action = route.get("route");
    let redirect = action.get("internal_redirect_policy");
    if redirect.exists() {
        let found = "internal redirects on a guarded route";
        let expected = "none: the redirected request would meet its own claim";
        findings.error(redirect, Code::RouteInternalRedirect, found, expected);
    }
    let own = action.get("hedge_policy");
    let hedge = if own.exists() { own } else { host.get("hedge_policy") };
    let more = hedge.get("initial_requests").number().is_some_and(|n| n > 1);
    if more || hedge.get("hedge_on_per_try_timeout").is_true() {
        let expected = "none: it sends a request again while the first one runs";
        findings.error(hedge, Code::RouteHedging, "hedging on a guarded route", expected);
    }
    let mirrors = [Some(action), Some(*host), chain.routes];
    let mirrors = mirrors.iter().flatten().map(|level| level.get("request_mirror_policies"));
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
    for host in chain.virtual_hosts() {
        let marks = host.get("routes").items().map(|route| mark(&route)).chain([mark(&host)]);
        for mark in marks.filter(Place::exists) {
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

/// Routes that patches mark.
pub(super) fn check_loose(world: &World<'_>, guards: &[Guard<'_>], findings: &mut Findings) {
    let mut configurations = guards.iter().map(|guard| &guard.configuration);
    let Some(configuration) = configurations.find(|configuration| configuration.config.is_some()) else {
        return;
    };
    let mut marks = world.loose_marks.clone();
    for place in &world.loose_routes {
        // What a patch sets may be a route, a virtual host, or a part of one.
        marks.extend([mark(place), place.get("filter_metadata").get(METADATA_NAMESPACE)]);
        let hosts = place.get("virtual_hosts").items().chain([*place]);
        marks.extend(hosts.flat_map(|host| host.get("routes").items()).map(|route| mark(&route)));
    }
    for mark in marks.into_iter().filter(Place::exists) {
        let nothing = Place::new(mark.file, &super::tree::MISSING);
        let _ = resolve(configuration, nothing, mark, findings);
    }
}
