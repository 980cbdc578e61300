//! Single values of a JSON body as text, for comparisons with what was approved.
//!
//! A number keeps its digits: it never passes through a double, so `250.00` stays `250.00` and
//! `9007199254740993.10` loses nothing. What readers may resolve in two ways is refused: a name twice
//! in one object, and one beside another that differs in case only.

use super::json::{Document, NotCanonical, sole, write};
use super::{DuplicateMembers, RequestParts, media};

/// Why there is no such text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoText {
    /// The body is not JSON, or does not say so.
    #[error("the body is not application/json in UTF-8, without a content coding")]
    NotJson,
    /// A name stands twice, or in two cases.
    #[error("the body has an object with two members of one name, which readers resolve differently")]
    Ambiguous,
    /// There is no member, or it is null, a list or an object.
    #[error("no text or number where the policy looks for it")]
    Absent,
}

/// A body that was read once.
pub struct BodyTexts<'a>(Document<'a>);

impl<'a> BodyTexts<'a> {
    /// Reads a body.
    pub fn read(parts: &RequestParts<'a>, body: &'a [u8]) -> Result<Self, NoText> {
        let coding = media::content_coding(&parts.joined("content-encoding"));
        if !coding.is_empty() || !media::is_json(&parts.joined("content-type")) {
            return Err(NoText::NotJson);
        }
        let document = Document::parse(body, DuplicateMembers::Reject, true).map_err(no_text)?;
        Ok(Self(document))
    }

    /// The text of a string, the digits of a number, or the word of a boolean at a JSON pointer.
    pub fn at(&self, pointer: &str) -> Result<String, NoText> {
        let span = sole(&self.0, pointer).map_err(no_text)?.ok_or(NoText::Absent)?;
        let mut canonical = Vec::new();
        write(&self.0, span, &mut canonical);
        match canonical.first() {
            Some(b'"') => serde_json::from_slice(&canonical).map_err(|_| NoText::NotJson),
            Some(b'{' | b'[' | b'n') | None => Err(NoText::Absent),
            Some(_) => String::from_utf8(canonical).map_err(|_| NoText::NotJson),
        }
    }
}

fn no_text(error: NotCanonical) -> NoText {
    match error {
        NotCanonical::Unreadable => NoText::NotJson,
        NotCanonical::Duplicate => NoText::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(body: &str, pointer: &str) -> Result<String, NoText> {
        let headers = [(b"content-type".to_vec(), b"application/json".to_vec())];
        BodyTexts::read(&RequestParts::new(&headers), body.as_bytes())?.at(pointer)
    }

    #[test]
    fn a_number_keeps_its_digits() {
        for digits in ["250.00", "250", "9007199254740993.10", "0.1", "-1E+2", "1e400"] {
            let body = format!(r#"{{"b": [ {digits} ], "a": {digits}, "c": "{digits}"}}"#);
            for pointer in ["/a", "/b/0", "/c"] {
                assert_eq!(at(&body, pointer).as_deref(), Ok(digits), "{pointer}");
            }
        }
    }

    #[test]
    fn text_is_unescaped_and_words_are_words() {
        let body = r#"{"a":{"t~/": "A\u002d1\n\"" , "yes": true}}"#;
        assert_eq!(at(body, "/a/t~0~1").as_deref(), Ok("A-1\n\""));
        assert_eq!(at(body, "/a/yes").as_deref(), Ok("true"));
    }

    #[test]
    fn what_is_not_there_or_not_certain_has_no_text() {
        for (body, pointer, why) in [
            (r#"{"a":null}"#, "/a", NoText::Absent),
            (r#"{"a":{}}"#, "/a", NoText::Absent),
            (r#"{"a":[1]}"#, "/a", NoText::Absent),
            (r#"{"A":1}"#, "/a", NoText::Ambiguous),
            (r#"{"b":1}"#, "/a", NoText::Absent),
            (r#"{"a":1,"A":2}"#, "/a", NoText::Ambiguous),
            (r#"{"x":{"a":1},"X":{"a":2}}"#, "/x/a", NoText::Ambiguous),
            (r#"{"destination":"A","de\u017ftination":"B"}"#, "/destination", NoText::Ambiguous),
            ("{\"id\":1,\"\u{131}d\":2}", "/id", NoText::Ambiguous),
            ("{\"\u{130}d\":2,\"id\":1}", "/id", NoText::Ambiguous),
            ("{\"k\":2,\"\u{212a}\":1}", "/k", NoText::Ambiguous),
            (r#"{"a":1,"a":2}"#, "/a", NoText::Ambiguous),
            (r#"{"a":1,"b":{"c":1,"c":2}}"#, "/a", NoText::Ambiguous),
            (r#"{"a":1"#, "/a", NoText::NotJson),
            ("", "/a", NoText::NotJson),
        ] {
            assert_eq!(at(body, pointer), Err(why), "{body}");
        }
        for other in ["text/plain", "application/json; charset=latin1"] {
            let headers = [(b"content-type".to_vec(), other.into())];
            assert!(BodyTexts::read(&RequestParts::new(&headers), b"{}").is_err(), "{other}");
        }
        let coded = [
            (b"content-type".to_vec(), b"application/json".to_vec()),
            (b"content-encoding".to_vec(), b"gzip".to_vec()),
        ];
        assert!(BodyTexts::read(&RequestParts::new(&coded), b"{}").is_err());
    }
}
