//! JSON by meaning: the canonical text of a body, without building a tree.
//!
//! `scan` reads tokens, `document` checks a whole text and notes where each object's members are,
//! `member` puts these in order,
//! `canonical` writes the canonical text, `select` finds single values. Nothing recurses: nesting
//! lives in vectors and is bounded by [`DEPTH_MAX`].
//!
//! The canonical text is JSON without insignificant space, members sorted by name (bytes of the
//! unescaped UTF-8), strings escaped only where they must be and in one way (`\"`, `\\`, `\b`,
//! `\f`, `\n`, `\r`, `\t`, `\u00xx`), and the text of numbers and the order of arrays as sent. A
//! text that is canonical already is hashed as it is, in one piece.

mod canonical;
mod document;
mod member;
mod scan;
mod select;

pub(super) use canonical::{Sink, write};
pub(super) use document::{Document, NotCanonical, Span};
pub(super) use select::{Selection, select, sole};

/// Deepest nesting of objects and arrays. Readers differ beyond some hundreds, and a deeper body
/// is compared by bytes.
pub const DEPTH_MAX: usize = 512;

/// Most members in all objects of a body; each costs about 40 bytes of memory. A body with more
/// is compared by bytes.
pub const MEMBERS_MAX: usize = 1 << 18;
