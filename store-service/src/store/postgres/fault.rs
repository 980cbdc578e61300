//! What an error from the server means for those who asked.

use super::session::told;
use std::error::Error as _;
use tokio_postgres::Error;

/// What can be done about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The connection is of no use any more, and whether the statement was applied is not known.
    Lost(String),
    /// The statement was rolled back because of others; it may be run again on this connection.
    Clash(String),
    /// The server can't now.
    Unavailable(String),
    /// A defect.
    Broken(String),
}

impl Fault {
    /// Sorts an error. SQLSTATE classes: PostgreSQL manual, appendix A.
    pub fn of(error: &Error) -> Self {
        let text = told(error);
        let Some(db) = error.as_db_error() else {
            let io = error.source().is_some_and(|source| source.is::<std::io::Error>());
            return if error.is_closed() || io { Self::Lost(text) } else { Self::Broken(text) };
        };
        let code = db.code().code();
        match code {
            // Shutting down, crashed, starting up, and a primary that became a standby.
            "57P01" | "57P02" | "57P03" | "25006" => Self::Lost(text),
            // Prepared statements that the server connection does not have, or has already: a
            // transaction-mode pooler without --pg-unnamed-statements, or a change of the schema.
            "26000" | "42P05" => Self::Lost(text),
            "0A000" if db.message().contains("cached plan") => Self::Lost(text),
            "40001" | "40P01" | "55P03" => Self::Clash(text),
            "57014" => Self::Unavailable(text),
            _ => match code.get(..2) {
                Some("08") => Self::Lost(text),
                Some("53" | "58") => Self::Unavailable(text),
                _ => Self::Broken(text),
            },
        }
    }
}
