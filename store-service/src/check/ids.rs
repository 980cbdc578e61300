//! Filters with the same ids must be the same.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};

/// See the module.
pub(super) fn check(guards: &[Guard<'_>], findings: &mut Findings) {
    let ids = |guard: &Guard<'_>| {
        let plugin = guard.plugin();
        let id = |place: Place<'_>| place.text().unwrap_or_default().to_owned();
        (id(plugin.at("vm_config.vm_id")), id(plugin.get("root_id")))
    };
    for (index, guard) in guards.iter().enumerate() {
        let earlier = guards.get(..index).unwrap_or_default();
        let other = |other: &&Guard<'_>| {
            ids(other) == ids(guard) && other.plugin().node.to_json() != guard.plugin().node.to_json()
        };
        if guard.plugin().exists() && earlier.iter().any(|one| other(&one)) {
            let (vm, root) = ids(guard);
            let found = format!("vm_id {vm:?} and root_id {root:?} of another filter that differs");
            let expected = "ids of its own: Envoy up to 1.39 may take one plugin for both";
            findings.warning(guard.plugin().get("root_id"), Code::RootIdShared, found, expected);
        }
    }
}
