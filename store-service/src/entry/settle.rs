//! `settle`: a person ends what the service can't.
//!
//! A person looks at an entry and decides; between the two it may change. So an order names the
//! version that was seen, and applies to no other. The version is the fence with the time of the
//! last change: every transition writes that time, and no two transitions of a row share one.

use super::{Lease, Micros, Row, State, Step, TOMBSTONE_MS};
use bytes::Bytes;
use fencepost_protocol::claims::{OnLost, ReleaseCause};
use fencepost_protocol::{ClaimToken, StoreKey};
use std::str::FromStr;

/// Which state of an entry was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// Fence of the row.
    pub fence: i64,
    /// When it last changed.
    pub updated_at: Micros,
}

/// A text that is no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected the version as it was shown, such as 1790000000000000.1790000000000000")]
pub struct VersionError;

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.fence, self.updated_at.0)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let (fence, updated_at) = text.split_once('.').ok_or(VersionError)?;
        let number = |text: &str| text.parse().map_err(|_| VersionError);
        Ok(Self { fence: number(fence)?, updated_at: Micros(number(updated_at)?) })
    }
}

impl Row {
    /// Its version.
    pub fn version(&self) -> Version {
        Version { fence: self.fence, updated_at: self.updated_at }
    }
}

/// What a person decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ruling {
    /// The key may run again; why.
    Free(ReleaseCause),
    /// This is the answer.
    Answer {
        /// Its status.
        status: u16,
        /// Header block.
        headers: Bytes,
        /// Body.
        body: Bytes,
        /// Lifetime, from now.
        ttl_ms: u64,
    },
}

impl Ruling {
    /// Its name in the audit.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Free(ReleaseCause::NotRun) => "settle_not_run",
            Self::Free(_) => "release",
            Self::Answer { .. } => "settle_answer",
        }
    }
}

/// An order of a person about one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    /// Entry.
    pub key: StoreKey,
    /// What the person saw.
    pub version: Version,
    /// What the person decides.
    pub ruling: Ruling,
    /// Token that an answer of the person stands under: no claim's, so that the answer of the
    /// request itself, should it come late, is told that it was not stored.
    pub token: ClaimToken,
    /// Also where the request may be running still.
    pub force: bool,
    /// Name of the person's token.
    pub who: String,
    /// The person's reason.
    pub reason: String,
}

/// What became of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleReply {
    /// Done, and in the audit.
    Settled,
    /// There is no live entry.
    Absent,
    /// The entry is not what was seen.
    Changed,
    /// Its request may be running.
    Running {
        /// Milliseconds for which it may.
        left_ms: u64,
    },
    /// It is what the order would make it: free, or answered.
    Standing,
}

/// Decides about an order. An answer never replaces another one: it is freed first, by an order of
/// its own.
pub fn settle(row: Option<&Row>, order: &Settle, now: Micros) -> Step<SettleReply> {
    let Some(row) = row.filter(|row| row.live(now)) else {
        return Step::keep(SettleReply::Absent);
    };
    if row.version() != order.version {
        return Step::keep(SettleReply::Changed);
    }
    match (&row.state, &order.ruling) {
        (State::Claimed(lease), _) if !order.force && busy_until(lease) > now => {
            Step::keep(SettleReply::Running { left_ms: busy_until(lease).ms_after(now) })
        }
        (State::Released { .. }, Ruling::Free(_)) | (State::Completed { .. }, Ruling::Answer { .. }) => {
            Step::keep(SettleReply::Standing)
        }
        (State::Claimed(_) | State::Unknown { .. } | State::Completed { .. }, Ruling::Free(_))
        | (State::Claimed(_) | State::Unknown { .. } | State::Released { .. }, Ruling::Answer { .. }) => {
            let token = match order.ruling {
                Ruling::Free(_) => row.token,
                Ruling::Answer { .. } => order.token,
            };
            let row = Row { state: state(&order.ruling, now), token, updated_at: now, ..row.clone() };
            Step::put(row, SettleReply::Settled)
        }
    }
}

/// Until when the request of a claim may be running, as far as its row says.
fn busy_until(lease: &Lease) -> Micros {
    match lease.on_lost {
        OnLost::Hold => lease.until,
        OnLost::Rerun => lease.until.max(lease.run_until),
    }
}

fn state(ruling: &Ruling, now: Micros) -> State {
    match ruling {
        Ruling::Free(cause) => State::Released { cause: *cause, until: now.plus_ms(TOMBSTONE_MS) },
        Ruling::Answer { status, headers, body, ttl_ms } => State::Completed {
            status: *status,
            headers: headers.clone(),
            body: body.clone(),
            at: now,
            until: now.plus_ms(*ttl_ms),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_back_and_anything_else_is_refused() {
        let version = Version { fence: 7, updated_at: Micros(1_790_000_000_000_001) };
        assert_eq!(version.to_string().parse(), Ok(version));
        for text in ["", "7", "7.", ".7", "7.x", "7.1.2", "seven.1"] {
            assert_eq!(text.parse::<Version>(), Err(VersionError), "{text}");
        }
    }
}
