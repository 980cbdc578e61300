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
}

/// Declares statements, each a file under `sql/` beside the file that declares it.
macro_rules! statements {
    ($($(#[$doc:meta])* $constant:ident = $name:literal [$($type:ident),* $(,)?];)*) => {
        $(
            $(#[$doc])*
            pub static $constant: $crate::grant::postgres::statements::Sql = $crate::grant::postgres::statements::Sql {
                name: $name,
                text: include_str!(concat!("sql/", $name, ".sql")),
                types: &[$(::tokio_postgres::types::Type::$type),*],
            };
        )*
        /// All of them.
        pub static ALL: &[&$crate::grant::postgres::statements::Sql] = &[$(&$constant),*];
    };
}

pub(crate) use statements;

statements! {
    /// Claims a grant that is a token.
    GRANT_ADMIT = "grant_admit"
        [TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, INT8, TEXT, TEXT, TEXT, BYTEA, TEXT, INT8, INT8, INT4, TIMESTAMPTZ,
         TEXT];
    /// Claims a grant that is a row.
    GRANT_ADMIT_ROW = "grant_admit_row"
        [TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, BYTEA, TEXT, INT8, INT8, INT4, TEXT];
    /// What is known about a grant.
    GRANT_REPORT = "grant_report" [TEXT, TEXT, TEXT];
    /// Records that a grant was issued.
    GRANT_ISSUE = "grant_issue" [TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TIMESTAMPTZ, INT8, INT8, TEXT];
    /// The row of an issued grant.
    GRANT_ISSUED = "grant_issued" [TEXT, TEXT, TEXT];
    /// Withdraws a grant that is a token.
    GRANT_REVOKE = "grant_revoke" [TEXT, TEXT, TEXT, TIMESTAMPTZ, INT8, INT8, TEXT, TEXT];
    /// Withdraws a grant that is a row.
    GRANT_REVOKE_ROW = "grant_revoke_row" [TEXT, TEXT, TEXT, TEXT, TEXT];
    /// Deletes records of use.
    GRANT_CLEANUP = "grant_cleanup" [INT8, INT8];
    /// Archives rows.
    GRANT_ARCHIVE = "grant_archive" [INT8, INT8];
    /// Pins what grants are issued under.
    GRANT_PIN = "grant_pin" [TEXT, TEXT, TEXT, BOOL, INT8, INT8, INT8];
    /// One operation.
    OPERATION_STATUS = "operation_status" [TEXT];
    /// What was done about it.
    OPERATION_HISTORY = "operation_history" [TEXT];
    /// May its owner send?
    OPERATION_MAY_SUBMIT = "operation_may_submit" [TEXT, INT4, TEXT];
    /// How it went.
    OPERATION_RECORD = "operation_record" [TEXT, INT4, TEXT, TEXT, TEXT];
    /// How it went, with its answer.
    OPERATION_FINISH = "operation_finish" [TEXT, INT4, TEXT, TEXT, TEXT, INT4, BYTEA, BYTEA];
    /// The answer.
    OPERATION_ANSWER = "operation_answer" [TEXT];
    /// A longer lease.
    OPERATION_RENEW = "operation_renew" [TEXT, INT4, INT8];
    /// Another owner.
    OPERATION_TAKE_OVER = "operation_take_over" [TEXT, INT4, INT8];
    /// The life of a transaction.
    BOUND_SETTINGS = "bound_settings" [];
    /// Bounds it.
    BOUND_SET = "bound_set" [INT8];
    /// Sees the bound cut.
    BOUND_PROVOKE = "bound_provoke" [FLOAT8];
}
