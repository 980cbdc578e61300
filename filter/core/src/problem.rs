//! Answers that the filter makes itself: problem+json (RFC 9457).
//!
//! `code` and `type` are stable; texts are for people and may change. Nothing that a client or an
//! upstream sent is ever repeated in them, least of all a key. A policy may have its own words:
//! see [`crate::error_template`].

use crate::error_template::ErrorTemplate;

/// Media type of a problem.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// A problem as a template: the same body as without one.
pub const PROBLEM_BODY: &str =
    r#"{"type":"{type}","title":"{title}","status":{status},"detail":"{detail}","code":"{code}"}"#;

macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $name:ident: $status:literal, $code:literal, $title:literal;)*) => {
        /// What went wrong, by what the client can do about it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ProblemKind { $($(#[$doc])* $name,)* }

        impl ProblemKind {
            /// All kinds, in the order of their definition.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status),* }
            }

            /// Stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            /// Response code details for access logs.
            pub const fn details(self) -> &'static str {
                match self { $(Self::$name => concat!("fencepost_", $code)),* }
            }

            /// URI of the problem type.
            pub const fn type_uri(self) -> &'static str {
                match self { $(Self::$name => concat!("urn:fencepost:problem:", $code)),* }
            }

            /// Short text for people, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }
        }
    };
}

problem_kinds! {
    /// The key is required and not there.
    KeyMissing: 400, "key_missing", "An idempotency key is required";
    /// The key is empty, repeated or not in the format.
    KeyMalformed: 400, "key_malformed", "The idempotency key is malformed";
    /// The key is too long.
    KeyTooLong: 400, "key_too_long", "The idempotency key is too long";
    /// Nobody knows whose key it is.
    ScopeMissing: 403, "scope_missing", "The caller's identity is missing";
    /// The identity can't be used.
    ScopeUnusable: 403, "scope_unusable", "The caller's identity can't be used";
    /// The same request runs now.
    InProgress: 409, "in_progress", "A request with this key is in progress";
    /// The request ran, or may have; its answer is lost.
    OutcomeUnknown: 409, "outcome_unknown", "The outcome of the request with this key is not known";
    /// The entry was made by other fingerprint rules.
    OtherScheme: 409, "other_scheme", "This key was used under other comparison rules";
    /// The key belongs to another request.
    KeyReused: 422, "key_reused", "This key was used for another request";
    /// The request body is over the policy's limit.
    BodyTooLarge: 413, "body_too_large", "The request body is too large for this route";
    /// The request body can be read in more than one way, and the policy refuses that.
    BodyAmbiguous: 400, "body_ambiguous", "The request body has duplicate members";
    /// A method, protocol or upgrade that can't be guarded, where a key is required.
    Unguardable: 400, "unguardable", "This kind of request can't be guarded on this route";
    /// The route's policy can't be read, or names none that exists.
    PolicyUnreadable: 500, "policy_unreadable", "The route's policy can't be read";
    /// A filter that must run before this one did not.
    MetadataMissing: 500, "metadata_missing", "A filter that must run first did not";
    /// The store is unreachable, late or answers nonsense.
    StoreUnavailable: 503, "store_unavailable", "The idempotency store is unavailable";
    /// The claim came too late to be used.
    ClaimTooLate: 503, "claim_too_late", "The claim could not be made in time";
    /// Too much is in flight already.
    TooBusy: 503, "too_busy", "Too many guarded requests are in flight";
    /// The caller has as many requests as it may have.
    QuotaExceeded: 429, "quota_exceeded", "The caller's quota is used up";
    /// The host does not hold headers back as it must.
    HostOption: 503, "host_option", "The proxy is not set up to hold requests back";
    /// An exchange waited longer than its bound before it was forwarded.
    Stalled: 503, "stalled", "The request waited too long";
    /// The upstream request failed, and may have run.
    UpstreamLost: 504, "upstream_lost", "The answer of the upstream was lost";
    /// The upstream certainly never got the request.
    UpstreamUnreached: 503, "upstream_unreached", "The upstream could not be reached";
    /// A route that admits grants, and no grant in the request.
    GrantMissing: 400, "grant_missing", "A grant is required";
    /// No operation id, or none that is one.
    OperationIdInvalid: 400, "operation_id_invalid", "A valid operation id is required";
    /// What the grant is compared with is not in the request.
    GrantDetailMissing: 400, "grant_detail_missing", "A detail that the grant is compared with is missing";
    /// Used, revoked, or in conflict with another operation; which is not said.
    GrantNotAvailable: 403, "grant_not_available", "The grant can't be used for this operation";
    /// Past its admission deadline.
    GrantExpired: 403, "grant_expired", "The grant has expired";
    /// The grant itself is not acceptable.
    GrantNotValid: 403, "grant_not_valid", "The grant is not acceptable";
    /// The request is not the one that the grant allows.
    GrantNotCovered: 403, "grant_not_covered", "The grant does not allow this request";
    /// The grant is spent, and its operation did not run.
    GrantNotSubmitted: 503, "grant_not_submitted", "The grant was spent and nothing was run";
    /// The operation of this id was refused for good.
    OperationFailed: 409, "operation_failed", "The operation has failed";
    /// The stored answer was too large to keep.
    Oversized: 410, "answer_oversized", "The answer was too large to keep";
    /// The policy keeps no answers.
    NotKept: 410, "answer_not_kept", "The answer was not kept";
}

/// A problem to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What went wrong.
    pub kind: ProblemKind,
    /// Text about this occurrence; never anything that the client sent.
    pub detail: String,
    /// Seconds after which a retry can help.
    pub retry_after_s: Option<u32>,
}

#[derive(serde::Serialize)]
struct Body<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
}

impl Problem {
    /// A problem without advice to retry.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), retry_after_s: None }
    }

    /// Adds Retry-After, rounded up to whole seconds and at least one.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_s = Some(u32::try_from(ms.div_ceil(1_000).max(1)).unwrap_or(u32::MAX));
        self
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    /// The body: by a template, or as JSON.
    pub fn body(&self, template: Option<&ErrorTemplate>) -> Vec<u8> {
        if let Some(template) = template {
            return template.body(self);
        }
        let body = Body {
            r#type: self.kind.type_uri(),
            title: self.kind.title(),
            status: self.kind.status(),
            detail: &self.detail,
            code: self.kind.code(),
        };
        // Strings and a number always serialise.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Headers of the answer, without `:status` and content-length.
    pub fn headers(&self, template: Option<&ErrorTemplate>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let content_type = template.map_or(PROBLEM_MEDIA_TYPE, ErrorTemplate::content_type);
        let mut headers = vec![
            (b"content-type".to_vec(), content_type.as_bytes().to_vec()),
            (b"cache-control".to_vec(), b"no-store".to_vec()),
        ];
        if let Some(seconds) = self.retry_after_s {
            headers.push((b"retry-after".to_vec(), seconds.to_string().into_bytes()));
        }
        headers
    }
}

impl From<crate::key::KeyError> for Problem {
    fn from(error: crate::key::KeyError) -> Self {
        use crate::key::KeyError;
        let kind = match error {
            KeyError::Missing => ProblemKind::KeyMissing,
            KeyError::Empty | KeyError::Repeated | KeyError::Malformed(_) => ProblemKind::KeyMalformed,
            KeyError::TooLong { .. } => ProblemKind::KeyTooLong,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<crate::scope::ScopeError> for Problem {
    fn from(error: crate::scope::ScopeError) -> Self {
        use crate::scope::ScopeError;
        let kind = match error {
            ScopeError::Missing { .. } => ProblemKind::ScopeMissing,
            ScopeError::Unusable { .. } => ProblemKind::ScopeUnusable,
        };
        Self::new(kind, "the identity that this route needs was not established")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyError;

    #[test]
    fn codes_are_unique_and_statuses_are_errors() {
        let codes: std::collections::BTreeSet<_> = ProblemKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ProblemKind::ALL.len());
        assert!(ProblemKind::ALL.iter().all(|kind| (400..600).contains(&kind.status())));
    }

    #[test]
    fn body_is_problem_json() {
        let problem = Problem::new(ProblemKind::InProgress, "try \"later\"").retry_after_ms(1_001);
        let body: serde_json::Value = serde_json::from_slice(&problem.body(None)).unwrap();
        assert_eq!(body["type"], "urn:fencepost:problem:in_progress");
        assert_eq!(body["status"], 409);
        assert_eq!(body["code"], "in_progress");
        assert_eq!(body["detail"], "try \"later\"");
        assert!(problem.headers(None).contains(&(b"retry-after".to_vec(), b"2".to_vec())));
        assert_eq!(problem.kind.details(), "fencepost_in_progress");
    }

    #[test]
    fn the_template_of_a_problem_is_the_problem() {
        let problem = Problem::new(ProblemKind::InProgress, "try \"later\"");
        let template = ErrorTemplate::parse(PROBLEM_MEDIA_TYPE, PROBLEM_BODY).unwrap();
        assert_eq!(problem.body(Some(&template)), problem.body(None));
    }

    #[test]
    fn every_problem_is_explained_where_its_type_leads() {
        let document =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/problems.md")).unwrap();
        for kind in ProblemKind::ALL {
            let (status, code) = (kind.status(), kind.code());
            let row = format!("| {status} | <a id=\"{code}\"></a>`{code}` | ");
            assert!(document.contains(&row), "docs/problems.md has no row {row}");
        }
    }

    #[test]
    fn key_errors_say_what_is_wrong_and_nothing_of_the_key() {
        let problem = Problem::from(KeyError::TooLong { max: 255, found: 300 });
        assert_eq!(problem.kind, ProblemKind::KeyTooLong);
        assert_eq!(problem.detail, "the key has 300 bytes, more than 255");
    }
}
