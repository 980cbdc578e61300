//! Having recovery look again for a held key that it has given to a person.
//!
//! Nothing about the entry changes: it stays held, with the version that was seen. What recovery counted
//! is forgotten, so it looks once more; what is too old by then is given to a person again.

use crate::entry::Version;
use fencepost_protocol::StoreKey;

/// Its word in the audit.
pub const ACTION: &str = "look_again";

/// A person has recovery look again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgainOrder {
    /// Which.
    pub key: StoreKey,
    /// As it was seen.
    pub version: Version,
    /// Name of the person's token.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What became of the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// Recovery takes it up, and it is written down.
    Told,
    /// Recovery has not given this version of it to a person.
    NotGivenUp,
}
