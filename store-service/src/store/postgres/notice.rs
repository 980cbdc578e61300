//! `notice_send`: batches of notices to the other instances.

use super::Clock;
use super::batch::{Answers, Kind, RunError, Told};
use super::session::Session;
use super::statements::Name;
use fencepost_protocol::StoreKey;
use std::sync::Arc;

/// What is told: a text of its sender, see [`Payload`].
#[derive(Debug)]
pub struct Op {
    /// The text.
    pub payload: String,
    /// The key in it: several notices of one key that wait are sent one after another.
    pub key: Option<StoreKey>,
}

/// A notice as it travels.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload {
    /// A key that was freed, from another instance.
    Freed(StoreKey),
    /// Our own notice: this process was told without it.
    Own,
    /// A probe of our own: the way from our statements to our listener works.
    Probe(String),
    /// Of a version that says more.
    Other,
}

impl Op {
    /// A key was freed.
    pub fn freed(instance: &str, key: &StoreKey) -> Self {
        Self { payload: format!("{instance} {key}"), key: Some(key.clone()) }
    }

    /// Is anybody listening? Only the sender cares.
    pub fn probe(instance: &str, nonce: &str) -> Self {
        Self { payload: format!("{instance} ?{nonce}"), key: None }
    }
}

impl Payload {
    /// Reads one, as the instance with this name.
    pub fn parse(text: &str, instance: &str) -> Self {
        let Some((sender, what)) = text.split_once(' ') else { return Self::Other };
        match (sender == instance, what.strip_prefix('?'), StoreKey::parse(what)) {
            (true, Some(nonce), _) => Self::Probe(nonce.to_owned()),
            (true, None, _) => Self::Own,
            (false, None, Ok(key)) => Self::Freed(key),
            (false, _, _) => Self::Other,
        }
    }
}

/// The kind.
pub struct Notice;

impl Kind for Notice {
    type Op = Op;
    type Reply = ();
    const NAME: &'static str = "notice_send";
    const BATCH_MAX: usize = 256;
    const DROP_GONE: bool = false;

    fn key(op: &Op) -> Option<&StoreKey> {
        op.key.as_ref()
    }

    async fn run(session: &Session, _: &Clock, ops: &[Arc<Op>]) -> Result<Answers<()>, RunError> {
        let payloads: Vec<&str> = ops.iter().map(|op| op.payload.as_str()).collect();
        session.query(Name::NoticeSend, &[&payloads]).await?;
        Ok(ops.iter().map(|_| (Told::Done(()), None)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_told_apart() {
        let key = StoreKey::new("t", &[1; 16]).unwrap();
        let freed = Op::freed("me", &key).payload;
        assert_eq!(Payload::parse(&freed, "me"), Payload::Own);
        assert_eq!(Payload::parse(&freed, "you"), Payload::Freed(key));
        let probe = Op::probe("me", "n").payload;
        assert_eq!(Payload::parse(&probe, "me"), Payload::Probe("n".into()));
        for (text, instance) in [(&probe[..], "you"), ("", "me"), ("x", "me"), ("you more to come", "me")] {
            assert_eq!(Payload::parse(text, instance), Payload::Other, "{text}");
        }
    }
}
