//! The statements: each is one file under `sql/`, with the types of its parameters.

use tokio_postgres::types::Type;

/// One statement.
pub struct Sql {
    /// Name of its file, in metrics and errors.
    pub name: &'static str,
    /// Text.
    pub text: &'static str,
    /// Types of its parameters.
    pub types: &'static [Type],
    /// Is it run for every request? Then it must go by the primary key.
    pub hot: bool,
}

macro_rules! sql {
    ($name:literal, hot = $hot:literal, [$($type:ident),* $(,)?]) => {
        Sql {
            name: $name,
            text: include_str!(concat!("sql/", $name, ".sql")),
            types: &[$(Type::$type),*],
            hot: $hot,
        }
    };
}

/// Every statement that runs once the service is up.
pub static ALL: [Sql; COUNT] = [
    sql!(
        "claim_fresh",
        hot = true,
        [
            TEXT_ARRAY,
            BYTEA_ARRAY,
            TEXT_ARRAY,
            BYTEA_ARRAY,
            BYTEA_ARRAY,
            TEXT_ARRAY,
            INT4_ARRAY,
            INT4_ARRAY,
            INT8_ARRAY,
            INT4,
            TIMESTAMPTZ
        ]
    ),
    sql!(
        "claim_acquire",
        hot = true,
        [
            TEXT_ARRAY,
            BYTEA_ARRAY,
            TEXT_ARRAY,
            BYTEA_ARRAY,
            BYTEA_ARRAY,
            TEXT_ARRAY,
            INT4_ARRAY,
            INT4_ARRAY,
            INT8_ARRAY,
            INT8,
            INT4,
            TIMESTAMPTZ
        ]
    ),
    sql!(
        "claim_complete_own",
        hot = true,
        [TEXT_ARRAY, BYTEA_ARRAY, INT2_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, TIMESTAMPTZ]
    ),
    sql!(
        "claim_complete",
        hot = true,
        [
            TEXT_ARRAY,
            BYTEA_ARRAY,
            INT8_ARRAY,
            TEXT_ARRAY,
            BYTEA_ARRAY,
            BYTEA_ARRAY,
            INT2_ARRAY,
            BYTEA_ARRAY,
            BYTEA_ARRAY,
            INT8_ARRAY,
            TIMESTAMPTZ
        ]
    ),
    sql!(
        "claim_release",
        hot = true,
        [TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, INT8, TIMESTAMPTZ]
    ),
    sql!("claim_give_back", hot = false, [TEXT, BYTEA, TIMESTAMPTZ, TEXT, INT8, TIMESTAMPTZ]),
    sql!("claim_unknown", hot = true, [TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, TIMESTAMPTZ]),
    sql!("claim_renew", hot = true, [TEXT_ARRAY, BYTEA_ARRAY, INT4_ARRAY, INT4_ARRAY, TIMESTAMPTZ]),
    sql!("sweep_mark_lost", hot = false, [TIMESTAMPTZ, INT8, INT8]),
    sql!("sweep_drop_abandoned", hot = false, [TIMESTAMPTZ, INT8, INT8]),
    sql!("sweep_drop_ended", hot = false, [TIMESTAMPTZ, INT8]),
    sql!("heartbeat", hot = false, []),
    sql!("claim_mark_waited", hot = true, [TEXT_ARRAY]),
    sql!("claim_look", hot = true, [TEXT_ARRAY, TIMESTAMPTZ]),
    sql!("notice_send", hot = false, [TEXT_ARRAY]),
    sql!(
        "entry_settle",
        hot = true,
        [
            TEXT,
            INT8,
            TIMESTAMPTZ,
            TEXT,
            TEXT,
            INT2,
            BYTEA,
            BYTEA,
            INT8,
            BOOL,
            TEXT,
            TEXT,
            TEXT,
            TIMESTAMPTZ,
            BYTEA
        ]
    ),
    sql!("entry_show", hot = true, [TEXT, BOOL, TIMESTAMPTZ]),
    sql!("entry_list", hot = false, [TEXT, TEXT_ARRAY, BYTEA, TEXT, INT8, TIMESTAMPTZ, TEXT, BOOL, INT8]),
    sql!("entry_audit", hot = false, [TEXT]),
    sql!("instance_beat", hot = false, [TEXT, INT8, INT8, TIMESTAMPTZ]),
    sql!("instance_leave", hot = false, [TEXT]),
    sql!("sweep_lag", hot = false, [TIMESTAMPTZ]),
];

/// Which statement; the order is that of [`ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is told in the head of its file")]
pub enum Name {
    ClaimFresh,
    ClaimAcquire,
    ClaimCompleteOwn,
    ClaimComplete,
    ClaimRelease,
    ClaimGiveBack,
    ClaimUnknown,
    ClaimRenew,
    SweepMarkLost,
    SweepDropAbandoned,
    SweepDropEnded,
    Heartbeat,
    ClaimMarkWaited,
    ClaimLook,
    NoticeSend,
    EntrySettle,
    EntryShow,
    EntryList,
    EntryAudit,
    InstanceBeat,
    InstanceLeave,
    SweepLag,
}

/// How many statements there are.
pub const COUNT: usize = Name::SweepLag as usize + 1;

impl Name {
    /// The statement.
    pub fn sql(self) -> &'static Sql {
        #[expect(clippy::indexing_slicing, reason = "Cannot fail: COUNT is the last name's place plus one")]
        &ALL[self as usize]
    }
}

/// Asked on every new connection.
pub const SERVER_CHECK: &str = include_str!("sql/server_check.sql");
/// First on every connection of our own.
pub const SESSION: &str = include_str!("sql/session.sql");
/// Each statement is planned once.
pub const PLAN_ONCE: &str = include_str!("sql/plan_once.sql");
/// Each statement is planned with its values.
pub const PLAN_ANEW: &str = include_str!("sql/plan_anew.sql");
/// Begins to listen.
pub const LISTEN: &str = include_str!("sql/listen.sql");
/// Which server process answers.
pub const BACKEND_PID: &str = include_str!("sql/backend_pid.sql");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_statements_stand_in_the_same_order() {
        assert_eq!(Name::ClaimFresh.sql().name, "claim_fresh");
        assert_eq!(Name::ClaimAcquire.sql().name, "claim_acquire");
        assert_eq!(Name::ClaimGiveBack.sql().name, "claim_give_back");
        assert_eq!(Name::SweepDropEnded.sql().name, "sweep_drop_ended");
        assert_eq!(Name::Heartbeat.sql().name, "heartbeat");
        assert_eq!(Name::ClaimLook.sql().name, "claim_look");
        assert_eq!(Name::NoticeSend.sql().name, "notice_send");
        assert_eq!(Name::EntryList.sql().name, "entry_list");
        assert_eq!(Name::SweepLag.sql().name, "sweep_lag");
    }
}
