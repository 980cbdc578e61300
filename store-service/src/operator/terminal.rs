//! What the commands share: how they print, ask a person, and end.

use super::client::{CallError, ClientArgs};
use super::print::printable;
use crate::desk::{OperationVersion, OperationVersionError};
use crate::entry::{Version, VersionError};
use crate::http::entries::reasoned;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// What every command takes.
#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub client: ClientArgs,

    /// How to print.
    #[arg(long, value_enum, default_value = "table")]
    pub output: Output,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs, as the service said it.
    Json,
}

/// Why a command ended early.
pub enum End {
    /// The person said no.
    Declined,
    /// The service said no, in these words.
    Refused(String),
    /// A setting.
    Setting(String),
    /// A call.
    Call(CallError),
}

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<String> for End {
    fn from(error: String) -> Self {
        Self::Setting(error)
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Setting(error.to_string())
    }
}

/// Says why a command ended, and with which exit code.
pub fn ended(result: Result<(), End>) -> ExitCode {
    let (text, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(End::Declined) => ("nothing was done".to_owned(), 1),
        Err(End::Call(error @ CallError::Refused(_))) => (printable(&error.to_string()), 1),
        Err(End::Call(error)) => (error.to_string(), 2),
        Err(End::Refused(text)) => (text, 1),
        Err(End::Setting(text)) => (text, 2),
    };
    eprintln!("fencepost-store: {text}");
    ExitCode::from(code)
}

/// A reason, refused before anybody is asked anything.
pub fn reason(text: &str) -> Result<String, String> {
    reasoned(text.to_owned()).map_err(|problem| problem.detail().to_owned())
}

/// A version of an entry, as it is shown.
pub fn entry_version(text: &str) -> Result<String, VersionError> {
    text.parse::<Version>().map(|version| version.to_string())
}

/// A version of an operation, as it is shown.
pub fn operation_version(text: &str) -> Result<String, OperationVersionError> {
    text.parse::<OperationVersion>().map(|version| version.to_string())
}

/// Shows a person what they are about to change, and asks. Without a person nothing is done: a
/// script says `--yes` and what it saw.
pub fn ask(shown: &str, question: &str, otherwise: &str) -> Result<(), End> {
    if !std::io::stdin().is_terminal() {
        return Err(End::Setting(format!("there is nobody to ask; expected {otherwise}")));
    }
    let mut err = std::io::stderr();
    write!(err, "{shown}\n{question}? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(End::Declined),
    }
}

/// A path with these names and values as its query; those without a value are left out.
pub fn with_query(path: &str, pairs: Vec<(&str, Option<String>)>) -> String {
    let set = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let pairs: Vec<_> = set.map(|(name, value)| format!("{name}={}", escaped(&value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// A duration with its unit, in milliseconds.
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("expected a number with a unit, such as 24h".into()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number with a unit, such as 24h")?;
    number
        .checked_mul(unit)
        .filter(|ms| *ms > 0)
        .ok_or_else(|| "expected more than zero, and up to 400d".into())
}

/// For a query: everything but the plainest characters as `%XX`.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Prints a reply.
pub fn print<T: Serialize>(output: Output, value: &T, table: fn(&T) -> String) -> Result<(), End> {
    let text = match output {
        Output::Table => table(value),
        Output::Json => serde_json::to_string_pretty(value).map_err(|error| error.to_string())? + "\n",
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_need_a_unit() {
        for (text, ms) in
            [("5ms", 5), ("30s", 30_000), ("2m", 120_000), ("24h", 86_400_000), ("1d", 86_400_000)]
        {
            assert_eq!(milliseconds(text), Ok(ms));
        }
        for text in ["", "5", "h", "0s", "1.5h", "-1s", "1w", "99999999999999999999s", "ü"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reasons_and_versions_are_refused_before_anybody_is_asked() {
        assert_eq!(reason("case 1"), Ok("case 1".into()));
        assert!(reason(&"ü".repeat(1_000)).is_ok());
        for bad in ["", " ", "\t", &"ü".repeat(1_001)] {
            assert!(reason(bad).unwrap_err().contains("1 to 1000 characters"));
        }
        assert_eq!(entry_version("7.12").as_deref(), Ok("7.12"));
        assert_eq!(operation_version("7.12").as_deref(), Ok("7.12"));
        for bad in ["", "7", "seven", "7.x"] {
            assert!(entry_version(bad).is_err() && operation_version(bad).is_err());
        }
    }

    #[test]
    fn text_in_a_query_says_nothing_else() {
        assert_eq!(escaped("a:b.c-d_e"), "a:b.c-d_e");
        assert_eq!(escaped("a&b=%ü"), "a%26b%3D%25%C3%BC");
    }
}
