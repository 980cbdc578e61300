//! What the host may do, and the input that it makes of it.

use fencepost_filter_core::exchange::detached::UpstreamReply;
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::exchange::store_reply::CallReply;
use fencepost_filter_core::exchange::{Call, HeldBody, Input, ResponseHead};
use fencepost_protocol::claims::*;
use fencepost_protocol::{Fence, Scheme, StoreId, answer, frame, paths};

/// The database that the VM has seen.
pub const STORE: StoreId = StoreId::from_bytes([7; 16]);

/// Another one.
const OTHER_STORE: StoreId = StoreId::from_bytes([8; 16]);

/// Status of every answer of the upstream.
pub const ANSWERED: u16 = 201;

/// Status of every stored answer.
pub const STORED: u16 = 202;

macro_rules! moves {
    ($($name:ident)*) => {
        /// One thing that the host may do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Move {
            $($name,)*
        }

        /// All of them.
        pub const MOVES: &[Move] = &[$(Move::$name,)*];
    };
}

moves! {
    Body BodyEnd RequestTrailers RequestUnreadable
    Claimed Completed InProgress Parked Mismatch ClaimBroken
    CompletedCut ToldUnknown OtherScheme Dead OverQuota ClaimUnavailable ClaimRefused ClaimTimedOut ClaimNonsense
    ClaimedElsewhere ClaimedByNobody
    DutyDone DutyRefused DutyBroken DutyUnavailable DutyFinal DutyElsewhere EarlyUnknownDone
    Answered AnsweredWhole AnsweredKeepNot AnsweredNotFinal AnsweredEndless ProxyNotRun ProxyUnknown
    ResponseBody ResponseEnd ResponseTrailers ResponseUnreadable ResponseUnreadableEnd
    Gone Later MuchLater BodyWithheld BodyUnsaid Full
    UpstreamAnswered UpstreamKeepNot UpstreamNotRun UpstreamNotSent UpstreamUnreported UpstreamLost
    Renewed RenewalRefused RenewalLost
}

impl Move {
    /// The store grants the claim, and it is the store that was seen before.
    pub fn is_claimed(self) -> bool {
        self == Self::Claimed
    }

    /// The upstream's answer begins in the request's own stream.
    fn begins_answer(self) -> bool {
        use Move::*;
        matches!(self, Answered | AnsweredWhole | AnsweredKeepNot | AnsweredNotFinal | AnsweredEndless)
    }

    /// The upstream itself answered.
    pub fn is_answer(self) -> bool {
        self.begins_answer() || matches!(self, Self::UpstreamAnswered | Self::UpstreamKeepNot)
    }

    /// A response of anybody's begins.
    pub fn begins_response(self) -> bool {
        self.begins_answer() || matches!(self, Self::ProxyNotRun | Self::ProxyUnknown)
    }

    /// What makes it certain that an equal request may run: it did not, or its answer says so.
    pub fn frees(self) -> bool {
        use Move::*;
        matches!(self, ProxyNotRun | UpstreamNotRun | UpstreamNotSent | AnsweredKeepNot | UpstreamKeepNot)
    }

    /// How much time passes with it, in milliseconds.
    pub fn takes_ms(self) -> u64 {
        match self {
            Self::Later => 400,
            Self::BodyWithheld => 1_000,
            Self::BodyUnsaid => 5_000,
            Self::MuchLater => 40_000,
            _ => 0,
        }
    }

    /// The input; `duty` is the path of the duty that was called last.
    pub fn input(self, duty: &str) -> Input {
        match self {
            Self::Body => Input::RequestBody { chunk: b"{".to_vec(), end: false },
            Self::BodyEnd => Input::RequestBody { chunk: b"}".to_vec(), end: true },
            Self::RequestTrailers => Input::RequestTrailers,
            Self::RequestUnreadable => Input::RequestUnreadable,
            Self::ResponseBody => Input::ResponseBody { chunk: b"x".to_vec(), end: false },
            Self::ResponseEnd => Input::ResponseBody { chunk: b"x".to_vec(), end: true },
            Self::ResponseTrailers => Input::ResponseTrailers,
            Self::ResponseUnreadable => Input::ResponseUnreadable { end: false },
            Self::ResponseUnreadableEnd => Input::ResponseUnreadable { end: true },
            Self::Gone => Input::StreamGone(client_gone()),
            Self::Later | Self::MuchLater | Self::Full => Input::Tick { body: HeldBody::Coming },
            Self::BodyWithheld => Input::Tick { body: HeldBody::Withheld },
            Self::BodyUnsaid => Input::Tick { body: HeldBody::Unsaid },
            Self::Renewed => Input::Renewed(RenewResult::Renewed),
            Self::RenewalRefused => Input::Renewed(RenewResult::Refused { reason: Refusal::HeldByOther }),
            Self::RenewalLost => Input::RenewFailed,
            Self::EarlyUnknownDone => {
                Input::StoreReply { call: Call::EarlyUnknown, reply: told(STORE, UnknownReply::Marked, &[]) }
            }
            Self::DutyDone
            | Self::DutyRefused
            | Self::DutyBroken
            | Self::DutyUnavailable
            | Self::DutyFinal
            | Self::DutyElsewhere => Input::StoreReply { call: Call::Duty, reply: self.duty_reply(duty) },
            Self::Answered
            | Self::AnsweredWhole
            | Self::AnsweredKeepNot
            | Self::AnsweredNotFinal
            | Self::AnsweredEndless
            | Self::ProxyNotRun
            | Self::ProxyUnknown => Input::ResponseHead(self.head()),
            Self::UpstreamAnswered
            | Self::UpstreamKeepNot
            | Self::UpstreamNotRun
            | Self::UpstreamNotSent
            | Self::UpstreamUnreported
            | Self::UpstreamLost => Input::UpstreamReply(self.upstream_reply()),
            Self::Claimed
            | Self::Completed
            | Self::InProgress
            | Self::Parked
            | Self::Mismatch
            | Self::ClaimBroken
            | Self::CompletedCut
            | Self::ToldUnknown
            | Self::OtherScheme
            | Self::Dead
            | Self::OverQuota
            | Self::ClaimUnavailable
            | Self::ClaimRefused
            | Self::ClaimTimedOut
            | Self::ClaimNonsense
            | Self::ClaimedElsewhere
            | Self::ClaimedByNobody => Input::StoreReply { call: Call::Claim, reply: self.claim_reply() },
        }
    }

    fn claim_reply(self) -> CallReply {
        let block = answer::encode_headers(&[]);
        let completed = |headers_len: usize| ClaimReply::Completed {
            status: STORED,
            headers_len: headers_len.try_into().unwrap(),
            body_len: 0,
            age_ms: 0,
            left_ms: 1,
        };
        let claimed = ClaimReply::Claimed { fence: Fence::new(5).unwrap(), parked_ms: 0 };
        let says = |reply: ClaimReply| told(STORE, reply, &[]);
        match self {
            Self::Claimed => says(claimed),
            Self::ClaimedElsewhere => told(OTHER_STORE, claimed, &[]),
            Self::ClaimedByNobody => match says(claimed) {
                CallReply::Answer { status, store, body, .. } => {
                    CallReply::Answer { status, from_service: false, store, body }
                }
                CallReply::Broken => CallReply::Broken,
            },
            Self::Completed => told(STORE, completed(block.len()), &block),
            Self::CompletedCut => told(STORE, completed(block.len()), &block[..2]),
            Self::InProgress => says(ClaimReply::InProgress { lease_left_ms: 9, parked_ms: 0 }),
            Self::Parked => says(ClaimReply::InProgress { lease_left_ms: 9, parked_ms: 500 }),
            Self::Mismatch => says(ClaimReply::Mismatch),
            Self::ToldUnknown => says(ClaimReply::Unknown { cause: UnknownCause::Timeout, left_ms: 9 }),
            Self::OtherScheme => says(ClaimReply::OtherScheme { scheme: Scheme::parse("0-other").unwrap() }),
            Self::Dead => says(ClaimReply::Dead),
            Self::OverQuota => says(ClaimReply::OverQuota { retry_after_ms: 9 }),
            Self::ClaimUnavailable => refused(503),
            Self::ClaimRefused => refused(403),
            Self::ClaimTimedOut => refused(504),
            Self::ClaimNonsense => refused(200),
            _ => CallReply::Broken,
        }
    }

    /// Replies in the words of the duty that was called.
    fn duty_reply(self, duty: &str) -> CallReply {
        let reason = Refusal::HeldByOther;
        let done = |store, is_done: bool| match duty {
            paths::RELEASE if is_done => told(store, ReleaseReply::Released, &[]),
            paths::RELEASE => told(store, ReleaseReply::Refused { reason }, &[]),
            paths::UNKNOWN if is_done => told(store, UnknownReply::Marked, &[]),
            paths::UNKNOWN => told(store, UnknownReply::Refused { reason }, &[]),
            _ if is_done => told(store, CompleteReply::Stored, &[]),
            _ => told(store, CompleteReply::Refused { reason }, &[]),
        };
        match self {
            Self::DutyDone => done(STORE, true),
            Self::DutyRefused => done(STORE, false),
            Self::DutyElsewhere => done(OTHER_STORE, true),
            Self::DutyUnavailable => refused(503),
            Self::DutyFinal => refused(400),
            _ => CallReply::Broken,
        }
    }

    fn head(self) -> ResponseHead {
        let (status, details, extra) = match self {
            Self::ProxyNotRun => (503, "no_healthy_upstream", None),
            Self::ProxyUnknown => (504, "upstream_response_timeout", None),
            Self::AnsweredKeepNot => (ANSWERED, "via_upstream", Some(("x-fencepost-store", "no"))),
            Self::AnsweredNotFinal => (ANSWERED, "via_upstream", Some(("x-fencepost-store", "not-final"))),
            Self::AnsweredEndless => (ANSWERED, "via_upstream", Some(("content-type", "text/event-stream"))),
            _ => (ANSWERED, "via_upstream", None),
        };
        let pair = |(name, value): (&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let mut headers = vec![pair((":status", &status.to_string()))];
        headers.extend(extra.map(pair));
        ResponseHead { status, headers, evidence: evidence(details), end: self == Self::AnsweredWhole }
    }

    fn upstream_reply(self) -> UpstreamReply {
        let response = |status, pairs: &[(&str, &str)]| {
            let headers = pairs.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
            UpstreamReply::Response { status, headers, body: vec![] }
        };
        // Through a loopback, and without one.
        let answered = [("x-fencepost-ending", "via_upstream|-|1|9"), ("x-envoy-upstream-service-time", "1")];
        match self {
            Self::UpstreamAnswered => response(ANSWERED, &answered),
            Self::UpstreamKeepNot => {
                response(ANSWERED, &[&answered[..], &[("x-fencepost-store", "no")]].concat())
            }
            Self::UpstreamNotRun => response(503, &[("x-fencepost-ending", "no_healthy_upstream|UH|-|0")]),
            Self::UpstreamUnreported => response(504, &[]),
            Self::UpstreamNotSent => UpstreamReply::NotSent,
            _ => UpstreamReply::Lost,
        }
    }
}

fn evidence(details: &str) -> Evidence {
    Evidence { code_details: Some(details.into()), flags: Some(0), attempts: Some(1), bytes_sent: None }
}

/// As Envoy says it of a client that left: flag DC.
fn client_gone() -> Evidence {
    Evidence { flags: Some(0x4000), ..evidence("downstream_remote_disconnect") }
}

fn told<T: serde::Serialize>(store: StoreId, reply: T, payload: &[u8]) -> CallReply {
    let body = frame::encode(&Reply::new(store, reply), &[payload]).unwrap();
    CallReply::Answer { status: 200, from_service: true, store: None, body }
}

fn refused(status: u16) -> CallReply {
    CallReply::Answer { status, from_service: true, store: None, body: b"{}".to_vec() }
}
