//! Detached execution: the filter sends the request itself, so a client that leaves takes nothing
//! with it, and answers by local reply.
//!
//! The call goes to an internal listener of the same proxy (`loopback: true`), which carries the
//! real routes and reports how the request ended in a response header. Where the report is absent
//! the outcome is unknown: the call's own timeout makes a 504 without it while the upstream runs.
//! A call straight to the upstream has no such report; then only a call that the host refused to
//! make is known not to have run.

use super::evidence::{Ending, Evidence};
use super::settling::{Duty, Response};
use super::*;
use crate::capture::{self, is_token};
use crate::policy::{Execution, Retries};
use crate::router_commands::is_router_command;
use fencepost_protocol::claims::ReleaseCause;

/// Response header in which a loopback listener reports the ending.
pub const REPORT_HEADER: &str = "x-fencepost-ending";

/// Request header that tells a loopback listener how long the upstream may run. The listener
/// turns it into the router's own timeout header, which on the call itself would be consumed by
/// the call's router.
pub const MAX_RUN_HEADER: &str = "x-fencepost-max-run-ms";

/// Response header that Envoy's router adds to answers of an upstream.
const SERVICE_TIME_HEADER: &str = "x-envoy-upstream-service-time";

/// Headers of one hop (RFC 9110, section 7.6.1), of framing, and of the client's own connection.
const NOT_SENT_ON: &[&str] = &[
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-connection",
    "content-length",
    "expect",
];

/// A call to the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCall {
    /// Cluster to call.
    pub cluster: String,
    /// Headers, pseudo headers included.
    pub headers: Vec<Pair>,
    /// Body.
    pub body: Vec<u8>,
    /// Timeout for the host.
    pub timeout_ms: u32,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamReply {
    /// The host refused to make the call: nothing was sent.
    NotSent,
    /// The call ended without a response: reset, or a response too large for the host.
    Lost,
    /// A response, of the upstream or of a proxy on the way.
    Response {
        /// HTTP status.
        status: u16,
        /// Header pairs, pseudo headers included.
        headers: Vec<Pair>,
        /// Body.
        body: Vec<u8>,
    },
}

impl Exchange {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn call_upstream(
        &mut self,
        held: Held,
        headers: Vec<Pair>,
        body: Vec<u8>,
        set: &[(String, String)],
        withhold: &[String],
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(due_at) = self.send_upstream(headers, body, set, withhold, world, effects) {
            self.state = State::Detached { held, forwarded_at: world.now_ms, due_at };
        }
    }

    /// Sends the request on a call of ours; says when its reply is overdue.
    pub(super) fn send_upstream(
        &self,
        headers: Vec<Pair>,
        body: Vec<u8>,
        set: &[(String, String)],
        withhold: &[String],
        world: &World<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<u64> {
        let Execution::Detached { cluster, timeout_ms, loopback } = &self.policy.execution else {
            return None;
        };
        let mut headers = sent_on(headers, set, withhold);
        if *loopback {
            headers.push((MAX_RUN_HEADER.into(), self.policy.max_run_ms.to_string().into_bytes()));
        }
        if self.policy.retries == Retries::Suppress {
            // For the call's own router, which consumes it: a cluster may have a retry policy.
            headers.push((b"x-envoy-max-retries".to_vec(), b"0".to_vec()));
        }
        effects.push(Effect::CallUpstream(UpstreamCall {
            cluster: cluster.clone(),
            headers,
            body,
            timeout_ms: *timeout_ms,
        }));
        Some(world.now_ms.saturating_add(u64::from(*timeout_ms)).saturating_add(limits::RUN_GRACE_MS))
    }

    pub(super) fn on_upstream_reply(
        &mut self,
        reply: UpstreamReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if let State::Granting(_) = self.state {
            return self.on_granted_reply(reply, world, effects);
        }
        if !matches!(self.state, State::Detached { .. }) {
            return;
        }
        let State::Detached { held, .. } = core::mem::replace(&mut self.state, State::Over) else { return };
        match reply {
            UpstreamReply::NotSent => {
                let problem = Problem::new(ProblemKind::UpstreamUnreached, "nothing was sent; try again");
                self.settle_not_run(held, self.problem(&problem), world, effects);
            }
            UpstreamReply::Lost => self.settle_lost(held, UnknownCause::Reset, world, effects),
            UpstreamReply::Response { status, headers, body } => match self.ending(&headers) {
                Ending::Answered => self.on_detached_answer(held, status, headers, body, world, effects),
                Ending::NotRun => {
                    let details = "fencepost_not_run";
                    let reply =
                        LocalReply { status, headers: for_client(&headers), body: Rc::new(body), details };
                    self.settle_not_run(held, reply, world, effects);
                }
                Ending::Unknown(cause) => self.settle_lost(held, cause, world, effects),
            },
        }
    }

    fn settle_not_run(
        &mut self,
        held: Held,
        reply: LocalReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Result(Outcome::ReleasedNotRun));
        let duty = Duty::release(&held.claim, ReleaseCause::NotRun);
        self.settle(held, duty, Response::Answer(reply), world, effects);
    }

    fn settle_lost(
        &mut self,
        held: Held,
        cause: UnknownCause,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Result(Outcome::Unknown));
        let duty = Duty::unknown(&held.claim, cause);
        self.settle(held, duty, Response::Answer(self.problem(&settling::upstream_lost())), world, effects);
    }

    fn on_detached_answer(
        &mut self,
        held: Held,
        status: u16,
        headers: Vec<Pair>,
        body: Vec<u8>,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let duty = match self.keep(&held.claim, status, &headers, effects) {
            Err(duty) => duty,
            Ok(ttl_ms) if body.len() > self.policy.response.max_body => {
                self.unkept_duty(&held, status, ttl_ms, effects)
            }
            Ok(ttl_ms) => self.complete_duty(&held, status, &headers, &body, ttl_ms),
        };
        let reply = self.upstream_answer(status, &headers, body);
        self.settle(held, duty, Response::Answer(reply), world, effects);
    }

    /// The upstream's answer as the client gets it.
    pub(super) fn upstream_answer(&self, status: u16, headers: &[Pair], body: Vec<u8>) -> LocalReply {
        let markers = capture::strip_markers(&self.policy.response.markers, headers);
        let mut headers = for_client(headers);
        headers.retain(|(name, _)| !markers.iter().any(|marker| name.eq_ignore_ascii_case(marker)));
        LocalReply { status, headers, body: Rc::new(body), details: "fencepost_detached" }
    }

    /// How a detached call ended, by what its response says.
    pub(super) fn ending(&self, headers: &[Pair]) -> Ending {
        ending(headers, matches!(self.policy.execution, Execution::Detached { loopback: true, .. }))
    }
}

/// The header map of a detached answer on its way out: what the host put there, with the
/// upstream's headers in place of any of the same name.
pub(super) fn answer_headers(status: u16, headers: &[Pair], present: &[Pair], body_len: usize) -> Vec<Pair> {
    let replaced = |name: &[u8]| {
        [&b"content-type"[..], b"content-length", b"transfer-encoding"]
            .iter()
            .any(|n| name.eq_ignore_ascii_case(n))
            || headers.iter().any(|(other, _)| name.eq_ignore_ascii_case(other))
    };
    // The status as well: the host may have rewritten it (Envoy's `local_reply_config`).
    let mut map: Vec<Pair> = vec![(b":status".to_vec(), status.to_string().into_bytes())];
    map.extend(present.iter().filter(|(name, _)| !name.starts_with(b":") && !replaced(name)).cloned());
    map.extend(headers.iter().cloned());
    if !matches!(status, 204 | 304) {
        map.push((b"content-length".to_vec(), body_len.to_string().into_bytes()));
    }
    map
}

fn ending(headers: &[Pair], loopback: bool) -> Ending {
    let value = |name: &str| {
        let found = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value.as_slice())
    };
    if loopback {
        return match value(REPORT_HEADER) {
            Some(report) => Evidence::from_report(report).ending(),
            None => Ending::Unknown(UnknownCause::Timeout),
        };
    }
    match value(SERVICE_TIME_HEADER) {
        Some(_) => Ending::Answered,
        None => Ending::Unknown(UnknownCause::ProxyReply),
    }
}

/// The headers of the call: the client's, less those of its own hop, with ours.
fn sent_on(headers: Vec<Pair>, set: &[(String, String)], withhold: &[String]) -> Vec<Pair> {
    let listed = capture::connection_names(&headers);
    let dropped = |name: &[u8]| {
        NOT_SENT_ON.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
            || listed.iter().any(|other| name.eq_ignore_ascii_case(other))
            || withhold.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
            || set.iter().any(|(other, _)| name.eq_ignore_ascii_case(other.as_bytes()))
            || name.eq_ignore_ascii_case(MAX_RUN_HEADER.as_bytes())
            || is_router_command(name)
    };
    let mut sent: Vec<Pair> = headers.into_iter().filter(|(name, _)| !dropped(name)).collect();
    sent.extend(set.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes())));
    sent
}

/// The headers of an answer that its client gets: all but those of the hop and of the report.
fn for_client(headers: &[Pair]) -> Vec<Pair> {
    let listed = capture::connection_names(headers);
    let passes = |name: &[u8]| {
        is_token(name)
            && !NOT_SENT_ON.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
            && !listed.iter().any(|other| name.eq_ignore_ascii_case(other))
            && !name.eq_ignore_ascii_case(REPORT_HEADER.as_bytes())
    };
    headers.iter().filter(|(name, _)| passes(name)).cloned().collect()
}
