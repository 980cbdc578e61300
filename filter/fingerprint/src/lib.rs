//! What the filter does for every byte of a body: fingerprints, and the hash below them.
//!
//! A crate of its own because it is built for speed, where the rest of the filter's core is built for
//! size; nothing else tells the two apart, and the core shows these modules as its own. As there,
//! nothing may panic on any input.
#![deny(clippy::indexing_slicing)]

pub mod digest;
pub mod fingerprint;
