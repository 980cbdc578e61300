//! Every field, with every kind of mistake, in each form that a host hands over: the error names the
//! path of the field, and the same one in all forms.

use super::struct_config::tests::encode;
use super::*;
use crate::host_value::tests::host_bytes;
use serde_json::{Value, json};

/// A configuration in which every field stands.
fn full() -> Value {
    serde_json::from_str(include_str!("every_field.json")).unwrap()
}

#[derive(Clone)]
enum Step {
    Name(String),
    Item(usize),
}

/// Where every value of a document is.
fn places(value: &Value, at: &[Step], found: &mut Vec<Vec<Step>>) {
    let mut below = |step: Step, value: &Value| {
        let at = [at, &[step]].concat();
        found.push(at.clone());
        places(value, &at, found);
    };
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| below(Step::Name(name.clone()), value))
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(n, value)| below(Step::Item(n), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn path(at: &[Step]) -> String {
    let step = |step: &Step| match step {
        Step::Name(name) => format!(".{name}"),
        Step::Item(n) => format!("[{n}]"),
    };
    at.iter().map(step).collect::<String>().trim_start_matches('.').to_owned()
}

fn at_mut<'a>(document: &'a mut Value, at: &[Step]) -> &'a mut Value {
    at.iter().fold(document, |value, step| match step {
        Step::Name(name) => value.get_mut(name).unwrap(),
        Step::Item(n) => value.get_mut(n).unwrap(),
    })
}

/// What the filter says about a document, in both forms of its configuration.
fn refusal(document: &Value) -> Option<ConfigError> {
    let of_text = Config::parse(document.to_string().as_bytes()).err();
    assert_eq!(of_text, Config::parse(&encode(document)).err(), "{document}");
    of_text
}

/// What it says about settings of a policy as the metadata of a route.
fn refusal_on_route(policy: &str, mut layer: Value) -> Option<ConfigError> {
    layer.as_object_mut()?.insert("policy".to_owned(), policy.into());
    let config = Config::parse(full().to_string().as_bytes()).unwrap();
    let marks = Marks { route: Some(host_bytes(&layer)), virtual_host: None };
    RoutePolicies::default().resolve(&config, marks).err().map(|(error, _)| error)
}

/// A path in metadata without what stands before the setting.
fn below_metadata(path: &str) -> &str {
    let path = path.strip_prefix("route.").unwrap_or(path);
    path.strip_prefix("filter_metadata.fencepost.").unwrap_or(path)
}

/// Values that are right nowhere where this one is.
fn mistakes(right: &Value) -> Vec<Value> {
    let mut wrong = vec![json!(null), json!([["a"]])];
    match right {
        Value::Object(_) => wrong.extend([json!("a"), json!(7), json!(false), json!(["a"])]),
        Value::Array(_) => wrong.extend([json!({"a": 1}), json!(7), json!(true)]),
        Value::Bool(_) => wrong.extend([json!("true"), json!("yes"), json!(1), json!({"a": 1})]),
        Value::Number(_) => wrong.extend([json!("40x"), json!(-1), json!(40.5), json!(1e300), json!(true)]),
        Value::String(text) => {
            wrong.extend([json!(7.5), json!(true), json!({"wrong": 1})]);
            if quantity::Millis::parse(text).is_some() {
                let texts = ["0s", "-1s", "1.5s", "10 s", "1h30m", "5", "5S", " 5s", "5s ", "+5s", "", "s"];
                wrong.extend(texts.map(Value::from));
                wrong.push(json!(5));
            } else if quantity::Bytes::parse(text).is_some() {
                wrong.extend(["0B", "-1B", "1.5KiB", "1 KiB", "1kb", "1KB", "1", ""].map(Value::from));
            }
        }
        Value::Null => {}
    }
    wrong
}

/// Words of which a field takes a few: another word, or another spelling, is none of them.
const WORDS: [&str; 17] = [
    "unmarked_routes",
    "mode",
    "concurrency",
    "on_lost",
    "execution",
    "retries",
    "form",
    "format",
    "body",
    "duplicate_members",
    "numbers",
    "query",
    "keep",
    "oversized",
    "404",
    "methods",
    "scope",
];

fn misspelt(word: &str) -> Vec<Value> {
    let mut first_upper = word.to_owned();
    first_upper[..1].make_ascii_uppercase();
    [word.to_uppercase(), first_upper, format!("{word} "), format!(" {word}"), "wrong".into(), String::new()]
        .into_iter()
        .filter(|other| other != word)
        .map(Value::from)
        .collect()
}

#[test]
fn every_mistake_in_every_field_is_named_by_its_path_in_every_form() {
    assert_eq!(refusal(&full()), None);
    let mut all = Vec::new();
    places(&full(), &[], &mut all);
    let (mut tried, mut wrong) = (0, Vec::new());
    for place in &all {
        let expected = path(place);
        let right = at_mut(&mut full(), place).clone();
        let word = place.iter().rev().find_map(|step| match step {
            Step::Name(name) => Some(name.as_str()),
            Step::Item(_) => None,
        });
        let mut values = mistakes(&right);
        if let (Some(word), Some(text)) = (word, right.as_str())
            && WORDS.contains(&word)
            && !["errors.body", "query[0]", "operation_id.body", "e.body"]
                .iter()
                .any(|free| expected.ends_with(free))
        {
            values.extend(misspelt(text).into_iter().filter(|value| word != "methods" || value != "WRONG"));
        }
        for value in values {
            let mut document = full();
            *at_mut(&mut document, place) = value.clone();
            tried += 1;
            let Some(error) = refusal(&document) else {
                wrong.push(format!("{expected} = {value} is taken"));
                continue;
            };
            // What is in a value may be named more closely.
            if !error.path.starts_with(&expected) {
                wrong.push(format!("{expected} = {value}: {error}"));
            }
            if error.found.is_empty() || error.expected.is_empty() || error.expected.contains("Layer") {
                wrong.push(format!("{expected} = {value}: {error}"));
            }
            let (Some(Step::Name(policies)), Some(Step::Name(policy)), true) =
                (place.first(), place.get(1), place.len() > 2 && !value.is_null())
            else {
                continue;
            };
            if policies != "policies" || value.is_null() {
                continue;
            }
            // A host does not tell an empty list from an empty object, nor a list of names from one of
            // names with nothing in them.
            if value == json!(["a"]) || value == json!([["a"]]) || value == json!("") && word == Some("ttl") {
                continue;
            }
            let setting = expected.strip_prefix(&format!("policies.{policy}.")).unwrap();
            match refusal_on_route(policy, document["policies"][policy].clone()) {
                Some(error) if below_metadata(&error.path).starts_with(setting) => {}
                Some(error) => wrong.push(format!("route: {setting} = {value}: {error}")),
                None => wrong.push(format!("route: {setting} = {value} is taken")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 700, "{tried}");
}

#[test]
fn an_unknown_field_is_named_in_every_object_and_every_form() {
    let mut all = vec![vec![]];
    places(&full(), &[], &mut all);
    // Names of these are free.
    let free = ["policies", "statuses", "details"];
    let mut tried = 0;
    for place in &all {
        let is_free = matches!(place.last(), Some(Step::Name(name)) if free.contains(&name.as_str()));
        let mut document = full();
        let Value::Object(members) = at_mut(&mut document, place) else { continue };
        if is_free {
            continue;
        }
        // One that has a single name of its own.
        let single = members.len() == 1
            && !matches!(place.last(), Some(Step::Name(name)) if ["defaults", "fingerprint"].contains(&name.as_str()))
            && !members.contains_key("ttl")
            && !members.contains_key("key")
            && !members.contains_key("value");
        members.insert("wrong".into(), json!("x"));
        let error = refusal(&document).unwrap_or_else(|| panic!("{} is taken", path(place)));
        let expected = if single { path(place) } else { format!("{}.wrong", path(place)) };
        assert_eq!(error.path.trim_start_matches('.'), expected.trim_start_matches('.'), "{error}");
        tried += 1;
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn a_struct_with_a_number_that_is_none_is_refused_by_its_path() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let marker = 123_456.5_f64;
        let mut document = full();
        document["policies"]["pay"]["key"]["max_length"] = json!(marker);
        let mut bytes = encode(&document);
        let place = bytes.windows(8).position(|eight| eight == marker.to_le_bytes()).unwrap();
        bytes[place..place + 8].copy_from_slice(&number.to_le_bytes());
        let error = Config::parse(&bytes).unwrap_err();
        assert_eq!(error.path, "policies.pay.key.max_length", "{error}");
    }
}

#[cfg(feature = "schema")]
#[test]
fn the_full_configuration_has_every_field() {
    let schema = schema();
    let types = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    let text = full().to_string();
    for field in types.filter_map(|of| of["properties"].as_object()).flat_map(|of| of.keys()) {
        assert!(
            text.contains(&format!("\"{field}\":")) || ["peer_san", "scope"].contains(&field.as_str()),
            "{field}"
        );
    }
}
