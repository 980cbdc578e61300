//! The configuration as written: every field may be absent, and an absent field never resets what
//! the layer below says.
//!
//! Layers, most specific first: the metadata of a route, that of its virtual host, the policy,
//! `defaults`, the built-in defaults.

use super::quantity::{Bytes, Count, Millis};
use core::fmt;
use serde::Deserialize;
use serde::de::{
    Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor, value::MapAccessDeserializer,
};
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub store: StoreLayer,
    pub key_prefix: String,
    #[serde(default)]
    pub unmarked_routes: UnmarkedLayer,
    pub unmarked_policy: Option<String>,
    #[serde(default)]
    pub defaults: PolicyLayer,
    #[serde(default)]
    pub policies: UniqueMap<PolicyLayer>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StoreLayer {
    pub decide_cluster: String,
    pub claim_cluster: String,
    pub timeout: Option<Millis>,
    pub authority: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnmarkedLayer {
    #[default]
    Ignore,
    GuardWhenKeyPresent,
    RequireKey,
}

/// Defines a layer and how it falls back to the layer below, field by field.
macro_rules! layer {
    ($name:ident { $($field:ident: $type:ty,)* } nested { $($inner:ident: $layer:ty,)* }) => {
        #[derive(Debug, Clone, Default, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(pub $field: Option<$type>,)*
            $(pub $inner: $layer,)*
        }

        impl $name {
            #[allow(dead_code)] // Only the outermost layer is asked.
            pub const FIELDS: &[&str] = &[$(stringify!($field),)* $(stringify!($inner),)*];

            pub fn or(self, below: &Self) -> Self {
                Self {
                    $($field: self.$field.or_else(|| below.$field.clone()),)*
                    $($inner: self.$inner.or(&below.$inner),)*
                }
            }
        }
    };
}

pub(super) use layer;

layer!(PolicyLayer {
    namespace: String,
    mode: ModeLayer,
    methods: Vec<String>,
    scope: Vec<ScopeEntry>,
    anonymous: bool,
    concurrency: ConcurrencyLayer,
    wait: Millis,
    claim_ttl: Millis,
    max_run: Millis,
    on_lost: fencepost_protocol::claims::OnLost,
    execution: ExecutionLayer,
    retries: RetriesLayer,
    downstream_keys: Vec<DownstreamLayer>,
    require_metadata: Vec<String>,
    same_payload_window: Millis,
} nested {
    errors: ErrorsLayer,
    key: KeyLayer,
    fingerprint: FingerprintLayer,
    response: ResponseLayer,
    grant: super::grant::GrantLayer,
});

layer!(KeyLayer {
    header: String,
    aliases: Vec<String>,
    required: bool,
    format: KeyFormatLayer,
    max_length: Count,
} nested {});

layer!(FingerprintLayer {
    body: BodyLayer,
    properties: Vec<String>,
    duplicate_members: DuplicatesLayer,
    numbers: NumbersLayer,
    query: QueryLayer,
    path: PathLayer,
    headers: Vec<String>,
    hosts: Vec<String>,
    max_body: Bytes,
} nested {});

layer!(ResponseLayer {
    ttl: Millis,
    unknown_ttl: Millis,
    max_body: Bytes,
    keep: KeepLayer,
    oversized: OversizedLayer,
    cors_expose: bool,
} nested {
    statuses: UniqueMap<StatusLayer>,
    headers: HeadersLayer,
    markers: MarkersLayer,
});

layer!(ErrorsLayer { content_type: String, body: String, type_base: String, } nested {});

layer!(HeadersLayer { deny: Vec<String>, allow: Vec<String>, } nested {});

layer!(MarkersLayer { replayed: String, original_status: String, expires: String, } nested {});

macro_rules! words {
    ($($name:ident { $($variant:ident),* })*) => {
        $(
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
            #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
            #[serde(rename_all = "snake_case")]
            pub enum $name { $($variant),* }
        )*
    };
}

words! {
    ModeLayer { Enforce, Observe, Off }
    ConcurrencyLayer { Wait, Conflict }
    RetriesLayer { Suppress, Allow }
    KeyFormatLayer { Lenient, Structured, Plain }
    BodyLayer { Json, Bytes, None }
    DuplicatesLayer { Raw, Last, Reject }
    NumbersLayer { Text }
    KeepLayer { Answer, Status }
    OversizedLayer { Gone, Rerun }
    QueryWord { All, Sorted, None }
    FormLayer { Hex, Uuid }
}

#[derive(Debug, Clone)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(untagged))]
pub enum QueryLayer {
    Word(QueryWord),
    Names(Vec<String>),
}

struct QueryVisitor;

impl<'de> Visitor<'de> for QueryVisitor {
    type Value = QueryLayer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all, sorted, none, or a list of parameter names")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<QueryLayer, E> {
        match word {
            "all" => Ok(QueryLayer::Word(QueryWord::All)),
            "sorted" => Ok(QueryLayer::Word(QueryWord::Sorted)),
            "none" => Ok(QueryLayer::Word(QueryWord::None)),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<QueryLayer, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            names.push(name);
        }
        Ok(QueryLayer::Names(names))
    }
}

// By hand, as the next one: an untagged enum does not say where in it a mistake is.
impl<'de> Deserialize<'de> for QueryLayer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(QueryVisitor)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PathLayer {
    pub template: String,
    #[serde(default)]
    pub variables: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExecutionLayer {
    Inline,
    Detached(DetachedLayer),
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DetachedLayer {
    pub cluster: String,
    #[serde(default)]
    pub loopback: bool,
    pub timeout: Millis,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DownstreamLayer {
    pub provider: String,
    pub operation: String,
    pub header: String,
    pub form: Option<FormLayer>,
    pub length: Option<Count>,
}

#[derive(Debug, Clone)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(untagged))]
pub enum StatusLayer {
    Word(StatusWord),
    Store(StatusStore),
}

struct StatusVisitor;

impl<'de> Visitor<'de> for StatusVisitor {
    type Value = StatusLayer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("store, release, or {ttl: DURATION}")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<StatusLayer, E> {
        match word {
            "store" => Ok(StatusLayer::Word(StatusWord::Store)),
            "release" => Ok(StatusLayer::Word(StatusWord::Release)),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StatusLayer, A::Error> {
        StatusStore::deserialize(MapAccessDeserializer::new(map)).map(StatusLayer::Store)
    }
}

impl<'de> Deserialize<'de> for StatusLayer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(StatusVisitor)
    }
}

words! { StatusWord { Store, Release } }

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StatusStore {
    pub ttl: Millis,
}

/// One scope source, with its settings.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScopeLayer {
    Jwt(JwtLayer),
    PeerSan(Empty),
    Metadata(MetadataLayer),
    FilterState(FilterStateLayer),
    Header(HeaderLayer),
    Host(Empty),
    Constant(ConstantLayer),
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JwtLayer {
    pub payload: String,
    pub claim: String,
    pub filter: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MetadataLayer {
    pub filter: String,
    pub path: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FilterStateLayer {
    pub key: String,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HeaderLayer {
    pub name: String,
    #[serde(default)]
    pub trusted: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConstantLayer {
    pub value: String,
}

/// Settings of a source that has none: `host`, `{host: {}}` or `{host: true}`.
#[derive(Debug, Clone, Copy)]
pub struct Empty;

/// Whether an empty list is taken: a host's empty map looks like one.
struct EmptyVisitor {
    list: bool,
}

impl<'de> Visitor<'de> for EmptyVisitor {
    type Value = Empty;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{} or true")
    }

    fn visit_unit<E: Error>(self) -> Result<Empty, E> {
        Ok(Empty)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Empty, E> {
        if value { Ok(Empty) } else { Err(E::custom("expected {} or true")) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Empty, A::Error> {
        match list.next_element::<IgnoredAny>()? {
            None if self.list => Ok(Empty),
            None | Some(_) => Err(A::Error::custom("expected {} or true")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Empty, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct None {}
        None::deserialize(MapAccessDeserializer::new(map)).map(|None {}| Empty)
    }
}

impl<'de> Deserialize<'de> for Empty {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let list = !d.is_human_readable();
        d.deserialize_any(EmptyVisitor { list })
    }
}

/// A scope source with its settings, or by its name alone where it has none.
#[derive(Debug, Clone)]
pub struct ScopeEntry(pub ScopeLayer);

struct ScopeEntryVisitor;

impl<'de> Visitor<'de> for ScopeEntryVisitor {
    type Value = ScopeEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "{jwt: ..}, {metadata: ..}, {filter_state: ..}, {header: ..}, {constant: ..}, host or peer_san",
        )
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ScopeEntry, E> {
        match name {
            "host" => Ok(ScopeEntry(ScopeLayer::Host(Empty))),
            "peer_san" => Ok(ScopeEntry(ScopeLayer::PeerSan(Empty))),
            _ => Err(E::invalid_value(Unexpected::Str(name), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScopeEntry, A::Error> {
        ScopeLayer::deserialize(MapAccessDeserializer::new(map)).map(ScopeEntry)
    }
}

impl<'de> Deserialize<'de> for ScopeEntry {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ScopeEntryVisitor)
    }
}

/// A map of free names in which no name may stand twice.
#[derive(Debug, Clone)]
pub struct UniqueMap<V>(pub BTreeMap<String, V>);

impl<V> Default for UniqueMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: Clone> UniqueMap<V> {
    pub fn or(mut self, below: &Self) -> Self {
        for (name, value) in &below.0 {
            self.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }
}

struct UniqueMapVisitor<V>(core::marker::PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueMapVisitor<V> {
    type Value = UniqueMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMap<V>, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value()?;
            if entries.insert(name, value).is_some() {
                return Err(A::Error::custom("each name once"));
            }
        }
        Ok(UniqueMap(entries))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(UniqueMapVisitor(core::marker::PhantomData))
    }
}
