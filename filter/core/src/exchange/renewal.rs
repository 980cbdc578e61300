//! Renewals: one call for the claims of many exchanges.

use super::Input;
use super::store_reply::{CallReply, decode as decode_reply};
use fencepost_protocol::claims::{RenewReply, RenewRequest, Renewal};
use fencepost_protocol::{PROTOCOL_VERSION, StoreId, frame, paths};

/// Path and body of the call; nothing where no claim is due.
pub fn encode(claims: Vec<Renewal>) -> Option<(&'static str, Vec<u8>)> {
    if claims.is_empty() {
        return None;
    }
    let frame = frame::encode(&RenewRequest { v: PROTOCOL_VERSION, claims }, &[]).ok()?;
    Some((paths::RENEW, frame))
}

/// One input for each claim, in order. A reply that can't be read, or that has another number of
/// results, renews nothing: the next tick asks again.
pub fn decode(reply: &CallReply, claims: usize, pin: &mut Option<StoreId>) -> Vec<Input> {
    match decode_reply::<RenewReply>(reply, pin) {
        Ok((reply, _)) if reply.results.len() == claims => {
            reply.results.into_iter().map(Input::Renewed).collect()
        }
        _ => (0..claims).map(|_| Input::RenewFailed).collect(),
    }
}
