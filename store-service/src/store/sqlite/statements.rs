//! The statements, one file each under `sql/`.

/// Reads the row of a key.
pub const ENTRY_READ: &str = include_str!("sql/entry_read.sql");
/// Writes the row of a key.
pub const ENTRY_WRITE: &str = include_str!("sql/entry_write.sql");
/// Removes the row of a key.
pub const ENTRY_DROP: &str = include_str!("sql/entry_drop.sql");
/// Claims that the sweeper may act on.
pub const SWEEP_CLAIMS: &str = include_str!("sql/sweep_claims.sql");
/// Rows past their end.
pub const SWEEP_ENDED: &str = include_str!("sql/sweep_ended.sql");
/// How far behind the sweeper is.
pub const SWEEP_LAG: &str = include_str!("sql/sweep_lag.sql");
/// Live entries, for people.
pub const ENTRY_LIST: &str = include_str!("sql/entry_list.sql");
/// What people did to an entry.
pub const ENTRY_AUDIT: &str = include_str!("sql/entry_audit.sql");
/// Writes that down.
pub const ENTRY_AUDIT_ADD: &str = include_str!("sql/entry_audit_add.sql");
/// What holds say about a key.
pub const HOLD_OVER: &str = include_str!("sql/hold_over.sql");
/// The identity of the file.
pub const STORE_ID: &str = include_str!("sql/store_id.sql");
/// Makes the identity, once.
pub const STORE_ID_CREATE: &str = include_str!("sql/store_id_create.sql");
/// Makes the list of schema versions.
pub const MIGRATIONS_CREATE: &str = include_str!("sql/migrations_create.sql");
/// The newest schema version.
pub const MIGRATIONS_VERSION: &str = include_str!("sql/migrations_version.sql");
/// Records a schema version.
pub const MIGRATIONS_ADD: &str = include_str!("sql/migrations_add.sql");
