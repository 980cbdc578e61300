//! What a reply of the store service means: decoded once, with every way of being wrong.
//!
//! Nothing that can't be read as the expected outcome is ever taken for one. Whether a failed
//! call was carried out is not known, so its caller acts as if it may have been.

use fencepost_protocol::{
    FrameError, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, StoreId, claims::Envelope, frame,
};
use serde::de::DeserializeOwned;

/// What came back from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallReply {
    /// The connection broke, or the call could not be made: no reply at all.
    Broken,
    /// A response.
    Answer {
        /// HTTP status.
        status: u16,
        /// Whether it carries the service's protocol header: if not, somebody else answered.
        from_service: bool,
        /// Which database it says that it is for, in a header of its own.
        store: Option<StoreId>,
        /// Body bytes.
        body: Vec<u8>,
    },
}

/// Why a reply decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// No reply, or a proxy's 502 or 503 in its place.
    Broken,
    /// A proxy's 504: the service was too slow.
    Timeout,
    /// The service answers, but its database does not, or it is draining.
    Unavailable,
    /// The service refused the call: bad credentials, key prefix, or message.
    Refused(u16),
    /// Not a reply of the service, or one that can't be read.
    Nonsense,
    /// Another database answered than the one that this VM has seen before.
    OtherStore,
}

impl StoreFailure {
    /// Whether the same call, asked again later, would certainly be refused again. A token that is
    /// being replaced, a limit or a slow body are not of that kind.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Refused(400 | 404 | 405 | 413 | 415))
    }

    /// Whether the same call is worth one immediate repeat.
    pub fn is_worth_a_resend(self) -> bool {
        matches!(self, Self::Broken)
    }
}

/// For logs.
impl core::fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Broken => "connection broken",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Refused(401 | 403) => {
                "the service refused the call: the store cluster's token, or its role"
            }
            Self::Refused(404) => "the service has no such call: no --issuers, or another service",
            Self::Refused(status) => return write!(f, "the service refused the call with {status}"),
            Self::Nonsense => "unreadable reply",
            Self::OtherStore => "another database answered",
        })
    }
}

/// Decodes a reply and checks who sent it. The first database that answers is pinned.
pub fn decode<'a, T: DeserializeOwned>(
    reply: &'a CallReply,
    pin: &mut Option<StoreId>,
) -> Result<(T, &'a [u8]), StoreFailure> {
    let (_, body) = decided(reply, pin)?;
    let (head, payload) = frame::split(body).map_err(|error| match error {
        FrameError::Truncated { .. }
        | FrameError::HeadTooLong(_)
        | FrameError::PayloadTooLong(_)
        | FrameError::Head(_) => StoreFailure::Nonsense,
    })?;
    let envelope: Envelope = json(head)?;
    // A version that is newer by one is understood as far as it matters; a later one is not known.
    if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION + 1).contains(&envelope.v) {
        return Err(StoreFailure::Nonsense);
    }
    let reply = json(head)?;
    keep(pin, envelope.store_id)?;
    Ok((reply, payload))
}

fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, StoreFailure> {
    serde_json::from_slice(text).map_err(|_| StoreFailure::Nonsense)
}

/// Decodes the reply of a call whose replies are plain JSON; who sent it is in a header.
pub fn decode_json<T: DeserializeOwned>(
    reply: &CallReply,
    pin: &mut Option<StoreId>,
) -> Result<T, StoreFailure> {
    let (store, body) = decided(reply, pin)?;
    let decoded = json(body)?;
    keep(pin, store.ok_or(StoreFailure::Nonsense)?)?;
    Ok(decoded)
}

/// The body of a 200 of the service. A refusal by another database decides nothing either.
fn decided<'a>(
    reply: &'a CallReply,
    pin: &Option<StoreId>,
) -> Result<(Option<StoreId>, &'a [u8]), StoreFailure> {
    let (status, from_service, store, body) = match reply {
        CallReply::Broken => return Err(StoreFailure::Broken),
        CallReply::Answer { status, from_service, store, body } => (*status, *from_service, *store, body),
    };
    match (status, from_service) {
        (_, true) if pin.is_some() && store.is_some() && *pin != store => Err(StoreFailure::OtherStore),
        (200, true) => Ok((store, body)),
        (200, false) => Err(StoreFailure::Nonsense),
        (503, true) => Err(StoreFailure::Unavailable),
        (502 | 503, false) => Err(StoreFailure::Broken),
        (504, _) => Err(StoreFailure::Timeout),
        (500.., true) => Err(StoreFailure::Unavailable),
        (400..=499, true) => Err(StoreFailure::Refused(status)),
        _ => Err(StoreFailure::Nonsense),
    }
}

fn keep(pin: &mut Option<StoreId>, store: StoreId) -> Result<(), StoreFailure> {
    match pin {
        Some(known) if *known != store => Err(StoreFailure::OtherStore),
        Some(_) => Ok(()),
        None => {
            *pin = Some(store);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_protocol::claims::{ClaimReply, Reply};

    fn answer(status: u16, from_service: bool, body: &[u8]) -> CallReply {
        CallReply::Answer { status, from_service, store: None, body: body.to_vec() }
    }

    fn framed(store: u8) -> Vec<u8> {
        let head = Reply::new(StoreId::from_bytes([store; 16]), ClaimReply::Mismatch);
        frame::encode(&head, &[]).unwrap()
    }

    #[test]
    fn only_a_readable_200_of_the_service_decides() {
        for (reply, failure) in [
            (CallReply::Broken, StoreFailure::Broken),
            (answer(200, false, &framed(1)), StoreFailure::Nonsense),
            (answer(200, true, b"<html>hello</html>"), StoreFailure::Nonsense),
            (answer(200, true, &framed(1)[..20]), StoreFailure::Nonsense),
            (answer(200, true, b""), StoreFailure::Nonsense),
            (answer(503, false, b"upstream connect error"), StoreFailure::Broken),
            (answer(503, true, b"{}"), StoreFailure::Unavailable),
            (answer(504, false, b"upstream request timeout"), StoreFailure::Timeout),
            (answer(403, true, b"{}"), StoreFailure::Refused(403)),
            (answer(404, false, b"nothing here"), StoreFailure::Nonsense),
            (answer(302, true, b""), StoreFailure::Nonsense),
        ] {
            assert_eq!(
                decode::<ClaimReply>(&reply, &mut None).map(|(reply, _)| reply),
                Err(failure),
                "{reply:?}"
            );
        }
    }

    #[test]
    fn the_first_database_is_pinned_and_another_is_noticed() {
        let mut pin = None;
        let first = answer(200, true, &framed(1));
        assert!(decode::<ClaimReply>(&first, &mut pin).is_ok());
        let other = CallReply::Answer {
            status: 409,
            from_service: true,
            store: Some(StoreId::from_bytes([2; 16])),
            body: vec![],
        };
        assert_eq!(decode::<ClaimReply>(&other, &mut pin).map(|_| ()), Err(StoreFailure::OtherStore));
        let other = answer(200, true, &framed(2));
        assert_eq!(decode::<ClaimReply>(&other, &mut pin).map(|_| ()), Err(StoreFailure::OtherStore));
        assert!(decode::<ClaimReply>(&first, &mut pin).is_ok());
    }
}
