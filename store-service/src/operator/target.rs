//! Which entry: by its stored key, or computed from what the client sent and who it is.

use super::scope::StatedScope;
use clap::{Args, ValueEnum};
use fencepost_filter_core::key::{KeyFormat, parse_key};
use fencepost_filter_core::store_key::derive_store_key;
use fencepost_protocol::StoreKey;
use std::io::Read;

/// Longest key of a client, in bytes: above every policy's `max_length`.
const KEY_LEN_MAX: usize = 64 * 1024;

/// How a policy reads key headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// Bare text, or a Structured Field string.
    Lenient,
    /// A Structured Field string.
    Structured,
    /// Opaque bytes.
    Plain,
}

/// What a stored key is computed from. All of it is in the filter's configuration and the request.
#[derive(Debug, Args)]
pub struct Parts {
    /// The filter's key_prefix.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,

    /// The policy's namespace, as its configuration names it.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// How many guards the request had passed before this one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    depth: u32,

    /// The caller, as JSON: {"jwt": {"iss": "..", "sub": ".."}}, {"header": {"name": "..", "value": ".."}},
    /// {"host": ".."}, a list of several in the order of the policy, or "anonymous".
    #[arg(long, value_name = "JSON")]
    scope: Option<StatedScope>,

    /// The client's key as it stood in the header; `-` reads it from standard input.
    #[arg(long, value_name = "KEY")]
    client_key: Option<String>,

    /// How the policy reads keys.
    #[arg(long, value_enum, default_value = "lenient")]
    format: Format,
}

/// One entry.
#[derive(Debug, Args)]
pub struct Target {
    /// Stored key: PREFIX:32 hex digits. Or the flags that it is computed from.
    #[arg(value_name = "STORED_KEY")]
    key: Option<StoreKeyText>,

    #[command(flatten)]
    parts: Parts,
}

/// A stored key on the command line.
#[derive(Clone, Debug)]
struct StoreKeyText(StoreKey);

impl std::str::FromStr for StoreKeyText {
    type Err = fencepost_protocol::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        StoreKey::parse(text).map(Self)
    }
}

impl Target {
    /// The stored key.
    pub fn stored(&self) -> Result<StoreKey, String> {
        match &self.key {
            Some(StoreKeyText(key)) if self.parts.is_empty() => Ok(key.clone()),
            Some(_) => Err("found a stored key and what it is computed from; expected one of them".into()),
            None if self.parts.is_empty() => Err(
                "found no entry; expected a stored key, or --prefix, --namespace, --scope and --client-key"
                    .into(),
            ),
            None => self.parts.stored(),
        }
    }
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.prefix.is_none() && self.namespace.is_none() && self.scope.is_none() && self.client_key.is_none()
    }

    /// The stored key.
    pub fn stored(&self) -> Result<StoreKey, String> {
        let missing = |flag: &str| {
            format!(
                "{flag} is missing; a stored key is computed from --prefix, --namespace, \
                                            --scope and --client-key"
            )
        };
        let prefix = self.prefix.as_ref().ok_or_else(|| missing("--prefix"))?;
        let namespace = self.namespace.as_ref().ok_or_else(|| missing("--namespace"))?;
        let scope = self.scope.as_ref().ok_or_else(|| missing("--scope"))?;
        let scope = scope.resolve().map_err(|error| format!("--scope: {error}"))?;
        let line = match self.client_key.as_deref().ok_or_else(|| missing("--client-key"))? {
            "-" => from_input()?,
            text => text.as_bytes().to_vec(),
        };
        let format = match self.format {
            Format::Lenient => KeyFormat::Lenient,
            Format::Structured => KeyFormat::Structured,
            Format::Plain => KeyFormat::Plain,
        };
        let key =
            parse_key(&[&line], format, KEY_LEN_MAX).map_err(|error| format!("--client-key: {error}"))?;
        derive_store_key(prefix, namespace, self.depth, &scope, &key)
            .map_err(|error| format!("--prefix {prefix}: {error}"))
    }
}

/// One line of standard input.
fn from_input() -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    std::io::stdin()
        .take(KEY_LEN_MAX as u64 + 2)
        .read_to_end(&mut line)
        .map_err(|error| format!("--client-key: standard input can't be read: {error}"))?;
    while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        line.pop();
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        target: Target,
    }

    fn stored(arguments: &[&str]) -> Result<String, String> {
        let cli = Cli::try_parse_from([&["x"], arguments].concat()).map_err(|error| error.to_string())?;
        cli.target.stored().map(|key| key.to_string())
    }

    #[test]
    fn a_computed_key_is_the_one_that_the_filter_stores_under() {
        // The golden value of the filter's own test.
        let golden = Ok("prod:5d156d4c67cb1ee2cbe7e39f77950664".to_owned());
        let parts = ["--prefix", "prod", "--namespace", "payments", "--scope", r#"{"constant": "acme"}"#];
        for key in ["k1", "\"k1\"", "\"k1\";a=1"] {
            assert_eq!(stored(&[&parts[..], &["--client-key", key]].concat()), golden);
        }
        let deeper = stored(&[&parts[..], &["--client-key", "k1", "--depth", "1"]].concat());
        assert!(deeper.is_ok() && deeper != golden);
    }

    #[test]
    fn a_target_is_one_thing_and_whole() {
        let key = "prod:5d156d4c67cb1ee2cbe7e39f77950664";
        assert_eq!(stored(&[key]), Ok(key.to_owned()));
        assert!(stored(&[]).unwrap_err().contains("--client-key"));
        assert!(stored(&[key, "--prefix", "prod"]).unwrap_err().contains("one of them"));
        assert!(stored(&["--prefix", "prod"]).unwrap_err().contains("--namespace"));
        assert!(stored(&["prod:xyz"]).is_err());
    }
}
