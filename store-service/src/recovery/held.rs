//! Does what the plan says about one held key.
//!
//! The answer is stored by the same conditional statement that people's orders go through: for the
//! version that was seen, with a line of the audit. A key that somebody else settled, or whose late
//! answer came, is left as it is.

use super::held_plan::{HeldAnswer, HeldStep, plan_held};
use super::provider::{KeysAt, Place, Provider};
use super::store::{Applied, HeldKey, Rest};
use super::worker::Desk;
use crate::entry::{Settle, SettleReply};
use crate::store::StoreError;
use crate::trace;
use fencepost_protocol::ClaimToken;
use tracing::Instrument;

/// Name in the audit.
pub const AUDITED_AS: &str = "recovery";

/// How the work on one key ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HeldEnded {
    /// It has its answer.
    Completed,
    /// It is looked at again later.
    Postponed,
    /// It stays held, for a person.
    Marked,
    /// It changed meanwhile, or it is another instance's turn.
    Lost,
    /// The store did not answer; it is taken again later.
    Unsure,
}

impl HeldEnded {
    /// Label of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Postponed => "postponed",
            Self::Marked => "marked",
            Self::Lost => "lost",
            Self::Unsure => "unsure",
        }
    }
}

/// Works on one held key, at a place of its provider.
pub async fn work(
    desk: &Desk,
    provider: &Provider,
    at: &KeysAt,
    place: Place<'_>,
    held: HeldKey,
) -> HeldEnded {
    let key = held.key.clone();
    let ended = match settle(desk, provider, at, held).instrument(trace::work("recover_key")).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::warn!(%key, %error, "recovery of a held key stopped; it goes on later");
            HeldEnded::Unsure
        }
    };
    drop(place);
    metrics::counter!("fencepost_recovery_keys_total", "outcome" => ended.word()).increment(1);
    if ended == HeldEnded::Marked {
        tracing::warn!(%key, "a held key needs a person");
    } else {
        tracing::info!(%key, outcome = ended.word(), "recovery of a held key");
    }
    ended
}

async fn settle(
    desk: &Desk,
    provider: &Provider,
    at: &KeysAt,
    held: HeldKey,
) -> Result<HeldEnded, StoreError> {
    let answer = if provider.rests() {
        HeldAnswer::NotAsked
    } else {
        provider.look_up_key(&at.lookup, &held).instrument(trace::request("look_up_key")).await
    };
    let result = answer.word();
    let before = u32::try_from(held.turn.saturating_sub(1)).unwrap_or(u32::MAX);
    let applied = match plan_held(held.attempts, before, held.age_ms, answer, &desk.settings().give_up) {
        HeldStep::Complete(ruling) => {
            let order = Settle {
                key: held.key.clone(),
                version: held.version,
                ruling,
                token: nobodys_token()?,
                force: false,
                who: AUDITED_AS.into(),
                reason: format!("found at provider {} by {}", provider.name, desk.actor()),
            };
            return Ok(match desk.service().settle(order).await? {
                SettleReply::Settled => HeldEnded::Completed,
                SettleReply::Absent
                | SettleReply::Changed
                | SettleReply::Running { .. }
                | SettleReply::Standing => HeldEnded::Lost,
            });
        }
        HeldStep::Later { counted } => {
            let rest = Rest { span: desk.rest(before), counted };
            let done = desk.store().held_postpone(held.key, held.turn, rest, result.into()).await?;
            (done, HeldEnded::Postponed)
        }
        HeldStep::Mark(reason) => {
            let reason = reason.replace('\0', " ");
            let done = desk.store().held_mark(held.key, held.turn, reason, result.into()).await?;
            (done, HeldEnded::Marked)
        }
    };
    Ok(match applied {
        (Applied::Yes(()), ended) => ended,
        (Applied::Lost, _) => HeldEnded::Lost,
    })
}

/// A token of nobody's claim: a late answer of the request itself is told that it was not stored.
fn nobodys_token() -> Result<ClaimToken, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| StoreError::Unavailable("no random numbers".into()))?;
    Ok(ClaimToken::from_bytes(bytes))
}
