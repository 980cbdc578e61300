//! Writes the canonical text of a value, in pieces as large as the text allows.

use super::document::{Document, Span};
use super::scan::{escape, peek, skip_plain, skip_space, slice, string};

/// Takes the canonical text.
pub trait Sink {
    /// Takes the next piece.
    fn write(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// What is still to be written; a stack of these replaces recursion.
enum Frame {
    /// A value, or what is left of one.
    Text { pos: usize, end: usize, object: usize },
    /// The rest of an object's members.
    Members { first: bool, next: usize, end: usize },
}

/// Writes the canonical text of a value of the document.
pub fn write(document: &Document<'_>, span: Span, sink: &mut impl Sink) {
    let text = document.text;
    if span.clean {
        sink.write(slice(text, span.start, span.end));
        return;
    }
    let mut stack = vec![Frame::Text { pos: span.start, end: span.end, object: span.object }];
    while let Some(frame) = stack.pop() {
        match frame {
            Frame::Text { pos, end, object } => write_text(document, pos, end, object, &mut stack, sink),
            Frame::Members { first, next, end } => {
                write_members(document, first, next, end, &mut stack, sink)
            }
        }
    }
}

/// Writes members up to one whose value must be taken apart; then the rest waits on the stack
/// below that value.
fn write_members(
    document: &Document<'_>,
    mut first: bool,
    mut next: usize,
    end: usize,
    stack: &mut Vec<Frame>,
    sink: &mut impl Sink,
) {
    let text = document.text;
    while let Some(member) = document.members.get(next).filter(|_| next < end) {
        next = next.wrapping_add(1);
        if !first {
            sink.write(b",");
        }
        first = false;
        let value = member.value();
        // A comma that stands there anyway is written with what is before it.
        let comma = next < end && peek(text, value.end) == Some(b',');
        let value_end = value.end.wrapping_add(usize::from(comma));
        if member.whole {
            sink.write(slice(text, member.key_start as usize, value_end));
            first = comma;
            continue;
        }
        let (key_start, key_end) = (member.key_start as usize, member.key_end as usize);
        if !member.key_clean {
            write_string(slice(text, key_start, key_end), sink);
            sink.write(b":");
        } else if peek(text, key_end) == Some(b':') {
            sink.write(slice(text, key_start, key_end.wrapping_add(1)));
        } else {
            sink.write(slice(text, key_start, key_end));
            sink.write(b":");
        }
        if !value.clean {
            stack.push(Frame::Members { first, next, end });
            stack.push(Frame::Text { pos: value.start, end: value.end, object: value.object });
            return;
        }
        sink.write(slice(text, value.start, value_end));
        first = comma;
    }
    sink.write(b"}");
}

/// Writes text outside of objects up to its end or to an object that must be taken apart; then
/// the rest waits on the stack below the object. `run` is the start of what was passed, but not
/// written yet.
fn write_text(
    document: &Document<'_>,
    mut pos: usize,
    end: usize,
    mut object: usize,
    stack: &mut Vec<Frame>,
    sink: &mut impl Sink,
) {
    let text = document.text;
    let mut run = pos;
    while pos < end {
        match peek(text, pos) {
            Some(b' ' | b'\t' | b'\n' | b'\r') => {
                sink.write(slice(text, run, pos));
                pos = skip_space(text, pos);
                run = pos;
            }
            Some(b'"') => {
                let Some(token) = string(text, pos) else { break };
                if !token.canonical {
                    sink.write(slice(text, run, pos));
                    write_string(slice(text, pos, token.end), sink);
                    run = token.end;
                }
                pos = token.end;
            }
            Some(b'{') => {
                let Some(inner) = document.objects.get(object) else { break };
                object = inner.next as usize;
                if !inner.clean {
                    sink.write(slice(text, run, pos.wrapping_add(1)));
                    stack.push(Frame::Text { pos: inner.end as usize, end, object });
                    stack.push(Frame::Members {
                        first: true,
                        next: inner.members_start as usize,
                        end: inner.members_end as usize,
                    });
                    return;
                }
                pos = inner.end as usize;
            }
            _ => pos = pos.saturating_add(1),
        }
    }
    sink.write(slice(text, run, pos.min(end)));
}

/// Writes a string token, quotes included, in the canonical spelling.
fn write_string(token: &[u8], sink: &mut impl Sink) {
    sink.write(b"\"");
    let inside = slice(token, 1, token.len().saturating_sub(1));
    pieces(inside, |piece| match piece {
        Piece::Plain(bytes) => sink.write(bytes),
        Piece::Escaped(c) => write_char(c, sink),
    });
    sink.write(b"\"");
}

fn write_char(c: char, sink: &mut impl Sink) {
    match c {
        '"' => sink.write(b"\\\""),
        '\\' => sink.write(b"\\\\"),
        '\u{8}' => sink.write(b"\\b"),
        '\u{c}' => sink.write(b"\\f"),
        '\n' => sink.write(b"\\n"),
        '\r' => sink.write(b"\\r"),
        '\t' => sink.write(b"\\t"),
        '\0'..='\u{1f}' => sink.write(format!("\\u{:04x}", u32::from(c)).as_bytes()),
        _ => sink.write(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends the value of a string, given what is between its quotes.
pub(super) fn unescape(inside: &[u8], out: &mut Vec<u8>) {
    pieces(inside, |piece| match piece {
        Piece::Plain(bytes) => out.extend_from_slice(bytes),
        Piece::Escaped(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    });
}

enum Piece<'a> {
    Plain(&'a [u8]),
    Escaped(char),
}

/// Takes a valid string apart.
fn pieces<'a>(inside: &'a [u8], mut each: impl FnMut(Piece<'a>)) {
    let mut pos = 0;
    loop {
        let end = skip_plain(inside, pos);
        each(Piece::Plain(slice(inside, pos, end)));
        let Some((c, next)) = escape(inside, end) else { return };
        each(Piece::Escaped(c));
        pos = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::DuplicateMembers;
    use crate::fingerprint::json::{DEPTH_MAX, MEMBERS_MAX, NotCanonical};
    use proptest::prelude::*;

    fn canonical_with(text: &[u8], duplicates: DuplicateMembers) -> Result<String, NotCanonical> {
        let document = Document::parse(text, duplicates, false)?;
        let mut out = Vec::new();
        write(&document, document.root(), &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    fn canonical(text: &str) -> Result<String, NotCanonical> {
        canonical_with(text.as_bytes(), DuplicateMembers::Raw)
    }

    #[test]
    fn members_are_sorted_and_space_and_spelling_are_gone() {
        for (text, expected) in [
            ("{}", "{}"),
            (" [ ] ", "[]"),
            ("\t1.50\r\n", "1.50"),
            (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (r#"{ "b" : [ 1 , { "d":1, "c":2 } ] , "a" : { } }"#, r#"{"a":{},"b":[1,{"c":2,"d":1}]}"#),
            (r#"["\u0041\/\n\u000a\u0007\"\\"]"#, r#"["A/\n\n\u0007\"\\"]"#),
            (r#"{"\u0062":1,"a\u0000":2,"a":3}"#, r#"{"a":3,"a\u0000":2,"b":1}"#),
            (r#"["\ud83d\ude00"]"#, "[\"😀\"]"),
            (
                r#"{"a":{"z":1,"y":{"x":1,"w":[{"v":1,"u":2}]}},"A":0}"#,
                r#"{"A":0,"a":{"y":{"w":[{"u":2,"v":1}],"x":1},"z":1}}"#,
            ),
            ("[1E5,1e5,1.0,-0,9007199254740993]", "[1E5,1e5,1.0,-0,9007199254740993]"),
            (
                "{\"\u{20ac}\":1,\"\u{fb33}\":2,\"\u{1f600}\":3,\"\":4}",
                "{\"\":4,\"\u{20ac}\":1,\"\u{fb33}\":2,\"\u{1f600}\":3}",
            ),
            (
                r#"[{"b":{"d":1},"a":{"c":{"f":0,"e":0}}},{"x":{"n":0,"m":0}}]"#,
                r#"[{"a":{"c":{"e":0,"f":0}},"b":{"d":1}},{"x":{"m":0,"n":0}}]"#,
            ),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
            assert_eq!(
                canonical(expected).as_deref(),
                Ok(expected),
                "canonical text is its own canonical text"
            );
        }
    }

    #[test]
    fn canonical_text_is_written_in_one_piece() {
        struct Pieces(usize);
        impl Sink for Pieces {
            fn write(&mut self, _: &[u8]) {
                self.0 += 1;
            }
        }
        let document =
            Document::parse(br#"{"a":{"b":["x\ny",{"c":1}]},"d":"\""}"#, DuplicateMembers::Raw, false)
                .unwrap();
        let mut pieces = Pieces(0);
        write(&document, document.root(), &mut pieces);
        assert_eq!(pieces.0, 1);
    }

    #[test]
    fn what_is_not_json_has_no_canonical_text() {
        for bad in [
            "",
            " ",
            "{",
            "}",
            "[",
            "]",
            "[1,]",
            "[,1]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{a:1}",
            "{1:1}",
            "01",
            "1.",
            ".1",
            "+1",
            "1e",
            "NaN",
            "tru",
            "truee",
            "nul",
            "\"",
            "\"\u{1}\"",
            "\"\n\"",
            r#""\x""#,
            r#""\u12""#,
            r#""\ud800""#,
            r#""\udc00""#,
            r#"{"\ud800":1}"#,
            "[1] 2",
            "[1]]",
            "\u{feff}{}",
            "'a'",
            "[1 2]",
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            "[1}",
            r#"{"a":1]"#,
            "\u{a0}1",
            "//\n1",
            "1\0",
        ] {
            assert_eq!(canonical(bad), Err(NotCanonical::Unreadable), "{bad}");
        }
        for bad in
            [b"\"\xff\"".as_slice(), b"\"\xed\xa0\x80\"", b"\"\xc0\xaf\"", b"\xef\xbb\xbf1", b"\"\xe9\""]
        {
            assert_eq!(canonical_with(bad, DuplicateMembers::Raw), Err(NotCanonical::Unreadable), "{bad:?}");
        }
    }

    #[test]
    fn duplicates_are_found_however_they_are_spelled() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"\u0061":3}"#, r#"[{"x":{"k":1,"k":2}}]"#] {
            assert_eq!(canonical(text), Err(NotCanonical::Duplicate), "{text}");
        }
        assert_eq!(canonical(r#"{"a":1,"A":1}"#).as_deref(), Ok(r#"{"A":1,"a":1}"#));
    }

    #[test]
    fn the_last_duplicate_counts_where_asked() {
        let last = |text: &str| canonical_with(text.as_bytes(), DuplicateMembers::Last).unwrap();
        assert_eq!(
            last(r#"{"a":{"x":1},"b":{"z":1,"y":2},"a":{"d":1,"c":2}}"#),
            r#"{"a":{"c":2,"d":1},"b":{"y":2,"z":1}}"#
        );
        assert_eq!(last(r#"{"a":1,"a":2,"a":3}"#), r#"{"a":3}"#);
        assert_eq!(last(r#"{"a":{"a":1,"a":2}}"#), r#"{"a":{"a":2}}"#);
    }

    #[test]
    fn depth_is_bounded_and_costs_no_stack() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(canonical(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(canonical(&nested(DEPTH_MAX + 1)), Err(NotCanonical::Unreadable));
        let objects = format!("{}1{}", r#"{"b":0, "a":"#.repeat(DEPTH_MAX), "}".repeat(DEPTH_MAX));
        assert!(canonical(&objects).is_ok());
        assert_eq!(canonical(&"[".repeat(1_000_000)), Err(NotCanonical::Unreadable));
        assert_eq!(canonical(&r#"{"a":"#.repeat(1_000_000)), Err(NotCanonical::Unreadable));
    }

    #[test]
    fn large_and_hostile_bodies_are_done_in_no_time() {
        let reverse: Vec<_> = (0..100_000).rev().map(|i| format!("\"k{i:06}\":{i}")).collect();
        let sorted: Vec<_> = reverse.iter().rev().cloned().collect();
        let (reverse, sorted) = (format!("{{{}}}", reverse.join(",")), format!("{{{}}}", sorted.join(",")));
        assert_eq!(canonical(&reverse).unwrap(), sorted);
        let escaped = format!("[\"{}\"]", "\\u0061".repeat(80_000));
        assert_eq!(canonical(&escaped).unwrap(), format!("[\"{}\"]", "a".repeat(80_000)));
        let number = "9".repeat(500_000);
        assert_eq!(canonical(&number).unwrap(), number);
        let many: Vec<_> = (0..=MEMBERS_MAX).map(|i| format!("\"{i}\":0")).collect();
        assert_eq!(canonical(&format!("{{{}}}", many.join(","))), Err(NotCanonical::Unreadable));
        // Each level is out of order: a copy per level would be quadratic.
        let deep = format!("{}[{}1]{}", r#"{"b":0,"a":"#.repeat(500), "1 ,".repeat(100_000), "}".repeat(500));
        assert!(canonical(&deep).is_ok());
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                proptest::collection::btree_map("[a-c\"\\\\\n\u{e9}]{0,2}", inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Writes a value with members in reverse order, space everywhere and every character escaped.
    fn scramble(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::String(text) => scramble_string(text, out),
            serde_json::Value::Array(items) => {
                out.push_str("[ ");
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { " ,\n" } else { "" });
                    scramble(item, out);
                }
                out.push_str("\t]");
            }
            serde_json::Value::Object(members) => {
                out.push('{');
                for (i, (name, member)) in members.iter().rev().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    scramble_string(name, out);
                    out.push_str(" : ");
                    scramble(member, out);
                }
                out.push_str(" }");
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }

    fn scramble_string(text: &str, out: &mut String) {
        out.push('"');
        for unit in text.encode_utf16() {
            out.push_str(&format!("\\u{unit:04X}"));
        }
        out.push('"');
    }

    proptest! {
        #[test]
        fn spelling_never_matters_and_meaning_is_kept(value in json()) {
            let plain = serde_json::to_string(&value).unwrap();
            let mut scrambled = String::new();
            scramble(&value, &mut scrambled);
            let one = canonical(&plain).unwrap();
            prop_assert_eq!(&canonical(&scrambled).unwrap(), &one);
            prop_assert_eq!(&canonical(&one).unwrap(), &one);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&one).unwrap(), value);
        }

        /// Lists of objects of one shape and of others, with names that begin alike or end in zeros.
        #[test]
        fn members_are_sorted_by_their_whole_names_in_every_list(
            names in proptest::collection::vec("(amount|amount_in_cents_|a\0{0,9}|é)[a-c]{0,2}", 1..40),
            orders in proptest::collection::vec(any::<u64>(), 1..6)) {
            let unique: std::collections::BTreeSet<_> = names.into_iter().collect();
            let text = |names: &mut dyn Iterator<Item = &String>| {
                let members = names.map(|name| format!("{}:1", serde_json::to_string(name).unwrap()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            };
            let sorted = text(&mut unique.iter());
            let mut objects = Vec::new();
            for seed in &orders {
                let mut shuffled: Vec<_> = unique.iter().collect();
                shuffled.sort_by_key(|name| {
                    name.bytes().fold(seed | 1, |hash, b| hash.wrapping_mul(31).wrapping_add(u64::from(b)).rotate_left(7))
                });
                // Twice in a row, as in a list.
                objects.extend([text(&mut shuffled.iter().copied()), text(&mut shuffled.iter().copied())]);
            }
            let list = format!("[{}]", objects.join(","));
            prop_assert_eq!(canonical(&list).unwrap(), format!("[{}]", vec![sorted; objects.len()].join(",")));
            if unique.len() > 1 {
                let twice = unique.iter().rev().chain(unique.iter().next_back());
                let twice = text(&mut twice.collect::<Vec<_>>().into_iter());
                let list = format!("[{},{}]", objects.join(","), twice);
                prop_assert_eq!(canonical(&list), Err(NotCanonical::Duplicate));
            }
        }

        #[test]
        fn what_another_reader_refuses_is_refused(text in "[\\[\\]{},:\"\\\\ua0-9.eE+-]{0,24}") {
            let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            // It drops duplicates silently and refuses numbers beyond its doubles.
            let ours = canonical_with(text.as_bytes(), DuplicateMembers::Last).is_ok();
            prop_assert!(ours || !theirs, "{}", text);
            if ours && !theirs {
                prop_assert!(text.contains(['e', 'E']), "{}", text);
            }
        }

        #[test]
        fn any_bytes_are_canonical_or_not(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = canonical_with(&text, DuplicateMembers::Last);
        }
    }
}
