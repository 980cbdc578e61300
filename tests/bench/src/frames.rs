//! Messages to the store service.

use crate::random::Random;
use anyhow::Result;
use bytes::Bytes;
use fencepost_protocol::claims::{ClaimReply, ClaimRequest, CompleteRequest, OnLost, Reply};
use fencepost_protocol::{
    ClaimToken, Fence, Fingerprint, PROTOCOL_VERSION, Scheme, ScopeDigest, StoreKey, answer, frame,
};

/// A key by number, within a set of its own.
pub fn key(set: u64, number: u64) -> Result<StoreKey> {
    let digest =
        (u128::from(Random::new(set).next()) << 64 | u128::from(Random::new(!number).next())).to_be_bytes();
    Ok(StoreKey::new("bench", &digest)?)
}

/// A claim with a token of its own.
pub fn claim(key: &StoreKey, random: &mut Random, wait_ms: u32) -> Result<(ClaimToken, Bytes)> {
    let token = ClaimToken::from_bytes(random.bytes());
    let request = ClaimRequest {
        v: PROTOCOL_VERSION,
        key: key.clone(),
        token,
        scheme: scheme()?,
        fingerprint: Fingerprint::from_bytes([5; 32]),
        scope: ScopeDigest::from_bytes([6; 16]),
        claim_ttl_ms: 30_000,
        max_run_ms: 60_000,
        on_lost: OnLost::Hold,
        unknown_ttl_ms: 86_400_000,
        wait_ms,
        knows_quota: true,
    };
    Ok((token, frame::encode(&request, &[])?.into()))
}

/// The completion of a claim with a body of this size.
pub fn complete(key: &StoreKey, token: ClaimToken, fence: Fence, body_len: usize) -> Result<Bytes> {
    let headers = answer::encode_headers(&[(b"content-type".to_vec(), b"application/json".to_vec())]);
    let body = vec![b'x'; body_len];
    let request = CompleteRequest {
        v: PROTOCOL_VERSION,
        key: key.clone(),
        token,
        fence,
        scheme: scheme()?,
        fingerprint: Fingerprint::from_bytes([5; 32]),
        scope: ScopeDigest::from_bytes([6; 16]),
        status: 201,
        headers_len: u32::try_from(headers.len())?,
        body_len: u32::try_from(body.len())?,
        ttl_ms: 86_400_000,
    };
    Ok(frame::encode(&request, &[&headers, &body])?.into())
}

/// What became of a claim.
pub fn claimed(reply: &[u8]) -> Result<ClaimReply> {
    let (reply, _): (Reply<ClaimReply>, _) = frame::decode(reply)?;
    Ok(reply.reply)
}

fn scheme() -> Result<Scheme> {
    Ok(Scheme::parse("1-42fa47c6")?)
}
