//! Recovery: operations and held keys find their end.

mod event;

pub use event::OperationEvent;
