//! The filter reads the golden replies of the protocol.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

use fencepost_filter_core::exchange::store_reply::{CallReply, decode};
use fencepost_protocol::claims::{ClaimReply, CompleteReply, ReleaseReply, RenewReply, UnknownReply};
use fencepost_protocol::grant_claims::GrantClaimReply;

#[test]
fn every_golden_reply_is_read_and_every_cut_of_it_is_refused() {
    let text = include_str!("../../../protocol/fixtures/frames.txt");
    let mut read = 0;
    for line in text.lines() {
        let (name, frame) = line.split_once(' ').unwrap();
        let Some(reply) = name.strip_prefix("reply.") else { continue };
        let frame = hex::decode(frame).unwrap();
        let answer = |body: &[u8]| CallReply::Answer {
            status: 200,
            from_service: true,
            store: None,
            body: body.to_vec(),
        };
        let reads = |body: &[u8]| {
            let answer = answer(body);
            match reply.split('.').next().unwrap() {
                "claim" => decode::<ClaimReply>(&answer, &mut None).is_ok(),
                "complete" => decode::<CompleteReply>(&answer, &mut None).is_ok(),
                "release" => decode::<ReleaseReply>(&answer, &mut None).is_ok(),
                "unknown" => decode::<UnknownReply>(&answer, &mut None).is_ok(),
                "renew" => decode::<RenewReply>(&answer, &mut None).is_ok(),
                "grant_claim" => decode::<GrantClaimReply>(&answer, &mut None).is_ok(),
                other => panic!("{other}"),
            }
        };
        assert!(reads(&frame), "{name}");
        let head_len = 4 + u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
        for len in 0..head_len {
            assert!(!reads(&frame[..len]), "{name} cut to {len}");
        }
        read += 1;
    }
    assert!(read >= 16, "{read}");
}
