//! Our filter inside another one, such as a composite or a matcher, or among the filters of an
//! upgrade: which requests get there is not followed, so only the filter itself is checked.

use super::code::Code;
use super::guard::{Guard, is_ours};
use super::place::{Findings, Place};
use super::world::{Chain, Filter, World, filter_of};

/// Our filters inside others in a world.
pub(super) fn check<'a>(world: &World<'a>, findings: &mut Findings) -> Vec<Guard<'a>> {
    let mut guards = Vec::new();
    for chain in &world.chains {
        for filter in &chain.filters {
            guards.extend(inside(filter).map(|ours| read(ours, &filter.name, findings)));
        }
        for upgrade in chain.manager.get("upgrade_configs").items() {
            let filters = upgrade.get("filters").items().map(|place| world.filter(place));
            let name = upgrade.get("upgrade_type").text().unwrap_or_default();
            guards.extend(filters.filter(is_ours).map(|ours| read(ours, name, findings)));
        }
    }
    for loose in &world.loose_filters {
        guards.extend(inside(&loose.filter).map(|ours| read(ours, &loose.filter.name, findings)));
    }
    guards
}

/// Whether a chain has our filter inside another.
pub(super) fn has_ours(chain: &Chain<'_>) -> bool {
    chain.filters.iter().any(|filter| inside(filter).next().is_some())
}

fn read<'a>(ours: Filter<'a>, name: &str, findings: &mut Findings) -> Guard<'a> {
    let found = format!("the filter inside {name:?}, which is not followed");
    let expected = "the filter in the list of the chain itself, to check its order and routes as well";
    findings.note(ours.place, Code::NotChecked, found, expected);
    Guard::read(ours, findings)
}

/// Our filters inside one that is not.
fn inside<'a>(filter: &Filter<'a>) -> impl Iterator<Item = Filter<'a>> {
    let mut found = Vec::new();
    if !is_ours(filter) {
        add_inside(filter.config, &mut found);
    }
    found.into_iter()
}

fn add_inside<'a>(place: Place<'a>, found: &mut Vec<Filter<'a>>) {
    let typed_config = place.get("typed_config");
    if typed_config.exists() {
        let name = place.get("name").text().unwrap_or_default().to_owned();
        // By its own line, not that of the field that it stands in.
        let place = Place::new(place.file, place.node);
        let filter = filter_of(place, name, &typed_config, "");
        if is_ours(&filter) {
            found.push(filter);
            return;
        }
    }
    place.items().for_each(|inner| add_inside(inner, found));
    place.members().for_each(|(_, inner)| add_inside(inner, found));
}
