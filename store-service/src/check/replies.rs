//! `local_reply_config`: a replay is a local reply, so mappers may rewrite it.
//!
//! A mapper is fine if its filter can't match a reply of ours: those have none of the router's
//! response flags, and a request with a key has a key header.

use super::code::Code;
use super::place::{Findings, Place};
use super::routes::Marked;
use fencepost_filter_core::policy::Mode;

const EXPECTED: &str = "a filter that leaves out the replies of fencepost, such as response_flag_filter with \
                        the router's flags";

/// Whether a mapper's filter takes our replies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// None of them.
    None,
    Some,
    /// An expression that is not read here.
    Unknown,
}

/// Checks a connection manager for its marked routes.
pub(super) fn check(manager: Place<'_>, marked: &[Marked<'_>], findings: &mut Findings) {
    let config = manager.get("local_reply_config");
    let marked: Vec<_> = marked.iter().filter(|marked| marked.policy.mode != Mode::Off).collect();
    if marked.is_empty() || !config.exists() {
        return;
    }
    let format = config.get("body_format");
    if format.exists() {
        let found = "a body_format for all local replies";
        findings.error(
            format,
            Code::LocalReplyRewritten,
            found,
            "body_format_override in mappers that leave out replays",
        );
    }
    for mapper in config.get("mappers").items() {
        let takes = takes(&mapper.get("filter"), &marked);
        let rewrites = ["status_code", "body", "body_format_override"];
        let field = rewrites.into_iter().find(|field| mapper.get(field).exists());
        match (takes, field) {
            (Takes::Some, Some(field)) => {
                let found = format!("a mapper that sets {field} of replays and problems too");
                findings.error(mapper, Code::LocalReplyRewritten, found, EXPECTED);
            }
            (Takes::Unknown, Some(field)) => {
                let found =
                    format!("a mapper that sets {field}, whose expression may take in replays and problems");
                findings.warning(mapper, Code::LocalReplyRewritten, found, EXPECTED);
            }
            (Takes::Some | Takes::Unknown, None) if mapper.get("headers_to_add").exists() => {
                let found = "a mapper that adds headers to replays and problems too";
                findings.warning(mapper, Code::LocalReplyRewritten, found, EXPECTED);
            }
            _ => {}
        }
    }
}

fn takes(filter: &Place<'_>, marked: &[&Marked<'_>]) -> Takes {
    if filter.get("response_flag_filter").get("flags").items().next().is_some() {
        return Takes::None;
    }
    let header = filter.get("header_filter").get("header");
    if let Some(name) = header.get("name").text() {
        // Any other kind of match is about the value, and its opposite takes in most replays.
        let mut others = header.members().map(|(field, _)| field.replace('_', "").to_ascii_lowercase());
        let present = others.all(|field| ["name", "presentmatch", "invertmatch"].contains(&field.as_str()));
        let inverted = header.get("invert_match").is_true() != header.get("present_match").is("false");
        let is_key = |marked: &&Marked<'_>| {
            marked.policy.key.required
                && marked.policy.key.names.iter().any(|key| key.eq_ignore_ascii_case(name))
        };
        let left_out = present && inverted && marked.iter().all(is_key);
        return if left_out { Takes::None } else { Takes::Some };
    }
    let extension = filter.get("extension_filter");
    if extension.exists() {
        return by_expression(&extension.node.to_json().to_string());
    }
    let inner = |name: &str| filter.get(name).get("filters").items().map(|inner| takes(&inner, marked));
    let rank = |takes: &Takes| match takes {
        Takes::None => 0,
        Takes::Unknown => 1,
        Takes::Some => 2,
    };
    let least = inner("and_filter").min_by_key(rank);
    least.or_else(|| inner("or_filter").max_by_key(rank)).unwrap_or(Takes::Some)
}

/// An expression such as `!response.code_details.startsWith("fencepost")`: believed if it excludes our
/// details; not read any further.
fn by_expression(text: &str) -> Takes {
    let text: String =
        text.chars().filter(|c| !c.is_whitespace() && !['"', '\\', '\''].contains(c)).collect();
    let excludes = ["startsWith(fencepost", "contains(fencepost", "matches(^fencepost", "matches(fencepost"];
    let subject = "response.code_details.";
    let names = |how: &str, not: &str| text.contains(&format!("{not}{subject}{how}"));
    let alone = !text.contains("||");
    if alone && excludes.iter().any(|how| names(how, "!") || (names(how, "!(") && !text.contains("&&"))) {
        Takes::None
    } else if text.contains('!') || text.contains("||") {
        Takes::Unknown
    } else if text.contains("fencepost") {
        // The other way round: nothing but ours.
        Takes::Some
    } else {
        Takes::Unknown
    }
}
