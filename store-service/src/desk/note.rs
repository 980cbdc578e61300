//! Lines of the desk's audit. They are appended by the statement that does what they tell.

use crate::entry::Micros;

/// One line: what a person did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// When.
    pub at: Micros,
    /// Name of the person's token.
    pub who: String,
    /// What.
    pub action: String,
    /// To which version.
    pub version_before: String,
    /// The state that it was in.
    pub state_before: String,
    /// The state that it is in since.
    pub state_after: String,
    /// Why.
    pub reason: String,
}

/// Something to be written down that changes nothing else: a stored body was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Name of the person's token.
    pub who: String,
    /// What.
    pub action: &'static str,
    /// Of what.
    pub subject: String,
    /// As it was seen.
    pub version: String,
    /// The state that it is in.
    pub state: String,
    /// Why.
    pub reason: String,
}

/// Subject of lines about an entry.
pub fn entry_subject(key: &str) -> String {
    format!("entry {key}")
}
