//! A configuration that is refused: where, what was found, and what would be right.

use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: found {found}, expected {expected}", short_path(path))]
pub struct ConfigError {
    /// Path of the field, such as `policies.payments.wait`.
    pub path: String,
    /// What stands there; never the value of a field that looks like a secret.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

/// Most characters of a value that an error repeats.
const FOUND_LEN_MAX: usize = 60;

/// Most characters of a path that an error repeats, from its start and from its end: names in it may be of
/// any length, and the line goes into the host's log.
const PATH_LEN_MAX: (usize, usize) = (120, 120);

/// Path of the document itself.
const WHOLE: &str = "configuration";

/// Field names of later versions.
const NOT_BUILT: [&str; 6] = ["fail_open", "template", "templates", "quota", "previous", "body_ttl"];

const SECRETS: [&str; 8] =
    ["token", "secret", "password", "authorization", "credential", "bearer", "api_key", "private_key"];

impl ConfigError {
    /// An error at a path.
    pub fn new(path: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { path: path.into(), found: found.into(), expected: expected.into() }
    }

    /// A setting that has a meaning, but not in this version.
    pub fn not_available(path: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(path, found, "a setting that exists: this one is not available in this version")
    }

    /// From an error of serde; `found` shows the value that stands at a path.
    pub(super) fn from_serde<E: core::fmt::Display>(
        error: serde_path_to_error::Error<E>,
        found: impl FnOnce(&Path) -> String,
    ) -> Self {
        let path = error.path().clone();
        let message = error.inner().to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        let at = path_text(&path);
        if let Some(field) = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
            return Self::unknown_field(&at, field, &message);
        }
        if let Some(field) = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
            let at = if at == WHOLE { field.to_owned() } else { format!("{at}.{field}") };
            return Self::new(at, "nothing", "a value: the field is required");
        }
        if let Some(field) = message.strip_prefix("duplicate field `").and_then(|rest| rest.split('`').next())
        {
            let at = if at == WHOLE { field.to_owned() } else { format!("{at}.{field}") };
            return Self::new(at, "the field twice", "each field once");
        }
        let expected = message.split_once(", expected ").map_or(message.as_str(), |(_, expected)| expected);
        let expected = match expected.strip_prefix("expected ").unwrap_or(expected) {
            "newtype variant" => "an object: this word has settings",
            "unit" | "unit variant" => "the word alone: it has no settings",
            // A second name where an object has exactly one, which ends in a comma too many for the reader.
            "trailing comma" | "enum" => "an object of one name and its settings",
            "value" => "one of the documented words or objects",
            "a sequence" => "a list",
            "a boolean" => "true or false",
            "a string" | "string" => "text",
            "a map" => "an object",
            rust if rust.starts_with("struct ") => "an object",
            rust if rust.starts_with("enum ") => "one of the documented words or objects",
            other => other,
        };
        Self::new(at, found(&path), expected)
    }

    /// The same error, with its path below another.
    #[must_use]
    pub(super) fn below(mut self, base: &str) -> Self {
        self.path = if self.path == WHOLE { base.to_owned() } else { format!("{base}.{}", self.path) };
        self
    }

    fn unknown_field(at: &str, field: &str, message: &str) -> Self {
        // The path ends in the field where serde knows it; it is made so where it does not.
        let ends = at == field || at.strip_suffix(field).is_some_and(|rest| rest.ends_with('.'));
        let path = match at {
            WHOLE => field.to_owned(),
            _ if ends => at.to_owned(),
            _ => format!("{at}.{field}"),
        };
        let lower = field.to_ascii_lowercase();
        if SECRETS.iter().any(|word| lower.contains(word)) {
            return Self::new(
                path,
                "a field that looks like a secret",
                "no secret here: the filter holds none, the store cluster adds credentials \
                 (credential_injector with SDS, or a client certificate)",
            );
        }
        if NOT_BUILT.contains(&lower.as_str()) {
            return Self::not_available(path, "a field of a later version");
        }
        let expected = message.split_once(", expected ").map_or("no field here", |(_, expected)| expected);
        Self::new(path, "an unknown field", expected)
    }
}

/// A value as an error shows it.
pub(super) fn found(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| shortened(value.to_string()))
}

/// At most [`FOUND_LEN_MAX`] characters of a text.
pub(super) fn shortened(text: String) -> String {
    if text.chars().count() <= FOUND_LEN_MAX {
        return text;
    }
    text.chars().take(FOUND_LEN_MAX).chain("...".chars()).collect()
}

/// A path as an error shows it: a long one without its middle.
fn short_path(path: &str) -> String {
    let (start, end) = PATH_LEN_MAX;
    let cut = path.chars().count().saturating_sub(end);
    if cut <= start {
        return path.to_owned();
    }
    path.chars().take(start).chain("...".chars()).chain(path.chars().skip(cut)).collect()
}

fn path_text(path: &Path) -> String {
    let text = path.to_string();
    if text == "." || text.is_empty() { WHOLE.to_owned() } else { text }
}

pub(super) fn value_at<'a>(document: &'a Value, path: &Path) -> Option<&'a Value> {
    let mut value = document;
    for segment in path.iter() {
        value = match segment {
            Segment::Seq { index } => value.get(index)?,
            Segment::Map { key } | Segment::Enum { variant: key } => match value.get(key) {
                Some(inner) => inner,
                // A unit variant stands for itself.
                None if value.is_string() => value,
                None => return None,
            },
            Segment::Unknown => value,
        };
    }
    Some(value)
}

/// Finds a null: it is neither a value nor the absence of one.
pub(super) fn reject_nulls(value: &Value, path: &mut String) -> Result<(), ConfigError> {
    let len = path.len();
    match value {
        Value::Null => {
            return Err(ConfigError::new(path.clone(), "null", "a value, or no such field"));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                reject_nulls(item, path)?;
                path.truncate(len);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if len > 0 {
                    path.push('.');
                }
                path.push_str(name);
                reject_nulls(member, path)?;
                path.truncate(len);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}
