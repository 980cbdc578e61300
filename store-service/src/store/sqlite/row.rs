//! Rows of `entries` to and from [`Row`].

use super::super::words;
use crate::entry::{Dead, Lease, Micros, Row, State};
use bytes::Bytes;
use fencepost_protocol::{ClaimToken, Fingerprint, Scheme, ScopeDigest, StoreKey};
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Error, OptionalExtension};

type Result<T> = rusqlite::Result<T>;

/// Reads the row of a key.
pub fn read(statement: &mut CachedStatement<'_>, key: &StoreKey) -> Result<Option<Row>> {
    statement.query_row([key.as_str()], decode).optional()
}

/// Decodes the row of an entry.
pub fn decode(row: &rusqlite::Row<'_>) -> Result<Row> {
    let micros = |name: &str| row.get::<_, i64>(name).map(Micros);
    let state = match row.get_ref("state")?.as_str()? {
        "claimed" => State::Claimed(Lease {
            until: micros("lease_until")?,
            run_until: micros("run_until")?,
            on_lost: words::read_on_lost(row.get_ref("on_lost")?.as_str()?),
            claim_ttl_ms: row.get("claim_ttl_ms")?,
            unknown_ttl_ms: u64::try_from(row.get::<_, i64>("unknown_ttl_ms")?).unwrap_or(0),
        }),
        "completed" => State::Completed {
            status: row.get("status")?,
            headers: Bytes::from(row.get::<_, Vec<u8>>("headers")?),
            body: Bytes::from(row.get::<_, Vec<u8>>("body")?),
            at: micros("completed_at")?,
            until: micros("until")?,
        },
        "unknown" => State::Unknown {
            cause: words::read_unknown_cause(row.get_ref("cause")?.as_str()?),
            until: micros("until")?,
        },
        "released" => State::Released {
            cause: words::read_release_cause(row.get_ref("cause")?.as_str()?),
            until: micros("until")?,
        },
        other => return Err(bad("state", other)),
    };
    let dead = row.get_ref("dead_tokens")?.as_blob()?.chunks(16).filter_map(ClaimToken::from_slice);
    Ok(Row {
        token: id(row, "token", ClaimToken::from_slice)?,
        fence: row.get("fence")?,
        scheme: Scheme::parse(row.get_ref("scheme")?.as_str()?).map_err(|error| bad("scheme", error))?,
        fingerprint: id(row, "fingerprint", Fingerprint::from_slice)?,
        scope: id(row, "scope", ScopeDigest::from_slice)?,
        dead: Dead::new(dead),
        state,
        created_at: micros("created_at")?,
        updated_at: micros("updated_at")?,
    })
}

fn id<T>(row: &rusqlite::Row<'_>, name: &str, from: fn(&[u8]) -> Option<T>) -> Result<T> {
    from(row.get_ref(name)?.as_blob()?).ok_or_else(|| bad(name, "wrong length"))
}

fn bad(column: &str, what: impl std::fmt::Display) -> Error {
    Error::FromSqlConversionFailure(0, Type::Null, format!("column {column}: {what}").into())
}

/// Writes the row of a key.
pub fn write(statement: &mut CachedStatement<'_>, key: &StoreKey, row: &Row) -> Result<()> {
    let dead: Vec<u8> = row.dead.tokens().iter().flat_map(|token| *token.as_bytes()).collect();
    let (state, lease, cause, completed) = match &row.state {
        State::Claimed(lease) => ("claimed", Some(lease), None, None),
        State::Completed { status, headers, body, at, until: _ } => {
            ("completed", None, None, Some((status, &headers[..], &body[..], at.0)))
        }
        State::Unknown { cause, until: _ } => ("unknown", None, Some(words::unknown_cause(*cause)), None),
        State::Released { cause, until: _ } => ("released", None, Some(words::release_cause(*cause)), None),
    };
    // The statement numbers its parameters, in the order of this list.
    statement.execute(rusqlite::params![
        key.as_str(),
        state,
        &row.token.as_bytes()[..],
        row.fence,
        row.scheme.as_str(),
        &row.fingerprint.as_bytes()[..],
        &row.scope.as_bytes()[..],
        dead,
        lease.map(|lease| lease.until.0),
        lease.map(|lease| lease.run_until.0),
        lease.map(|lease| words::on_lost(lease.on_lost)),
        lease.map(|lease| lease.claim_ttl_ms),
        lease.map(|lease| i64::try_from(lease.unknown_ttl_ms).unwrap_or(i64::MAX)),
        row.until().map(|until| until.0),
        cause,
        completed.map(|(status, _, _, _)| *status),
        completed.map(|(_, headers, _, _)| headers),
        completed.map(|(_, _, body, _)| body),
        completed.map(|(_, _, _, at)| at),
        row.created_at.0,
        row.updated_at.0,
    ])?;
    Ok(())
}
