//! Policies that no route names. Filters with equal configurations are one.

use super::code::Code;
use super::guard::Guard;
use super::place::Findings;
use std::collections::BTreeSet;

/// The policies that the routes of a chain name.
pub(super) enum Used {
    Names(BTreeSet<String>),
    /// Its routes, or some of them, are not in the files or can't be read.
    Unknown,
}

/// Checks the guards, each with what its routes name.
pub(super) fn check(guards: &[Guard<'_>], used: &[Used], findings: &mut Findings) {
    for (index, guard) in guards.iter().enumerate() {
        let is_same = |other: &Guard<'_>| other.configuration.json == guard.configuration.json;
        let seen_before = guards.get(..index).unwrap_or_default().iter().any(is_same);
        let names: Option<Vec<_>> = guards
            .iter()
            .zip(used)
            .filter(|(other, _)| is_same(other))
            .map(|(_, used)| if let Used::Names(names) = used { Some(names) } else { None })
            .collect();
        let (false, Some(names)) = (seen_before, names) else { continue };
        for policy in guard.configuration.policies() {
            if !names.iter().any(|names| names.contains(&policy.name)) {
                let place = guard.configuration.line_of(&format!("policies.{}", policy.name));
                let found = format!("policy {:?}, which no route names", policy.name);
                findings.warning(place, Code::PolicyUnused, found, "a route under it, or no such policy");
            }
        }
    }
}
