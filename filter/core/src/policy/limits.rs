//! Limits of single fields, in the words of JSON Schema: ranges of durations, sizes and counts, what
//! names look like, how long lists may be.
//!
//! The numbers are those that `resolve` checks; a test in the service requires that both agree on a
//! table of values and on random ones. What depends on another field is not said here.

use super::grant::{DETAILS_MAX, ORDINARY_SCHEMES};
use super::identity::{LIST_LEN_MAX, PROPERTY_LEN_MAX};
use super::resolve::{
    BODY_MAX, HTTP_HEADERS, KEY_LENGTH_MAX, MAX_RUN_MS_MAX, NAME_LEN_MAX, PROXY_HEADERS, PROXY_PREFIXES,
    STORE_TIMEOUT_MS_MAX, WAIT_MS_MAX, WINDOW_MS,
};
use crate::downstream::{HEX_DIGITS_MAX, HEX_DIGITS_MIN, PROVIDERS};
use crate::error_template::{BODY_LEN_MAX, ErrorTemplate};
use fencepost_protocol::claims::{CLAIM_TTL_MS, TTL_MS_MAX};
use serde_json::{Map, Value, json};

/// Limits of a field.
enum Limit {
    Name,
    Names,
    Header,
    OwnHeader,
    Headers {
        most: Option<usize>,
    },
    Patterns,
    Millis {
        least: u64,
        most: u64,
    },
    Bytes {
        most: u64,
    },
    Count {
        least: u64,
        most: u64,
    },
    /// Anything else.
    Json(fn() -> Value),
}

use Limit::{Count, Header, Headers, Json, Millis, Name, Names, OwnHeader, Patterns};

/// Type, field and limits.
const LIMITS: &[(&str, &str, Limit)] = &[
    ("Document", "key_prefix", Json(|| json!({"pattern": "^[a-z0-9._-]{1,63}$"}))),
    ("Document", "unmarked_policy", Name),
    ("Document", "defaults", Json(|| json!({"properties": {"namespace": false}}))),
    ("Document", "policies", Json(policies)),
    ("StoreLayer", "decide_cluster", Name),
    ("StoreLayer", "claim_cluster", Name),
    ("StoreLayer", "authority", Name),
    ("StoreLayer", "timeout", Millis { least: 1, most: STORE_TIMEOUT_MS_MAX as u64 }),
    ("PolicyLayer", "namespace", Name),
    ("PolicyLayer", "methods", Json(methods)),
    ("PolicyLayer", "scope", Json(|| json!({"minItems": 1, "maxItems": LIST_LEN_MAX, "uniqueItems": true}))),
    ("PolicyLayer", "wait", Millis { least: 1, most: WAIT_MS_MAX as u64 }),
    (
        "PolicyLayer",
        "claim_ttl",
        Millis { least: *CLAIM_TTL_MS.start() as u64, most: *CLAIM_TTL_MS.end() as u64 },
    ),
    ("PolicyLayer", "max_run", Millis { least: 1, most: MAX_RUN_MS_MAX as u64 }),
    (
        "PolicyLayer",
        "same_payload_window",
        Millis { least: *WINDOW_MS.start() as u64, most: *WINDOW_MS.end() as u64 },
    ),
    ("PolicyLayer", "require_metadata", Names),
    ("ErrorsLayer", "content_type", Json(content_type)),
    ("ErrorsLayer", "body", Json(error_body)),
    (
        "ErrorsLayer",
        "type_base",
        Json(
            || json!({"maxLength": NAME_LEN_MAX, "pattern": r#"^[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~]*$"#}),
        ),
    ),
    ("GrantLayer", "token", Json(|| grant_place(&without(&HTTP_HEADERS, "authorization")))),
    ("GrantLayer", "operation_id", Json(|| grant_place(&HTTP_HEADERS))),
    ("GrantLayer", "operation_mac", Json(|| grant_place(&HTTP_HEADERS))),
    ("GrantLayer", "scheme", Json(|| header(&[&PROXY_HEADERS[..], &ORDINARY_SCHEMES[..]].concat()))),
    ("GrantLayer", "caller_namespace", Name),
    ("GrantLayer", "path", Json(|| json!({"pattern": r"^(/([^/{}?#]*|\{[^/{}]+\}))+$"}))),
    ("GrantLayer", "details", Json(grant_details)),
    ("GrantLayer", "status_address", Json(status_address)),
    ("KeyLayer", "header", OwnHeader),
    ("KeyLayer", "aliases", Headers { most: None }),
    ("KeyLayer", "max_length", Count { least: 1, most: KEY_LENGTH_MAX }),
    ("FingerprintLayer", "properties", Json(properties)),
    ("FingerprintLayer", "headers", Headers { most: Some(LIST_LEN_MAX) }),
    (
        "FingerprintLayer",
        "hosts",
        Json(|| json!({"maxItems": LIST_LEN_MAX, "uniqueItems": true, "items": merged(name())})),
    ),
    ("FingerprintLayer", "max_body", Limit::Bytes { most: BODY_MAX }),
    ("ResponseLayer", "ttl", Millis { least: 1, most: TTL_MS_MAX }),
    ("ResponseLayer", "unknown_ttl", Millis { least: 1, most: TTL_MS_MAX }),
    ("ResponseLayer", "max_body", Limit::Bytes { most: BODY_MAX }),
    ("ResponseLayer", "statuses", Json(|| json!({"propertyNames": {"pattern": "^[2-5](xx|[0-9]{2})$"}}))),
    ("StatusStore", "ttl", Millis { least: 1, most: TTL_MS_MAX }),
    ("HeadersLayer", "deny", Patterns),
    ("HeadersLayer", "allow", Patterns),
    ("MarkersLayer", "replayed", OwnHeader),
    ("MarkersLayer", "original_status", OwnHeader),
    ("MarkersLayer", "expires", OwnHeader),
    ("PathLayer", "template", Json(|| json!({"pattern": r"^(/([^/{}?#]*|\{[^/{}]+\}))+$"}))),
    ("PathLayer", "variables", Json(|| json!({"uniqueItems": true}))),
    ("OutcomeLayer", "succeeded", Json(|| json!({"uniqueItems": true}))),
    ("OutcomeLayer", "failed", Json(|| json!({"uniqueItems": true}))),
    ("DetachedLayer", "cluster", Name),
    ("DetachedLayer", "timeout", Millis { least: 1, most: MAX_RUN_MS_MAX as u64 }),
    ("DownstreamLayer", "provider", Json(provider)),
    ("DownstreamLayer", "operation", Name),
    ("DownstreamLayer", "header", OwnHeader),
    ("DownstreamLayer", "length", Count { least: HEX_DIGITS_MIN as u64, most: HEX_DIGITS_MAX as u64 }),
    ("JwtLayer", "payload", Name),
    ("JwtLayer", "claim", Name),
    ("JwtLayer", "filter", Name),
    ("MetadataLayer", "filter", Name),
    (
        "MetadataLayer",
        "path",
        Json(|| json!({"minItems": 1, "maxItems": LIST_LEN_MAX, "items": merged(name())})),
    ),
    ("FilterStateLayer", "key", Name),
    ("HeaderLayer", "name", Header),
    ("HeaderLayer", "trusted", Json(|| json!({"const": true}))),
    ("ConstantLayer", "value", Name),
];

/// Adds the limits of a type's fields to its definition.
pub(super) fn limit(definition: &mut Map<String, Value>, name: &str) {
    if name == "HeaderLayer"
        && let Some(required) = definition.get_mut("required").and_then(Value::as_array_mut)
    {
        required.push("trusted".into());
    }
    if name == "QueryLayer" {
        let choices = definition.get_mut("anyOf").and_then(Value::as_array_mut);
        let list = choices.into_iter().flatten().find(|choice| choice.get("items").is_some());
        if let Some(list) = list {
            merge(list, words(&Names));
        }
    }
    let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (of, field, limit) in LIMITS {
        if let (true, Some(property)) = (*of == name, properties.get_mut(*field)) {
            merge(property, words(limit));
        }
    }
}

fn words(limit: &Limit) -> Value {
    match limit {
        Name => name(),
        Names => json!({"uniqueItems": true, "items": merged(name())}),
        Header => header(&PROXY_HEADERS),
        OwnHeader => header(&[&PROXY_HEADERS[..], &HTTP_HEADERS[..]].concat()),
        Headers { most } => {
            let mut list = json!({"uniqueItems": true, "items": merged(header(&PROXY_HEADERS))});
            if let Some(most) = most {
                merge(&mut list, json!({"maxItems": most}));
            }
            list
        }
        Patterns => {
            json!({"uniqueItems": true, "items": {"type": "string", "pattern": r"^[!#$%&'+.^_`|~0-9A-Za-z-]+\*?$"}})
        }
        Millis { least, most } => {
            let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
            json!({"pattern": quantities(&units, *least, *most)})
        }
        Limit::Bytes { most } => {
            json!({"pattern": quantities(&[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)], 1, *most)})
        }
        Count { least, most } => json!({"minimum": least, "maximum": most}),
        Json(make) => make(),
    }
}

/// Blanks, written out: what \s means differs between readers of expressions.
const BLANK: &str = r" \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000";

/// Not empty, not too long, no control characters.
fn name() -> Value {
    const CONTROL: &str = r"\u0000-\u001f\u007f-\u009f";
    json!({"maxLength": NAME_LEN_MAX, "pattern": format!("^[^{CONTROL}]*[^{BLANK}{CONTROL}][^{CONTROL}]*$")})
}

/// The name of a provider: a known one in its own spelling, or another.
fn provider() -> Value {
    let known: Vec<_> = PROVIDERS.iter().map(|name| any_case(name)).collect();
    let mut name = name();
    let spelt = json!({"not": {"pattern": format!("^[{BLANK}]*({})[{BLANK}]*$", known.join("|"))}});
    merge(&mut name, json!({"anyOf": [{"enum": PROVIDERS}, spelt]}));
    name
}

/// A header name, other than some and those of the proxy.
fn header(others: &[&str]) -> Value {
    let others: Vec<_> = others.iter().map(|name| format!("{}$", any_case(name))).collect();
    let prefixes: Vec<_> = PROXY_PREFIXES.iter().map(|prefix| any_case(prefix)).collect();
    json!({
        "maxLength": NAME_LEN_MAX,
        "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
        "not": {"pattern": format!("^({}|{})", prefixes.join("|"), others.join("|"))},
    })
}

fn any_case(text: &str) -> String {
    let one = |c: char| {
        if c.is_ascii_lowercase() { format!("[{c}{}]", c.to_ascii_uppercase()) } else { c.to_string() }
    };
    text.chars().map(one).collect()
}

/// Where a grant's token or an operation's id may be.
fn grant_place(others: &[&str]) -> Value {
    let elsewhere = ["path", "scope", "constant"].map(|kind| json!({"required": [kind]}));
    let places = json!({
        "header": header(&[&PROXY_HEADERS[..], others].concat()),
        "body": {"maxLength": PROPERTY_LEN_MAX, "pattern": "^/([^~]|~[01])*$"},
    });
    json!({"properties": places, "not": {"anyOf": elsewhere}})
}

/// An address or a path with one place for the id.
fn status_address() -> Value {
    let id = r"\{operation_id\}";
    json!({"maxLength": 1_024, "pattern": format!("^(?!.*{id}.*{id})(/|http)[!-~]*{id}[!-~]*$")})
}

fn grant_details() -> Value {
    let mut source = grant_place(&HTTP_HEADERS);
    merge(&mut source, json!({"properties": {"constant": name()}}));
    if let Some(source) = source.as_object_mut() {
        source.remove("not");
    }
    let mut names = name();
    merge(&mut names, json!({"not": {"pattern": "^fencepost\\."}}));
    json!({"maxProperties": DETAILS_MAX, "propertyNames": names, "additionalProperties": source})
}

fn without<'a>(names: &[&'a str], one: &str) -> Vec<&'a str> {
    names.iter().filter(|name| **name != one).copied().collect()
}

fn policies() -> Value {
    json!({"propertyNames": name(), "additionalProperties": {"required": ["namespace"]}})
}

fn methods() -> Value {
    json!({"minItems": 1, "uniqueItems": true, "items": {
        "type": "string",
        "pattern": "^[!#$%&'*+.^_`|~0-9A-Z-]+$",
        "not": {"enum": ["CONNECT", "HEAD", "OPTIONS", "TRACE"]},
    }})
}

fn content_type() -> Value {
    let token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
    json!({"maxLength": 255, "pattern": format!("^ *{token}/{token} *(;[ -~]*)?$")})
}

fn error_body() -> Value {
    let known: Vec<_> =
        ErrorTemplate::PLACEHOLDERS.iter().map(|name| name.trim_matches(['{', '}'])).collect();
    let unknown = format!("\\{{(?!({})\\}})[a-z_]+\\}}", known.join("|"));
    json!({"maxLength": BODY_LEN_MAX, "not": {"pattern": unknown}})
}

fn properties() -> Value {
    json!({"maxItems": LIST_LEN_MAX, "uniqueItems": true, "items": {
        "type": "string",
        "maxLength": PROPERTY_LEN_MAX,
        "pattern": "^([^/]|/([^~]|~[01])*$)",
    }})
}

/// The limits of a text in a list.
fn merged(mut limits: Value) -> Value {
    merge(&mut limits, json!({"type": "string"}));
    limits
}

/// Adds members, in objects inside objects as well.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// An expression for whole numbers with a unit, from one number of the smallest unit to another.
fn quantities(units: &[(&str, u64)], least: u64, most: u64) -> String {
    let of_unit = |(unit, factor): &(&str, u64)| {
        let (from, to) = (least.div_ceil(*factor), most.checked_div(*factor)?);
        (from <= to).then(|| format!("({}){unit}", numbers(from, to).join("|")))
    };
    format!("^0*({})$", units.iter().filter_map(of_unit).collect::<Vec<_>>().join("|"))
}

/// Expressions for the decimal numbers from one to another, without leading zeros.
fn numbers(from: u64, to: u64) -> Vec<String> {
    let mut all = Vec::new();
    let mut start = from;
    while start <= to {
        let digits = start.checked_ilog10().unwrap_or_default();
        let last = 10_u64.checked_pow(digits + 1).map_or(u64::MAX, |next| next - 1).min(to);
        of_one_length(&start.to_string(), &last.to_string(), &mut all);
        let Some(next) = last.checked_add(1) else { break };
        start = next;
    }
    all
}

/// The same where both have as many digits.
fn of_one_length(from: &str, to: &str, all: &mut Vec<String>) {
    let (Some(first), Some(last)) = (from.chars().next(), to.chars().next()) else { return };
    let (rest_from, rest_to) = (from.get(1..).unwrap_or_default(), to.get(1..).unwrap_or_default());
    let any = if rest_from.is_empty() { String::new() } else { format!("[0-9]{{{}}}", rest_from.len()) };
    let whole = |first: char, last: char| {
        if first == last { format!("{first}{any}") } else { format!("[{first}-{last}]{any}") }
    };
    let lowest = rest_from.bytes().all(|b| b == b'0');
    let highest = rest_to.bytes().all(|b| b == b'9');
    if lowest && highest {
        return all.push(whole(first, last));
    }
    if first == last {
        let mut inner = Vec::new();
        of_one_length(rest_from, rest_to, &mut inner);
        return all.extend(inner.into_iter().map(|rest| format!("{first}{rest}")));
    }
    let step = |digit: char, by: i8| char::from((digit as u8).wrapping_add_signed(by));
    if !lowest {
        of_one_length(from, &format!("{first}{}", "9".repeat(rest_from.len())), all);
    }
    let (low, high) =
        (if lowest { first } else { step(first, 1) }, if highest { last } else { step(last, -1) });
    if low <= high {
        all.push(whole(low, high));
    }
    if !highest {
        of_one_length(&format!("{last}{}", "0".repeat(rest_to.len())), to, all);
    }
}
