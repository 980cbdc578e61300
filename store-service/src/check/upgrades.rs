//! Upgrades with filters of their own: a request that asks for one goes through these filters in
//! place of those of the chain, whatever its method is.

use super::code::Code;
use super::guard::is_ours;
use super::place::{Findings, Place};
use super::world::World;

/// Checks the connection manager of a chain that has our filter.
pub(super) fn check(world: &World<'_>, manager: Place<'_>, findings: &mut Findings) {
    for upgrade in manager.get("upgrade_configs").items() {
        let filters = upgrade.get("filters");
        let mut all = filters.items().peekable();
        if all.peek().is_none() || all.any(|filter| is_ours(&world.filter(filter))) {
            continue;
        }
        let found = format!(
            "filters of its own for the upgrade {}, without this one",
            upgrade.get("upgrade_type").shown()
        );
        let expected =
            "no filters there, or this one among them: a request that asks for the upgrade goes past it";
        findings.error(filters, Code::UpgradeUnguarded, found, expected);
    }
}
