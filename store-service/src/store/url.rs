//! The store's address as a user writes it.

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

/// Which kind of store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreKind {
    /// Lost with the process; for tests.
    Memory,
    /// One file, this process alone.
    Sqlite,
    /// A PostgreSQL server, any number of instances.
    Postgres,
}

impl StoreKind {
    /// Name in logs, metrics and on the ready line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// Where the store is. `Debug` and `Display` show no password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory:`
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `postgres://…` or `postgresql://…`
    Postgres(String),
}

/// A store address that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// Unknown scheme.
    #[error(
        "found a store address that starts with {0:?}; expected sqlite:PATH, postgres://USER@HOST/DATABASE or \
         postgresql://USER@HOST/DATABASE"
    )]
    Scheme(String),
    /// `sqlite:` without a path.
    #[error(
        "found sqlite: without a path; expected a file, for example sqlite:/var/lib/fencepost/fencepost.sqlite"
    )]
    NoPath,
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "memory:" {
            return Ok(Self::Memory);
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            // `sqlite:///a/b` is what other tools write for the absolute path `/a/b`.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path == ":memory:" {
                return Err(StoreUrlError::NoPath);
            }
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        // Only what stands before a colon: the rest may hold a password.
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
        Err(StoreUrlError::Scheme(scheme.to_owned()))
    }
}

impl StoreUrl {
    /// The address of a PostgreSQL server.
    pub fn postgres(&self) -> Option<&str> {
        match self {
            Self::Memory | Self::Sqlite(_) => None,
            Self::Postgres(url) => Some(url),
        }
    }

    /// Which kind of store it names.
    pub fn kind(&self) -> StoreKind {
        match self {
            Self::Memory => StoreKind::Memory,
            Self::Sqlite(_) => StoreKind::Sqlite,
            Self::Postgres(_) => StoreKind::Postgres,
        }
    }
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres://.."),
        }
    }
}

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Reads an address on the command line or in the environment. The errors of clap's own parsers
/// repeat the whole value, and an address with a slip in its scheme may hold a password.
#[derive(Clone, Copy, Debug)]
pub struct StoreUrlParser;

impl TypedValueParser for StoreUrlParser {
    type Value = StoreUrl;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<StoreUrl, clap::Error> {
        let what = arg.map_or_else(|| "a store address".to_owned(), |arg| format!("'{arg}'"));
        let refuse = |why: String| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("invalid value for {what}: {why}\n"))
                .with_cmd(cmd)
        };
        let text = value.to_str().ok_or_else(|| refuse("found bytes that are not UTF-8".to_owned()))?;
        text.parse().map_err(|error: StoreUrlError| refuse(error.to_string()))
    }
}

impl ValueParserFactory for StoreUrl {
    type Parser = StoreUrlParser;

    fn value_parser() -> Self::Parser {
        StoreUrlParser
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn addresses_are_told_apart() {
        assert_eq!("sqlite:a.sqlite".parse(), Ok(StoreUrl::Sqlite("a.sqlite".into())));
        assert_eq!("sqlite:/tmp/a".parse(), Ok(StoreUrl::Sqlite("/tmp/a".into())));
        assert_eq!("sqlite:///tmp/a".parse(), Ok(StoreUrl::Sqlite("/tmp/a".into())));
        assert!(matches!("postgresql://x/y".parse(), Ok(StoreUrl::Postgres(_))));
        assert_eq!("sqlite:".parse::<StoreUrl>(), Err(StoreUrlError::NoPath));
        assert_eq!("redis://:secret@x".parse::<StoreUrl>(), Err(StoreUrlError::Scheme("redis".into())));
    }

    #[test]
    fn a_password_is_never_shown() {
        let url: StoreUrl = "postgres://me:secret@host/db".parse().unwrap();
        assert!(!format!("{url} {url:?}").contains("secret"));
    }

    #[test]
    fn an_address_that_is_refused_shows_no_password() {
        for option in ["--store", "--admission-store", "--listen-store"] {
            for address in
                ["postgress://me:secret@host/db", "Postgres://me:secret@host/db", "me:secret@host/db"]
            {
                let words = ["fencepost-store", "serve", option, address];
                let told = crate::cli::Cli::try_parse_from(words).err().unwrap().to_string();
                assert!(told.contains(option) && told.contains("expected sqlite:PATH"), "{told}");
                assert!(!told.contains("secret"), "{told}");
            }
        }
    }
}
