//! One pass over a JSON text: is it valid, and where are the members of its objects?
//!
//! Members of all objects lie in one table. While an object is open its members wait on a stack;
//! inner objects close first and take theirs off, so that each object's members end up side by
//! side and are sorted there. Objects are numbered in the order in which they open; whoever walks
//! the text out of order knows the number of the next object at its place.
//!
//! `dirt` counts everything that makes the text differ from the canonical one. A span over which
//! it did not grow is canonical as it stands.

use super::member::{Member, Sorter, name, order};
use super::scan::{literal, number, peek, skip_space, slice, string};
use super::{DEPTH_MAX, MEMBERS_MAX};
use crate::fingerprint::DuplicateMembers;

/// Why a text has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCanonical {
    /// Not JSON, too deep, too many members or a lone surrogate.
    Unreadable,
    /// An object has two members of one name.
    Duplicate,
}

/// A value in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// After the last byte.
    pub end: usize,
    /// Number of the first object that opens at or after `start`.
    pub object: usize,
    /// The text between is canonical.
    pub clean: bool,
}

/// An object: its members, and where the text goes on. Numbers are `u32`, as in [`Member`]: a body of
/// nothing but objects makes the largest tables.
#[derive(Clone, Copy, Default)]
pub(super) struct Object {
    pub members_start: u32,
    pub members_end: u32,
    /// Position after the closing brace.
    pub end: u32,
    /// Number of the next object after this one and all inside it.
    pub next: u32,
    /// The text of the object is canonical; its members are in the table only where they were
    /// asked for.
    pub clean: bool,
}

/// A valid text and its members.
pub struct Document<'a> {
    pub(super) text: &'a [u8],
    pub(super) members: Vec<Member>,
    pub(super) objects: Vec<Object>,
    names: Vec<u8>,
    root: Span,
}

impl<'a> Document<'a> {
    /// Checks a text. Members of objects that are canonical as they stand are kept in the table
    /// only with `keep_all`: nothing but a selection looks at them.
    pub fn parse(text: &'a [u8], duplicates: DuplicateMembers, keep_all: bool) -> Result<Self, NotCanonical> {
        if u32::try_from(text.len()).is_err() || core::str::from_utf8(text).is_err() {
            return Err(NotCanonical::Unreadable);
        }
        let root = Span { start: 0, end: 0, object: 0, clean: false };
        let objects = Vec::with_capacity((text.len() / 64).clamp(4, 256));
        let document = Self { text, members: Vec::new(), objects, names: Vec::new(), root };
        let open = Vec::with_capacity(8);
        let mut parser = Parser {
            document,
            duplicates,
            keep_all,
            seen: 0,
            pending: Vec::new(),
            used: 0,
            open,
            sorter: Sorter::default(),
        };
        parser.run().ok_or(NotCanonical::Unreadable)??;
        Ok(parser.document)
    }

    /// The whole value.
    pub fn root(&self) -> Span {
        self.root
    }

    /// The members of an object, sorted by name.
    pub(super) fn members_of(&self, object: &Object) -> &[Member] {
        self.members.get(object.members_start as usize..object.members_end as usize).unwrap_or_default()
    }

    /// The object that a span is, if it is one.
    pub(super) fn object_at(&self, span: &Span) -> Option<&Object> {
        (peek(self.text, span.start) == Some(b'{')).then(|| self.objects.get(span.object)).flatten()
    }

    /// A member's name, unescaped.
    pub(super) fn name(&self, member: &Member) -> &[u8] {
        name(self.text, &self.names, member)
    }
}

/// A container that is not closed yet.
#[derive(Clone, Copy)]
struct Open {
    /// Number of the object; [`ARRAY`] for an array.
    object: u32,
    pending_start: u32,
    /// Dirt when it opened.
    dirt: u32,
    /// Dirt when the current member's value began.
    value_dirt: u32,
    /// The members so far are in order, without two of one name.
    sorted: bool,
    /// The current member's key is clean and its value follows the colon, which follows the key.
    tight: bool,
}

const ARRAY: u32 = u32::MAX;

struct Parser<'a> {
    document: Document<'a>,
    duplicates: DuplicateMembers,
    keep_all: bool,
    /// Members so far.
    seen: usize,
    /// Members of open objects, and room for more; the first `used` count.
    pending: Vec<Member>,
    used: usize,
    open: Vec<Open>,
    sorter: Sorter,
}

/// Position and dirt are passed by value: in memory they would be read and written at each token.
/// Dirt fits: each byte of the text makes less than one.
#[derive(Clone, Copy)]
struct At {
    pos: usize,
    dirt: u32,
}

impl At {
    #[inline]
    fn step(self) -> Self {
        Self { pos: self.pos.wrapping_add(1), dirt: self.dirt }
    }

    #[inline]
    fn to(self, pos: usize, is_canonical: bool) -> Self {
        Self { pos, dirt: self.dirt.wrapping_add(u32::from(!is_canonical)) }
    }

    #[inline]
    fn space(self, text: &[u8]) -> Self {
        match peek(text, self.pos) {
            Some(b' ' | b'\t' | b'\n' | b'\r') => self.to(skip_space(text, self.pos), false),
            _ => self,
        }
    }
}

impl Parser<'_> {
    /// Nothing for a text that is not valid.
    fn run(&mut self) -> Option<Result<(), NotCanonical>> {
        let text = self.document.text;
        let mut at = At { pos: skip_space(text, 0), dirt: 0 };
        self.document.root.start = at.pos;
        'value: loop {
            match peek(text, at.pos)? {
                b'"' => {
                    let token = string(text, at.pos)?;
                    at = at.to(token.end, token.canonical);
                }
                b'{' => {
                    at = self.open_object(at)?.space(text);
                    if peek(text, at.pos)? != b'}' {
                        at = self.member_name(at)?;
                        continue 'value;
                    }
                    match self.close_object(at) {
                        Ok(closed) => at = closed,
                        Err(error) => return Some(Err(error)),
                    }
                }
                b'[' => {
                    at = self.push(ARRAY, at)?.space(text);
                    if peek(text, at.pos)? != b']' {
                        continue 'value;
                    }
                    self.open.pop();
                    at = at.step();
                }
                b'-' | b'0'..=b'9' => at.pos = number(text, at.pos)?,
                _ => at.pos = literal(text, at.pos)?,
            }
            loop {
                let Some(open) = self.open.last() else { break 'value };
                let in_object = open.object != ARRAY;
                if in_object && let Some(member) = self.pending.get_mut(self.used.wrapping_sub(1)) {
                    member.value_end = at.pos as u32;
                    member.clean = open.value_dirt == at.dirt;
                    member.whole = member.clean && open.tight;
                }
                at = at.space(text);
                match (peek(text, at.pos)?, in_object) {
                    (b',', true) => {
                        at = self.member_name(at.step().space(text))?;
                        continue 'value;
                    }
                    (b',', false) => {
                        at = at.step().space(text);
                        continue 'value;
                    }
                    (b'}', true) => match self.close_object(at) {
                        Ok(closed) => at = closed,
                        Err(error) => return Some(Err(error)),
                    },
                    (b']', false) => {
                        self.open.pop();
                        at = at.step();
                    }
                    _ => return None,
                }
            }
        }
        self.document.root.end = at.pos;
        self.document.root.clean = at.dirt == 0;
        (skip_space(text, at.pos) == text.len()).then_some(Ok(()))
    }

    fn open_object(&mut self, at: At) -> Option<At> {
        let number = self.document.objects.len();
        self.document.objects.push(Object::default());
        self.push(number as u32, at)
    }

    #[inline]
    fn push(&mut self, object: u32, at: At) -> Option<At> {
        if self.open.len() >= DEPTH_MAX {
            return None;
        }
        let pending_start = self.used as u32;
        let (dirt, value_dirt) = (at.dirt, at.dirt);
        self.open.push(Open { object, pending_start, dirt, value_dirt, sorted: true, tight: false });
        Some(at.step())
    }

    /// Reads a name and its colon, up to the value.
    #[inline]
    fn member_name(&mut self, mut at: At) -> Option<At> {
        let text = self.document.text;
        let key_start = at.pos;
        if peek(text, key_start)? != b'"' {
            return None;
        }
        let token = string(text, key_start)?;
        let (mut name_start, mut name_end) = (key_start.wrapping_add(1), token.end.wrapping_sub(1));
        let place = if token.escaped {
            let inside = slice(text, name_start, name_end);
            name_start = self.document.names.len();
            super::canonical::unescape(inside, &mut self.document.names);
            name_end = self.document.names.len();
            order(&self.document.names, name_start, name_end)
        } else {
            order(text, name_start, name_end)
        };
        at = at.to(token.end, token.canonical).space(text);
        if peek(text, at.pos)? != b':' {
            return None;
        }
        let tight = at.pos == token.end && token.canonical;
        let after_colon = at.step();
        at = after_colon.space(text);
        self.seen = self.seen.wrapping_add(1);
        if self.seen > MEMBERS_MAX {
            return None;
        }
        let open = self.open.last_mut()?;
        let before = if self.used > open.pending_start as usize {
            let last = self.pending.get(self.used.wrapping_sub(1))?;
            let equal = || name(text, &self.document.names, last);
            let this = if token.escaped { self.document.names.as_slice() } else { text };
            last.order < place || last.order == place && equal() < slice(this, name_start, name_end)
        } else {
            true
        };
        open.sorted &= before;
        if self.used == self.pending.len() {
            self.pending.resize(self.used.saturating_mul(2).max(16), Member::default());
        }
        // Field by field, into its place: made elsewhere and copied, it would have to be read back
        // before its parts are all written. Every position fits: the text's length was checked.
        let member = self.pending.get_mut(self.used)?;
        self.used = self.used.wrapping_add(1);
        member.order = place;
        member.name_start = name_start as u32;
        member.name_end = name_end as u32;
        member.key_start = key_start as u32;
        member.key_end = token.end as u32;
        member.value_start = at.pos as u32;
        member.object = self.document.objects.len() as u32;
        member.name_unescaped = token.escaped;
        member.key_clean = token.canonical;
        open.value_dirt = at.dirt;
        open.tight = tight && at.pos == after_colon.pos;
        Some(at)
    }

    /// At the closing brace: sorts the members and moves them to the table.
    fn close_object(&mut self, at: At) -> Result<At, NotCanonical> {
        let mut at = at.step();
        let Some(open) = self.open.pop() else { return Err(NotCanonical::Unreadable) };
        let pending_start = open.pending_start as usize;
        let members_start = self.document.members.len();
        if !open.sorted {
            at.dirt = at.dirt.wrapping_add(1);
            let members = self.pending.get(pending_start..self.used).unwrap_or_default();
            let Document { text, members: table, names, .. } = &mut self.document;
            self.sorter.keep(text, names, members, self.duplicates, table)?;
        } else if open.dirt != at.dirt || self.keep_all {
            let members = self.pending.get(pending_start..self.used).unwrap_or_default();
            self.document.members.extend_from_slice(members);
        }
        let clean = open.dirt == at.dirt;
        self.used = pending_start;
        let next = self.document.objects.len() as u32;
        if let Some(object) = self.document.objects.get_mut(open.object as usize) {
            let (members_start, members_end) = (members_start as u32, self.document.members.len() as u32);
            *object = Object { members_start, members_end, end: at.pos as u32, next, clean };
        }
        Ok(at)
    }
}
