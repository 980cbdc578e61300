//! What of a query is compared. Names are compared as the upstream will read them, with `+` and
//! percent escapes decoded; what is hashed is the text as it was written.

use super::options::QueryRule;
use crate::digest::PartsDigest;

mod tag {
    pub const WHOLE: u8 = 32;
    pub const PARAMETER: u8 = 33;
}

/// Adds the query to a digest; an absent query differs from an empty one.
pub(super) fn add(rule: &QueryRule, query: Option<&[u8]>, digest: &mut PartsDigest) {
    let mut parameters: Vec<(Vec<u8>, &[u8])> = match (rule, query) {
        (QueryRule::None, _) | (_, None) => return,
        (QueryRule::All, Some(query)) => {
            digest.part(tag::WHOLE, query);
            return;
        }
        (QueryRule::Sorted, Some(query)) => parameters(query).collect(),
        (QueryRule::Names(names), Some(query)) => {
            parameters(query).filter(|(name, _)| names.iter().any(|known| known.as_bytes() == name)).collect()
        }
    };
    if *rule == QueryRule::Sorted {
        // Stable: the order among equal names may mean something.
        parameters.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    for (_, text) in parameters {
        digest.part(tag::PARAMETER, text);
    }
}

/// Decoded name and text of each parameter.
fn parameters(query: &[u8]) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    query.split(|b| *b == b'&').map(|text| {
        let name = text.split(|b| *b == b'=').next().unwrap_or_default();
        (decode(name), text)
    })
}

fn decode(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    while let [byte, rest @ ..] = text {
        text = rest;
        match (byte, rest) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, tail @ ..]) => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => {
                    out.push((high << 4) | low);
                    text = tail;
                }
                _ => out.push(b'%'),
            },
            (byte, _) => out.push(*byte),
        }
    }
    out
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(rule: &QueryRule, query: &str) -> [u8; 32] {
        let mut digest = PartsDigest::new("test");
        add(rule, Some(query.as_bytes()), &mut digest);
        digest.finish()
    }

    #[test]
    fn all_is_as_written_and_none_is_nothing() {
        assert_ne!(of(&QueryRule::All, "a=1&b=2"), of(&QueryRule::All, "b=2&a=1"));
        assert_eq!(of(&QueryRule::None, "a=1"), of(&QueryRule::None, "b=2"));
    }

    #[test]
    fn sorted_keeps_the_order_among_equal_names() {
        let sorted = |query| of(&QueryRule::Sorted, query);
        assert_eq!(sorted("b=2&a=1"), sorted("a=1&b=2"));
        assert_ne!(sorted("a=1&a=2"), sorted("a=2&a=1"));
        assert_ne!(sorted("a=1&%61=2"), sorted("%61=2&a=1"), "both are a");
        assert_ne!(sorted("a=1"), sorted("a=1&"));
    }

    #[test]
    fn a_listed_parameter_is_found_however_it_is_spelled() {
        let amount = |query| of(&QueryRule::Names(vec!["amount".into(), "a b".into()]), query);
        assert_eq!(amount("amount=1&sent=2"), amount("sent=3&amount=1"));
        assert_ne!(amount("%61mount=1"), amount("%61mount=2"));
        assert_ne!(amount("a+b=1"), amount("a+b=2"));
        assert_ne!(amount("amount=1"), amount("amount"));
        assert_ne!(amount("amount=1"), amount(""));
    }

    proptest! {
        #[test]
        fn any_query_is_taken(query in proptest::collection::vec(any::<u8>(), 0..40)) {
            for rule in [QueryRule::All, QueryRule::Sorted, QueryRule::None, QueryRule::Names(vec!["a".into()])] {
                add(&rule, Some(&query), &mut PartsDigest::new("test"));
            }
        }
    }
}
