//! Operations as the person on call sees them, and the order that ends one.
//!
//! An order is about a version that was seen: the owner's number and the time of the last change.
//! Every transition and every renewal writes that time, so whatever happened in between makes the
//! order do nothing. A final status is never changed, by anybody.
//!
//! Nobody says `failed` while somebody may be sending: an owner whose lease lives may be between
//! may-submit and its call. A lease that is only recovery's rest between two look-ups stands against nothing.
//! What may still be sent until `submit_by` does not either: nothing is sent for an operation with an end,
//! neither by an owner that renews its lease late nor by a new one. `succeeded` is a found effect, and found
//! it stays.

use crate::entry::Micros;
use crate::grant::token::GrantKey;
use fencepost_protocol::grants::{OperationId, OperationStatus};
use std::fmt;
use std::str::FromStr;

/// An operation with everything that is stored about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationSeen {
    /// Which.
    pub id: OperationId,
    /// The grant that it was admitted by.
    pub key: GrantKey,
    /// Namespace of its caller's id.
    pub caller_namespace: String,
    /// Its caller.
    pub caller_id: String,
    /// Its tenant, or empty.
    pub tenant: String,
    /// Its details as JSON.
    pub details: String,
    /// Where it stands.
    pub status: OperationStatus,
    /// Recorded with the outcome.
    pub reference: Option<String>,
    /// Why it has no end, as one word: `owner` where its owner said unknown or gave it to a person, what the
    /// last look-up found, why recovery gave up, or `look_again`; none where nothing was concluded yet.
    pub cause: Option<String>,
    /// Counts its owners.
    pub owner_version: i32,
    /// End of the present ownership.
    pub lease_until: Micros,
    /// Recovery is its owner, has put it aside until the end of the lease, and has sent nothing for it: nobody
    /// works on it meanwhile.
    pub resting: bool,
    /// Until when anything may be sent.
    pub submit_by: Micros,
    /// When it was admitted.
    pub created_at: Micros,
    /// When it last changed.
    pub updated_at: Micros,
    /// The store's clock when it was read.
    pub now: Micros,
}

impl OperationSeen {
    /// What an order about it names.
    pub fn version(&self) -> OperationVersion {
        OperationVersion { owner: self.owner_version, updated_at: self.updated_at }
    }
}

/// Which operations; every member that is set has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// In one of these states.
    pub statuses: Option<Vec<OperationStatus>>,
    /// Of this issuer's grants.
    pub issuer: Option<String>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// Of callers in this namespace.
    pub caller_namespace: Option<String>,
    /// Of this caller.
    pub caller_id: Option<String>,
    /// Without an end for this cause.
    pub cause: Option<String>,
    /// Admitted at least so many milliseconds ago.
    pub older_than_ms: Option<u64>,
    /// Only ids behind this one.
    pub after: Option<OperationId>,
    /// At most so many.
    pub limit: u32,
}

/// What makes two views of an operation the same: `OWNER.TIME`, the time in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationVersion {
    /// Counts its owners.
    pub owner: i32,
    /// When it last changed.
    pub updated_at: Micros,
}

impl fmt::Display for OperationVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.owner, self.updated_at.0)
    }
}

/// A text that is no version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a version is OWNER.TIME, as list and show print it")]
pub struct OperationVersionError;

impl FromStr for OperationVersion {
    type Err = OperationVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (owner, time) = text.split_once('.').ok_or(OperationVersionError)?;
        let owner = owner.parse().map_err(|_| OperationVersionError)?;
        let time = time.parse().map_err(|_| OperationVersionError)?;
        Ok(Self { owner, updated_at: Micros(time) })
    }
}

/// How an operation ended, as a person found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The effect exists.
    Succeeded,
    /// There is no effect, and none can come.
    Failed,
    /// None yet: recovery takes it up again, as if it had never looked.
    LookAgain,
}

impl Ending {
    /// The status that it writes.
    pub fn status(self) -> OperationStatus {
        match self {
            Self::Succeeded => OperationStatus::Succeeded,
            Self::Failed => OperationStatus::Failed,
            Self::LookAgain => OperationStatus::Unknown,
        }
    }

    /// Its word in the audit.
    pub fn action(self) -> &'static str {
        match self {
            Self::Succeeded => "settle_succeeded",
            Self::Failed => "settle_failed",
            Self::LookAgain => "look_again",
        }
    }
}

/// A person says how an operation ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationOrder {
    /// Which.
    pub id: OperationId,
    /// As it was seen.
    pub version: OperationVersion,
    /// How it ended.
    pub ending: Ending,
    /// The provider's id of the effect, or its code of refusal; none leaves what is there.
    pub reference: Option<String>,
    /// Name of the person's token.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What became of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationSettled {
    /// Done, and written down.
    Settled,
    /// There is no such operation.
    Absent,
    /// It is not any more what was seen.
    Changed,
    /// Its end is recorded already.
    Final,
    /// It waits for nobody: its owner or recovery works on it.
    Open,
    /// Its owner may still send something, or may be sending.
    Running {
        /// Milliseconds until that is over, as far as is known.
        left_ms: u64,
    },
}

/// Decides an order on the row as it is. `Settled` means: write it.
pub fn settle(seen: Option<&OperationSeen>, order: &OperationOrder, now: Micros) -> OperationSettled {
    use OperationStatus::{Admitted, Failed, NeedsReconciliation, Succeeded, Unknown};
    let Some(seen) = seen else { return OperationSettled::Absent };
    if seen.version() != order.version {
        return OperationSettled::Changed;
    }
    let busy_until = match (seen.status, order.ending) {
        (Succeeded | Failed, _) => return OperationSettled::Final,
        (Admitted | Unknown, Ending::LookAgain) => return OperationSettled::Open,
        (NeedsReconciliation, _) | (Unknown, Ending::Succeeded) => return OperationSettled::Settled,
        (Unknown, Ending::Failed) | (Admitted, _) if seen.resting => return OperationSettled::Settled,
        (Unknown, Ending::Failed) | (Admitted, _) => seen.lease_until,
    };
    match busy_until.ms_after(now) {
        0 => OperationSettled::Settled,
        left_ms => OperationSettled::Running { left_ms },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_790_000_000_000_000);

    fn seen(status: OperationStatus, lease_until: Micros, submit_by: Micros) -> OperationSeen {
        OperationSeen {
            id: OperationId::from_random([7; 16]),
            key: GrantKey { issuer: "i".into(), key_tenant: String::new(), grant_id: "g".into() },
            caller_namespace: "n".into(),
            caller_id: "c".into(),
            tenant: String::new(),
            details: "{}".into(),
            status,
            reference: None,
            cause: None,
            owner_version: 3,
            lease_until,
            resting: false,
            submit_by,
            created_at: NOW,
            updated_at: NOW,
            now: NOW,
        }
    }

    fn order(ending: Ending) -> OperationOrder {
        OperationOrder {
            id: OperationId::from_random([7; 16]),
            version: OperationVersion { owner: 3, updated_at: NOW },
            ending,
            reference: None,
            who: "ann".into(),
            reason: "looked".into(),
        }
    }

    #[test]
    fn settle_table() {
        use OperationStatus::{Admitted, Failed, NeedsReconciliation, Succeeded, Unknown};
        let (over, live) = (NOW, NOW.plus_ms(5));
        let running = OperationSettled::Running { left_ms: 5 };
        let done = OperationSettled::Settled;
        // Status, lease, submit_by; then succeeded, failed.
        for (status, lease, submit, expected) in [
            (Admitted, over, over, [done, done]),
            (Admitted, live, over, [running, running]),
            (Admitted, over, live, [done, done]),
            (Unknown, over, live, [done, done]),
            (Unknown, live, over, [done, running]),
            (NeedsReconciliation, live, live, [done, done]),
            (Succeeded, over, over, [OperationSettled::Final; 2]),
            (Failed, over, over, [OperationSettled::Final; 2]),
        ] {
            let row = seen(status, lease, submit);
            let found = [Ending::Succeeded, Ending::Failed].map(|e| settle(Some(&row), &order(e), NOW));
            assert_eq!(found, expected, "{status:?}");
            // While recovery rests, its lease stands against nobody.
            let rests = OperationSeen { resting: true, ..row.clone() };
            let found = [Ending::Succeeded, Ending::Failed].map(|e| settle(Some(&rests), &order(e), NOW));
            assert_eq!(found, expected.map(|e| if e == running { done } else { e }), "{status:?}");
            let again = settle(Some(&row), &order(Ending::LookAgain), NOW);
            let expected = match status {
                NeedsReconciliation => done,
                Succeeded | Failed => OperationSettled::Final,
                Admitted | Unknown => OperationSettled::Open,
            };
            assert_eq!(again, expected, "{status:?}");
            let stale = OperationOrder {
                version: OperationVersion { owner: 2, updated_at: NOW },
                ..order(Ending::Failed)
            };
            assert_eq!(settle(Some(&row), &stale, NOW), OperationSettled::Changed);
        }
        assert_eq!(settle(None, &order(Ending::Failed), NOW), OperationSettled::Absent);
    }

    #[test]
    fn a_version_is_read_back_and_anything_else_is_refused() {
        let version = OperationVersion { owner: 7, updated_at: NOW };
        assert_eq!(version.to_string().parse(), Ok(version));
        for text in ["", "7", "7.", ".7", "7.x", "x.1", "7.1.2"] {
            assert_eq!(text.parse::<OperationVersion>(), Err(OperationVersionError), "{text}");
        }
    }
}
