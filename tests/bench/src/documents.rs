//! JSON bodies: usual ones in three spellings, and those that an attacker would choose.

use crate::random::Random;
use serde_json::{Value, json};

/// Sizes of the usual bodies.
pub const SIZES: [(&str, usize); 4] =
    [("256B", 256), ("4KiB", 4 << 10), ("64KiB", 64 << 10), ("1MiB", 1 << 20)];

/// Sizes of the scaling table.
pub const SCALE: [(&str, usize); 4] =
    [("16KiB", 16 << 10), ("64KiB", 64 << 10), ("256KiB", 256 << 10), ("1MiB", 1 << 20)];

/// A payment with items, in canonical spelling, of about `size` bytes.
pub fn canonical(size: usize) -> String {
    usual(size).to_string()
}

/// The same with all members in reverse order.
pub fn reordered(size: usize) -> String {
    let mut out = String::new();
    reverse(&usual(size), &mut out);
    out
}

/// The same with line breaks and indentation; longer.
pub fn pretty(size: usize) -> String {
    serde_json::to_string_pretty(&usual(size)).unwrap_or_default()
}

fn usual(size: usize) -> Value {
    let mut random = Random::new(7);
    let mut items = Vec::new();
    let head = |items: &[Value], memo: &str| json!({"account": "acct_1NTTqN4711", "amount": 129_900, "currency": "EUR", "items": items, "memo": memo});
    let mut len = head(&[], "").to_string().len();
    loop {
        let item = json!({
            "id": format!("item_{:016x}", random.next()),
            "name": "Garden chair, \"Malmö\", oiled",
            "price": {"currency": "EUR", "value": random.below(100_000)},
            "quantity": random.below(9),
            "tags": ["garden", "wood", null, true],
            "weight": 12.5,
        });
        let with = len + item.to_string().len() + 1;
        if with > size {
            break;
        }
        len = with;
        items.push(item);
    }
    let memo = "m".repeat(size.saturating_sub(head(&items, "").to_string().len()));
    head(&items, &memo)
}

fn reverse(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            out.push('{');
            for (at, (name, member)) in members.iter().rev().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                reverse(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                reverse(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Bodies made to be slow, by name.
pub fn hostile(size: usize) -> Vec<(&'static str, String)> {
    let list =
        |piece: &dyn Fn(usize) -> String, count: usize| (0..count).map(piece).collect::<Vec<_>>().join(",");
    let nest =
        |open: &str, close: &str, inner: &str| format!("{}{inner}{}", open.repeat(500), close.repeat(500));
    let deep = nest(r#"{"b":0,"a":"#, "}", "1");
    vec![
        ("deep", format!("[{}]", list(&|_| deep.clone(), size / deep.len() + 1))),
        ("deep_wide", nest(r#"{"b":0,"a":"#, "}", &format!("[{}]", list(&|_| "1 ".to_owned(), size / 3)))),
        (
            "members_reversed",
            format!("{{{}}}", list(&|at| format!("\"k{:07}\":0", 9_999_999 - at), size / 13)),
        ),
        ("members_shared_prefix", {
            let prefix = "p".repeat(100);
            format!("{{{}}}", list(&|at| format!("\"{prefix}{:07}\":0", 9_999_999 - at), size / 113))
        }),
        ("all_escaped", format!("[\"{}\"]", "\\u0061".repeat(size / 6))),
        ("one_number", "7".repeat(size)),
        ("all_space", format!("[{}1]", " ".repeat(size))),
        ("not_json_at_the_end", format!("[{}", list(&|_| "{}".to_owned(), size / 3))),
    ]
}
