//! The order of the filters: what must not come behind ours.
//!
//! A replay is a local reply of our filter. Filters behind it see the first request only, so what
//! they check, add or change is missing from every replay, or changes what was claimed.

use super::code::Code;
use super::finding::Severity::{self, Error, Warning};
use super::place::{Findings, Place};
use super::routes::Marked;
use super::switch::switch;
use super::world::{Chain, Filter};
use fencepost_filter_core::policy::Mode;

/// What a filter behind ours means.
enum Behind {
    Fine,
    Bad(Severity, Code, &'static str),
}

/// Checks the filters behind ours, those that run on a marked route; all that are on, if no route is
/// known.
pub(super) fn check(chain: &Chain<'_>, index: usize, marked: &[Marked<'_>], findings: &mut Findings) {
    let behind = chain.filters.get(index + 1..).unwrap_or_default();
    let guards: Vec<_> = marked.iter().filter(|marked| marked.policy.mode != Mode::Off).collect();
    for filter in behind {
        let runs = if guards.is_empty() {
            !filter.disabled
        } else {
            guards.iter().any(|marked| switch(filter, &marked.levels()).is_on())
        };
        if runs {
            report(filter, filter.place, findings);
        }
    }
    for filter in chain.filters.get(..index).unwrap_or_default() {
        if filter.word() == "custom_response" && !guards.is_empty() {
            let found = format!(
                "{:?} before the filter, which may answer in place of replays and problems",
                filter.name
            );
            let expected =
                "matchers of it that leave out the replies of fencepost, or none on guarded routes";
            findings.warning(filter.place, Code::LocalReplyRewritten, found, expected);
        }
    }
    if behind.last().is_none_or(|last| last.word() != "router") {
        let place = chain.manager.get("http_filters");
        findings.error(place, Code::RouterMissing, "no router as the last filter", "the router, last");
    }
}

/// Reports a filter behind ours, at a place.
pub(super) fn report(filter: &Filter<'_>, place: Place<'_>, findings: &mut Findings) {
    if let Behind::Bad(severity, code, expected) = judge(filter) {
        findings.add(severity, place, code, format!("{:?} behind the filter", filter.name), expected);
    }
}

/// Whether a filter behind ours does no harm.
pub(super) fn is_harmless(filter: &Filter<'_>) -> bool {
    matches!(judge(filter), Behind::Fine)
}

/// Filters of Istio that only watch; their types do not say what they are.
const WATCHERS: [&str; 4] = ["istio.stats", "istio.alpn", "istio.metadata_exchange", "istio.peer_metadata"];

fn judge(filter: &Filter<'_>) -> Behind {
    if WATCHERS.contains(&filter.name.as_str()) {
        return Behind::Fine;
    }
    match filter.word() {
        "router"
        | "upstream_codec"
        | "header_mutation"
        | "header_to_metadata"
        | "set_metadata"
        | "set_filter_state"
        | "tap"
        | "gcp_authn"
        | "credential_injector"
        | "stateful_session"
        | "grpc_stats"
        | "peer_metadata"
        | "alpn"
        | "original_src"
        | "aws_request_signing"
        | "kill_request"
        | "network_ext_proc" => Behind::Fine,
        // Rules that only count refuse nothing.
        "rbac"
            if filter.config.exists()
                && !filter.config.get("rules").exists()
                && !filter.config.get("matcher").exists() =>
        {
            Behind::Fine
        }
        "jwt_authn" | "ext_authz" | "basic_auth" | "oauth2" | "rbac" | "api_key_auth" | "csrf" | "authn"
        | "istio_authn" => Behind::Bad(
            Error,
            Code::AuthenticationAfter,
            "it before the filter: replays never get to it, and the scope comes before it",
        ),
        "cache" | "cache_v2" => Behind::Bad(
            Error,
            Code::CacheAfter,
            "it before the filter, and never for guarded routes: it answers in the upstream's name",
        ),
        "ext_proc" if !ext_proc_is_passive(filter) => Behind::Bad(
            Error,
            Code::BodyFilterAfter,
            "it before the filter: it may change the body, answer, or clear the route after the claim",
        ),
        "ext_proc" | "lua" | "wasm" | "golang" | "dynamic_modules" | "on_demand" | "composite"
        | "match_delegate" => Behind::Bad(
            Warning,
            Code::BodyFilterAfter,
            "it before the filter, unless it neither answers, nor changes bodies, nor clears the route",
        ),
        "custom_response" => Behind::Bad(
            Warning,
            Code::BodyFilterAfter,
            "it not on guarded routes: its answer is kept in the upstream's place, and a redirect policy \
             sends the request through the filter again",
        ),
        "compressor"
        | "decompressor"
        | "grpc_json_transcoder"
        | "grpc_http1_bridge"
        | "grpc_http1_reverse_bridge"
        | "grpc_json_reverse_transcoder"
        | "grpc_web"
        | "connect_grpc_bridge"
        | "grpc_field_extraction"
        | "proto_message_extraction"
        | "json_to_metadata"
        | "aws_lambda"
        | "thrift_to_metadata"
        | "file_system_buffer" => Behind::Bad(
            Warning,
            Code::BodyFilterAfter,
            "it before the filter: behind, its form of the first answer is what every client gets",
        ),
        "ratelimit"
        | "local_ratelimit"
        | "rate_limit_quota"
        | "fault"
        | "admission_control"
        | "adaptive_concurrency"
        | "bandwidth_limit"
        | "health_check"
        | "buffer"
        | "geoip"
        | "ip_tagging" => Behind::Bad(
            Warning,
            Code::AnsweringFilterAfter,
            "it before the filter: what it answers comes after the claim and may leave an unknown outcome",
        ),
        "cors" => {
            Behind::Bad(Warning, Code::CorsAfter, "it before the filter, so that replays get its headers too")
        }
        _ => Behind::Bad(
            Warning,
            Code::UnknownFilterAfter,
            "it before the filter, unless it neither answers, nor changes bodies, nor clears the route",
        ),
    }
}

/// Whether an external processor sees headers only and can't clear the route.
fn ext_proc_is_passive(filter: &Filter<'_>) -> bool {
    let mode = filter.config.get("processing_mode");
    let none = |name| !mode.get(name).exists() || mode.get(name).is("NONE");
    let clears = filter.config.get("route_cache_action");
    none("request_body_mode")
        && none("response_body_mode")
        && !filter.config.get("allow_mode_override").is_true()
        && !clears.is("CLEAR")
}
