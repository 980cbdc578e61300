//! What makes two requests the same.

mod options;

pub use options::{
    BodyRule, DuplicateMembers, FingerprintOptions, FingerprintPolicy, PathTemplate, QueryRule,
};
