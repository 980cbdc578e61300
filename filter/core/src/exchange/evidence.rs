//! How a forwarded request ended, by positive evidence.
//!
//! A status says nothing: the upstream may send a 503 of its own, and the proxy makes the same
//! one when nobody was there. Envoy names the author of a response in `response.code_details`,
//! and adds flags and the number of upstream attempts. Only a cause that is on the list below,
//! with nothing that speaks against it, proves that the request was never sent. Whatever is not
//! proven is unknown: a property that can't be read counts against us, never for us.

use fencepost_protocol::claims::UnknownCause;

/// What the host says about the end of a stream.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// `response.code_details`, if it could be read.
    pub code_details: Option<Vec<u8>>,
    /// `response.flags`, Envoy's bit mask, if it could be read.
    pub flags: Option<u64>,
    /// `upstream.request_attempt_count`, if it could be read; 0 where there was no attempt.
    pub attempts: Option<u64>,
    /// Bytes of the request that were sent upstream, where a loopback listener reports them.
    pub bytes_sent: Option<u64>,
}

/// The three endings of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The upstream itself answered.
    Answered,
    /// The request certainly never reached the upstream.
    NotRun,
    /// It may have.
    Unknown(UnknownCause),
}

/// Envoy's response flags (`StreamInfo::CoreResponseFlag`), as bits of `response.flags`.
mod flag {
    pub const NO_HEALTHY_UPSTREAM: u64 = 0x2;
    pub const UPSTREAM_REQUEST_TIMEOUT: u64 = 0x4;
    pub const UPSTREAM_CONNECTION_FAILURE: u64 = 0x20;
    pub const UPSTREAM_OVERFLOW: u64 = 0x80;
    pub const NO_ROUTE: u64 = 0x100;
    pub const FAULT_INJECTED: u64 = 0x400;
    pub const RATE_LIMITED: u64 = 0x800;
    pub const UNAUTHORIZED_EXTERNAL: u64 = 0x1000;
    pub const DOWNSTREAM_DISCONNECT: u64 = 0x4000;
    pub const NO_CLUSTER: u64 = 0x400_0000;

    /// A flag that this version does not know by name.
    pub const UNKNOWN: u64 = 1 << 63;

    /// Envoy's short names (`%RESPONSE_FLAGS%`).
    pub const NAMES: &[(&str, u64)] = &[
        ("UH", NO_HEALTHY_UPSTREAM),
        ("UT", UPSTREAM_REQUEST_TIMEOUT),
        ("UF", UPSTREAM_CONNECTION_FAILURE),
        ("UO", UPSTREAM_OVERFLOW),
        ("NR", NO_ROUTE),
        ("FI", FAULT_INJECTED),
        ("RL", RATE_LIMITED),
        ("UAEX", UNAUTHORIZED_EXTERNAL),
        ("DC", DOWNSTREAM_DISCONNECT),
        ("NC", NO_CLUSTER),
    ];

    /// Flags that may stand beside a cause which proves that nothing was sent.
    pub const HARMLESS: u64 = NO_HEALTHY_UPSTREAM
        | UPSTREAM_CONNECTION_FAILURE
        | UPSTREAM_OVERFLOW
        | NO_ROUTE
        | FAULT_INJECTED
        | RATE_LIMITED
        | UNAUTHORIZED_EXTERNAL
        | NO_CLUSTER;
}

/// Details that Envoy gives when it answers before an upstream request exists.
const NEVER_SENT: &[&str] = &[
    "route_not_found",
    "direct_response",
    "cluster_not_found",
    "no_healthy_upstream",
    "maintenance_mode",
    "rbac_access_denied",
    "ext_authz_denied",
    "ext_authz_error",
    "request_rate_limited",
    "local_rate_limited",
    "jwt_authn_access_denied",
    "fault_filter_abort",
    "filter_chain_not_found",
];

/// Reasons inside `upstream_reset_before_response_started{...}` that mean: no connection was
/// had, so no byte of the request left the proxy.
const NEVER_CONNECTED: &[&str] = &[
    "connection_failure",
    "remote_connection_failure",
    "local_connection_failure",
    "connection_timeout",
    "overflow",
];

const RESET_BEFORE_RESPONSE: &str = "upstream_reset_before_response_started";

impl Evidence {
    /// Reads a loopback listener's report: `details|flags|attempts|bytes sent`, made of Envoy's
    /// `%RESPONSE_CODE_DETAILS%|%RESPONSE_FLAGS%|%UPSTREAM_REQUEST_ATTEMPT_COUNT%|%UPSTREAM_WIRE_BYTES_SENT%`.
    /// A report that can't be read proves nothing.
    pub fn from_report(report: &[u8]) -> Self {
        let Ok(text) = core::str::from_utf8(report) else { return Self::default() };
        // The details may have the separator in them; the other fields don't.
        let mut fields = text.rsplitn(4, '|');
        let (bytes_sent, attempts, flags, details) =
            (fields.next(), fields.next(), fields.next(), fields.next());
        let (Some(bytes_sent), Some(attempts), Some(flags), Some(details)) =
            (bytes_sent, attempts, flags, details)
        else {
            return Self::default();
        };
        Self {
            code_details: Some(details.as_bytes().to_vec()),
            flags: Some(flag_bits(flags)),
            // Envoy writes a dash where there was no attempt.
            attempts: if attempts == "-" { Some(0) } else { attempts.parse().ok() },
            // What can't be read counts as sent.
            bytes_sent: Some(if bytes_sent == "-" { 0 } else { bytes_sent.parse().unwrap_or(u64::MAX) }),
        }
    }

    /// Whether the response on its way is the upstream's own.
    pub fn is_upstream(&self) -> bool {
        self.code_details.as_deref() == Some(b"via_upstream")
    }

    /// How the request ended, judged when a response of anybody's appears.
    pub fn ending(&self) -> Ending {
        if self.is_upstream() {
            return Ending::Answered;
        }
        if self.proves_not_run() {
            return Ending::NotRun;
        }
        Ending::Unknown(self.cause(UnknownCause::ProxyReply))
    }

    /// Whether the client left, rather than the upstream.
    pub fn is_client_gone(&self) -> bool {
        self.has(flag::DOWNSTREAM_DISCONNECT)
    }

    /// How the request ended, judged when its stream is gone without a whole response.
    pub fn ending_without_response(&self) -> Ending {
        if self.has(flag::DOWNSTREAM_DISCONNECT) {
            return Ending::Unknown(UnknownCause::ClientGone);
        }
        Ending::Unknown(self.cause(UnknownCause::Reset))
    }

    fn has(&self, bits: u64) -> bool {
        self.flags.is_some_and(|flags| flags & bits != 0)
    }

    fn cause(&self, otherwise: UnknownCause) -> UnknownCause {
        let details = self.details();
        if self.has(flag::UPSTREAM_REQUEST_TIMEOUT) || details.contains("timeout") {
            UnknownCause::Timeout
        } else if details.starts_with(RESET_BEFORE_RESPONSE) {
            UnknownCause::Reset
        } else {
            otherwise
        }
    }

    fn details(&self) -> &str {
        self.code_details.as_deref().and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or("")
    }

    /// All of: a cause from the list, no flag that speaks against it, at most one attempt.
    /// A connection failure after a retry is no proof: the first attempt may have been sent.
    fn proves_not_run(&self) -> bool {
        let Some(flags) = self.flags else { return false };
        let attempted_once = self.attempts.is_some_and(|attempts| attempts <= 1);
        let sent = self.bytes_sent.is_some_and(|bytes| bytes > 0);
        if flags & !flag::HARMLESS != 0 || !attempted_once || sent {
            return false;
        }
        let details = self.details();
        if let Some(reason) = details.strip_prefix(RESET_BEFORE_RESPONSE) {
            let reason = reason.strip_prefix('{').unwrap_or(reason);
            let reason = reason.split(['|', '}']).next().unwrap_or(reason);
            return NEVER_CONNECTED.contains(&reason);
        }
        // Some details carry a suffix, such as a policy's name in brackets.
        let name = details.split(['[', '{', '|']).next().unwrap_or(details);
        NEVER_SENT
            .iter()
            .any(|known| name == *known || name.strip_prefix(known).is_some_and(|rest| rest.starts_with('_')))
    }
}

/// Bits of a comma-separated list of short names; `-` is an empty list.
fn flag_bits(names: &str) -> u64 {
    let named = names.split(',').filter(|name| *name != "-");
    named.fold(0, |bits, name| {
        let known = flag::NAMES.iter().find(|(known, _)| *known == name);
        bits | known.map_or(flag::UNKNOWN, |(_, bit)| *bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(details: &str, flags: u64, attempts: u64) -> Evidence {
        Evidence {
            code_details: Some(details.into()),
            flags: Some(flags),
            attempts: Some(attempts),
            bytes_sent: None,
        }
    }

    #[test]
    fn an_answer_is_the_upstreams_by_details_and_never_by_status() {
        assert_eq!(evidence("via_upstream", 0, 1).ending(), Ending::Answered);
        assert_eq!(Evidence::default().ending(), Ending::Unknown(UnknownCause::ProxyReply));
    }

    #[test]
    fn only_listed_causes_prove_that_nothing_ran() {
        for (details, flags) in [
            ("route_not_found", 0x100),
            ("no_healthy_upstream", 0x2),
            ("direct_response", 0),
            ("fault_filter_abort", 0x400),
            ("rbac_access_denied_matched_policy[none]", 0x1000),
            (
                "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_111}",
                0x20,
            ),
            ("upstream_reset_before_response_started{connection_timeout}", 0x20),
            ("upstream_reset_before_response_started{overflow}", 0x80),
        ] {
            assert_eq!(evidence(details, flags, 1).ending(), Ending::NotRun, "{details}");
        }
        for (details, flags) in [
            ("upstream_response_timeout", 0x4),
            ("upstream_reset_before_response_started{connection_termination}", 0x40),
            ("upstream_reset_before_response_started{remote_reset}", 0x10),
            ("upstream_reset_after_response_started{connection_failure}", 0x20),
            ("response_payload_too_large", 0),
            ("downstream_remote_disconnect", 0x4000),
            ("no_healthy_upstreamx", 0x2),
            ("something_new", 0),
            ("", 0),
        ] {
            assert!(matches!(evidence(details, flags, 1).ending(), Ending::Unknown(_)), "{details}");
        }
    }

    #[test]
    fn a_connection_failure_after_a_retry_is_no_proof() {
        let details = "upstream_reset_before_response_started{remote_connection_failure}";
        assert_eq!(evidence(details, 0x20, 2).ending(), Ending::Unknown(UnknownCause::Reset));
        // URX beside UF: retries were used up.
        assert_eq!(evidence(details, 0x8020, 1).ending(), Ending::Unknown(UnknownCause::Reset));
    }

    #[test]
    fn a_loopbacks_report_is_read_and_anything_else_proves_nothing() {
        let ending = |report: &str| Evidence::from_report(report.as_bytes()).ending();
        assert_eq!(ending("via_upstream|-|1|210"), Ending::Answered);
        let refused =
            "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_111}";
        assert_eq!(ending(&format!("{refused}|UF|1|0")), Ending::NotRun);
        assert_eq!(ending("route_not_found|NR|-|0"), Ending::NotRun);
        assert_eq!(ending("direct_response|-|-|-"), Ending::NotRun);
        for report in [
            format!("{refused}|URX,UF|2|180"),
            format!("{refused}|UF|1|180"),
            format!("{refused}|XX|1|0"),
            "response_timeout|UT|1|180".to_owned(),
            "via_upstream".to_owned(),
            "direct_response|-|-".to_owned(),
            "direct_response|-|-|f".to_owned(),
            format!("{refused}|UF|1|"),
            format!("{refused}|UF|1|-1"),
            String::new(),
        ] {
            assert!(matches!(ending(&report), Ending::Unknown(_)), "{report}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_proof() {
        let known = || evidence("no_healthy_upstream", 0, 1);
        assert_eq!(known().ending(), Ending::NotRun);
        for unread in [Evidence { flags: None, ..known() }, Evidence { attempts: None, ..known() }] {
            assert!(matches!(unread.ending(), Ending::Unknown(_)));
        }
    }

    #[test]
    fn a_timeout_is_named_as_one() {
        assert_eq!(
            evidence("upstream_response_timeout", 0x4, 1).ending(),
            Ending::Unknown(UnknownCause::Timeout)
        );
        assert_eq!(
            evidence("downstream_remote_disconnect", 0x4000, 1).ending_without_response(),
            Ending::Unknown(UnknownCause::ClientGone)
        );
    }
}
