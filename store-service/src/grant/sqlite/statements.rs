//! The statements, one file each under `sql/`.

/// Declares statements, each a file under `sql/` beside the file that declares it.
macro_rules! statements {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub const $constant: &str = include_str!(concat!("sql/", $name, ".sql"));)*
        /// All of them, by name.
        pub const ALL: &[(&str, &str)] = &[$(($name, $constant)),*];
    };
}

pub(crate) use statements;

statements! {
    /// Who claimed a grant's key.
    CONSUMPTION_READ = "consumption_read";
    /// Does a hold stand over it?
    GRANT_HELD = "grant_held";
    /// Claims it.
    CONSUMPTION_ADD = "consumption_add";
    /// Deletes records of use.
    CONSUMPTION_CLEANUP = "consumption_cleanup";
    /// One operation.
    OPERATION_READ = "operation_read";
    /// What was done about it.
    OPERATION_HISTORY = "operation_history";
    /// Is there one already?
    OPERATION_CLASH = "operation_clash";
    /// Records one.
    OPERATION_ADD = "operation_add";
    /// Its answer.
    OPERATION_ANSWER = "operation_answer";
    /// Stores it.
    OPERATION_ANSWER_ADD = "operation_answer_add";
    /// Changes one.
    OPERATION_WRITE = "operation_write";
    /// The row of an issued grant.
    ISSUED_READ = "issued_read";
    /// Records it.
    ISSUED_ADD = "issued_add";
    /// Spends it.
    ISSUED_CONSUME = "issued_consume";
    /// Withdraws it.
    ISSUED_REVOKE = "issued_revoke";
    /// Archives rows.
    ISSUED_ARCHIVE = "issued_archive";
    /// Notes what was archived.
    ARCHIVAL_ADD = "archival_add";
    /// Appends to the audit.
    AUDIT_ADD = "audit_add";
    /// What grants are issued under.
    PIN_READ = "pin_read";
    /// The longest of them.
    PIN_LONGEST = "pin_longest";
    /// Pins it.
    PIN_ADD = "pin_add";
}
