//! Whether a filter runs on a route: by default, or as the route, its virtual host or its route
//! configuration say. The most specific word counts, and any word turns a filter on that is off by
//! default.

use super::place::Place;
use super::world::{Filter, typed};

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Switch<'a> {
    On,
    /// With the place that says so.
    Off(Place<'a>),
}

impl Switch<'_> {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }
}

/// Levels are a route, its virtual host and its route configuration, in this order.
pub(super) fn switch<'a>(filter: &Filter<'a>, levels: &[Place<'a>]) -> Switch<'a> {
    // A share of the requests may have a word of its own.
    let shares = levels.first().map(|route| route.at("route.weighted_clusters.clusters").items());
    if let Some(place) = shares.into_iter().flatten().find_map(|share| off(&entry(filter, &share)?)) {
        return Switch::Off(place);
    }
    match levels.iter().find_map(|level| entry(filter, level)) {
        Some(entry) => off(&entry).map_or(Switch::On, Switch::Off),
        None if filter.disabled => Switch::Off(filter.place.get("disabled")),
        None => Switch::On,
    }
}

/// What a level says about a filter.
pub(super) fn entry<'a>(filter: &Filter<'a>, level: &Place<'a>) -> Option<Place<'a>> {
    Some(level.get("typed_per_filter_config").get(&filter.name)).filter(Place::exists)
}

/// The type and the fields of what a level says, with what wraps them taken off.
pub(super) fn unwrapped<'a>(entry: &Place<'a>) -> (String, Place<'a>) {
    let (kind, config) = typed(entry);
    if kind.ends_with(".FilterConfig") { typed(&config.get("config")) } else { (kind, config) }
}

/// Where an entry says off: every filter in its own way, but all with the same word.
fn off<'a>(entry: &Place<'a>) -> Option<Place<'a>> {
    let says = [typed(entry).1.get("disabled"), unwrapped(entry).1.get("disabled")];
    says.into_iter().find(Place::is_true)
}
