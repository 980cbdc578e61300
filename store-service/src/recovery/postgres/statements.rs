//! The statements: each is one file under `sql/`, with the types of its parameters.

use crate::grant::postgres::statements::statements;

statements! {
    /// Takes stalled operations over.
    RECOVERY_TAKE_OVER = "recovery_take_over" [TEXT_ARRAY, INT8, INT8, TEXT, INT8, TEXT];
    /// Renews the lease for a step.
    RECOVERY_STEP = "recovery_step" [TEXT, INT4, INT8, TEXT, TEXT, TEXT, TEXT];
    /// How an operation went.
    RECOVERY_RECORD = "recovery_record"
        [TEXT, INT4, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, INT4, BYTEA, BYTEA];
    /// Later.
    RECOVERY_POSTPONE = "recovery_postpone" [TEXT, INT4, INT8, BOOL, TEXT, TEXT, TEXT];
    /// How much waits.
    RECOVERY_BACKLOG = "recovery_backlog" [INT8];
    /// Takes held keys.
    HELD_TAKE = "held_take" [TEXT_ARRAY, INT8, TEXT, INT8];
    /// Later.
    HELD_POSTPONE = "held_postpone" [TEXT, INT8, INT8, BOOL, TEXT];
    /// For a person.
    HELD_MARK = "held_mark" [TEXT, INT8, TEXT, TEXT];
    /// Those for people.
    HELD_LIST = "held_list" [TEXT_ARRAY, TEXT, INT8];
    /// Forgets.
    HELD_TIDY = "held_tidy" [TEXT, INT8];
}
