//! The history of an operation: what was done about it, by recovery and by people. It only grows.

use crate::entry::Micros;
use fencepost_protocol::grants::OperationStatus;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationEvent {
    /// When, by the store's clock.
    pub at: Micros,
    /// The owner's version with which it was done.
    pub owner_version: i32,
    /// Who: `recovery/INSTANCE`, or the name of a person's token.
    pub actor: String,
    /// What: `take_over`, `look_up`, `submit`, `postpone`, `record`, or an action of a person.
    pub step: String,
    /// What was known before it, as one word; may be empty.
    pub result: String,
    /// The operation's status after it.
    pub status: OperationStatus,
    /// For people: a provider, a reason; may be empty.
    pub detail: String,
}
