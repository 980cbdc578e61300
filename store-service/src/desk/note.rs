//! Lines of the desk's audit. They are appended by the statement that does what they tell.

use super::Whose;
use crate::entry::Micros;
use crate::grant::token::GrantKey;

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

impl Note {
    /// The word of a person about one grant that holds would refuse.
    pub fn release_grant(key: &GrantKey, who: String, reason: String) -> Self {
        let (version, state) = (String::new(), "held".to_owned());
        Self { who, action: "release_grant", subject: grant_subject(key), version, state, reason }
    }
}

/// Subject of lines about a grant: its name as JSON, so that no separator can be part of it.
pub fn grant_subject(key: &GrantKey) -> String {
    format!("grant {}", serde_json::json!([key.issuer, key.key_tenant, key.grant_id]))
}

/// Subject of lines about a hold.
pub fn hold_subject(id: i64) -> String {
    format!("hold {id}")
}

/// Subject of lines about all that is stored of one caller.
pub fn whose_subject(whose: &Whose) -> String {
    match whose {
        Whose::Scope(scope) => format!("scope {}", scope.to_hex()),
        Whose::Caller(caller) => format!("caller {}", serde_json::json!([caller.namespace, caller.id])),
    }
}

/// Subject of lines about an entry.
pub fn entry_subject(key: &str) -> String {
    format!("entry {key}")
}
