//! Where lists may stand: a list in the place of an object would be read field by field, by
//! position, and mean something that nobody wrote.

use super::ConfigError;
use super::error::found;
use serde_json::Value;

/// Fields that hold a list, wherever they are.
const LISTS: [&str; 13] = [
    "methods",
    "scope",
    "downstream_keys",
    "require_metadata",
    "aliases",
    "properties",
    "hosts",
    "variables",
    "deny",
    "allow",
    "query",
    "succeeded",
    "failed",
];

/// Fields that hold a list below one parent only.
const LISTS_BELOW: [(&str, &str); 2] = [("fingerprint", "headers"), ("metadata", "path")];

/// Refuses a list that stands where no list belongs.
pub(super) fn reject_misplaced_lists(value: &Value) -> Result<(), ConfigError> {
    walk(value, "", "", &mut String::new())
}

fn walk(value: &Value, parent: &str, name: &str, path: &mut String) -> Result<(), ConfigError> {
    let len = path.len();
    match value {
        Value::Object(map) => {
            for (field, value) in map {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(field);
                walk(value, name, field, path)?;
                path.truncate(len);
            }
        }
        Value::Array(list) => {
            if !(LISTS.contains(&name) || LISTS_BELOW.contains(&(parent, name))) {
                return Err(ConfigError::new(
                    path.as_str(),
                    found(Some(value)),
                    "an object or a single value",
                ));
            }
            for (n, value) in list.iter().enumerate() {
                path.push_str(&format!("[{n}]"));
                // Inside a list, a list has no name that would allow it.
                walk(value, name, "", path)?;
                path.truncate(len);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}
