//! What is kept of an answer, and how it is sent again.
//!
//! A header that describes one exchange, one hop or one client is never kept, whatever the
//! policy's lists say. A replay carries each kept header exactly once: the host adds headers of its
//! own to every local reply (route-added headers double, content-type appears or goes), so the
//! whole map is set on its way out.

use crate::error_template::ErrorTemplate;
use crate::policy::{HeaderRules, Markers, ResponsePolicy, StatusRule};
use crate::problem::{Problem, ProblemKind};
use fencepost_protocol::StoredAnswer;
use fencepost_protocol::answer::HEADERS_MAX;

/// Header pairs as bytes, in order.
pub type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// What to do with an upstream's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreDecision {
    /// Keep it.
    Store {
        /// Lifetime.
        ttl_ms: u64,
    },
    /// Give the claim back: an equal request may run again.
    Release,
    /// It ran, and its status is none that can be replayed (below 200 or above 599): unknown.
    Unstorable,
}

/// Statuses that are given back unless the policy names them: they say that the request was
/// refused before it did anything.
pub const RELEASED_STATUSES: [u16; 4] = [401, 403, 425, 429];

/// Decides by status: the status's own rule, else the built-in releases, else its class's rule,
/// else it is stored.
pub fn store_decision(response: &ResponsePolicy, status: u16) -> StoreDecision {
    if !(200..=599).contains(&status) {
        return StoreDecision::Unstorable;
    }
    let class = || response.classes.get(&(status / 100)).copied();
    let built_in = || RELEASED_STATUSES.contains(&status).then_some(StatusRule::Release);
    let rule = response.statuses.get(&status).copied().or_else(built_in).or_else(class);
    match rule.unwrap_or(StatusRule::Store { ttl_ms: None }) {
        StatusRule::Store { ttl_ms } => StoreDecision::Store { ttl_ms: ttl_ms.unwrap_or(response.ttl_ms) },
        StatusRule::Release => StoreDecision::Release,
    }
}

/// Names that are never kept.
const NEVER_KEPT: &[&str] = &[
    // One hop (RFC 9110, section 7.6.1) and framing.
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "http2-settings",
    // One client.
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "authorization",
    "authentication-info",
    // One moment.
    "date",
    "age",
    "server-timing",
    "ratelimit",
    "alt-svc",
    // One exchange.
    "x-request-id",
    "x-correlation-id",
    "request-id",
    "traceparent",
    "tracestate",
    "traceresponse",
    "b3",
    "x-amzn-trace-id",
    "x-amzn-requestid",
    "x-cloud-trace-context",
    "x-ot-span-context",
    "uber-trace-id",
    "sentry-trace",
    "grpc-trace-bin",
];

/// Beginnings of names that are never kept.
const NEVER_KEPT_PREFIXES: &[&str] = &[
    "proxy-",
    "x-envoy-",
    "x-fencepost-",
    "x-b3-",
    "ratelimit-",
    "x-ratelimit-",
    "x-datadog-",
    "access-control-",
];

/// The headers to keep, with lower-case names, in order.
pub fn keep_headers(rules: &HeaderRules, markers: &Markers, headers: &[(Vec<u8>, Vec<u8>)]) -> Headers {
    let listed = connection_names(headers);
    let mut kept = Headers::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let keep = is_line(&name, value)
            && !is_never_kept(&name)
            && !markers.names().any(|marker| marker.as_bytes() == name)
            && !listed.contains(&name)
            && rules.keeps(&name);
        if keep && kept.len() < HEADERS_MAX {
            kept.push((name, value.clone()));
        }
    }
    kept
}

/// Names to remove from the first answer: an upstream must not pretend to be a replay.
pub fn strip_markers(markers: &Markers, headers: &[(Vec<u8>, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for (name, _) in headers {
        let name = name.to_ascii_lowercase();
        let ours =
            markers.names().any(|marker| marker.as_bytes() == name) || name.starts_with(b"x-fencepost-");
        if ours && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What is stored in place of an answer that is not kept: too large, or by policy.
pub fn unkept_marker(
    kind: ProblemKind,
    status: u16,
    markers: &Markers,
    template: Option<&ErrorTemplate>,
) -> StoredAnswer {
    let problem = Problem::new(
        kind,
        format!("the request ran once and was answered with status {status}; its body was not kept"),
    );
    let mut headers = problem.headers(template);
    headers.push((markers.original_status.clone().into_bytes(), status.to_string().into_bytes()));
    StoredAnswer { status: problem.status(), headers, body: problem.body(template) }
}

/// A stored answer as it may be sent: whoever wrote it, framing, headers of one client, what is no
/// header line and the filter's own markers are not taken from it, and a status without a body has
/// none.
pub fn replayable(mut answer: StoredAnswer, markers: &Markers) -> StoredAnswer {
    let forged = [&markers.replayed, &markers.expires];
    answer.headers.retain(|(name, value)| {
        let name = name.to_ascii_lowercase();
        is_line(&name, value)
            && !is_never_kept(&name)
            && !forged.iter().any(|marker| marker.as_bytes() == name)
    });
    if matches!(answer.status, 204 | 205 | 304) {
        answer.body.clear();
    }
    answer
}

/// The whole header map of a replay. `present` is what the host has put on the local reply.
pub fn replay_headers(
    answer: &StoredAnswer,
    markers: &Markers,
    present: &[(Vec<u8>, Vec<u8>)],
    expires_in_ms: Option<u64>,
) -> Headers {
    const REPLACED: [&[u8]; 3] = [b"content-type", b"content-length", b"transfer-encoding"];
    let mut map = vec![(b":status".to_vec(), answer.status.to_string().into_bytes())];
    for (name, value) in present {
        let replaced = name.starts_with(b":")
            || REPLACED.iter().any(|other| name.eq_ignore_ascii_case(other))
            || markers.names().any(|marker| name.eq_ignore_ascii_case(marker.as_bytes()))
            || answer.headers.iter().any(|(stored, _)| name.eq_ignore_ascii_case(stored));
        if !replaced {
            map.push((name.clone(), value.clone()));
        }
    }
    map.extend(answer.headers.iter().cloned());
    map.push((markers.replayed.clone().into_bytes(), b"true".to_vec()));
    if let Some(ms) = expires_in_ms {
        map.push((markers.expires.clone().into_bytes(), (ms / 1_000).to_string().into_bytes()));
    }
    if !matches!(answer.status, 100..=199 | 204 | 304) {
        map.push((b"content-length".to_vec(), answer.body.len().to_string().into_bytes()));
    }
    map
}

/// Headers that a script of another origin may read beyond those that are always readable: what
/// the answer says already, and the markers. None where the answer is not for other origins, or
/// names them all.
pub fn exposed(markers: &Markers, headers: &[(Vec<u8>, Vec<u8>)]) -> Option<Vec<u8>> {
    let lines = |wanted: &'static str| {
        headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes())).map(|(_, v)| v)
    };
    lines(ALLOW_ORIGIN).next()?;
    let mut names: Vec<Vec<u8>> = lines(EXPOSE_HEADERS)
        .flat_map(|line| line.split(|b| *b == b','))
        .map(|name| name.trim_ascii().to_vec())
        .filter(|name| !name.is_empty())
        .collect();
    // A star stands for all names, unless credentials are allowed: then it is a name.
    let credentials = lines("access-control-allow-credentials").next().is_some();
    if names.iter().any(|name| name == b"*") && !credentials {
        return None;
    }
    let known = names.len();
    for marker in markers.names().chain([RESULT_HEADER]) {
        if !names.iter().any(|name| name.eq_ignore_ascii_case(marker.as_bytes())) {
            names.push(marker.as_bytes().to_vec());
        }
    }
    (names.len() > known).then(|| names.join(b", ".as_slice()))
}

/// Response header of a CORS answer that names the origin.
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

/// Response header of a CORS answer that names what scripts may read.
pub const EXPOSE_HEADERS: &str = "access-control-expose-headers";

/// Response header that tells a client of an answer whose storing failed or came too late.
pub const RESULT_HEADER: &str = "x-fencepost-result";

/// Names listed in Connection are of one hop too.
pub(crate) fn connection_names(headers: &[(Vec<u8>, Vec<u8>)]) -> Vec<Vec<u8>> {
    let lines = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    lines
        .flat_map(|(_, value)| value.split(|b| *b == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Whether a lower-case header name belongs to one hop, client, moment or exchange, to framing, or to
/// a proxy: no answer is kept with it.
pub fn is_never_kept(name: &[u8]) -> bool {
    NEVER_KEPT.iter().any(|never| never.as_bytes() == name)
        || NEVER_KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Can these be one line of a head? What ends a line would begin another one (RFC 9110, section 5.5).
fn is_line(name: &[u8], value: &[u8]) -> bool {
    is_token(name) && !value.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'))
}

/// A field name of RFC 9110; pseudo headers are none.
pub(crate) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn response() -> ResponsePolicy {
        ResponsePolicy { ttl_ms: 1_000, ..ResponsePolicy::default() }
    }

    fn pairs(list: &[(&str, &str)]) -> Headers {
        list.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect()
    }

    #[test]
    fn refusals_before_the_work_are_released_and_all_else_is_stored() {
        for status in [200, 201, 302, 400, 404, 409, 422, 500, 503] {
            assert_eq!(
                store_decision(&response(), status),
                StoreDecision::Store { ttl_ms: 1_000 },
                "{status}"
            );
        }
        for status in RELEASED_STATUSES {
            assert_eq!(store_decision(&response(), status), StoreDecision::Release, "{status}");
        }
        for status in [0, 101, 600, u16::MAX] {
            assert_eq!(store_decision(&response(), status), StoreDecision::Unstorable, "{status}");
        }
    }

    #[test]
    fn a_status_goes_before_its_class() {
        let response = ResponsePolicy {
            statuses: BTreeMap::from([
                (503, StatusRule::Store { ttl_ms: Some(5) }),
                (401, StatusRule::Store { ttl_ms: None }),
            ]),
            classes: BTreeMap::from([(5, StatusRule::Release), (4, StatusRule::Store { ttl_ms: Some(7) })]),
            ..response()
        };
        assert_eq!(store_decision(&response, 503), StoreDecision::Store { ttl_ms: 5 });
        assert_eq!(store_decision(&response, 500), StoreDecision::Release);
        assert_eq!(store_decision(&response, 401), StoreDecision::Store { ttl_ms: 1_000 });
        assert_eq!(
            store_decision(&response, 403),
            StoreDecision::Release,
            "a class does not undo a built-in release"
        );
        assert_eq!(store_decision(&response, 404), StoreDecision::Store { ttl_ms: 7 });
    }

    #[test]
    fn what_belongs_to_one_exchange_is_not_kept() {
        let markers = Markers::default();
        let headers = pairs(&[
            (":status", "201"),
            ("Content-Type", "text/plain"),
            ("Set-Cookie", "a=b"),
            ("Date", "now"),
            ("Age", "1"),
            ("Connection", "X-Hop, close"),
            ("x-hop", "1"),
            ("Proxy-Status", "x"),
            ("x-envoy-upstream-service-time", "1"),
            ("Content-Length", "3"),
            ("transfer-encoding", "chunked"),
            ("Location", "/a"),
            ("link", "1"),
            ("Link", "2"),
            ("access-control-allow-origin", "*"),
            ("x-request-id", "1"),
            ("x-idempotent-replayed", "true"),
            ("bad name", "x"),
            ("x-bad", "a\nb"),
            ("RateLimit-Remaining", "1"),
            ("vary", "Origin"),
            ("x-fencepost-fence", "1"),
        ]);
        let kept = keep_headers(&HeaderRules::default(), &markers, &headers);
        assert_eq!(
            kept,
            pairs(&[
                ("content-type", "text/plain"),
                ("location", "/a"),
                ("link", "1"),
                ("link", "2"),
                ("vary", "Origin")
            ])
        );
        assert_eq!(
            strip_markers(&markers, &headers),
            vec![b"x-idempotent-replayed".to_vec(), b"x-fencepost-fence".to_vec()]
        );
    }

    #[test]
    fn lists_of_a_policy_never_bring_the_hard_part_back() {
        let headers = pairs(&[("set-cookie", "a"), ("x-a", "1"), ("x-b", "2"), ("x-c-d", "3")]);
        let allow = HeaderRules { allow: Some(vec!["set-cookie".into(), "x-a".into()]), deny: vec![] };
        assert_eq!(keep_headers(&allow, &Markers::default(), &headers), pairs(&[("x-a", "1")]));
        let deny = HeaderRules { allow: None, deny: vec!["x-a".into(), "x-c-*".into()] };
        assert_eq!(keep_headers(&deny, &Markers::default(), &headers), pairs(&[("x-b", "2")]));
    }

    #[test]
    fn a_replay_has_each_stored_header_once_and_its_own_length() {
        let answer = StoredAnswer {
            status: 201,
            headers: pairs(&[
                ("content-type", "application/json"),
                ("link", "1"),
                ("link", "2"),
                ("x-route", "a"),
            ]),
            body: b"{}".to_vec(),
        };
        let present = pairs(&[
            (":status", "200"),
            ("content-length", "99"),
            ("Content-Type", "text/plain"),
            ("X-Route", "a"),
            ("x-other", "1"),
            ("x-idempotent-replayed", "false"),
        ]);
        let map = replay_headers(&answer, &Markers::default(), &present, Some(61_999));
        assert_eq!(
            map,
            pairs(&[
                (":status", "201"),
                ("x-other", "1"),
                ("content-type", "application/json"),
                ("link", "1"),
                ("link", "2"),
                ("x-route", "a"),
                ("x-idempotent-replayed", "true"),
                ("x-idempotent-expires", "61"),
                ("content-length", "2"),
            ])
        );
    }

    #[test]
    fn a_stored_answer_that_somebody_else_wrote_breaks_no_framing_and_forges_no_marker() {
        let written = StoredAnswer {
            status: 204,
            headers: pairs(&[
                ("content-type", "text/plain"),
                ("Content-Length", "9"),
                ("set-cookie", "a=b"),
                ("x-idempotent-replayed", "false"),
                ("x-idempotent-original-status", "201"),
                ("x-fencepost-result", "lost"),
                (":status", "200"),
                ("x-a: b\r\nset-cookie", "a=b"),
                ("x-b", "1\r\nset-cookie: a=b"),
                ("x-c", "1\nset-cookie: a=b"),
                ("x-d", "\0"),
            ]),
            body: b"HTTP/1.1 200 OK".to_vec(),
        };
        let sent = replayable(written, &Markers::default());
        let kept = pairs(&[("content-type", "text/plain"), ("x-idempotent-original-status", "201")]);
        assert_eq!((sent.headers, sent.body.len()), (kept, 0));
    }

    #[test]
    fn statuses_without_a_body_have_no_length() {
        for status in [204, 304] {
            let answer = StoredAnswer { status, ..StoredAnswer::default() };
            let map = replay_headers(&answer, &Markers::default(), &pairs(&[("content-length", "0")]), None);
            assert!(map.iter().all(|(name, _)| name != b"content-length"), "{status}");
        }
    }

    #[test]
    fn markers_are_exposed_once_and_only_to_other_origins() {
        let exposed = |headers: &[(&str, &str)]| {
            super::exposed(&Markers::default(), &pairs(headers))
                .map(|value| String::from_utf8(value).unwrap())
        };
        let all =
            "x-idempotent-replayed, x-idempotent-original-status, x-idempotent-expires, x-fencepost-result";
        assert_eq!(exposed(&[("access-control-expose-headers", "a")]), None);
        let origin = ("Access-Control-Allow-Origin", "*");
        assert_eq!(exposed(&[origin]).as_deref(), Some(all));
        let some = [
            origin,
            ("access-control-expose-headers", "ETag,X-Idempotent-Expires"),
            ("Access-Control-Expose-Headers", " b "),
        ];
        let expected = "ETag, X-Idempotent-Expires, b, x-idempotent-replayed, x-idempotent-original-status, x-fencepost-result";
        assert_eq!(exposed(&some).as_deref(), Some(expected));
        assert_eq!(exposed(&[origin, ("access-control-expose-headers", all)]), None);
        let star = ("access-control-expose-headers", "*");
        assert_eq!(exposed(&[origin, star]), None);
        let with_credentials = [origin, star, ("access-control-allow-credentials", "true")];
        assert_eq!(exposed(&with_credentials), Some(format!("*, {all}")));
    }

    #[test]
    fn an_answer_that_is_not_kept_leaves_its_status() {
        for (kind, code) in
            [(ProblemKind::Oversized, "answer_oversized"), (ProblemKind::NotKept, "answer_not_kept")]
        {
            let marker = unkept_marker(kind, 201, &Markers::default(), None);
            assert_eq!(marker.status, 410);
            assert!(marker.headers.contains(&(b"x-idempotent-original-status".to_vec(), b"201".to_vec())));
            let body: serde_json::Value = serde_json::from_slice(&marker.body).unwrap();
            assert_eq!(body["code"], code);
        }
    }

    proptest! {
        #[test]
        fn any_headers_are_kept_or_dropped(headers in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..12), proptest::collection::vec(any::<u8>(), 0..12)), 0..12)) {
            let kept = keep_headers(&HeaderRules::default(), &Markers::default(), &headers);
            prop_assert!(kept.len() <= headers.len());
            strip_markers(&Markers::default(), &headers);
        }
    }
}
