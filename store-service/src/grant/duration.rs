//! Durations as people write them: a whole number and a unit, such as `250ms`, `30s` or `24h`.

use serde::{Deserialize, Deserializer, de::Error as _};
use std::fmt;
use std::time::Duration;

/// Longest duration: 400 days. Nothing here is sensibly longer, and sums of a few stay exact.
const MS_MAX: u64 = 400 * 24 * 3_600 * 1_000;

/// A duration with the text form of the settings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Span(u64);

impl Span {
    /// From milliseconds.
    pub const fn ms(ms: u64) -> Self {
        Self(ms)
    }

    /// From seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }

    /// In milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// In milliseconds, as databases count. Cannot overflow: bounded when parsed.
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// For timers.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Both together.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The rest; zero when there is none.
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected =
            || format!("found {text:?}; expected a whole number with ms, s, m, h or d, such as 30s");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(expected)?;
        let number: u64 = number.parse().map_err(|_| expected())?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(expected()),
        };
        match number.checked_mul(factor) {
            Some(ms) if ms <= MS_MAX => Ok(Self(ms)),
            _ => Err(format!("found {text:?}; expected at most 400d")),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (factor, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}ms", self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (text, ms) in [("0s", 0), ("250ms", 250), ("30s", 30_000), ("24h", 86_400_000)] {
            assert_eq!(Span::parse(text), Ok(Span(ms)));
        }
        for text in ["", "30", "s", "-1s", "1.5s", "1 s", "1w", "401d", "99999999999999999999s"] {
            assert!(Span::parse(text).is_err(), "{text}");
        }
        assert_eq!(Span::seconds(90).to_string(), "90s");
        assert_eq!(Span::ms(3_600_000).to_string(), "1h");
        assert_eq!(Span::ms(0).to_string(), "0ms");
    }
}
