//! The schema and the program refuse the same values of single fields, and take the same.

use fencepost_filter_core::policy::Config;
use fencepost_store::check::schema_text;
use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// What a program says about a setting that is wrong only beside another one.
const IN_COMBINATION: [&str; 17] = [
    "a {name} of ",
    "the name of a policy",
    "more than max_run",
    "each source once",
    "each header once",
    "a body for this content type",
    "JSON, as the content type says",
    "either a scope or anonymous",
    "or anonymous: true",
    "a grant is one caller's",
    "in which set of ids",
    "each status in one list",
    "1 to 48 details",
    "detached: a client that leaves",
    "where it is: the same in every retry",
    "a scheme of its own",
    "{header: NAME} or {body: POINTER}",
];

static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::validator_for(&serde_json::from_str(&schema_text()).unwrap()).unwrap());

/// A configuration that is right, with a value at a path; `P` stands for its policy.
fn configuration(path: &str, value: &Value) -> Value {
    let mut document = json!({
        "store": {"decide_cluster": "a", "claim_cluster": "b"},
        "key_prefix": "p",
        "policies": {"pay": {"namespace": "n", "scope": ["host"], "max_run": "1ms"}},
    });
    let mut at = &mut document;
    for name in path.replace("P/", "policies/pay/").split('/') {
        at = match name.parse::<usize>() {
            Ok(0) => {
                *at = json!([{}]);
                &mut at[0]
            }
            _ => at.as_object_mut().unwrap().entry(name).or_insert(json!({})),
        };
    }
    *at = value.clone();
    // What else these fields need.
    if path == "P/errors/content_type" {
        document["policies"]["pay"]["errors"]["body"] = json!("1");
    }
    if path == "P/errors/body" {
        document["policies"]["pay"]["errors"]["content_type"] = json!("text/plain");
    }
    document
}

fn verdicts(document: &Value) -> (bool, bool) {
    (VALIDATOR.is_valid(document), Config::parse(document.to_string().as_bytes()).is_ok())
}

fn detached(field: &str, value: Value) -> Value {
    let mut detached = json!({"cluster": "c", "timeout": "65s"});
    detached[field] = value;
    json!({"detached": detached})
}

fn downstream(field: &str, value: Value) -> Value {
    let mut key = json!({"provider": "own", "operation": "o", "header": "x-key"});
    key[field] = value;
    json!([key])
}

/// What a name may and may not be.
fn names() -> (Vec<Value>, Vec<Value>) {
    let (long, longer) = ("ü".repeat(255), "x".repeat(256));
    (
        vec![json!("a"), json!(" a b "), json!("ü/日本"), json!(long)],
        vec![
            json!(""),
            json!(" "),
            json!("a\u{7f}"),
            json!("a\nb"),
            json!("\u{85}"),
            json!(longer),
            json!(1),
        ],
    )
}

fn headers() -> (Vec<Value>, Vec<Value>) {
    let (long, longer) = ("x".repeat(255), "x".repeat(256));
    (
        vec![json!("X-Key"), json!("a!#$%&'*+-.^_`|~9"), json!("x-env"), json!("hosts"), json!(long)],
        vec![
            json!(""),
            json!("a b"),
            json!("a:"),
            json!("ü"),
            json!("x-envoy-a"),
            json!("X-Fencepost-a"),
            json!("Host"),
            json!("content-Length"),
            json!("transfer-encoding"),
            json!("connection"),
            json!(longer),
        ],
    )
}

fn own_headers() -> (Vec<Value>, Vec<Value>) {
    let (good, mut bad) = headers();
    bad.extend(
        ["accept", "Authorization", "cookie", "Set-Cookie", "www-authenticate", "TE"].map(Value::from),
    );
    (good, bad)
}

fn list(of: (Vec<Value>, Vec<Value>)) -> (Vec<Value>, Vec<Value>) {
    let each = |values: Vec<Value>| values.into_iter().map(|value| json!([value])).collect();
    (each(of.0), each(of.1))
}

fn texts(good: &[&str], bad: &[&str]) -> (Vec<Value>, Vec<Value>) {
    (good.iter().map(|text| json!(text)).collect(), bad.iter().map(|text| json!(text)).collect())
}

/// Fields with values that are right and wrong.
fn table() -> Vec<(String, Vec<Value>, Vec<Value>)> {
    let mut rows = Vec::new();
    let mut row = |path: &str, (good, bad): (Vec<Value>, Vec<Value>)| rows.push((path.to_owned(), good, bad));
    for path in ["store/decide_cluster", "store/claim_cluster", "store/authority", "P/namespace"] {
        row(path, names());
    }
    row("P/require_metadata", list(names()));
    row("P/fingerprint/hosts", list(names()));
    row("P/fingerprint/query", list(names()));
    row("P/scope/0/constant/value", names());
    row("P/scope/0/filter_state/key", names());
    let with = |make: &dyn Fn(Value) -> Value, (good, bad): (Vec<Value>, Vec<Value>)| {
        (good.into_iter().map(make).collect::<Vec<_>>(), bad.into_iter().map(make).collect::<Vec<_>>())
    };
    for field in ["payload", "claim", "filter"] {
        let make = |value| {
            let mut jwt = json!({"payload": "p", "claim": "c"});
            jwt[field] = value;
            json!([{"jwt": jwt}])
        };
        row("P/scope", with(&make, names()));
    }
    row("P/scope", with(&|value| json!([{"metadata": {"filter": value, "path": ["a"]}}]), names()));
    row("P/scope", with(&|value| json!([{"metadata": {"filter": "f", "path": [value]}}]), names()));
    row("P/scope", with(&|value| json!([{"header": {"name": value, "trusted": true}}]), headers()));
    row(
        "P/scope",
        (
            vec![json!(["peer_san"]), json!([{"peer_san": true}]), json!([{"host": {}}])],
            vec![
                json!([]),
                json!(["host", "host"]),
                json!([{"header": {"name": "a"}}]),
                json!([{"header": {"name": "a", "trusted": false}}]),
                json!([{"metadata": {"filter": "f", "path": []}}]),
                json!([{"metadata": {"filter": "f", "path": vec!["a"; 33]}}]),
                json!((0..33).map(|i| json!({"constant": {"value": i.to_string()}})).collect::<Vec<_>>()),
                json!([{"host": false}]),
                json!([{"host": []}]),
                json!([{}]),
            ],
        ),
    );
    row("P/execution", with(&|value| detached("cluster", value), names()));
    row("P/downstream_keys", with(&|value| downstream("provider", value), names()));
    row("P/downstream_keys", with(&|value| downstream("operation", value), names()));
    row("P/downstream_keys", with(&|value| downstream("header", value), own_headers()));
    row(
        "P/downstream_keys",
        with(
            &|value| downstream("length", value),
            (
                vec![json!(32), json!(64), json!(40.0)],
                vec![json!(31), json!(65), json!(-1), json!(40.5), json!("40")],
            ),
        ),
    );
    row("P/key/header", own_headers());
    row("P/key/aliases", list(headers()));
    row(
        "P/key/max_length",
        (vec![json!(1), json!(1024), json!(9.0)], vec![json!(0), json!(1025), json!(-1), json!(1.5)]),
    );
    for marker in ["replayed", "original_status", "expires"] {
        row(&format!("P/response/markers/{marker}"), own_headers());
    }
    row("P/fingerprint/headers", list(headers()));
    let many = |count: u32| json!((0..count).map(|n| format!("a{n}")).collect::<Vec<_>>());
    for field in ["headers", "hosts", "properties"] {
        row(&format!("P/fingerprint/{field}"), (vec![many(32)], vec![many(33)]));
    }
    // Each once, in every list.
    for (path, value) in [
        ("P/key/aliases", "a"),
        ("P/methods", "POST"),
        ("P/require_metadata", "a"),
        ("P/fingerprint/properties", "a"),
        ("P/fingerprint/headers", "a"),
        ("P/fingerprint/hosts", "a"),
        ("P/fingerprint/query", "a"),
        ("P/response/headers/deny", "a"),
        ("P/response/headers/allow", "a*"),
    ] {
        row(path, (vec![json!([value])], vec![json!([value, value])]));
    }
    row(
        "P/fingerprint/path",
        with(
            &|value| json!({"template": "/{a}/{b}", "variables": value}),
            (vec![json!([]), json!(["a", "b"])], vec![json!(["a", "a"])]),
        ),
    );
    row(
        "P/downstream_keys",
        with(
            &|value| downstream("provider", value),
            texts(
                &["stripe", "adyen", "paypal", "square", "squares", "my square", "générique"],
                &["Stripe", "ADYEN", "PayPal", " square", "square ", "\u{3000}Square\u{a0}"],
            ),
        ),
    );
    let (long, longer) = ("x".repeat(1024), "x".repeat(1025));
    row(
        "P/fingerprint/properties",
        list(texts(
            &["a", "a~b", "/a/b", "/", "/a~0b~1", "/a\nb", &long],
            &["", "/a~", "/a~2", "/~", &longer],
        )),
    );
    row("P/fingerprint/numbers", texts(&["text"], &["jcs", "float", "value", "Text", "text ", ""]));
    row(
        "P/fingerprint/path",
        with(
            &|value| json!({"template": value}),
            texts(
                &["/", "/a", "/a/{b}/c", "//", "/{b}"],
                &["", "a", "/{", "/{}", "/a{b}", "/a?", "/a#", "/{a{b}}"],
            ),
        ),
    );
    row(
        "P/methods",
        (
            vec![json!(["POST"]), json!(["M-SEARCH", "GET"])],
            vec![
                json!([]),
                json!(["post"]),
                json!([""]),
                json!(["CONNECT"]),
                json!(["TRACE"]),
                json!(["A B"]),
            ],
        ),
    );
    for rule in ["deny", "allow"] {
        row(
            &format!("P/response/headers/{rule}"),
            list(texts(&["a", "X-a-*", "x-envoy-*"], &["", "*", "a*b", "a b", "a**"])),
        );
    }
    row(
        "P/response/statuses",
        (
            vec![json!({"200": "store"}), json!({"599": "release"}), json!({"4xx": {"ttl": "400d"}})],
            vec![
                json!({"199": "store"}),
                json!({"600": "store"}),
                json!({"6xx": "store"}),
                json!({"20": "store"}),
                json!({"4XX": "store"}),
                json!({"404": {"ttl": "401d"}}),
                json!({"404": {}}),
            ],
        ),
    );
    row(
        "P/errors/content_type",
        texts(
            &["text/plain", "application/json", "text/html; charset=utf-8", " a/b "],
            &["", "text", "a/b/c", "a /b", "text/plain; ü", "a/b\n", &format!("a/{}", "b".repeat(254))],
        ),
    );
    row(
        "P/errors/body",
        texts(
            &["", "{code}{title}", "{ }{}{Code}{", "{{status}}", &"x".repeat(16_384)],
            &["{key}", "a {x} {code}", &"x".repeat(16_385)],
        ),
    );
    row(
        "P/errors/type_base",
        texts(
            &["https://docs.example/problems#", "urn:x:", "a:"],
            &["", "problems#", ":", "1a:", "a b:", "https://a/{code}", "https://a/\"", "https://ü/", "a:\\"],
        ),
    );
    row("key_prefix", texts(&["a", "a-b.c_9", &"x".repeat(63)], &["", "A", "a b", &"x".repeat(64)]));
    row("defaults", (vec![json!({"wait": "1s"})], vec![json!({"namespace": "n"}), json!({"wait": "2m"})]));
    row(
        "policies",
        (
            vec![json!({}), json!({"a b": {"namespace": "n", "anonymous": true}})],
            vec![
                json!({"": {"namespace": "n", "anonymous": true}}),
                json!({"a\n": {"namespace": "n", "anonymous": true}}),
                json!({"a": {"anonymous": true}}),
            ],
        ),
    );
    for (path, good, bad) in QUANTITIES {
        row(path, texts(good, bad));
    }
    let ranges = texts(&["65s", "24h", "1440m", "2ms", "1d"], &["0s", "25h", "86400001ms", "2d", "5"]);
    row("P/execution", with(&|value| detached("timeout", value), ranges));
    rows
}

/// Durations and sizes, at and beyond their bounds.
const QUANTITIES: &[(&str, &[&str], &[&str])] = &[
    (
        "store/timeout",
        &["1ms", "60s", "1m", "60000ms", "007s"],
        &["0ms", "61s", "2m", "60001ms", "1h", "1", "1 s", "-1s"],
    ),
    ("P/wait", &["1ms", "60s", "1m", "999ms"], &["61s", "60001ms", "1h", "1d", "5", "", "1.5s"]),
    ("P/claim_ttl", &["1s", "1000ms", "3600s", "60m", "1h"], &["999ms", "0s", "3601s", "61m", "2h", "1d"]),
    ("P/max_run", &["1ms", "24h", "1d", "86400s"], &["25h", "2d", "86401s", "1441m"]),
    ("P/same_payload_window", &["1s", "1d", "24h"], &["999ms", "2d", "86400001ms"]),
    (
        "P/response/ttl",
        &["1ms", "400d", "9600h", "34560000s"],
        &["401d", "9601h", "34560001s", "99999999999999999999999d"],
    ),
    ("P/response/unknown_ttl", &["400d"], &["401d", "0d"]),
    (
        "P/response/max_body",
        &["1B", "16MiB", "16384KiB", "16777216B"],
        &["0B", "17MiB", "16385KiB", "1GiB", "1MB", "1"],
    ),
    ("P/fingerprint/max_body", &["1B", "16MiB"], &["0B", "17MiB", "16777217B"]),
];

/// Fields of a grant, in a policy that has all it needs.
fn of_grants() -> Vec<(&'static str, Vec<Value>, Vec<Value>)> {
    let with = |make: &dyn Fn(Value) -> Value, (good, bad): (Vec<Value>, Vec<Value>)| {
        (good.into_iter().map(make).collect::<Vec<_>>(), bad.into_iter().map(make).collect::<Vec<_>>())
    };
    let mut rows = Vec::new();
    let mut row = |field, (good, bad)| rows.push((field, good, bad));
    for field in ["token", "operation_id", "operation_mac"] {
        row(field, with(&|value| json!({"header": value}), own_headers_but_authorization()));
        row(field, with(&|value| json!({"body": value}), texts(&["/a", "/a~0/b"], &["", "a", "/a~2"])));
        row(field, (vec![], vec![json!({"constant": "a"}), json!({"scope": {}}), json!({"path": "a"})]));
    }
    row("scheme", texts(&["Grant", "x"], &["", "a b", "Bearer", "basic", "DPoP", "x-envoy-a"]));
    row("caller_namespace", names());
    row("path", texts(&["/a/{b}"], &["a", "/{}", "/a?"]));
    row("details", with(&|value| json!({"a": {"constant": value}}), names()));
    row("details", with(&|value| json!({"a": {"body": value}}), texts(&["/a"], &["a", "/~"])));
    row("details", with(&|value| json!({"a": {"header": value}}), own_headers()));
    row(
        "details",
        (
            vec![json!({"a b": {"constant": "1"}}), json!({"fencepost": {"constant": "1"}})],
            vec![json!({"": {"constant": "1"}}), json!({"fencepost.a": {"constant": "1"}})],
        ),
    );
    row(
        "status_address",
        texts(
            &["/v1/{operation_id}", "https://a/{operation_id}/x"],
            &["/v1", "v1/{operation_id}", "/{operation_id}/{operation_id}", "/ {operation_id}"],
        ),
    );
    rows
}

fn own_headers_but_authorization() -> (Vec<Value>, Vec<Value>) {
    let (good, mut bad) = own_headers();
    bad.retain(|value| value != "Authorization");
    (good, bad)
}

#[test]
fn schema_and_program_agree_on_the_limits_of_grants() {
    let mut wrong = Vec::new();
    for (field, good, bad) in of_grants() {
        for (value, right) in
            good.iter().map(|value| (value, true)).chain(bad.iter().map(|value| (value, false)))
        {
            let mut document = configuration("key_prefix", &json!("p"));
            document["policies"]["pay"] = json!({
                "namespace": "n", "scope": ["peer_san"], "execution": {"detached": {"cluster": "c", "loopback": true, "timeout": "65s"}},
                "grant": {"token": {"header": "x-grant"}, "operation_id": {"header": "x-op"}, "caller_namespace": "c", "details": {"a": {"constant": "1"}}},
            });
            assert_eq!(verdicts(&document), (true, true));
            document["policies"]["pay"]["grant"][field] = value.clone();
            let (schema, program) = verdicts(&document);
            if (schema, program) != (right, right) {
                wrong.push(format!("{field} {value}: schema {schema}, program {program}, right {right}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn schema_and_program_agree_on_every_limit_of_a_field() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for (path, good, bad) in table() {
        for (value, right) in
            good.iter().map(|value| (value, true)).chain(bad.iter().map(|value| (value, false)))
        {
            tried += 1;
            let (schema, program) = verdicts(&configuration(&path, value));
            if (schema, program) != (right, right) {
                wrong.push(format!("{path} {value}: schema {schema}, program {program}, right {right}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 500, "{tried}");
}

/// Every value in a document, as a JSON pointer.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, inner)| (name.clone(), inner)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, inner)| (n.to_string(), inner)).collect(),
        _ => Vec::new(),
    };
    for (name, inner) in inner {
        let at = format!("{at}/{name}");
        pointers(inner, &at, found);
        found.push(at);
    }
}

/// Other values for a place: other spellings of the one that is right, and what is nearly right elsewhere.
fn others(right: &Value) -> Vec<Value> {
    let mut others = vec![json!({}), json!([]), json!([["a"]]), json!({"a": 1}), json!(true), json!(false)];
    others.extend([json!(0), json!(1), json!(-1), json!(1.5), json!(40.0), json!(404), json!(1e300)]);
    let texts = [
        "",
        " ",
        "a",
        "Stripe",
        "square ",
        "value",
        "jcs",
        "off",
        "Off",
        "on",
        "true",
        "null",
        "0",
        "5",
        "0s",
        "5s",
        "10 s",
        "1h30m",
        "0.5s",
        "1.5s",
        "-5s",
        "5S",
        "5 s",
        "90s",
        "007s",
        "1KiB",
        "1 KiB",
        "1kib",
        "1.5KiB",
        "2xx",
        "2XX",
        "404",
        "host",
        "Host",
        "x-envoy-a",
        "Content-Type",
        "authorization",
        "Grant",
        "bearer",
        "/a",
        "/{a}",
        "{a}",
        "a*",
        "*",
        "a b",
        "a\u{0}",
        "ü",
        "POST",
        "post",
        "https://a/",
        "text/plain",
        "{code}",
        "{key}",
        "$.a",
    ];
    others.extend(texts.map(Value::from));
    others.push(json!("x".repeat(300)));
    match right {
        Value::String(text) => {
            let mut first_upper = text.clone();
            first_upper[..1].make_ascii_uppercase();
            let spellings = [
                text.to_uppercase(),
                first_upper,
                format!(" {text}"),
                format!("{text} "),
                format!("{text}\n"),
            ];
            others.extend(spellings.map(Value::from));
            others.push(json!([text]));
        }
        Value::Array(items) => {
            let twice = items.iter().chain(items.first()).cloned().collect::<Vec<_>>();
            others.extend([json!(twice), json!(items.iter().rev().collect::<Vec<_>>()), json!(items[..1])]);
        }
        Value::Object(members) => {
            let mut more = members.clone();
            more.insert("wrong".to_owned(), json!("a"));
            others.push(Value::Object(more));
            for name in members.keys() {
                let mut fewer = members.clone();
                fewer.remove(name);
                others.push(Value::Object(fewer));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    others
}

#[test]
fn schema_and_program_agree_on_every_spelling_in_every_field() {
    let full: Value =
        serde_json::from_str(include_str!("../../../filter/core/src/policy/every_field.json")).unwrap();
    assert_eq!(verdicts(&full), (true, true));
    let mut all = Vec::new();
    pointers(&full, "", &mut all);
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for pointer in &all {
        for value in others(full.pointer(pointer).unwrap()) {
            let mut document = full.clone();
            *document.pointer_mut(pointer).unwrap() = value.clone();
            tried += 1;
            let schema = VALIDATOR.is_valid(&document);
            let program = Config::parse(document.to_string().as_bytes());
            match program {
                // A schema can't say what depends on another field; whatever it refuses, the program does.
                Err(error) if schema && IN_COMBINATION.iter().any(|part| error.expected.contains(part)) => {}
                program if program.is_ok() == schema => {}
                program => {
                    wrong.push(format!("{pointer} = {value}: schema {schema}, program {:?}", program.err()))
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 10_000, "{tried}");
}

#[test]
fn every_text_and_number_of_the_schema_has_its_limit() {
    let schema: Value = serde_json::from_str(&schema_text()).unwrap();
    let types = schema["$defs"].as_object().unwrap().iter().map(|(name, of)| (name.as_str(), of));
    let mut open = Vec::new();
    for (name, of) in types.chain([("Document", &schema)]) {
        for (field, property) in of["properties"].as_object().into_iter().flatten() {
            let text = property.get("items").unwrap_or(property);
            let limited =
                ["pattern", "enum", "const", "not", "maximum"].iter().any(|word| text.get(*word).is_some());
            let kind = text["type"].as_str().unwrap_or_default();
            let duration = text["$ref"] == "#/$defs/Duration" || text["$ref"] == "#/$defs/Size";
            if !limited && (duration || ["string", "integer"].contains(&kind)) {
                open.push(format!("{name}.{field}"));
            }
        }
    }
    // Names of the template's own variables.
    assert_eq!(open, ["PathLayer.variables"], "their limits belong into filter/core/src/policy/limits.rs");
}

proptest! {
    #[test]
    fn schema_and_program_agree_on_any_quantity(
        field in prop::sample::select(QUANTITIES.to_vec()),
        number in prop_oneof![0_u64..200, 0_u64..100_000, any::<u64>()],
        unit in prop::sample::select(vec!["ms", "s", "m", "h", "d", "B", "KiB", "MiB", "GiB", "", "S"]),
    ) {
        let document = configuration(field.0, &json!(format!("{number}{unit}")));
        let (schema, program) = verdicts(&document);
        prop_assert_eq!(schema, program, "{} {}{}", field.0, number, unit);
    }

    #[test]
    fn schema_and_program_agree_on_any_short_text(
        path in prop::sample::select(vec![
            "P/namespace", "P/key/header", "key_prefix", "P/errors/content_type", "P/errors/body", "P/wait",
            "P/errors/type_base",
        ]),
        text in "[-a-eA-C0-2 {}/*;:.~#<^`|\"\t\u{85}\u{3000}ü]{0,6}",
    ) {
        let (schema, program) = verdicts(&configuration(path, &json!(text)));
        prop_assert_eq!(schema, program, "{} {:?}", path, text);
    }

    #[test]
    fn schema_and_program_agree_on_any_path_and_property(text in "[a~01{}/?]{0,6}") {
        for (path, value) in [
            ("P/fingerprint/properties", json!([text])),
            ("P/response/headers/deny", json!([text])),
        ] {
            let (schema, program) = verdicts(&configuration(path, &value));
            prop_assert_eq!(schema, program, "{} {:?}", path, text);
        }
    }
}
