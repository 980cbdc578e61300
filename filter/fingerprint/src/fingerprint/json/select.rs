//! Finds the values that a policy compares: by name at the top, or by JSON pointer (RFC 6901).

use super::document::{Document, NotCanonical, Span};
use super::scan::{peek, skip_space, string};
use crate::fingerprint::DuplicateMembers;

/// The values of a policy's properties, in their order; none where one is absent.
#[derive(Debug, PartialEq, Eq)]
pub enum Selection {
    /// What was found.
    Found(Vec<Option<Span>>),
    /// The document is no object, and has nothing that was asked for: there is nothing to tell
    /// two of them apart by.
    NotApplicable,
}

/// Looks all properties up.
pub fn select(
    document: &Document<'_>,
    properties: &[String],
    duplicates: DuplicateMembers,
) -> Result<Selection, NotCanonical> {
    let mut spans = Vec::with_capacity(properties.len());
    for property in properties {
        spans.push(match property.strip_prefix('/') {
            Some(pointer) => by_pointer(document, pointer, |_, _| false)?,
            None => by_name(document, property, duplicates)?,
        });
    }
    let object = document.object_at(&document.root()).is_some();
    if object || spans.iter().any(Option::is_some) {
        Ok(Selection::Found(spans))
    } else {
        Ok(Selection::NotApplicable)
    }
}

/// A member of the root, without regard to case. Two that match are one name twice: readers that
/// ignore case differ on which one they take.
fn by_name(
    document: &Document<'_>,
    property: &str,
    duplicates: DuplicateMembers,
) -> Result<Option<Span>, NotCanonical> {
    let Some(root) = document.object_at(&document.root()) else { return Ok(None) };
    let matches = |name: &[u8]| {
        name.eq_ignore_ascii_case(property.as_bytes())
            || core::str::from_utf8(name).is_ok_and(|name| folded(name).eq(folded(property)))
    };
    let found = || document.members_of(root).iter().filter(|member| matches(document.name(member)));
    if found().nth(1).is_some() && duplicates != DuplicateMembers::Last {
        return Err(NotCanonical::Duplicate);
    }
    Ok(found().max_by_key(|member| member.key_start).map(super::member::Member::value))
}

/// A name as the most tolerant reader compares it: by way of upper case, so that a long s is an s and
/// a dotless i an i, and without the dot that lower case adds to the capital one.
fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).filter(|c| *c != '\u{307}')
}

/// The value at a pointer of which a reader that ignores the case of names finds no other one.
pub fn sole(document: &Document<'_>, pointer: &str) -> Result<Option<Span>, NotCanonical> {
    let alike = |name: &[u8], wanted: &str| {
        name != wanted.as_bytes()
            && core::str::from_utf8(name).is_ok_and(|name| folded(name).eq(folded(wanted)))
    };
    by_pointer(document, pointer.strip_prefix('/').unwrap_or(pointer), alike)
}

/// Follows a pointer. `doubtful` names beside one on the way make it ambiguous.
fn by_pointer(
    document: &Document<'_>,
    pointer: &str,
    doubtful: impl Fn(&[u8], &str) -> bool,
) -> Result<Option<Span>, NotCanonical> {
    let mut span = document.root();
    for token in pointer.split('/') {
        let name = token.replace("~1", "/").replace("~0", "~");
        let next = match document.object_at(&span) {
            Some(object) => {
                let members = document.members_of(object);
                if members.iter().any(|member| doubtful(document.name(member), &name)) {
                    return Err(NotCanonical::Duplicate);
                }
                let place = members.binary_search_by(|member| document.name(member).cmp(name.as_bytes()));
                place.ok().and_then(|place| members.get(place)).map(super::member::Member::value)
            }
            None => index(&name).and_then(|index| element(document, &span, index)),
        };
        match next {
            Some(next) => span = next,
            None => return Ok(None),
        }
    }
    Ok(Some(span))
}

/// Digits without a leading zero; `-` is an element that does not exist.
fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with(['0', '+']);
    canonical.then(|| token.parse().ok()).flatten()
}

/// An element of an array.
fn element(document: &Document<'_>, array: &Span, index: usize) -> Option<Span> {
    let text = document.text;
    if peek(text, array.start) != Some(b'[') {
        return None;
    }
    let (mut pos, mut object) = (skip_space(text, array.start.checked_add(1)?), array.object);
    if peek(text, pos) == Some(b']') {
        return None;
    }
    let mut passed = 0usize;
    loop {
        let (end, next) = skip_value(document, pos, object)?;
        if passed == index {
            return Some(Span { start: pos, end, object, clean: false });
        }
        passed = passed.checked_add(1)?;
        let comma = skip_space(text, end);
        if peek(text, comma) != Some(b',') {
            return None;
        }
        (pos, object) = (skip_space(text, comma.checked_add(1)?), next);
    }
}

/// Position after the value at `pos`, and the number of the next object there.
fn skip_value(document: &Document<'_>, mut pos: usize, mut object: usize) -> Option<(usize, usize)> {
    let text = document.text;
    let mut depth = 0usize;
    loop {
        match peek(text, pos)? {
            b'{' => {
                let inner = document.objects.get(object)?;
                (pos, object) = (inner.end as usize, inner.next as usize);
            }
            b'"' => pos = string(text, pos)?.end,
            b'[' => {
                depth = depth.checked_add(1)?;
                pos = pos.checked_add(1)?;
            }
            b']' => {
                depth = depth.checked_sub(1)?;
                pos = pos.checked_add(1)?;
            }
            _ => pos = pos.checked_add(1)?,
        }
        let scalar_goes_on =
            !matches!(peek(text, pos), None | Some(b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r'));
        if depth == 0 && !scalar_goes_on {
            return Some((pos, object));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::canonical::write;
    use super::*;

    fn find(text: &str, property: &str) -> Option<String> {
        find_with(text, property, DuplicateMembers::Raw).unwrap()
    }

    fn find_with(
        text: &str,
        property: &str,
        duplicates: DuplicateMembers,
    ) -> Result<Option<String>, NotCanonical> {
        let document = Document::parse(text.as_bytes(), duplicates, true).unwrap();
        let Selection::Found(spans) = select(&document, &[property.to_owned()], duplicates)? else {
            return Ok(None);
        };
        Ok(spans[0].map(|span| {
            let mut out = Vec::new();
            write(&document, span, &mut out);
            String::from_utf8(out).unwrap()
        }))
    }

    #[test]
    fn names_are_found_without_regard_to_case() {
        let text = r#"{"x": {"amount": 1}, "Amount" : { "b": 1, "a" : 2 }, "\u00c9tat": 3}"#;
        assert_eq!(find(text, "amount").as_deref(), Some(r#"{"a":2,"b":1}"#));
        assert_eq!(find(text, "état").as_deref(), Some("3"));
        assert_eq!(find(text, "none"), None);
    }

    #[test]
    fn two_members_that_match_one_name_are_a_duplicate() {
        let text = r#"{"b": 0, "amount": 1, "Amount": 2}"#;
        assert_eq!(find_with(text, "amount", DuplicateMembers::Raw), Err(NotCanonical::Duplicate));
        assert_eq!(find_with(text, "amount", DuplicateMembers::Last).unwrap().as_deref(), Some("2"));
    }

    #[test]
    fn pointers_reach_into_objects_and_arrays() {
        let text = r#" { "z": [ ], "a" : [ {"q":{}}, [ [1,{"k":2}], "]," ] , {"y":2, "x": [ 10 , 20 ] }, -1.5e3 ], "m/n": 8, "m~n": 9, "": 7, "n": null }"#;
        for (pointer, expected) in [
            ("/a/0", Some(r#"{"q":{}}"#)),
            ("/a/1/0/1/k", Some("2")),
            ("/a/1/1", Some("\"],\"")),
            ("/a/2", Some(r#"{"x":[10,20],"y":2}"#)),
            ("/a/2/x/1", Some("20")),
            ("/a/3", Some("-1.5e3")),
            ("/m~1n", Some("8")),
            ("/m~0n", Some("9")),
            ("/", Some("7")),
            ("/n", Some("null")),
            ("/a/4", None),
            ("/a/-", None),
            ("/a/00", None),
            ("/a/+1", None),
            ("/a/2/x/1/0", None),
            ("/z/0", None),
            ("/A", None),
            ("/a/99999999999999999999", None),
        ] {
            assert_eq!(find(text, pointer).as_deref(), expected, "{pointer}");
        }
    }

    #[test]
    fn a_document_without_any_name_is_not_selected_from() {
        for text in ["[1]", "1", "\"a\"", "null"] {
            let document = Document::parse(text.as_bytes(), DuplicateMembers::Raw, true).unwrap();
            let selected = select(&document, &["a".to_owned(), "/b".to_owned()], DuplicateMembers::Raw);
            assert_eq!(selected, Ok(Selection::NotApplicable), "{text}");
        }
        assert_eq!(find("[[1, 2]]", "/0/1").as_deref(), Some("2"));
    }
}
