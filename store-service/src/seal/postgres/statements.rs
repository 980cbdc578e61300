//! The statements: each is one file under `sql/`, with the types of its parameters.

use crate::grant::postgres::statements::statements;

statements! {
    /// The list of key ids.
    SEAL_KEY_LIST = "seal_key_list" [];
    /// Adds one.
    SEAL_KEY_ADD = "seal_key_add" [TEXT];
    /// Takes one out.
    SEAL_KEY_DROP = "seal_key_drop" [TEXT];
    /// The next entries.
    SEAL_ENTRY_PAGE = "seal_entry_page" [TEXT, INT8];
    /// The answer of one.
    SEAL_ENTRY_READ = "seal_entry_read" [TEXT];
    /// The same in another form.
    SEAL_ENTRY_WRITE = "seal_entry_write" [TEXT, INT8, TIMESTAMPTZ, BYTEA, BYTEA, BYTEA];
    /// The next operations.
    SEAL_OPERATION_PAGE = "seal_operation_page" [TEXT, INT8];
    /// The answer of one.
    SEAL_OPERATION_READ = "seal_operation_read" [TEXT];
    /// The same in another form.
    SEAL_OPERATION_WRITE = "seal_operation_write" [TEXT, INT8, TIMESTAMPTZ, BYTEA, BYTEA, BYTEA];
}
