//! The order of routes: an unmarked one that takes the requests of a marked one.

use super::code::Code;
use super::matching::{Cover, cover, example};
use super::place::{Findings, Place};

/// Checks the routes of a virtual host, each with whether it is marked. A shadow over a part of a
/// marked route is taken for meant.
pub(super) fn check(routes: &[(Place<'_>, bool)], findings: &mut Findings) {
    for (index, (route, _)) in routes.iter().enumerate().filter(|(_, (_, marked))| *marked) {
        let of = route.get("match");
        let mut earlier = routes.get(..index).unwrap_or_default().iter().filter(|(_, marked)| !marked);
        let shadow = earlier.find(|(other, _)| {
            other.get("route").exists() && cover(&other.get("match"), &of) == Cover::Whole
        });
        if let Some((shadow, _)) = shadow {
            let path = example(&of).unwrap_or("the same requests");
            let found = format!("an unmarked route before a marked one that takes {path:?} as well");
            let expected = "the marked route first: its requests never get to it";
            findings.error(*shadow, Code::RouteShadowed, found, expected);
        }
    }
}
