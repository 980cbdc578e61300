//! Filters and pieces of routes and listeners whose surroundings are not in the files. Only what is
//! written is checked: what is not written may be set elsewhere, so no default is assumed.

use super::buffers;
use super::clusters;
use super::code::Code;
use super::guard::Guard;
use super::kubernetes::{AUTHENTICATION, ours, report_first};
use super::loopback;
use super::misplaced;
use super::order;
use super::patches::{Part, Piece};
use super::place::{Findings, Place};
use super::replies;
use super::routes::{Marked, check_route, mark, resolve};
use super::times;
use super::undone;
use super::upgrades;
use super::world::{Filter, LooseFilter, Position, World, routes_of};
use fencepost_filter_core::policy::Policy;
use std::rc::Rc;

/// Checks them, and returns our filters among them.
pub(super) fn check<'a>(world: &World<'a>, findings: &mut Findings) -> Vec<Guard<'a>> {
    let mut guards = Vec::new();
    for loose in ours(world) {
        let guard = Guard::read(loose.filter.clone(), findings);
        check_position(loose, &guard, findings);
        clusters::check(world, &guard, findings);
        loopback::check(world, &guard, &[], findings);
        guards.push(guard);
    }
    if let Some(guard) = guards.iter().find(|guard| guard.configuration.config.is_some()) {
        check_pieces(world, guard, findings);
    }
    guards
}

fn check_position(loose: &LooseFilter<'_>, guard: &Guard<'_>, findings: &mut Findings) {
    let place = loose.filter.place;
    match &loose.position {
        Position::First => report_first(&guard.configuration, place, findings),
        Position::Before(name) if AUTHENTICATION.contains(&name.as_str()) => {
            report_first(&guard.configuration, place, findings);
        }
        Position::Before(name) => {
            // Its name says what it is, if it is the usual one.
            let word = name.rsplit('.').next().unwrap_or_default();
            let filter = Filter {
                place,
                name: name.clone(),
                kind: word.to_owned(),
                config: Place::nothing(place.file),
                disabled: false,
                known: false,
            };
            order::report(&filter, place, findings);
        }
        Position::Last => {
            let found = "the filter behind the router, where it never runs";
            let expected = "right before the router (INSERT_BEFORE envoy.filters.http.router)";
            findings.error(place, Code::FilterMisplaced, found, expected);
        }
        Position::Later => {}
    }
}

/// A route of a piece, with what is around it there.
struct Loose<'a> {
    piece: &'a Piece,
    config: Option<Place<'a>>,
    host: Place<'a>,
    route: Place<'a>,
}

fn loose_routes<'a>(piece: &'a Piece, place: Place<'a>) -> Vec<Loose<'a>> {
    let nothing = Place::nothing(place.file);
    let of_host = |config: Option<Place<'a>>, host: Place<'a>| {
        let routes = routes_of(&host).into_iter().map(|(route, _)| route);
        let all: Vec<_> = routes.chain([nothing]).map(|route| Loose { piece, config, host, route }).collect();
        all
    };
    match piece.part {
        Part::Route => vec![Loose { piece, config: None, host: nothing, route: place }],
        Part::VirtualHost => of_host(None, place),
        Part::RouteConfiguration => {
            let hosts = place.get("virtual_hosts").items().chain([nothing]);
            hosts.flat_map(|host| of_host(Some(place), host)).collect()
        }
        Part::Manager | Part::Listener => Vec::new(),
    }
}

/// Marks in the wrong place of a piece, and upgrades past the filter.
fn check_whole(
    world: &World<'_>,
    guard: &Guard<'_>,
    piece: &Piece,
    place: Place<'_>,
    findings: &mut Findings,
) {
    let Some(config) = &guard.configuration.config else { return };
    match piece.part {
        Part::Route => misplaced::check_route(place, config, findings),
        Part::VirtualHost => misplaced::check_host(place, config, findings),
        Part::RouteConfiguration => misplaced::check_routes(place, config, findings),
        Part::Manager => upgrades::check(world, place, findings),
        Part::Listener => {}
    }
}

fn check_pieces<'a>(world: &World<'a>, guard: &Guard<'a>, findings: &mut Findings) {
    let mut policies: Vec<(&Piece, Rc<Policy>)> = Vec::new();
    let mut unmarked = Vec::new();
    for (piece, place) in &world.pieces {
        check_whole(world, guard, piece, *place, findings);
        for loose in loose_routes(piece, *place) {
            match resolve(&guard.configuration, mark(&loose.host), mark(&loose.route), findings) {
                Ok(Some(policy)) => {
                    check_loose(guard, &loose, Rc::clone(&policy), findings);
                    policies.push((piece, policy));
                }
                Ok(None) => unmarked.push(loose),
                Err(()) => {}
            }
        }
    }
    // A piece without our metadata may be of a route that another piece marks.
    for loose in unmarked {
        for (piece, policy) in &policies {
            if loose.piece.everything || piece.everything || piece.target == loose.piece.target {
                check_loose(guard, &loose, Rc::clone(policy), findings);
            }
        }
    }
    let all: Vec<_> = match policies.is_empty() {
        false => policies.into_iter().map(|(_, policy)| policy).collect(),
        true => guard.configuration.shared_policies().collect(),
    };
    for (piece, place) in &world.pieces {
        let nothing = Place::nothing(place.file);
        let marked = all.iter().map(|policy| Marked {
            config: None,
            host: nothing,
            route: nothing,
            policy: Rc::clone(policy),
            own: false,
            order: None,
        });
        let marked: Vec<_> = marked.collect();
        match piece.part {
            Part::Manager => {
                marked.iter().for_each(|one| times::check(*place, false, guard, one, findings));
                replies::check(*place, &marked, findings);
            }
            Part::Listener => {
                marked.iter().for_each(|one| buffers::check_written(*place, guard, one, findings));
            }
            Part::Route | Part::VirtualHost | Part::RouteConfiguration => {}
        }
    }
}

fn check_loose<'a>(guard: &Guard<'a>, loose: &Loose<'a>, policy: Rc<Policy>, findings: &mut Findings) {
    let Loose { config, host, route, .. } = *loose;
    let own = mark(&route).exists();
    let marked = Marked { config, host, route, policy, own, order: None };
    let nothing = Place::nothing(route.file);
    check_route(&guard.filter, &marked, findings);
    undone::check(&[], &marked, findings);
    times::check(nothing, false, guard, &marked, findings);
    buffers::check_written(nothing, guard, &marked, findings);
}
