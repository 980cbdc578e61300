//! One pass over a JSON text: is it valid, and where are the members of its objects?
//!
//! Members of all objects lie in one table. While an object is open its members wait on a stack;
//! inner objects close first and take theirs off, so that each object's members end up side by
//! side and are sorted there. Objects are numbered in the order in which they open; whoever walks
//! the text out of order knows the number of the next object at its place.
//!
//! `dirt` counts everything that makes the text differ from the canonical one. A span over which
//! it did not grow is canonical as it stands.

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

/// A member of an object. Positions are `u32`: a body is at most 16 MiB.
pub(super) struct Member {
    name_start: u32,
    name_end: u32,
    name_unescaped: bool,
    pub key_start: u32,
    pub key_end: u32,
    pub key_clean: bool,
    value_start: u32,
    value_end: u32,
    object: u32,
    clean: bool,
}

impl Member {
    pub fn value(&self) -> Span {
        Span {
            start: self.value_start as usize,
            end: self.value_end as usize,
            object: self.object as usize,
            clean: self.clean,
        }
    }
}

/// An object: its members, and where the text goes on.
pub(super) struct Object {
    pub members_start: usize,
    pub members_end: usize,
    /// Position after the closing brace.
    pub end: usize,
    /// Number of the next object after this one and all inside it.
    pub next: usize,
    /// The text of the object is canonical.
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
    /// Checks a text.
    pub fn parse(text: &'a [u8], duplicates: DuplicateMembers) -> Result<Self, NotCanonical> {
        if u32::try_from(text.len()).is_err() || core::str::from_utf8(text).is_err() {
            return Err(NotCanonical::Unreadable);
        }
        let root = Span { start: 0, end: 0, object: 0, clean: false };
        let document = Self { text, members: Vec::new(), objects: Vec::new(), names: Vec::new(), root };
        let mut parser =
            Parser { document, duplicates, pos: 0, dirt: 0, pending: Vec::new(), open: Vec::new() };
        parser.run()?;
        Ok(parser.document)
    }

    /// The whole value.
    pub fn root(&self) -> Span {
        self.root
    }

    /// The members of an object, sorted by name.
    pub(super) fn members_of(&self, object: &Object) -> &[Member] {
        self.members.get(object.members_start..object.members_end).unwrap_or_default()
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

fn name<'b>(text: &'b [u8], names: &'b [u8], member: &Member) -> &'b [u8] {
    let from = if member.name_unescaped { names } else { text };
    slice(from, member.name_start as usize, member.name_end as usize)
}

/// A container that is not closed yet.
struct Open {
    /// Number of the object; none for an array.
    object: Option<usize>,
    pending_start: usize,
    /// Dirt when it opened.
    dirt: u64,
    /// Dirt when the current member's value began.
    value_dirt: u64,
}

struct Parser<'a> {
    document: Document<'a>,
    duplicates: DuplicateMembers,
    pos: usize,
    dirt: u64,
    pending: Vec<Member>,
    open: Vec<Open>,
}

/// What comes after a token.
enum Next {
    Value,
    EndOfValue,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), NotCanonical> {
        self.pos = skip_space(self.document.text, 0);
        self.document.root.start = self.pos;
        let mut next = Next::Value;
        loop {
            next = match next {
                Next::Value => self.value()?,
                Next::EndOfValue if self.open.is_empty() => break,
                Next::EndOfValue => self.after_value()?,
            };
        }
        self.document.root.end = self.pos;
        self.document.root.clean = self.dirt == 0;
        let end = skip_space(self.document.text, self.pos);
        if end == self.document.text.len() { Ok(()) } else { Err(NotCanonical::Unreadable) }
    }

    fn value(&mut self) -> Result<Next, NotCanonical> {
        let text = self.document.text;
        let end = match peek(text, self.pos) {
            Some(b'{') => return self.open_object(),
            Some(b'[') => return self.open_array(),
            Some(b'"') => string(text, self.pos).map(|token| {
                self.dirt = self.dirt.saturating_add(u64::from(!token.canonical));
                token.end
            }),
            Some(b'-' | b'0'..=b'9') => number(text, self.pos),
            Some(_) => literal(text, self.pos),
            None => None,
        };
        self.pos = end.ok_or(NotCanonical::Unreadable)?;
        Ok(Next::EndOfValue)
    }

    fn open_array(&mut self) -> Result<Next, NotCanonical> {
        self.push(None)?;
        self.space();
        if peek(self.document.text, self.pos) != Some(b']') {
            return Ok(Next::Value);
        }
        self.step();
        self.open.pop();
        Ok(Next::EndOfValue)
    }

    fn open_object(&mut self) -> Result<Next, NotCanonical> {
        let number = self.document.objects.len();
        let placeholder = Object { members_start: 0, members_end: 0, end: 0, next: 0, clean: false };
        self.document.objects.push(placeholder);
        self.push(Some(number))?;
        self.space();
        if peek(self.document.text, self.pos) == Some(b'}') {
            return self.close_object();
        }
        self.member_name()
    }

    fn push(&mut self, object: Option<usize>) -> Result<(), NotCanonical> {
        if self.open.len() >= DEPTH_MAX {
            return Err(NotCanonical::Unreadable);
        }
        let pending_start = self.pending.len();
        self.open.push(Open { object, pending_start, dirt: self.dirt, value_dirt: self.dirt });
        self.step();
        Ok(())
    }

    fn after_value(&mut self) -> Result<Next, NotCanonical> {
        let Some(open) = self.open.last() else { return Ok(Next::EndOfValue) };
        let in_object = open.object.is_some();
        if in_object && let Some(member) = self.pending.last_mut() {
            member.value_end = self.pos as u32;
            member.clean = open.value_dirt == self.dirt;
        }
        self.space();
        match (peek(self.document.text, self.pos), in_object) {
            (Some(b','), true) => {
                self.step();
                self.space();
                self.member_name()
            }
            (Some(b','), false) => {
                self.step();
                self.space();
                Ok(Next::Value)
            }
            (Some(b'}'), true) => self.close_object(),
            (Some(b']'), false) => {
                self.step();
                self.open.pop();
                Ok(Next::EndOfValue)
            }
            _ => Err(NotCanonical::Unreadable),
        }
    }

    /// Reads a name and its colon, up to the value.
    fn member_name(&mut self) -> Result<Next, NotCanonical> {
        let text = self.document.text;
        let key_start = self.pos;
        if peek(text, key_start) != Some(b'"') {
            return Err(NotCanonical::Unreadable);
        }
        let token = string(text, key_start).ok_or(NotCanonical::Unreadable)?;
        self.dirt = self.dirt.saturating_add(u64::from(!token.canonical));
        let inside = (key_start.saturating_add(1), token.end.saturating_sub(1));
        let (name_start, name_end) = if token.escaped {
            let start = self.document.names.len();
            super::canonical::unescape(slice(text, inside.0, inside.1), &mut self.document.names);
            (start, self.document.names.len())
        } else {
            inside
        };
        self.pos = token.end;
        self.space();
        if peek(text, self.pos) != Some(b':') {
            return Err(NotCanonical::Unreadable);
        }
        self.step();
        self.space();
        if self.pending.len().saturating_add(self.document.members.len()) >= MEMBERS_MAX {
            return Err(NotCanonical::Unreadable);
        }
        // Every position fits: the text's length was checked.
        self.pending.push(Member {
            name_start: name_start as u32,
            name_end: name_end as u32,
            name_unescaped: token.escaped,
            key_start: key_start as u32,
            key_end: token.end as u32,
            key_clean: token.canonical,
            value_start: self.pos as u32,
            value_end: 0,
            object: self.document.objects.len() as u32,
            clean: false,
        });
        if let Some(open) = self.open.last_mut() {
            open.value_dirt = self.dirt;
        }
        Ok(Next::Value)
    }

    /// At the closing brace: sorts the members and moves them to the table.
    fn close_object(&mut self) -> Result<Next, NotCanonical> {
        self.step();
        let Some(Open { object: Some(number), pending_start, dirt, .. }) = self.open.pop() else {
            return Err(NotCanonical::Unreadable);
        };
        let (text, names) = (self.document.text, &self.document.names);
        let members = self.pending.get_mut(pending_start..).unwrap_or_default();
        if !members.is_sorted_by(|a, b| name(text, names, a) < name(text, names, b)) {
            self.dirt = self.dirt.saturating_add(1);
            members.sort_unstable_by(|a, b| {
                name(text, names, a).cmp(name(text, names, b)).then(a.key_start.cmp(&b.key_start))
            });
            let same = |a: &Member, b: &Member| name(text, names, a) == name(text, names, b);
            let twice = members.iter().zip(members.iter().skip(1)).any(|(a, b)| same(a, b));
            if twice && self.duplicates != DuplicateMembers::Last {
                return Err(NotCanonical::Duplicate);
            }
        }
        let members_start = self.document.members.len();
        for member in self.pending.drain(pending_start..) {
            // Only with `last` are there equal names, and a later one takes its place.
            let replaced = self.document.members.len() > members_start
                && self
                    .document
                    .members
                    .last()
                    .is_some_and(|last| name(text, names, last) == name(text, names, &member));
            if replaced {
                self.document.members.pop();
            }
            self.document.members.push(member);
        }
        let next = self.document.objects.len();
        if let Some(object) = self.document.objects.get_mut(number) {
            *object = Object {
                members_start,
                members_end: self.document.members.len(),
                end: self.pos,
                next,
                clean: dirt == self.dirt,
            };
        }
        Ok(Next::EndOfValue)
    }

    fn step(&mut self) {
        self.pos = self.pos.saturating_add(1);
    }

    fn space(&mut self) {
        let end = skip_space(self.document.text, self.pos);
        self.dirt = self.dirt.saturating_add(u64::from(end != self.pos));
        self.pos = end;
    }
}
