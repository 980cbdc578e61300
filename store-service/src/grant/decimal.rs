//! Exact decimal numbers: `250`, `250.0` and `2.5e2` are one amount, `250.01` is another, and no
//! digit is lost on the way, as it would be through a double.

/// Most digits, without leading and trailing zeros.
const DIGITS_MAX: usize = 64;

/// Largest exponent that is read, either way.
const EXPONENT_MAX: i32 = 1_000;

/// A number as sign, digits without zeros at the ends, and the power of ten of the last digit. Zero
/// has no digits, no sign and the power 0, so equal numbers have equal parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decimal {
    negative: bool,
    digits: String,
    power: i32,
}

impl Decimal {
    /// Reads the form of a JSON number (RFC 8259 section 6). Leading zeros are allowed, since the
    /// text may be a string; signs other than `-`, blanks and separators are not.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let kept = digits.trim_end_matches('0');
        if kept.is_empty() {
            return Some(Self { negative: false, digits: String::new(), power: 0 });
        }
        if kept.len() > DIGITS_MAX {
            return None;
        }
        let dropped = i32::try_from(digits.len() - kept.len()).ok()?;
        let power = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(dropped)?;
        Some(Self { negative, digits: kept.to_owned(), power })
    }

    /// One text for each number; not for people.
    pub fn canonical(&self) -> String {
        if self.digits.is_empty() {
            return "0".into();
        }
        format!("{}{}e{}", if self.negative { "-" } else { "" }, self.digits, self.power)
    }
}

fn parse_exponent(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || digits.len() > 5 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let exponent: i32 = text.strip_prefix('+').unwrap_or(text).parse().ok()?;
    (exponent.abs() <= EXPONENT_MAX).then_some(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_amounts_are_equal_however_written() {
        let amount = Decimal::parse("250").unwrap();
        for text in ["250", "250.0", "250.00", "2.5e2", "25E+1", "0250", "2500e-1"] {
            assert_eq!(Decimal::parse(text), Some(amount.clone()), "{text}");
        }
        for text in ["2500", "25", "250.01", "-250", "250.000000000000000000001"] {
            assert_ne!(Decimal::parse(text), Some(amount.clone()), "{text}");
        }
        assert_eq!(Decimal::parse("-0.0"), Decimal::parse("0"));
        assert_ne!(Decimal::parse("9007199254740993"), Decimal::parse("9007199254740992"));
    }

    #[test]
    fn what_is_not_a_plain_number_is_refused() {
        for text in [
            "", "-", "+1", " 1", "1 ", "1,000", "1.", ".5", "1e", "1e+", "0x10", "NaN", "1e99999", "١", "1_0",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert_eq!(Decimal::parse(&"9".repeat(65)), None);
    }
}
