//! Frames, header blocks and identifiers, read as every message there is.
//!
//! Promised: any bytes are a message or an error; a message that is written again is read the
//! same; a block of headers has one spelling.

use fencepost_protocol::claims::{
    ClaimReply, ClaimRequest, CompleteReply, CompleteRequest, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Reply, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{StoreKey, answer, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn run(data: &[u8]) {
    read::<ClaimRequest>(data);
    read::<CompleteRequest>(data);
    read::<ReleaseRequest>(data);
    read::<UnknownRequest>(data);
    read::<RenewRequest>(data);
    read::<Reply<ClaimReply>>(data);
    read::<Reply<CompleteReply>>(data);
    read::<Reply<ReleaseReply>>(data);
    read::<Reply<UnknownReply>>(data);
    read::<Reply<RenewReply>>(data);
    if let Ok(pairs) = answer::decode_headers(data) {
        assert_eq!(answer::encode_headers(&pairs), data);
    }
    if let Some(key) = std::str::from_utf8(data).ok().and_then(|text| StoreKey::parse(text).ok()) {
        assert_eq!(key.as_str().as_bytes(), data);
    }
}

fn read<T: DeserializeOwned + Serialize>(data: &[u8]) {
    let Ok((message, payload)) = decode::<T>(data) else { return };
    let written = encode(&message, &[payload]).expect("what was read can be written");
    let (again, same) = decode::<T>(&written).expect("what was written can be read");
    assert_eq!(payload, same);
    assert_eq!(serde_json::to_value(message).unwrap(), serde_json::to_value(again).unwrap());
}
