//! The statements, one file each under `sql/`.

macro_rules! statements {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub const $constant: &str = include_str!(concat!("sql/", $name, ".sql"));)*
        /// All of them, by name.
        pub const ALL: &[(&str, &str)] = &[$(($name, $constant)),*];
    };
}

statements! {
    /// Operations.
    OPERATION_LIST = "operation_list";
    /// Ends an operation.
    OPERATION_END = "operation_end";
    /// Appends to its history.
    OPERATION_TOLD = "operation_told";
    /// Grants.
    GRANT_LIST = "grant_list";
    /// What people did to a subject.
    DESK_LINES = "desk_lines";
    /// Lines of every audit.
    AUDIT_LIST = "audit_list";
    /// Holds.
    HOLD_LIST = "hold_list";
    /// Begins one.
    HOLD_BEGIN = "hold_begin";
    /// Ends one.
    HOLD_LIFT = "hold_lift";
    /// Keys that a lifted hold may have held.
    HELD_PAGE = "held_page";
    /// Frees one.
    HELD_FREE = "held_free";
    /// Writes that down.
    HELD_NOTE = "held_note";
    /// Has recovery look again for a key.
    HELD_AGAIN = "held_again";
    /// Entries, to look for those of a caller.
    ENTRY_PAGE = "entry_page";
    /// Erases an answer.
    ENTRY_ERASE = "entry_erase";
    /// Operations, to look for those of a caller.
    OPERATION_PAGE = "operation_page";
    /// Erases an answer.
    OPERATION_ERASE = "operation_erase";
    /// Writes a line.
    DESK_NOTE = "desk_note";
}
