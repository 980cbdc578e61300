//! The statements, one file each under `sql/`.

macro_rules! statements {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub const $constant: &str = include_str!(concat!("sql/", $name, ".sql"));)*
        /// All of them, by name.
        pub const ALL: &[(&str, &str)] = &[$(($name, $constant)),*];
    };
}

statements! {
    /// The list of key ids.
    SEAL_KEY_LIST = "seal_key_list";
    /// Adds one.
    SEAL_KEY_ADD = "seal_key_add";
    /// Takes one out.
    SEAL_KEY_DROP = "seal_key_drop";
    /// The next entries.
    SEAL_ENTRY_PAGE = "seal_entry_page";
    /// The answer of one.
    SEAL_ENTRY_READ = "seal_entry_read";
    /// The same in another form.
    SEAL_ENTRY_WRITE = "seal_entry_write";
    /// The next operations.
    SEAL_OPERATION_PAGE = "seal_operation_page";
    /// The answer of one.
    SEAL_OPERATION_READ = "seal_operation_read";
    /// The same in another form.
    SEAL_OPERATION_WRITE = "seal_operation_write";
}
