//! Amounts, and details compared with a grant. The input is two texts, told apart by its first NUL byte.
//!
//! Promised: two amounts are equal exactly if they are the same number, and details that differ in
//! meaning never cover the same grant with the same digest.

use fencepost_protocol::grants::Details;
use fencepost_store::entry::Micros;
use fencepost_store::grant::decimal::Decimal;
use fencepost_store::grant::details::{cover, from_text, to_text};
use fencepost_store::grant::duration::Span;
use fencepost_store::grant::issuers::BoundKind;
use fencepost_store::grant::token::{Bound, Grant, GrantKey};
use std::cmp::Ordering;

pub fn run(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == 0);
    let [first, second] = [halves.next(), halves.next()]
        .map(|half| std::str::from_utf8(half.unwrap_or_default()).unwrap_or("").to_owned());
    let [one, two] = [&first, &second].map(|text| Decimal::parse(text));
    if let (Some(one), Some(two)) = (&one, &two) {
        let same = compare(&first, &second) == Ordering::Equal;
        assert_eq!(one == two, same, "{first} {second}");
        assert_eq!(one.canonical() == two.canonical(), same, "{first} {second}");
        // Its text has the power of the last digit, which may be beyond what is read.
        assert!(Decimal::parse(&one.canonical()).is_none_or(|again| again == *one), "{first}");
    }
    let details = |amount: &str, memo: &str| {
        Details([("amount".to_owned(), amount.to_owned()), ("memo".to_owned(), memo.to_owned())].into())
    };
    if let Some(bound) = Bound::read(BoundKind::Decimal, &first) {
        let grant = grant(bound);
        let covered = cover(&grant, &details(&first, &second));
        let other = cover(&grant, &details(&second, &second));
        if let (Ok(covered), Ok(other)) = (&covered, &other) {
            assert_eq!(compare(&first, &second), Ordering::Equal, "{first} covers {second}");
            assert_eq!(covered.digest, other.digest, "{first} {second}");
        }
        if let (Ok(covered), Ok(other)) = (&covered, &cover(&grant, &details(&first, &first))) {
            assert_eq!(covered.digest == other.digest, first == second, "{first} {second}");
        }
    }
    let details = details(&first, &second);
    assert_eq!(from_text(&to_text(&details)), details);
}

fn grant(amount: Bound) -> Grant {
    Grant {
        key: GrantKey { issuer: "i".into(), key_tenant: String::new(), grant_id: "g".into() },
        subject: "s".into(),
        tenant: String::new(),
        bound: [("amount".to_owned(), amount)].into(),
        other: [("currency".to_owned(), Some("USD".to_owned()))].into(),
        issued_from: Micros(0),
        expires_at: Micros(0),
        leeway: Span::default(),
    }
}

/// Compares two numbers digit by digit, as one does on paper.
fn compare(one: &str, two: &str) -> Ordering {
    let (one, two) = (Plain::of(one), Plain::of(two));
    let last = one.last.min(two.last);
    let digits = |plain: &Plain| {
        let zeros = usize::try_from(plain.last - last).unwrap();
        format!("{}{}", plain.digits.trim_start_matches('0'), "0".repeat(zeros))
    };
    let (a, b) = (digits(&one), digits(&two));
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    if a.is_empty() && b.is_empty() {
        return Ordering::Equal;
    }
    (one.negative, a).cmp(&(two.negative, b))
}

/// Digits, and the power of ten of the last one.
struct Plain {
    negative: bool,
    digits: String,
    last: i64,
}

impl Plain {
    fn of(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        Self {
            negative: whole.starts_with('-'),
            digits: format!("{}{fraction}", whole.trim_start_matches('-')),
            last: exponent.parse::<i64>().unwrap() - i64::try_from(fraction.len()).unwrap(),
        }
    }
}
