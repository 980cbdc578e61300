//! Other spellings of a guarded path: `//payments` or `/x/../payments` miss the marked route, and reach
//! the application by an unmarked one.

use super::code::Code;
use super::matching::{Match, Table, example};
use super::place::Findings;
use super::routes::Marked;
use super::world::{Chain, routes_of};
use fencepost_filter_core::policy::Mode;
use std::collections::{BTreeMap, HashSet};

/// What Envoy may do with slashes that are escaped, if not leave them, by name and number.
const ESCAPED: [&str; 6] = ["REJECT_REQUEST", "UNESCAPE_AND_REDIRECT", "UNESCAPE_AND_FORWARD", "2", "3", "4"];

/// Checks a chain. Only an unmarked route to the cluster of a marked one is a way around it.
pub(super) fn check(chain: &Chain<'_>, marked: &[Marked<'_>], findings: &mut Findings) {
    let manager = chain.manager;
    let slashes = manager.get("path_with_escaped_slashes_action");
    let missing: Vec<_> = [
        ("normalize_path", manager.get("normalize_path").is_true()),
        ("merge_slashes", manager.get("merge_slashes").is_true()),
        ("path_with_escaped_slashes_action", ESCAPED.iter().any(|action| slashes.is(action))),
    ]
    .into_iter()
    .filter_map(|(field, is_set)| (!is_set).then_some(field))
    .collect();
    let Some(first) = missing.first() else { return };
    let is_marked: HashSet<_> = marked.iter().map(|one| std::ptr::from_ref(one.route.node)).collect();
    for host in chain.virtual_hosts() {
        let mut unmarked: BTreeMap<&str, Vec<Match<'_>>> = BTreeMap::new();
        for (route, _) in routes_of(&host) {
            let cluster = route.at("route.cluster").text();
            if let Some(cluster) = cluster.filter(|_| !is_marked.contains(&std::ptr::from_ref(route.node))) {
                unmarked.entry(cluster).or_default().push(Match::new(route.get("match")));
            }
        }
        let tables: BTreeMap<_, _> =
            unmarked.into_iter().map(|(cluster, matches)| (cluster, Table::new(matches))).collect();
        let around = marked.iter().find(|one| {
            let table = one.action().get("cluster").text().and_then(|cluster| tables.get(cluster));
            one.policy.mode == Mode::Enforce
                && std::ptr::eq(one.host.node, host.node)
                && table
                    .is_some_and(|table| table.first_by_path(&Match::new(one.route.get("match"))).is_some())
        });
        if let Some(one) = around {
            let path = example(&one.route.get("match")).unwrap_or("a guarded path");
            let found = format!(
                "no {}, so that other spellings of {path:?} reach the same cluster by an unmarked route",
                missing.join(" and no ")
            );
            let expected = "normalize_path: true, merge_slashes: true and path_with_escaped_slashes_action: \
                            UNESCAPE_AND_REDIRECT";
            findings.warning(manager.get(first), Code::PathSpellings, found, expected);
            return;
        }
    }
}
