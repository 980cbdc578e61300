//! Tokens of RFC 8259, strictly. Every function takes the whole text and a position, and the text
//! is known to be UTF-8.

/// A string token.
pub(super) struct StringToken {
    /// Position after the closing quote.
    pub end: usize,
    /// It has escapes: its bytes are not its value.
    pub escaped: bool,
    /// It is spelled as the canonical text spells it.
    pub canonical: bool,
}

/// The byte at a position.
#[inline]
pub(super) fn peek(text: &[u8], pos: usize) -> Option<u8> {
    text.get(pos).copied()
}

/// The bytes from one position to another; none if they are out of bounds.
#[inline]
pub(super) fn slice(text: &[u8], start: usize, end: usize) -> &[u8] {
    text.get(start..end).unwrap_or_default()
}

/// Position after insignificant space.
pub(super) fn skip_space(text: &[u8], mut pos: usize) -> usize {
    const SPACES: [u8; 8] = [b' '; 8];
    while text.get(pos..).and_then(|rest| rest.first_chunk::<8>()) == Some(&SPACES) {
        pos = pos.wrapping_add(8);
    }
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = peek(text, pos) {
        pos = pos.saturating_add(1);
    }
    pos
}

/// Reads the string whose opening quote is at `pos`; none for a string that is not valid or that
/// has a lone surrogate.
#[inline]
pub(super) fn string(text: &[u8], pos: usize) -> Option<StringToken> {
    let end = skip_plain(text, pos.wrapping_add(1));
    if peek(text, end)? == b'"' {
        return Some(StringToken { end: end.wrapping_add(1), escaped: false, canonical: true });
    }
    string_with_escapes(text, end)
}

/// The rest of a string, from its first character that is not plain.
#[inline(never)]
fn string_with_escapes(text: &[u8], pos: usize) -> Option<StringToken> {
    let mut token = StringToken { end: pos, escaped: false, canonical: true };
    loop {
        match peek(text, token.end)? {
            b'"' => {
                token.end = token.end.checked_add(1)?;
                return Some(token);
            }
            b'\\' => {
                token.escaped = true;
                let (_, next) = escape(text, token.end)?;
                let letter = peek(text, token.end.checked_add(1)?)?;
                token.canonical &= !matches!(letter, b'u' | b'/');
                token.end = skip_plain(text, next);
            }
            _ => return None,
        }
    }
}

/// The character of the escape whose backslash is at `pos`, and the position after it. A pair of
/// surrogates is one character; a lone one is none.
pub(super) fn escape(text: &[u8], pos: usize) -> Option<(char, usize)> {
    let letter = pos.checked_add(1)?;
    let next = letter.checked_add(1)?;
    let simple = match peek(text, letter)? {
        c @ (b'"' | b'\\' | b'/') => char::from(c),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode_escape(text, next),
        _ => return None,
    };
    Some((simple, next))
}

fn unicode_escape(text: &[u8], pos: usize) -> Option<(char, usize)> {
    let (first, next) = hex4(text, pos)?;
    if !(0xd800..0xdc00).contains(&first) {
        return Some((char::from_u32(first)?, next));
    }
    let rest = text.get(next..)?.strip_prefix(b"\\u")?;
    let (second, end) = hex4(text, text.len().checked_sub(rest.len())?)?;
    let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    let high = first.checked_sub(0xd800)?;
    Some((char::from_u32(0x1_0000u32.checked_add(high << 10)?.checked_add(low)?)?, end))
}

fn hex4(text: &[u8], pos: usize) -> Option<(u32, usize)> {
    let end = pos.checked_add(4)?;
    let mut value = 0u32;
    for digit in text.get(pos..end)? {
        value = (value << 4) | char::from(*digit).to_digit(16)?;
    }
    Some((value, end))
}

/// Position after the number at `pos`.
#[inline]
pub(super) fn number(text: &[u8], pos: usize) -> Option<usize> {
    let mut at = if peek(text, pos) == Some(b'-') { pos.checked_add(1)? } else { pos };
    at = if peek(text, at) == Some(b'0') { at.checked_add(1)? } else { digits(text, at)? };
    if peek(text, at) == Some(b'.') {
        at = digits(text, at.checked_add(1)?)?;
    }
    if let Some(b'e' | b'E') = peek(text, at) {
        at = at.checked_add(1)?;
        if let Some(b'+' | b'-') = peek(text, at) {
            at = at.checked_add(1)?;
        }
        at = digits(text, at)?;
    }
    Some(at)
}

fn digits(text: &[u8], pos: usize) -> Option<usize> {
    let mut end = pos;
    while let Some(b'0'..=b'9') = peek(text, end) {
        end = end.checked_add(1)?;
    }
    (end > pos).then_some(end)
}

/// Position after `true`, `false` or `null`.
pub(super) fn literal(text: &[u8], pos: usize) -> Option<usize> {
    let rest = text.get(pos..)?;
    let word = [b"true".as_slice(), b"false", b"null"].into_iter().find(|word| rest.starts_with(word))?;
    pos.checked_add(word.len())
}

/// Position after the characters that stand for themselves: everything but quotes, backslashes
/// and control characters. Eight bytes at a time, since this is where most of a body passes.
pub(super) fn skip_plain(text: &[u8], pos: usize) -> usize {
    let mut rest = text.get(pos..).unwrap_or_default();
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        if let Some(place) = first_special(u64::from_le_bytes(*word)) {
            return text.len().saturating_sub(rest.len()).saturating_add(place);
        }
        rest = tail;
    }
    while let [byte, tail @ ..] = rest {
        if matches!(byte, b'"' | b'\\' | 0..0x20) {
            break;
        }
        rest = tail;
    }
    text.len().saturating_sub(rest.len())
}

/// The first of eight bytes, lowest first, that is a quote, a backslash or below 0x20. A borrow
/// comes only out of a byte that is itself special, so the lowest mark is always right.
fn first_special(word: u64) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES.wrapping_mul(limit)) & !word;
    let quote = word ^ ONES.wrapping_mul(0x22);
    let backslash = word ^ ONES.wrapping_mul(0x5c);
    let marks = (below(word, 0x20) | below(quote, 1) | below(backslash, 1)) & HIGH;
    (marks != 0).then(|| (marks.trailing_zeros() / 8) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_those_of_the_standard() {
        for ok in ["0", "-0", "12", "1.5", "0.0", "1e5", "1E+5", "1e-05", "-1.0e00"] {
            assert_eq!(number(ok.as_bytes(), 0), Some(ok.len()), "{ok}");
        }
        for bad in ["", "-", "+1", ".5", "1.", "1e", "1e+", "-a", "01", "0x1", "1.e1"] {
            assert_ne!(number(bad.as_bytes(), 0), Some(bad.len()), "{bad}");
        }
    }

    #[test]
    fn surrogates_count_in_pairs_only() {
        assert_eq!(escape(br"\ud834\udd1e", 0), Some(('\u{1d11e}', 12)));
        assert_eq!(escape(br"\uD834\uDD1e", 0), Some(('\u{1d11e}', 12)));
        for bad in [
            r"\ud834",
            r"\ud834\u0041",
            r"\udd1e",
            r"\ud834\ud834",
            r"\ud834x",
            r"\u12",
            r"\u12g4",
            r"\u+123",
        ] {
            assert_eq!(escape(bad.as_bytes(), 0), None, "{bad}");
        }
        assert_eq!(escape(br"\uffff", 0), Some(('\u{ffff}', 6)));
    }

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_finds_what_one_at_a_time_finds(
            text in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), 0x1eu8..0x24, 0x5bu8..0x5e, Just(0x80), Just(b'a')], 0..40),
            pos in 0usize..40) {
            let plain = |b: &u8| !matches!(b, b'"' | b'\\' | 0..0x20);
            let expected = pos + text.iter().skip(pos).take_while(|b| plain(b)).count();
            prop_assert_eq!(skip_plain(&text, pos), if pos > text.len() { text.len() } else { expected });
        }

        #[test]
        fn any_bytes_are_tokens_or_none(text in proptest::collection::vec(any::<u8>(), 0..40), pos in 0usize..50) {
            let _ = (string(&text, pos).is_some(), escape(&text, pos), number(&text, pos), literal(&text, pos), skip_space(&text, pos));
        }
    }
}
