//! The JSON Schema of the configuration, for editors and validators.
//!
//! Its shape comes from the types that the configuration is read into, so a field can't be missing.
//! Texts, defaults and limits that are no part of a type are added here, by type and field. A
//! schema says less than `Config::parse`: combinations of settings are checked only there.
//! Limits of single fields are in `limits`.

use super::layer::{Document, Empty, ScopeEntry, ScopeLayer, UniqueMap};
use super::limits::limit;
use super::quantity::{Bytes, Count, Millis};
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value};
use std::borrow::Cow;

const TITLE: &str = "Configuration of the Fencepost filter";

/// Type, field, its default as JSON text (empty if there is none), and its meaning.
const FIELDS: &[(&str, &str, &str, &str)] = &[
    ("Document", "store", "", "How to reach the store service."),
    (
        "Document",
        "key_prefix",
        "",
        "Readable beginning of every key in the store; tells environments apart. Another prefix is another set of keys.",
    ),
    ("Document", "unmarked_routes", "\"ignore\"", "What happens on routes without the filter's metadata."),
    ("Document", "unmarked_policy", "", "Policy of unmarked routes; required unless they are ignored."),
    ("Document", "defaults", "", "Settings below those of every policy; any but namespace."),
    (
        "Document",
        "policies",
        "",
        "Policies by name. Routes choose one by metadata: filter_metadata.fencepost.policy.",
    ),
    ("StoreLayer", "decide_cluster", "", "Envoy cluster for calls that are answered at once."),
    ("StoreLayer", "claim_cluster", "", "Envoy cluster for claims that may wait."),
    (
        "StoreLayer",
        "timeout",
        "\"2s\"",
        "Longest wait for a reply, beyond the time that a claim is parked; up to 60s.",
    ),
    ("StoreLayer", "authority", "", "The :authority of the calls; the cluster's name unless given."),
    (
        "PolicyLayer",
        "namespace",
        "",
        "Constant that keeps the keys of this policy apart, even if the policy is renamed. Required in each policy.",
    ),
    ("PolicyLayer", "mode", "\"enforce\"", "Guard, only say what guarding would have done, or neither."),
    ("PolicyLayer", "methods", "[\"POST\", \"PUT\", \"PATCH\"]", "Guarded methods, upper case."),
    (
        "PolicyLayer",
        "scope",
        "",
        "Whose key it is: sources that count together. Required, or anonymous: true.",
    ),
    ("PolicyLayer", "anonymous", "false", "All callers share one set of keys; instead of a scope."),
    ("PolicyLayer", "concurrency", "\"wait\"", "What a request does while another one with its key runs."),
    ("PolicyLayer", "wait", "\"5s\"", "How long it waits before 409; up to 60s."),
    ("PolicyLayer", "claim_ttl", "\"30s\"", "Lease of a claim, renewed at a third of it; 1s to 1h."),
    (
        "PolicyLayer",
        "max_run",
        "\"60s\"",
        "How long a request may run; replaces the route's timeout. Up to 24h.",
    ),
    (
        "PolicyLayer",
        "on_lost",
        "\"hold\"",
        "What becomes of a key whose answer is lost: kept closed, or run again by an equal request.",
    ),
    ("PolicyLayer", "execution", "\"inline\"", "Through the filter chain, or as a call of the filter's own."),
    (
        "PolicyLayer",
        "retries",
        "\"suppress\"",
        "Whether Envoy's own retries are switched off for guarded requests.",
    ),
    ("PolicyLayer", "downstream_keys", "[]", "Keys for the application's own providers, as request headers."),
    ("PolicyLayer", "require_metadata", "[]", "Filters that must have left dynamic metadata."),
    (
        "PolicyLayer",
        "same_payload_window",
        "",
        "With mode: observe, how long a payload is remembered to notice it under new keys.",
    ),
    ("PolicyLayer", "errors", "", "Errors in other words than problem+json."),
    ("PolicyLayer", "key", "", "The key header."),
    ("PolicyLayer", "fingerprint", "", "What makes two requests the same."),
    ("PolicyLayer", "response", "", "What is kept of answers."),
    ("ErrorsLayer", "content_type", "", "Content type of errors."),
    (
        "ErrorsLayer",
        "type_base",
        "\"urn:fencepost:problem:\"",
        "What {type} is before the code: where your clients find problems explained.",
    ),
    ("ErrorsLayer", "body", "", "Body of errors, with placeholders such as {code} and {status}."),
    (
        "PolicyLayer",
        "grant",
        "",
        "Makes the route one that admits one-time grants; needs execution: detached.",
    ),
    ("GrantLayer", "token", "", "Where the grant's token is: {header: NAME} or {body: POINTER}. Required."),
    ("GrantLayer", "scheme", "", "Word before the token in its header; needed in Authorization."),
    ("GrantLayer", "strip", "", "Whether the upstream does not get the header; true unless given."),
    ("GrantLayer", "operation_id", "", "Where the operation's id is, a UUID. Required."),
    ("GrantLayer", "operation_mac", "", "Where the MAC is that binds the id to the grant."),
    (
        "GrantLayer",
        "caller_namespace",
        "",
        "In which set of ids the caller's id is. Required unless the first source of the scope is a jwt.",
    ),
    ("GrantLayer", "tenant", "", "Source of the caller's tenant; one of those of a scope."),
    ("GrantLayer", "path", "", "Template of the path, such as /accounts/{account}/credits."),
    ("GrantLayer", "status_address", "", "Location of answers about operations, with {operation_id} in it."),
    ("GrantLayer", "details", "", "What the grant is compared with, as written in the request. Required."),
    ("GrantLayer", "outcome", "", "What the upstream's status means; any other is unknown."),
    ("OutcomeLayer", "succeeded", "[\"2xx\"]", "The effect exists."),
    ("OutcomeLayer", "failed", "[402, 422]", "There certainly is no effect."),
    ("KeyLayer", "header", "\"Idempotency-Key\"", "Where the key is."),
    ("KeyLayer", "aliases", "[]", "Other names of the header."),
    ("KeyLayer", "required", "true", "Whether a request without a key is refused."),
    (
        "KeyLayer",
        "format",
        "\"lenient\"",
        "How the key is written: bare or as a Structured Field string, only the latter, or any bytes.",
    ),
    ("KeyLayer", "max_length", "255", "Most bytes of the key; 1 to 1024."),
    (
        "FingerprintLayer",
        "body",
        "\"json\"",
        "JSON by meaning and anything else by bytes, always by bytes, or not at all.",
    ),
    (
        "FingerprintLayer",
        "properties",
        "[]",
        "Only these members count: names, or JSON pointers. Needs body: json.",
    ),
    (
        "FingerprintLayer",
        "duplicate_members",
        "\"raw\"",
        "JSON objects with one name twice: by bytes, the last counts, or refused. Needs body: json.",
    ),
    ("FingerprintLayer", "numbers", "\"text\"", "Numbers are compared as written."),
    (
        "FingerprintLayer",
        "query",
        "\"all\"",
        "As written, sorted by name, not at all, or only these parameters.",
    ),
    ("FingerprintLayer", "path", "", "Only the template and the chosen variables of the path count."),
    ("FingerprintLayer", "headers", "[]", "Headers whose values count."),
    ("FingerprintLayer", "hosts", "[]", "Requests to these hosts are told apart by host."),
    ("FingerprintLayer", "max_body", "\"512KiB\"", "Larger request bodies are refused; up to 16MiB."),
    ("ResponseLayer", "ttl", "\"24h\"", "Lifetime of an answer; up to 400d."),
    ("ResponseLayer", "unknown_ttl", "", "Lifetime of an unknown outcome; that of an answer unless given."),
    ("ResponseLayer", "max_body", "\"512KiB\"", "Larger answers are not kept; up to 16MiB."),
    ("ResponseLayer", "keep", "\"answer\"", "The whole answer, or only that it came and its status."),
    (
        "ResponseLayer",
        "oversized",
        "\"gone\"",
        "Retries of an answer that was too large get 410, or run again.",
    ),
    ("ResponseLayer", "cors_expose", "false", "Adds the marker headers to Access-Control-Expose-Headers."),
    ("ResponseLayer", "statuses", "{}", "What happens to answers by status (503) or class (4xx)."),
    ("ResponseLayer", "headers", "", "Which headers are kept, beyond those that never are."),
    ("ResponseLayer", "markers", "", "Names of the filter's own response headers."),
    ("HeadersLayer", "deny", "[]", "Not kept: names, or beginnings of names that end in *."),
    ("HeadersLayer", "allow", "", "If given, only these are kept."),
    ("MarkersLayer", "replayed", "\"X-Idempotent-Replayed\"", "true on a replay."),
    (
        "MarkersLayer",
        "original_status",
        "\"X-Idempotent-Original-Status\"",
        "Status of an answer that was not kept.",
    ),
    ("MarkersLayer", "expires", "\"X-Idempotent-Expires\"", "Seconds until the replayed answer expires."),
    ("PathLayer", "template", "", "Such as /v1/{id}/pay."),
    ("PathLayer", "variables", "[]", "Variables of the template that count."),
    ("DetachedLayer", "cluster", "", "Cluster that the request is sent to."),
    (
        "DetachedLayer",
        "loopback",
        "false",
        "Whether that is an internal listener of this Envoy, whose reports are believed.",
    ),
    ("DetachedLayer", "timeout", "", "Timeout of the call; longer than max_run."),
    (
        "DownstreamLayer",
        "provider",
        "",
        "stripe, adyen, paypal and square are known, with their limits; any other name has none.",
    ),
    ("DownstreamLayer", "operation", "", "Two calls to one provider need two."),
    ("DownstreamLayer", "header", "", "Request header that carries the key to the application."),
    ("DownstreamLayer", "form", "", "How the key is written; the provider's own way unless given."),
    ("DownstreamLayer", "length", "", "Hex digits, 32 to 64; not with form: uuid."),
    ("StatusStore", "ttl", "", "Lifetime of such answers."),
    ("JwtLayer", "payload", "", "payload_in_metadata of the jwt_authn provider."),
    ("JwtLayer", "claim", "", "The claim; always counts together with iss."),
    ("JwtLayer", "filter", "\"envoy.filters.http.jwt_authn\"", "Filter whose metadata holds the payload."),
    ("MetadataLayer", "filter", "", "Filter whose dynamic metadata it is."),
    ("MetadataLayer", "path", "", "Path of the value."),
    ("FilterStateLayer", "key", "", "Key of the filter state."),
    ("HeaderLayer", "name", "", "Name of the header."),
    ("HeaderLayer", "trusted", "", "Must be true: says that no client can set this header."),
    ("ConstantLayer", "value", "", "The same for everybody."),
];

/// The schema, draft 2020-12.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<Document>().to_value();
    without_nulls(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), TITLE.into());
        describe(root, "Document");
        limit(root, "Document");
    }
    let types = schema.get_mut("$defs").and_then(Value::as_object_mut);
    for (name, definition) in types.into_iter().flatten() {
        if let Some(definition) = definition.as_object_mut() {
            definition.remove("description");
            describe(definition, name);
            limit(definition, name);
        }
    }
    schema
}

/// A null is refused, so an optional field is one that may be absent, not one that may be null.
fn without_nulls(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    members.insert("type".to_owned(), one);
                }
            }
            if let Some(Value::Array(words)) = members.get_mut("enum") {
                words.retain(|word| !word.is_null());
            }
            if let Some(Value::Array(choices)) = members.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(one)] = choices.as_slice() {
                    let one = one.clone();
                    members.remove("anyOf");
                    members.extend(one);
                }
            }
            // What a type falls back to is said per field.
            members.remove("default");
            members.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn describe(definition: &mut Map<String, Value>, name: &str) {
    let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (of, field, default, meaning) in FIELDS {
        if let (true, Some(Value::Object(property))) = (*of == name, properties.get_mut(*field)) {
            property.insert("description".to_owned(), (*meaning).into());
            if let Ok(default) = serde_json::from_str::<Value>(default) {
                property.insert("default".to_owned(), default);
            }
        }
    }
}

impl JsonSchema for Millis {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^0*[1-9][0-9]*(ms|s|m|h|d)$", "examples": ["250ms", "30s", "24h"]})
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^0*[1-9][0-9]*(B|KiB|MiB|GiB)$", "examples": ["512KiB", "1MiB"]})
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 0})
    }
}

impl JsonSchema for Empty {
    fn schema_name() -> Cow<'static, str> {
        "Empty".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"const": true}, {"type": "object", "additionalProperties": false}]})
    }
}

impl JsonSchema for ScopeEntry {
    fn schema_name() -> Cow<'static, str> {
        "ScopeEntry".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let source = generator.subschema_for::<ScopeLayer>();
        json_schema!({"anyOf": [{"enum": ["host", "peer_san"]}, source]})
    }
}

impl<V: JsonSchema> JsonSchema for UniqueMap<V> {
    fn schema_name() -> Cow<'static, str> {
        format!("MapOf{}", V::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<V>();
        json_schema!({"type": "object", "additionalProperties": value})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every object of the schema with its name.
    fn objects(schema: &Value) -> Vec<(String, &Map<String, Value>)> {
        let types = schema["$defs"].as_object().unwrap();
        let types = types.iter().map(|(name, definition)| (name.clone(), definition));
        let all = types.chain([("Document".to_owned(), schema)]);
        all.filter_map(|(name, of)| Some((name, of.get("properties")?.as_object()?))).collect()
    }

    #[test]
    fn every_field_is_described_and_every_description_has_its_field() {
        let schema = schema();
        let mut described = 0;
        for (name, properties) in objects(&schema) {
            for (field, property) in properties {
                assert!(property.get("description").is_some(), "{name}.{field} has no description");
                described += 1;
            }
        }
        assert_eq!(described, FIELDS.len());
    }

    #[test]
    fn nothing_may_be_null_and_no_field_may_be_unknown() {
        let schema = schema();
        assert!(!schema.to_string().contains("null"), "{schema}");
        for (name, _) in objects(&schema) {
            let of = if name == "Document" { &schema } else { &schema["$defs"][&name] };
            assert_eq!(of["additionalProperties"], false, "{name}");
        }
    }
}
