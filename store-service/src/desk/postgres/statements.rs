//! The statements: each is one file under `sql/`, with the types of its parameters.

use crate::grant::postgres::statements::Sql;
use tokio_postgres::types::Type;

macro_rules! statements {
    ($($(#[$doc:meta])* $constant:ident = $name:literal [$($type:ident),* $(,)?];)*) => {
        $(
            $(#[$doc])*
            pub static $constant: Sql = Sql {
                name: $name,
                text: include_str!(concat!("sql/", $name, ".sql")),
                types: &[$(Type::$type),*],
            };
        )*
        /// All of them.
        pub static ALL: &[&Sql] = &[$(&$constant),*];
    };
}

statements! {
    /// Operations.
    OPERATION_LIST = "operation_list"
        [TEXT_ARRAY, TEXT, TEXT, TEXT, TEXT, INT8, TEXT, INT8, TEXT];
    /// One operation.
    OPERATION_SHOW = "operation_show" [TEXT];
    /// Ends an operation.
    OPERATION_SETTLE = "operation_settle"
        [TEXT, INT4, TIMESTAMPTZ, TEXT, TEXT, TEXT, TEXT, TEXT];
    /// Grants.
    GRANT_LIST = "grant_list"
        [TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, INT8, BOOL];
    /// What people did to a subject.
    DESK_LINES = "desk_lines" [TEXT];
    /// Lines of every audit.
    AUDIT_LIST = "audit_list"
        [TEXT_ARRAY, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT_ARRAY, TIMESTAMPTZ,
         INT4, INT8, INT8];
    /// Holds.
    HOLD_LIST = "hold_list" [];
    /// Begins one.
    HOLD_BEGIN = "hold_begin" [TEXT, TIMESTAMPTZ, INT8, BOOL, TEXT, TEXT];
    /// Ends one.
    HOLD_LIFT = "hold_lift" [INT8, TEXT, TEXT];
    /// Frees what one has held.
    HOLD_FREE = "hold_free" [INT8, TEXT, INT8, TEXT, INT8, TEXT, TEXT];
    /// Has recovery look again for a key.
    HELD_AGAIN = "held_again" [TEXT, INT8, TIMESTAMPTZ, TEXT, TEXT, TEXT, TEXT, TEXT];
    /// Erases answers.
    ENTRY_ERASE = "entry_erase"
        [BYTEA, TEXT_ARRAY, TEXT, INT8, INT2, BYTEA, BYTEA, TEXT, TEXT, TEXT];
    /// Erases answers of operations.
    OPERATION_ERASE = "operation_erase"
        [TEXT, TEXT, TEXT, TEXT, INT8, INT4, BYTEA, BYTEA, TEXT, TEXT, TEXT, TEXT];
    /// Writes a line.
    DESK_NOTE = "desk_note" [TEXT, TEXT, TEXT, TEXT, TEXT, TEXT];
}
