//! What the sweeper does to a row.

use super::claim::lost;
use super::{Change, Micros, Row, State};
use fencepost_protocol::claims::OnLost;

/// One duty of the sweeper. Each is a statement of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SweepKind {
    /// Held claims whose lease ran out become unknown.
    MarkLost,
    /// Re-runnable claims go, once nobody asked for them for as long as an unknown outcome lives.
    DropAbandoned,
    /// Rows past their end go.
    DropEnded,
}

impl SweepKind {
    /// All duties, in the order in which a round does them.
    pub const ALL: [Self; 3] = [Self::MarkLost, Self::DropAbandoned, Self::DropEnded];

    /// Name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::MarkLost => "mark_lost",
            Self::DropAbandoned => "drop_abandoned",
            Self::DropEnded => "drop_ended",
        }
    }
}

/// Decides whether this duty applies to a row, and what it does.
pub fn sweep(row: &Row, kind: SweepKind, now: Micros, calm_ms: u64) -> Change {
    match (&row.state, kind) {
        (State::Claimed(lease), SweepKind::MarkLost)
            if lease.on_lost == OnLost::Hold && lease.over(now, calm_ms) =>
        {
            Change::put(lost(row, lease, now))
        }
        (State::Claimed(lease), SweepKind::DropAbandoned)
            if lease.on_lost == OnLost::Rerun
                && lease.over(now, calm_ms)
                && lease.run_until.plus_ms(lease.unknown_ttl_ms) <= now =>
        {
            Change::Drop
        }
        (State::Claimed(_), _) | (_, SweepKind::MarkLost | SweepKind::DropAbandoned) => Change::Keep,
        (_, SweepKind::DropEnded) if !row.live(now) => Change::Drop,
        (_, SweepKind::DropEnded) => Change::Keep,
    }
}
