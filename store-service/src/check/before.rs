//! Filters before ours that change the form of requests or answers: what our filter then sees, and
//! what becomes of its own answers on their way back.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};
use super::routes::Marked;
use super::switch::{entry, switch, unwrapped};
use super::world::{Chain, Filter};

/// Checks the filters before ours that run on a marked route.
pub(super) fn check(
    chain: &Chain<'_>,
    index: usize,
    guard: &Guard<'_>,
    marked: &Marked<'_>,
    findings: &mut Findings,
) {
    let levels = marked.levels();
    let before = chain.filters.get(..index).unwrap_or_default();
    for filter in before.iter().filter(|filter| switch(filter, &levels).is_on()) {
        match filter.word() {
            "grpc_json_transcoder" | "connect_grpc_bridge" | "grpc_http1_bridge" if makes_grpc(filter) => {
                let found = format!("{:?} before the filter, which makes gRPC of requests", filter.name);
                let expected = "it behind the filter, or off on guarded routes: gRPC passes unguarded, and \
                                gets 400 where a key is required";
                findings.warning(filter.place, Code::RequestsBecomeGrpc, found, expected);
            }
            "grpc_http1_reverse_bridge" | "grpc_json_reverse_transcoder" => {
                let found =
                    format!("{:?} before the filter, which makes gRPC of replays and problems", filter.name);
                let expected = "it off on guarded routes: a client can't tell 409 from 422 by a gRPC status";
                findings.warning(filter.place, Code::LocalReplyRewritten, found, expected);
            }
            "compressor" => check_compressor(filter, marked, findings),
            "buffer" => check_buffer(filter, &levels, guard, marked, findings),
            _ => {}
        }
    }
}

/// Whether requests that are no gRPC become gRPC.
fn makes_grpc(filter: &Filter<'_>) -> bool {
    filter.word() != "grpc_http1_bridge" || filter.config.get("upgrade_protobuf_to_grpc").is_true()
}

/// What is compressed differs with the chunks that a body came in.
fn check_compressor(filter: &Filter<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let requests = filter.config.get("request_direction_config");
    let enabled = requests.at("common_config.enabled.default_value");
    let off = enabled.exists() && !enabled.is_true();
    if requests.exists() && !off && marked.policy.fingerprint.needs_body() {
        let found = format!("{:?} before the filter, which compresses requests", filter.name);
        let expected = "it behind the filter, for requests: the same body may come out otherwise the next \
                        time, and a retry then gets 422";
        findings.warning(requests, Code::BodyFilterBefore, found, expected);
    }
}

/// A body that the policy would take, and the buffer does not.
fn check_buffer(
    filter: &Filter<'_>,
    levels: &[Place<'_>],
    guard: &Guard<'_>,
    marked: &Marked<'_>,
    findings: &mut Findings,
) {
    let own = levels.iter().find_map(|level| entry(filter, level));
    let own = own.map(|own| unwrapped(&own).1.at("buffer.max_request_bytes")).filter(Place::exists);
    let limit = own.unwrap_or_else(|| filter.config.get("max_request_bytes"));
    let request = marked.policy.max_body as u64;
    if marked.policy.fingerprint.needs_body() && limit.number().is_some_and(|limit| limit < request) {
        let setting = marked.place_of(guard, "fingerprint.max_body");
        let found = format!(
            "a buffer before the filter of {} bytes, and requests up to {request} in policy {:?} (line {})",
            limit.shown(),
            marked.policy.name,
            setting.line(),
        );
        let expected = format!("at least {request} bytes, or a smaller fingerprint.max_body");
        findings.warning(limit, Code::RequestBufferSmall, found, expected);
    }
}
