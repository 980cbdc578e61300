//! The order of routes: an unmarked one that takes requests of a marked one behind it.
//!
//! One that takes a part of them may be meant, and then says so: with metadata of its own that has
//! `mode: "off"`. Nothing is said where that is plain without it: what the policy does not guard
//! anyway (other methods, gRPC, upgrades), health checks, and paths before a route for everything.

use super::code::Code;
use super::matching::{Cover, Match, Table, example};
use super::place::{Findings, Place};
use fencepost_filter_core::policy::{Mode, Policy};
use std::collections::HashSet;
use std::rc::Rc;

/// Last segments of paths that answer whether something lives.
const HEALTH: [&str; 13] = [
    "health",
    "healthz",
    "healthcheck",
    "health-check",
    "health_check",
    "live",
    "livez",
    "liveness",
    "ready",
    "readyz",
    "readiness",
    "ping",
    "metrics",
];

/// What becomes of a route's requests.
pub(super) enum Guarded {
    No,
    /// As this policy says; nothing where that can't be resolved.
    By(Option<Rc<Policy>>),
}

/// Checks the routes of a virtual host, in their order.
pub(super) fn check(routes: &[(Place<'_>, Guarded)], findings: &mut Findings) {
    check_with(&unmarked(routes), routes, findings);
}

/// Unmarked routes that lead anywhere, with where they stand in the order.
struct Unmarked<'a> {
    table: Table<'a>,
    routes: Vec<(usize, Place<'a>)>,
}

fn unmarked<'a>(routes: &[(Place<'a>, Guarded)]) -> Unmarked<'a> {
    let unmarked = routes.iter().enumerate().filter(|(_, (_, guarded))| matches!(guarded, Guarded::No));
    let routes: Vec<_> = unmarked
        .filter(|(_, (route, _))| route.get("route").exists())
        .map(|(index, (route, _))| (index, *route))
        .collect();
    let table = Table::new(routes.iter().map(|(_, route)| Match::new(route.get("match"))));
    Unmarked { table, routes }
}

fn check_with(unmarked: &Unmarked<'_>, routes: &[(Place<'_>, Guarded)], findings: &mut Findings) {
    let mut reported = HashSet::new();
    for (index, (route, guarded)) in routes.iter().enumerate() {
        let Guarded::By(policy) = guarded else { continue };
        if policy.as_ref().is_some_and(|policy| policy.mode == Mode::Off) {
            continue;
        }
        let of = Match::new(route.get("match"));
        for (found, cover) in unmarked.table.covering(&of, false) {
            let Some((at, shadow)) = unmarked.routes.get(found).filter(|(at, _)| *at < index) else { break };
            if cover == Cover::Whole {
                report_whole(*shadow, &of, findings);
                break;
            }
            let (Some(policy), Some(part)) = (policy, unmarked.table.get(found)) else { continue };
            // Paths before a route for everything are other paths.
            let another_path = of.takes_every_path() && !part.takes_every_path();
            if !another_path && is_exception(part, &of, policy) && reported.insert(*at) {
                report_part(*shadow, &of, policy, findings);
            }
        }
    }
}

/// Whether guarded requests of a match go another way by a part of them, and nothing says why.
pub(super) fn is_exception(part: &Match<'_>, of: &Match<'_>, policy: &Policy) -> bool {
    let guarded = policy.methods.iter().any(|method| part.takes_method(method) && of.takes_method(method));
    let guardable = !part.asks_for("grpc") && !part.asks_for("upgrade");
    let health = part.last_segment().is_some_and(|last| HEALTH.contains(&last));
    guarded && guardable && !health
}

fn report_whole(shadow: Place<'_>, of: &Match<'_>, findings: &mut Findings) {
    let path = example(&of.place()).unwrap_or("the same requests");
    let found = format!("an unmarked route before a marked one that takes {path:?} as well");
    let expected = "the marked route first: its requests never get to it";
    findings.error(shadow, Code::RouteShadowed, found, expected);
}

fn report_part(shadow: Place<'_>, of: &Match<'_>, policy: &Policy, findings: &mut Findings) {
    let found = format!(
        "an unmarked route that takes a part of {:?}, a route under policy {:?} behind it (line {})",
        example(&of.place()).unwrap_or("its requests"),
        policy.name,
        of.place().line(),
    );
    let expected = format!(
        "the marked route first, or metadata here as well: {{policy: {}}}, or with mode: \"off\" if these \
         requests are meant to pass unguarded",
        policy.name
    );
    findings.warning(shadow, Code::RouteException, found, expected);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tree;

    #[test]
    fn thousands_of_routes_are_not_compared_in_pairs() {
        let routes: String = (0..6_000)
            .map(|n| format!("- {{match: {{prefix: /v1/part{n}/}}, route: {{cluster: c}}}}\n"))
            .collect();
        let nodes = tree::parse(&routes, 1).unwrap();
        let guarded = |index: usize| if index.is_multiple_of(2) { Guarded::No } else { Guarded::By(None) };
        let places = Place::new("f", nodes.first().unwrap()).items().enumerate();
        let mut routes: Vec<_> = places.map(|(index, route)| (route, guarded(index))).collect();
        let compared = |routes: &[(Place<'_>, Guarded)]| {
            let (unmarked, mut findings) = (unmarked(routes), Findings::default());
            check_with(&unmarked, routes, &mut findings);
            (unmarked.table.compared(), findings.0.len())
        };
        assert_eq!(compared(&routes), (0, 0), "no path of another");
        // One for all of them, first: each marked route meets it once.
        let everything = tree::parse("{match: {prefix: /}, route: {cluster: c}}", 1).unwrap();
        routes.insert(0, (Place::new("f", everything.first().unwrap()), Guarded::No));
        assert_eq!(compared(&routes), (3_000, 3_000), "one for everything first");
    }
}
