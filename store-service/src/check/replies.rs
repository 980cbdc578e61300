//! `local_reply_config`: a replay is a local reply, so mappers may rewrite it.
//!
//! A mapper is fine if its filter can't match a reply of ours: those have none of the router's
//! response flags, and a request with a key has a key header.

use super::code::Code;
use super::place::{Findings, Place};
use super::routes::Marked;
use super::world::Chain;

const EXPECTED: &str = "a filter that leaves out the replies of fencepost, such as response_flag_filter with \
                        the router's flags";

/// See the module.
pub(super) fn check(chain: &Chain<'_>, marked: &[Marked<'_>], findings: &mut Findings) {
    let config = chain.manager.get("local_reply_config");
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
        if leaves_ours_out(&mapper.get("filter"), marked) {
            continue;
        }
        let rewrites = ["status_code", "body", "body_format_override"];
        if let Some(field) = rewrites.into_iter().find(|field| mapper.get(field).exists()) {
            let found = format!("a mapper that sets {field} of replays and problems too");
            findings.error(mapper, Code::LocalReplyRewritten, found, EXPECTED);
        } else if mapper.get("headers_to_add").exists() {
            let found = "a mapper that adds headers to replays and problems too";
            findings.warning(mapper, Code::LocalReplyRewritten, found, EXPECTED);
        }
    }
}

fn leaves_ours_out(filter: &Place<'_>, marked: &[Marked<'_>]) -> bool {
    if filter.get("response_flag_filter").get("flags").items().next().is_some() {
        return true;
    }
    let header = filter.get("header_filter").get("header");
    if let Some(name) = header.get("name").text() {
        let absent = header.get("invert_match").is_true() || header.get("present_match").is("false");
        let is_key = |marked: &Marked<'_>| {
            marked.policy.key.required
                && marked.policy.key.names.iter().any(|key| key.eq_ignore_ascii_case(name))
        };
        return absent && marked.iter().all(is_key);
    }
    // Such as a CEL expression over response.code_details: not read here, believed if it names us.
    let extension = filter.get("extension_filter");
    if extension.exists() {
        return extension.node.to_json().to_string().contains("fencepost");
    }
    let any = |name: &str| filter.get(name).get("filters");
    any("and_filter").items().any(|inner| leaves_ours_out(&inner, marked))
        || (any("or_filter").exists()
            && any("or_filter").items().all(|inner| leaves_ours_out(&inner, marked)))
}
