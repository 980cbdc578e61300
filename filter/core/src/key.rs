//! The client's idempotency key, from the header lines that carry it.
//!
//! Every line of every accepted name is looked at, and more than one is refused even if they are
//! equal: a proxy in between may join or reorder them, and the next hop may read another one.

/// How a key is written in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// Bare text, or a Structured Field string; both spellings of a value are the same key. Bare
    /// text is visible ASCII without `"`, `,`, `;` and `\`, so that parameters and joined lines
    /// are never taken for part of a key.
    Lenient,
    /// A string Item of RFC 9651 and nothing else; parameters are checked and ignored.
    Structured,
    /// Opaque bytes without control characters.
    Plain,
}

/// A client's key: secret, because who knows it can read the stored answer's status.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClientKey(Vec<u8>);

impl ClientKey {
    /// The key's bytes, for digests only: never to be stored, logged or sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl core::fmt::Debug for ClientKey {
    /// Nothing of it.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ClientKey(..)")
    }
}

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No line at all.
    #[error("the key header is missing")]
    Missing,
    /// An empty or blank value.
    #[error("the key is empty")]
    Empty,
    /// More than one line, counting all names.
    #[error("the key header is sent more than once")]
    Repeated,
    /// Not in the policy's format.
    #[error("the key is malformed: {0}")]
    Malformed(&'static str),
    /// Longer than the policy allows.
    #[error("the key has {found} bytes, more than {max}")]
    TooLong {
        /// Most bytes.
        max: usize,
        /// Bytes of the key.
        found: usize,
    },
}

/// Reads the key from all header lines of all accepted names.
pub fn parse_key(lines: &[&[u8]], format: KeyFormat, max_length: usize) -> Result<ClientKey, KeyError> {
    let line = match lines {
        [] => return Err(KeyError::Missing),
        [line] => trim_ows(line),
        _ => return Err(KeyError::Repeated),
    };
    if line.is_empty() {
        return Err(KeyError::Empty);
    }
    let value = match format {
        KeyFormat::Plain => plain(line)?,
        KeyFormat::Structured => structured(line)?,
        KeyFormat::Lenient if line.starts_with(b"\"") => structured(line)?,
        KeyFormat::Lenient => bare(line)?,
    };
    if value.iter().all(|b| *b == b' ') {
        return Err(KeyError::Empty);
    }
    if value.len() > max_length {
        return Err(KeyError::TooLong { max: max_length, found: value.len() });
    }
    Ok(ClientKey(value))
}

fn trim_ows(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

fn plain(line: &[u8]) -> Result<Vec<u8>, KeyError> {
    if line.iter().any(|b| *b < 0x20 || *b == 0x7f) {
        return Err(KeyError::Malformed("control character"));
    }
    Ok(line.to_vec())
}

fn bare(line: &[u8]) -> Result<Vec<u8>, KeyError> {
    for b in line {
        match b {
            b'"' | b',' | b';' | b'\\' => {
                return Err(KeyError::Malformed("quote, comma, semicolon or backslash"));
            }
            0x21..=0x7e => {}
            _ => return Err(KeyError::Malformed("character that is not visible ASCII")),
        }
    }
    Ok(line.to_vec())
}

/// A string Item with parameters: RFC 9651, sections 4.2.3 and 4.2.5.
fn structured(line: &[u8]) -> Result<Vec<u8>, KeyError> {
    let (value, rest) = string(line)?;
    parameters(rest)?;
    Ok(value)
}

fn string(line: &[u8]) -> Result<(Vec<u8>, &[u8]), KeyError> {
    let mut rest = line.strip_prefix(b"\"").ok_or(KeyError::Malformed("not a quoted string"))?;
    let mut value = Vec::with_capacity(rest.len());
    loop {
        match rest {
            [b'"', tail @ ..] => return Ok((value, tail)),
            [b'\\', c @ (b'"' | b'\\'), tail @ ..] => {
                value.push(*c);
                rest = tail;
            }
            [b'\\', ..] => return Err(KeyError::Malformed("unknown escape")),
            [c @ 0x20..=0x7e, tail @ ..] => {
                value.push(*c);
                rest = tail;
            }
            [] => return Err(KeyError::Malformed("unbalanced quotes")),
            _ => return Err(KeyError::Malformed("character that is not visible ASCII")),
        }
    }
}

const BAD_PARAMETER: KeyError = KeyError::Malformed("text after the key that is no parameter");

/// `*( ";" *SP key [ "=" bare-item ] )` to the end of the line.
fn parameters(mut rest: &[u8]) -> Result<(), KeyError> {
    while let [b';', tail @ ..] = rest {
        rest = skip_while(tail, |b| b == b' ');
        let [b'a'..=b'z' | b'*', tail @ ..] = rest else { return Err(BAD_PARAMETER) };
        rest = skip_while(tail, |b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'*')
        });
        if let [b'=', tail @ ..] = rest {
            rest = bare_item(tail)?;
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(BAD_PARAMETER) }
}

/// Skips one bare item of RFC 9651, section 3.3.
fn bare_item(item: &[u8]) -> Result<&[u8], KeyError> {
    match item {
        [b'"', ..] => string(item).map(|(_, rest)| rest),
        [b'?', b'0' | b'1', rest @ ..] => Ok(rest),
        [b'@', rest @ ..] => match number(rest)? {
            (rest, false) => Ok(rest),
            (_, true) => Err(BAD_PARAMETER),
        },
        [b':', rest @ ..] => {
            let rest = skip_while(rest, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='));
            rest.strip_prefix(b":").ok_or(BAD_PARAMETER)
        }
        [b'%', b'"', rest @ ..] => display_string(rest),
        [b'-' | b'0'..=b'9', ..] => number(item).map(|(rest, _)| rest),
        [b'a'..=b'z' | b'A'..=b'Z' | b'*', rest @ ..] => {
            Ok(skip_while(rest, |b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b)))
        }
        _ => Err(BAD_PARAMETER),
    }
}

/// An integer of up to 15 digits, or a decimal of up to 12 and 3; true for a decimal.
fn number(item: &[u8]) -> Result<(&[u8], bool), KeyError> {
    let digits = item.strip_prefix(b"-").unwrap_or(item);
    let rest = skip_while(digits, |b| b.is_ascii_digit());
    let whole = digits.len().saturating_sub(rest.len());
    if let [b'.', fraction @ ..] = rest {
        let rest = skip_while(fraction, |b| b.is_ascii_digit());
        let places = fraction.len().saturating_sub(rest.len());
        let fits = (1..=12).contains(&whole) && (1..=3).contains(&places);
        return if fits { Ok((rest, true)) } else { Err(BAD_PARAMETER) };
    }
    if (1..=15).contains(&whole) { Ok((rest, false)) } else { Err(BAD_PARAMETER) }
}

/// The rest of `%"..."`: visible ASCII, with UTF-8 as lower-case percent escapes.
fn display_string(mut rest: &[u8]) -> Result<&[u8], KeyError> {
    let mut text = Vec::new();
    loop {
        match rest {
            [b'"', tail @ ..] => {
                return if core::str::from_utf8(&text).is_ok() { Ok(tail) } else { Err(BAD_PARAMETER) };
            }
            [b'%', high, low, tail @ ..] => {
                text.push(hex_digit(*high)?.wrapping_mul(16).wrapping_add(hex_digit(*low)?));
                rest = tail;
            }
            [b'%', ..] => return Err(BAD_PARAMETER),
            [c @ 0x20..=0x7e, tail @ ..] => {
                text.push(*c);
                rest = tail;
            }
            _ => return Err(BAD_PARAMETER),
        }
    }
}

fn hex_digit(b: u8) -> Result<u8, KeyError> {
    match b {
        b'0'..=b'9' => Ok(b.wrapping_sub(b'0')),
        b'a'..=b'f' => Ok(b.wrapping_sub(b'a').wrapping_add(10)),
        _ => Err(BAD_PARAMETER),
    }
}

fn skip_while(mut bytes: &[u8], accept: impl Fn(u8) -> bool) -> &[u8] {
    while let [b, rest @ ..] = bytes {
        if !accept(*b) {
            break;
        }
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(line: &str, format: KeyFormat) -> Result<String, KeyError> {
        parse_key(&[line.as_bytes()], format, 255).map(|key| String::from_utf8(key.0).unwrap())
    }

    #[test]
    fn lenient_takes_both_spellings_of_a_value_as_one_key() {
        for line in ["k1", "\"k1\"", "  k1\t", "\"k1\" ", "\"k1\";a=1", "\"k1\"; a=?1;b;c=tok/en"] {
            assert_eq!(parse(line, KeyFormat::Lenient), Ok("k1".to_owned()), "{line}");
        }
        assert_eq!(parse(r#""a\"b\\c""#, KeyFormat::Lenient), Ok(r#"a"b\c"#.to_owned()));
        assert_eq!(parse("\"a b,c;d\"", KeyFormat::Lenient), Ok("a b,c;d".to_owned()));
    }

    #[test]
    fn no_format_takes_a_control_character() {
        for byte in (0..0x20).chain([0x7f]) {
            for line in [[b'"', b'a', byte, b'b', b'"'].as_slice(), &[b'a', byte, b'b']] {
                for format in [KeyFormat::Lenient, KeyFormat::Structured, KeyFormat::Plain] {
                    let key = parse_key(&[line], format, 255);
                    assert!(matches!(key, Err(KeyError::Malformed(_))), "{byte:#x} {format:?}");
                }
            }
        }
    }

    #[test]
    fn only_plain_takes_bytes_outside_of_ascii() {
        for line in [&b"\"f\xFCn\""[..], "\"f\u{fc}n\"".as_bytes(), b"\xff", "\u{65e5}".as_bytes()] {
            for format in [KeyFormat::Lenient, KeyFormat::Structured] {
                assert!(matches!(parse_key(&[line], format, 255), Err(KeyError::Malformed(_))), "{line:?}");
            }
            assert!(parse_key(&[line], KeyFormat::Plain, 255).is_ok(), "{line:?}");
        }
    }

    #[test]
    fn lenient_refuses_what_may_be_something_else() {
        for line in [
            "k1;a=1",
            "k1, k2",
            "k 1",
            "k\"1",
            "k\\1",
            "\"k1",
            "\"k1\"x",
            "\"k1\" ;a",
            "k\u{1}",
            "kä",
            "\"k\u{7f}\"",
            "\"k\\n\"",
            "\"k1\", \"k2\"",
            "\"a\";A=1",
            "\"a\";a=",
            "\"a\";=1",
            "\"a\";a=1.",
            "\"a\";",
        ] {
            assert!(matches!(parse(line, KeyFormat::Lenient), Err(KeyError::Malformed(_))), "{line}");
        }
    }

    #[test]
    fn structured_takes_strings_only() {
        assert_eq!(parse("\"k1\"", KeyFormat::Structured), Ok("k1".to_owned()));
        for line in ["k1", "1", "?1", ":aGk=:", "(\"a\")", "@1", "%\"a\""] {
            assert!(matches!(parse(line, KeyFormat::Structured), Err(KeyError::Malformed(_))), "{line}");
        }
    }

    #[test]
    fn structured_checks_parameters() {
        for ok in [
            "a",
            "*a.b_c-d",
            "a=-1",
            "a=123456789012345",
            "a=1.5",
            "a=\"x\\\"\"",
            "a=?0",
            "a=:aGk=:",
            "a=@-1",
            "a=%\"f%c3%bc\"",
            "a=*x",
            "a;b;c=1",
        ] {
            assert_eq!(parse(&format!("\"k\";{ok}"), KeyFormat::Structured), Ok("k".to_owned()), "{ok}");
        }
        for bad in [
            "1a",
            "a=1234567890123456",
            "a=1.2345",
            "a=.5",
            "a=-",
            "a=?2",
            "a=:aGk=",
            "a=@1.5",
            "a=%\"%C3\"",
            "a=%\"%c3\"",
            "a=%\"%c\"",
            "a=\"x",
            "a =1",
            "a= 1",
        ] {
            assert!(parse(&format!("\"k\";{bad}"), KeyFormat::Structured).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_keeps_every_byte_but_control_characters() {
        assert_eq!(parse(" \"a\", b;c ", KeyFormat::Plain), Ok("\"a\", b;c".to_owned()));
        assert_eq!(parse_key(&[b"\xff\xfe"], KeyFormat::Plain, 255).unwrap().as_bytes(), b"\xff\xfe");
        for line in ["a\tb", "a\0b", "a\u{7f}"] {
            assert!(matches!(parse(line, KeyFormat::Plain), Err(KeyError::Malformed(_))), "{line:?}");
        }
    }

    #[test]
    fn empty_blank_missing_and_repeated_are_told_apart() {
        for format in [KeyFormat::Lenient, KeyFormat::Structured, KeyFormat::Plain] {
            assert_eq!(parse_key(&[], format, 255), Err(KeyError::Missing));
            assert_eq!(parse_key(&[b"\"a\"", b"\"a\""], format, 255), Err(KeyError::Repeated));
            assert_eq!(parse(" \t ", format), Err(KeyError::Empty));
        }
        assert_eq!(parse("\"\"", KeyFormat::Lenient), Err(KeyError::Empty));
        assert_eq!(parse("\"   \"", KeyFormat::Structured), Err(KeyError::Empty));
    }

    #[test]
    fn length_counts_the_value_without_its_quotes() {
        let line = format!("\"{}\"", "k".repeat(255));
        assert!(parse(&line, KeyFormat::Lenient).is_ok());
        let line = format!("\"{}\"", "k".repeat(256));
        assert_eq!(parse(&line, KeyFormat::Lenient), Err(KeyError::TooLong { max: 255, found: 256 }));
    }

    #[test]
    fn debug_shows_nothing_of_a_key() {
        assert_eq!(format!("{:?}", parse_key(&[b"secret"], KeyFormat::Plain, 255)), "Ok(ClientKey(..))");
    }

    proptest! {
        #[test]
        fn any_line_is_a_key_or_an_error(line in proptest::collection::vec(any::<u8>(), 0..60)) {
            for format in [KeyFormat::Lenient, KeyFormat::Structured, KeyFormat::Plain] {
                let _ = parse_key(&[&line], format, 20);
            }
        }

        #[test]
        fn quoting_changes_nothing(value in "[!-~&&[^\"\\\\,;]]{1,40}") {
            prop_assert_eq!(parse(&value, KeyFormat::Lenient), parse(&format!("\"{value}\""), KeyFormat::Lenient));
        }
    }
}
