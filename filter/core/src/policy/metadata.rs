//! A policy layer out of a host's metadata: `filter_metadata.fencepost` of a route or virtual host.
//!
//! The host's bytes do not say what they are (see [`crate::host_value`]), so the field that is
//! read decides: text, number, bool, list or map, and anything else is an error. A list comes as
//! a map whose names are the elements and whose values are empty. Where a field takes more than
//! one type, text is told from maps and lists by the NUL bytes that these always have. Only an
//! empty list and an empty map look the same, and a map of names without values like a list.

use super::ConfigError;
use super::error::shortened;
use super::layer::PolicyLayer;
use crate::host_value::{Pairs, decode_bool, decode_f64, decode_pairs};
use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_path_to_error::{Path, Segment};

/// What a route or virtual host says.
#[derive(Debug, Clone, Default)]
pub(super) struct Marking {
    /// The policy that it names.
    pub policy: Option<String>,
    /// Whether it overrides anything.
    pub overrides: bool,
    /// What it overrides.
    pub layer: PolicyLayer,
}

/// Reads the metadata's bytes.
pub(super) fn marking(bytes: &[u8]) -> Result<Marking, ConfigError> {
    let pairs = decode_pairs(bytes).map_err(|_| {
        ConfigError::new("configuration", describe(bytes), "an object with the policy's name")
    })?;
    let (named, rest): (Pairs<'_>, Pairs<'_>) = pairs.into_iter().partition(|(name, _)| *name == b"policy");
    let policy = match named.first() {
        None => None,
        Some((_, value)) => Some(
            text(value)
                .filter(|name| !name.is_empty())
                .ok_or_else(|| ConfigError::new("policy", describe(value), "the name of a policy"))?,
        ),
    };
    let overrides = !rest.is_empty();
    let fields = MapDeserializer::new(rest.into_iter().map(|(name, value)| (Value(name), Value(value))));
    let layer =
        serde_path_to_error::deserialize(fields).map_err(|error: serde_path_to_error::Error<Error>| {
            ConfigError::from_serde(error, |path| {
                value_at(bytes, path).map_or("nothing".to_owned(), describe)
            })
        })?;
    Ok(Marking { policy: policy.map(str::to_owned), overrides, layer })
}

/// Text has no control characters: they would be numbers, bools, maps or lists.
fn text(bytes: &[u8]) -> Option<&str> {
    core::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// What bytes look like, for errors.
fn describe(bytes: &[u8]) -> String {
    if let Some(text) = text(bytes) {
        return shortened(format!("{text:?}"));
    }
    match unexpected(bytes) {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Seq if bytes.iter().all(|b| *b == 0) => "{} or []".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "an object".to_owned(),
        _ => "something unreadable".to_owned(),
    }
}

fn unexpected(bytes: &[u8]) -> Unexpected<'_> {
    if let Some(text) = text(bytes) {
        return Unexpected::Str(text);
    }
    match (decode_pairs(bytes), decode_bool(bytes), decode_f64(bytes)) {
        (Ok(pairs), _, _) if is_list(&pairs) => Unexpected::Seq,
        (Ok(_), _, _) => Unexpected::Map,
        (_, Some(value), _) => Unexpected::Bool(value),
        (_, _, Some(value)) => Unexpected::Float(value),
        _ => Unexpected::Other("unreadable bytes"),
    }
}

fn is_list(pairs: &Pairs<'_>) -> bool {
    pairs.iter().all(|(_, value)| value.is_empty())
}

fn value_at<'a>(bytes: &'a [u8], path: &Path) -> Option<&'a [u8]> {
    let mut at = bytes;
    for segment in path.iter() {
        let pairs = decode_pairs(at);
        at = match segment {
            Segment::Seq { index } => pairs.ok()?.get(*index)?.0,
            Segment::Map { key } | Segment::Enum { variant: key } => match pairs {
                Ok(pairs) => pairs.iter().find(|(name, _)| *name == key.as_bytes())?.1,
                // A unit variant stands for itself.
                Err(_) => at,
            },
            Segment::Unknown => at,
        };
    }
    Some(at)
}

/// A value in the host's encoding.
#[derive(Clone, Copy)]
struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    fn wrong<'de, V: Visitor<'de>>(self, visitor: &V) -> Error {
        Error::invalid_type(unexpected(self.0), visitor)
    }

    fn list<'de, V: Visitor<'de>>(self, visitor: &V) -> Result<Vec<Value<'a>>, Error> {
        match decode_pairs(self.0) {
            Ok(pairs) if is_list(&pairs) => {
                Ok(pairs.into_iter().map(|(element, _)| Value(element)).collect())
            }
            Ok(_) | Err(_) => Err(self.wrong(visitor)),
        }
    }
}

impl<'de> IntoDeserializer<'de, Error> for Value<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! as_text {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match text(self.0) {
                Some(text) => visitor.visit_borrowed_str(text),
                None => Err(self.wrong(&visitor)),
            }
        }
    )*};
}

macro_rules! as_number {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match decode_f64(self.0) {
                Some(number) => visitor.visit_f64(number),
                None => Err(self.wrong(&visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    /// Bytes: an empty map and an empty list are the same.
    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match unexpected(self.0) {
            Unexpected::Str(text) => visitor.visit_borrowed_str(text),
            Unexpected::Bool(value) => visitor.visit_bool(value),
            Unexpected::Float(value) => visitor.visit_f64(value),
            Unexpected::Seq => self.deserialize_seq(visitor),
            Unexpected::Map => self.deserialize_map(visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    as_text! { deserialize_str deserialize_string deserialize_identifier deserialize_char }

    as_number! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match decode_bool(self.0) {
            Some(value) => visitor.visit_bool(value),
            None => Err(self.wrong(&visitor)),
        }
    }

    /// A field that is there has a value: the host can't hand over a null.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let elements = self.list(&visitor)?;
        visitor.visit_seq(SeqDeserializer::new(elements.into_iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match decode_pairs(self.0) {
            Ok(pairs) => visitor.visit_map(MapDeserializer::new(
                pairs.into_iter().map(|(name, value)| (Value(name), Value(value))),
            )),
            Err(_) => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Some(text) = text(self.0) {
            return visitor.visit_enum(BorrowedStrDeserializer::new(text));
        }
        match decode_pairs(self.0).as_deref() {
            Ok([(name, value)]) => visitor.visit_enum(Variant { name: Value(name), value: Value(value) }),
            Ok(_) | Err(_) => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf unit unit_struct tuple tuple_struct }
}

/// A variant with its settings: a map of one name.
struct Variant<'a> {
    name: Value<'a>,
    value: Value<'a>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = Value<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Value<'de>), Error> {
        Ok((seed.deserialize(self.name)?, self.value))
    }
}

impl<'de> VariantAccess<'de> for Value<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Err(Error::invalid_type(Unexpected::NewtypeVariant, &"a name without settings"))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_value::tests::host_bytes;
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    /// A layer from a host's bytes and the same one from JSON.
    fn both(layer: Json) -> (String, String) {
        let of_host = marking(&host_bytes(&layer)).unwrap_or_else(|error| panic!("{error}")).layer;
        let of_json: PolicyLayer = serde_json::from_value(layer).unwrap();
        (format!("{of_host:?}"), format!("{of_json:?}"))
    }

    #[test]
    fn every_kind_of_field_reads_as_it_does_in_json() {
        for layer in [
            json!({}),
            json!({"namespace": "n", "mode": "observe", "wait": "3s", "anonymous": true, "on_lost": "rerun"}),
            json!({"methods": ["POST", "PUT"], "require_metadata": []}),
            json!({"key": {"header": "X-Key", "aliases": ["a", "b"], "required": false, "format": "plain", "max_length": 64}}),
            json!({"scope": ["host", "peer_san", {"host": {}}, {"peer_san": true}, {"constant": {"value": "v"}},
                {"jwt": {"payload": "p", "claim": "c"}}, {"metadata": {"filter": "f", "path": ["a", "b"]}},
                {"header": {"name": "n", "trusted": true}}, {"filter_state": {"key": "k"}}]}),
            json!({"fingerprint": {"query": "sorted", "body": "none", "path": {"template": "/{a}", "variables": ["a"]}}}),
            json!({"fingerprint": {"query": ["a", "b"], "properties": ["x"], "max_body": "1KiB"}}),
            json!({"fingerprint": {"query": []}}),
            json!({"response": {"statuses": {"404": "release", "5xx": {"ttl": "1m"}}, "headers": {"deny": ["a"], "allow": ["b"]},
                "markers": {"replayed": "x-r"}, "cors_expose": true, "oversized": "rerun"}}),
            json!({"execution": "inline", "retries": "allow", "concurrency": "conflict"}),
            json!({"execution": {"detached": {"cluster": "c", "loopback": true, "timeout": "65s"}}}),
            json!({"downstream_keys": [{"provider": "p", "operation": "o", "header": "h", "form": "hex", "length": 40}]}),
            json!({"errors": {"content_type": "text/plain", "body": "{code}"}, "same_payload_window": "1m"}),
        ] {
            let (of_host, of_json) = both(layer);
            assert_eq!(of_host, of_json);
        }
    }

    #[test]
    fn an_empty_list_and_an_empty_object_are_one() {
        let layer = |value: Json| format!("{:?}", marking(&host_bytes(&value)).unwrap().layer);
        assert_eq!(layer(json!({"key": []})), layer(json!({"key": {}})));
        assert_eq!(layer(json!({"methods": {}})), layer(json!({"methods": []})));
    }

    #[test]
    fn a_wrong_override_is_named_by_its_path_and_shown() {
        for (metadata, path, found) in [
            (json!({"wiat": "5s"}), "wiat", "an unknown field"),
            (json!({"wait": 5}), "wait", "5"),
            (json!({"wait": true}), "wait", "true"),
            (json!({"wait": "5"}), "wait", "\"5\""),
            (json!({"wait": {"s": "5"}}), "wait", "an object"),
            (json!({"anonymous": "true"}), "anonymous", "\"true\""),
            (json!({"anonymous": 1}), "anonymous", "1"),
            (json!({"methods": "POST"}), "methods", "\"POST\""),
            (json!({"methods": {"POST": "yes"}}), "methods", "an object"),
            (json!({"methods": ["POST", 1]}), "methods[1]", "1"),
            (json!({"key": "x"}), "key", "\"x\""),
            (json!({"key": {"required": "no"}}), "key.required", "\"no\""),
            (json!({"key": {"max_length": "64"}}), "key.max_length", "\"64\""),
            (json!({"key": {"max_length": 1.5}}), "key.max_length", "1.5"),
            (json!({"key": {"name": "x"}}), "key.name", "an unknown field"),
            (json!({"mode": "enforced"}), "mode", "\"enforced\""),
            (json!({"scope": [{"everyone": {}}]}), "scope[0].everyone", "{} or []"),
            (json!({"execution": "detached"}), "execution.detached", "\"detached\""),
            (json!({"fingerprint": {"query": "some"}}), "fingerprint.query", "\"some\""),
            (json!({"policy": 1}), "policy", "1"),
            (json!({"policy": ""}), "policy", "\"\""),
            (json!({"policy": ["a"]}), "policy", "a list"),
            (json!({"token": "hunter2"}), "token", "a field that looks like a secret"),
        ] {
            let error = marking(&host_bytes(&metadata)).expect_err(path);
            assert_eq!((error.path.as_str(), error.found.as_str()), (path, found), "{metadata}: {error}");
            assert!(!error.expected.is_empty() && !error.to_string().contains("hunter2"), "{error}");
        }
        for text in ["payments", "", "\u{1}"] {
            let error = marking(text.as_bytes()).unwrap_err();
            assert_eq!(error.path, "configuration", "metadata that is no object");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_layer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = marking(&bytes);
        }

        #[test]
        fn a_field_with_any_bytes_is_read_or_an_error(
            field in "wait|key|scope|methods|anonymous|mode|response|fingerprint|execution|downstream_keys",
            value in proptest::collection::vec(any::<u8>(), 0..60), deep in any::<bool>()) {
            let mut bytes = 1u32.to_le_bytes().to_vec();
            let nested = if deep { [&1u32.to_le_bytes()[..], &[1, 0, 0, 0], &(value.len() as u32).to_le_bytes(), b"a\0", &value, &[0]].concat() } else { value };
            bytes.extend((field.len() as u32).to_le_bytes());
            bytes.extend((nested.len() as u32).to_le_bytes());
            bytes.extend([field.as_bytes(), &[0], &nested, &[0]].concat());
            let _ = marking(&bytes);
        }
    }
}
