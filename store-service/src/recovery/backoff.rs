//! How long recovery rests before it looks again: doubled each time, bounded, spread by chance.

use crate::grant::duration::Span;

/// The bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The first rest.
    pub first: Span,
    /// The longest.
    pub max: Span,
}

impl Backoff {
    /// The rest after this many before it. `chance` spreads it from a half to the whole, so that what
    /// stalled together is not looked up together for ever.
    pub fn rest(&self, before: u32, chance: u8) -> Span {
        let factor = 1_u64.checked_shl(before.min(40)).unwrap_or(u64::MAX);
        let whole = self.first.as_ms().saturating_mul(factor).min(self.max.as_ms());
        let half = whole / 2;
        Span::ms((half + half * u64::from(chance) / 255).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_their_bound_and_are_spread_below_it() {
        let backoff = Backoff { first: Span::seconds(2), max: Span::seconds(60) };
        let whole: Vec<_> = (0..7).map(|before| backoff.rest(before, 255).as_ms()).collect();
        assert_eq!(whole, [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(backoff.rest(3, 0).as_ms(), 8_000);
        assert_eq!(backoff.rest(u32::MAX, 255).as_ms(), 60_000);
        let tiny = Backoff { first: Span::ms(1), max: Span::ms(1) };
        assert_eq!(tiny.rest(0, 0).as_ms(), 1);
    }
}
