//! Request headers by which a client of the mesh could command Envoy's router.
//!
//! Envoy takes them out of requests from outside, and believes those from inside. On a guarded
//! request they would run it again, end it early, or answer an unknown outcome with a status of
//! the client's choice, so it has none of them.
//!
//! Source: Envoy's documentation of the router filter, "HTTP headers consumed by Envoy".

/// Beginnings of their names.
const COMMANDS: &[&str] = &[
    "x-envoy-retr",
    "x-envoy-max-retries",
    "x-envoy-hedge-",
    "x-envoy-upstream-rq-",
    "x-envoy-upstream-stream-",
    "x-envoy-expected-rq-",
    "x-envoy-is-timeout-retry",
    "x-envoy-attempt-count",
];

/// The one that is out of place even where the mesh may retry: it turns a timeout into a success.
const ANSWERS: &str = "x-envoy-upstream-rq-timeout-alt-response";

/// Whether a request header commands the router.
pub fn is_router_command(name: &[u8]) -> bool {
    let begins = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    COMMANDS.iter().any(|prefix| begins(prefix))
}

/// Whether it makes up an answer.
pub fn makes_up_an_answer(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(ANSWERS.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_by_their_names_and_other_headers_are_none() {
        for name in [
            "x-envoy-retry-on",
            "x-envoy-retry-grpc-on",
            "X-Envoy-Retriable-Status-Codes",
            "x-envoy-max-retries",
            "x-envoy-hedge-on-per-try-timeout",
            "x-envoy-upstream-rq-per-try-timeout-ms",
            "x-envoy-upstream-rq-timeout-alt-response",
            "x-envoy-upstream-stream-duration-ms",
        ] {
            assert!(is_router_command(name.as_bytes()), "{name}");
        }
        for name in ["x-envoy-external-address", "x-envoy-original-path", "x-envoy", "retry-after", ""] {
            assert!(!is_router_command(name.as_bytes()), "{name}");
        }
    }
}
