//! Durations and sizes as the configuration writes them: a whole number and a unit.
//!
//! A bare number is refused: whether `30` means seconds or milliseconds is a guess.

use core::fmt;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A duration in milliseconds, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A size in bytes, above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A count: a whole number. A Struct of protobuf has doubles only, so `255.0` is taken too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

const DURATION: &str = "a duration above zero with a unit, such as 250ms, 30s, 5m, 24h or 7d";
const SIZE: &str = "a size above zero with a unit, such as 1000B, 512KiB or 1MiB";

impl Millis {
    /// Reads `250ms`, `30s`, `5m`, `24h`, `7d`.
    pub fn parse(text: &str) -> Option<Self> {
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        quantity(text, &units).map(Self)
    }
}

impl Bytes {
    /// Reads `1000B`, `512KiB`, `1MiB`, `1GiB`.
    pub fn parse(text: &str) -> Option<Self> {
        quantity(text, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)]).map(Self)
    }
}

fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at_checked(split)?;
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|value| *value > 0)
}

struct Text<T> {
    parse: fn(&str) -> Option<T>,
    expected: &'static str,
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(Text { parse: Self::parse, expected: DURATION })
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(Text { parse: Self::parse, expected: SIZE })
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
        Ok(Count(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Count, E> {
        let whole = value.trunc() == value && (0.0..=9_007_199_254_740_992.0).contains(&value);
        if whole { Ok(Count(value as u64)) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_f64(CountVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("7d", 604_800_000)]
        {
            assert_eq!(Millis::parse(text), Some(Millis(ms)), "{text}");
        }
        for bad in [
            "",
            "0s",
            "5",
            "s",
            "-5s",
            "1.5s",
            " 5s",
            "5 s",
            "5S",
            "5sec",
            "1h30m",
            "99999999999999999999s",
            "213503982335d",
            "٣s",
        ] {
            assert_eq!(Millis::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_have_a_unit() {
        for (text, bytes) in [("1000B", 1000), ("512KiB", 524_288), ("1MiB", 1_048_576)] {
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)), "{text}");
        }
        for bad in ["0KiB", "1KB", "1M", "1", "KiB", "-1B", "18446744073709551615KiB"] {
            assert_eq!(Bytes::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn counts_may_come_as_doubles() {
        assert_eq!(serde_json::from_str::<Count>("255.0").unwrap(), Count(255));
        assert!(serde_json::from_str::<Count>("1.5").is_err());
        assert!(serde_json::from_str::<Count>("-1").is_err());
        assert!(serde_json::from_str::<Count>("1e300").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_quantity_or_none(text in ".{0,20}") {
            let _ = (Millis::parse(&text), Bytes::parse(&text));
        }
    }
}
