//! Rows of the statements on entries, decoded.

use super::super::words;
use crate::entry::{Dead, Lease, Micros, Row, State};
use bytes::Bytes;
use fencepost_protocol::{ClaimToken, Fingerprint, Scheme, ScopeDigest};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a statement says about one asked key.
pub struct Seen {
    /// Was the row written for the asker?
    pub wrote: bool,
    /// If it was written: do callers of other instances wait for it?
    pub waited: bool,
    /// The clock that the row was judged by.
    pub now: Micros,
    /// The row, if there is one.
    pub row: Option<Row>,
    /// Is the row's body left out?
    pub withheld: bool,
}

/// A row that can't be understood: a defect, or a database that somebody else wrote to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow(pub String);

impl From<tokio_postgres::Error> for BadRow {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(super::session::told(&error))
    }
}

/// Decodes one row of a statement on entries.
pub fn decode(row: &tokio_postgres::Row) -> Result<Seen, BadRow> {
    let mut seen = Seen {
        wrote: row.try_get("wrote")?,
        waited: row.try_get("waited")?,
        now: micros(row.try_get("now")?),
        row: None,
        withheld: false,
    };
    let Some(state) = row.try_get::<_, Option<&str>>("state")? else {
        return Ok(seen);
    };
    let state = match state {
        "claimed" => State::Claimed(Lease {
            until: micros(row.try_get("lease_until")?),
            run_until: micros(row.try_get("run_until")?),
            on_lost: words::read_on_lost(row.try_get("on_lost")?),
            claim_ttl_ms: number(row.try_get::<_, i32>("claim_ttl_ms")?)?,
            unknown_ttl_ms: number(row.try_get::<_, i64>("unknown_ttl_ms")?)?,
        }),
        "completed" => {
            let body: Option<&[u8]> = row.try_get("body")?;
            let headers: Option<&[u8]> = row.try_get("headers")?;
            seen.withheld = body.is_none();
            State::Completed {
                status: number(row.try_get::<_, i16>("status")?)?,
                headers: Bytes::copy_from_slice(headers.unwrap_or_default()),
                body: Bytes::copy_from_slice(body.unwrap_or_default()),
                at: micros(row.try_get("completed_at")?),
                until: micros(row.try_get("until")?),
            }
        }
        "unknown" => State::Unknown {
            cause: words::read_unknown_cause(row.try_get("cause")?),
            until: micros(row.try_get("until")?),
        },
        "released" => State::Released {
            cause: words::read_release_cause(row.try_get("cause")?),
            until: micros(row.try_get("until")?),
        },
        other => return Err(BadRow(format!("state {other:?}"))),
    };
    let dead: Vec<&[u8]> = row.try_get("dead_tokens")?;
    seen.row = Some(Row {
        token: id(row, "token", ClaimToken::from_slice)?,
        fence: row.try_get("fence")?,
        scheme: Scheme::parse(row.try_get("scheme")?).map_err(|error| BadRow(error.to_string()))?,
        fingerprint: id(row, "fingerprint", Fingerprint::from_slice)?,
        scope: id(row, "scope", ScopeDigest::from_slice)?,
        dead: Dead::new(dead.into_iter().filter_map(ClaimToken::from_slice)),
        state,
        created_at: micros(row.try_get("created_at")?),
        updated_at: micros(row.try_get("updated_at")?),
    });
    Ok(seen)
}

fn id<T>(row: &tokio_postgres::Row, name: &str, from: fn(&[u8]) -> Option<T>) -> Result<T, BadRow> {
    from(row.try_get(name)?).ok_or_else(|| BadRow(format!("column {name}: wrong length")))
}

fn number<A, B: TryFrom<A>>(value: A) -> Result<B, BadRow> {
    value.try_into().map_err(|_| BadRow("a number out of range".into()))
}

/// A time from a column.
pub fn micros(time: SystemTime) -> Micros {
    let us = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    Micros(match time.duration_since(UNIX_EPOCH) {
        Ok(since) => us(since),
        Err(before) => -us(before.duration()),
    })
}

/// A time as a parameter.
pub fn time(micros: Micros) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(u64::try_from(micros.0).unwrap_or(0))
}
