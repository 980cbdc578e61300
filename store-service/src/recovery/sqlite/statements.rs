//! The statements, one file each under `sql/`.

use crate::grant::sqlite::statements::statements;

statements! {
    /// Stalled operations.
    RECOVERY_DUE = "recovery_due";
    /// One more attempt.
    RECOVERY_COUNT = "recovery_count";
    /// A line of the history.
    EVENT_ADD = "event_add";
    /// How much waits.
    RECOVERY_BACKLOG = "recovery_backlog";
    /// Held keys to look up.
    HELD_DUE = "held_due";
    /// Takes one.
    HELD_TAKE = "held_take";
    /// Later.
    HELD_POSTPONE = "held_postpone";
    /// For a person.
    HELD_MARK = "held_mark";
    /// Those for people.
    HELD_LIST = "held_list";
    /// End of a batch.
    HELD_LAST = "held_last";
    /// Forgets.
    HELD_TIDY = "held_tidy";
}
