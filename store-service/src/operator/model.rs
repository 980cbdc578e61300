//! What operators and the service say to each other: JSON, for `/v1/entries`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes: a JSON string where they are UTF-8, else `{"base64": "..."}`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Octets(pub Vec<u8>);

impl std::fmt::Debug for Octets {
    /// Its length: it may be part of an answer.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Octets({} bytes)", self.0.len())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    base64: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or {\"base64\": \"...\"}")]
enum TextOrEncoded {
    Text(String),
    Encoded(Encoded),
}

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => Encoded { base64: BASE64_STANDARD.encode(&self.0) }.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match TextOrEncoded::deserialize(d)? {
            TextOrEncoded::Text(text) => Ok(Self(text.into_bytes())),
            TextOrEncoded::Encoded(encoded) => {
                BASE64_STANDARD.decode(encoded.base64).map(Self).map_err(D::Error::custom)
            }
        }
    }
}

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EntryView {
    /// Stored key.
    pub key: String,
    /// `claimed`, `completed`, `unknown` or `released`.
    pub state: String,
    /// What an order about it names.
    pub version: String,
    /// Fence of its last claim.
    pub fence: i64,
    /// Rules that made the fingerprint.
    pub scheme: String,
    /// What makes two requests the same, as hex digits.
    pub fingerprint: String,
    /// Digest of the caller's scope.
    pub scope: String,
    /// Why it is unknown, or was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// In a list: does a hold that stands keep its key from running?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// What happens to a claim whose holder says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lost: Option<String>,
    /// Milliseconds until the lease of a claim ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    /// Milliseconds for which the upstream of a claim may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_left_ms: Option<u64>,
    /// Milliseconds until the entry expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// Status of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of its answer's headers, as stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_len: Option<u64>,
    /// Bytes of its answer's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_len: Option<u64>,
    /// Its answer's headers, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<(String, Octets)>>,
    /// Its answer's body, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Octets>,
    /// When it began, in microseconds since 1970.
    pub created_at_us: i64,
    /// When it last changed.
    pub updated_at_us: i64,
    /// The store's clock when it was read.
    pub now_us: i64,
    /// What people did to it, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Vec<AuditLine>>,
}

impl EntryView {
    /// Milliseconds since its claim.
    pub fn age_ms(&self) -> u64 {
        u64::try_from(self.now_us.saturating_sub(self.created_at_us) / 1_000).unwrap_or(0)
    }
}

/// One line of the audit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditLine {
    /// When, in microseconds since 1970.
    pub at_us: i64,
    /// Who.
    pub who: String,
    /// What.
    pub action: String,
    /// To which version.
    pub version: String,
    /// The state that it was in.
    pub state_before: String,
    /// The state that it is in since.
    pub state_after: String,
    /// Was it done although the request may have been running?
    pub forced: bool,
    /// Why.
    pub reason: String,
}

/// A held key that recovery has given to a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MarkedView {
    /// Stored key.
    pub key: String,
    /// The version to name in an order.
    pub version: String,
    /// Look-ups that settled nothing.
    pub attempts: u32,
    /// What the last one found, as one word.
    pub result: String,
    /// Why a person is needed.
    pub reason: String,
    /// When it was given, in microseconds since 1970.
    pub marked_at_us: i64,
    /// Which recoverer gave it.
    pub by: String,
}

/// Such keys, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MarkedReply {
    /// The keys.
    pub keys: Vec<MarkedView>,
    /// Where to go on, if there may be more: the `after` of the next call.
    pub next: Option<String>,
}

/// Entries, in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListReply {
    /// The entries, without their answers.
    pub entries: Vec<EntryView>,
    /// Where to go on, if there may be more: the `after` of the next call.
    pub next: Option<String>,
}

/// The key may run again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseOrder {
    /// The version that was seen.
    pub version: String,
    /// Why.
    pub reason: String,
    /// Also where its request may be running.
    #[serde(default)]
    pub force: bool,
}

/// Recovery is to look again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookAgainOrder {
    /// The version that was seen.
    pub version: String,
    /// Why.
    pub reason: String,
}

/// What became of the request is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleOrder {
    /// The version that was seen.
    pub version: String,
    /// Why.
    pub reason: String,
    /// Also where its request may be running.
    #[serde(default)]
    pub force: bool,
    /// What became of it.
    pub with: SettleWith,
}

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SettleWith {
    /// It did not run: the key may.
    NotRun,
    /// It ran; retries get this answer.
    Answer {
        /// Status.
        status: u16,
        /// Headers, in order.
        #[serde(default)]
        headers: Vec<(String, Octets)>,
        /// Body.
        #[serde(default)]
        body: Octets,
        /// Lifetime of the answer, from now; a day if nothing is said.
        #[serde(default)]
        ttl_ms: Option<u64>,
    },
}

/// What is read of an error.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ProblemView {
    /// Stable code.
    pub code: String,
    /// For people.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_where_they_can_be() {
        for bytes in [&b"text"[..], b"", b"\xff\0", "ü".as_bytes()] {
            let octets = Octets(bytes.to_vec());
            let text = serde_json::to_string(&octets).unwrap();
            assert_eq!(text.starts_with('"'), std::str::from_utf8(bytes).is_ok(), "{text}");
            assert_eq!(serde_json::from_str::<Octets>(&text).unwrap(), octets);
        }
        for wrong in ["1", "{}", r#"{"base64": "?"}"#, r#"{"base64": "", "x": 1}"#] {
            assert!(serde_json::from_str::<Octets>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_order_with_an_unknown_member_is_refused() {
        let text = r#"{"version": "1.1", "reason": "r", "forced": true}"#;
        assert!(serde_json::from_str::<ReleaseOrder>(text).is_err());
    }
}
