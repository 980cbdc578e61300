//! Client of the Fencepost store service for applications.
//!
//! Order of steps at the execution boundary; `examples/credit.rs` follows it:
//! 1. every other check (the request, the caller, cheap refusals);
//! 2. [`Client::admit`]: only [`Admission::Admitted`] goes on, everything else executes nothing;
//! 3. [`Client::may_submit`] right before the effect; anything but a yes sends nothing;
//! 4. the effect, with the operation id as the provider's idempotency key and a timeout of its own;
//! 5. [`Client::record`]; what can't be recorded is pending, and recovery finds out.
//!
//! Where the effect is a write to the same database, [`in_transaction`] admits in the caller's own
//! transaction instead, and use and effect commit or roll back together.

mod client;
#[cfg(feature = "postgres")]
pub mod in_transaction;
mod mac;

pub use client::{Admission, Client, ClientError, Owned, Recorded, Submission};
pub use fencepost_protocol::grants::{
    AdmitRequest, Caller, Details, GrantName, GrantToken, Operation, OperationId, OperationRefusal,
    OperationStatus, RecordRequest,
};
pub use mac::operation_mac;
