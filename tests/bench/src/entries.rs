//! Many entries: bytes of each in PostgreSQL, and whether claims and the service notice how many
//! there are.

use crate::bed;
use crate::frames;
use crate::http::{Protocol, clients};
use crate::load;
use crate::memory::Effort;
use crate::random::Random;
use crate::samples::median;
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use fencepost_protocol::claims::ClaimReply;
use fencepost_protocol::paths;
use fencepost_rig::postgres::Postgres;
use fencepost_rig::service::Service;
use std::net::SocketAddr;
use tokio_postgres::Client;

/// Entries of the small table.
pub const SMALL: u64 = 10_000;

/// Entries above which the indexes are built after the rows: with each row they would be read and
/// written all over, once they no longer fit the memory.
const INDEXES_LAST: u64 = 2_000_000;

const SIZE: &str = "SELECT pg_total_relation_size('fencepost.entries')";

/// Claims on new keys in a small table and in a large one, in turns.
pub async fn run(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let (small, large) = (server.try_create_database().await?, server.try_create_database().await?);
    prepare(&small, SMALL).await?;
    let each = prepare(&large, effort.entries).await?;
    summary.add("memory/postgres_per_entry/body_256B", each, "B", None, Goal::None);
    let services = [bed::service(&small, &[]).await?, bed::service(&large, &[]).await?];
    let pids = bed::children("fencepost-store")?;
    let mut random = Random::new(8);
    for callers in [1_usize, 16] {
        in_turns(summary, &services, callers, &mut random, effort).await?;
    }
    if let [.., small, large] = pids.as_slice() {
        let mib = |pid: &i32| anyhow::Ok(bed::resident_of(*pid)? / 1048576.0);
        let name = format!("memory/service_with_{}_entries", effort.entries);
        let compared = Some(("with 10000 entries, after the same claims", mib(small)?));
        summary.add(&name, mib(large)?, "MiB", compared, Goal::RatioAtMost(1.1));
    }
    Ok(())
}

async fn in_turns(
    summary: &mut Summary,
    services: &[Service; 2],
    callers: usize,
    random: &mut Random,
    effort: Effort,
) -> Result<()> {
    let mut p50: [Vec<f64>; 2] = Default::default();
    for round in 0..=effort.rounds {
        for (service, p50) in services.iter().zip(&mut p50) {
            let mut workers = clients(service.addr(), Protocol::H2c, callers, 1).await?;
            let set = random.next();
            let frames: Result<Vec<_>> = (0..1_000 * callers.min(8) as u64)
                .map(|number| Ok(frames::claim(&frames::key(set, number)?, random, 0)?.1))
                .collect();
            let load = load::frames(&mut workers, paths::CLAIMS, frames?).await?;
            if round > 0 {
                p50.push(load.samples.ms(50.0));
            }
        }
    }
    let ratios: Vec<_> = p50[1].iter().zip(&p50[0]).map(|(large, small)| large / small).collect();
    let name = format!("memory/claim_p50_with_{}_entries/{callers}_callers", effort.entries);
    let with = format!("with {SMALL} entries: {:.3} ms", median(&p50[0]));
    summary.add_ratio(&name, median(&p50[1]), "ms", &with, Some(median(&ratios)), Goal::RatioAtMost(1.3));
    Ok(())
}

/// A schema with so many live entries. Bytes of each, indexes included.
async fn prepare(url: &str, count: u64) -> Result<f64> {
    let service = bed::service(url, &[]).await?;
    template(service.addr()).await?;
    service.stop().await?;
    let database = bed::connect(url).await?;
    let before = bed::number(&database, SIZE).await?;
    let until = "now() + random() * interval '24 h' + interval '1 h'";
    let indexes = match count > INDEXES_LAST {
        true => take_indexes(&database).await?,
        false => Vec::new(),
    };
    let step = 250_000;
    for first in (1..=count).step_by(step) {
        let last = count.min(first + step as u64 - 1);
        fill(&database, first, last, until).await?;
    }
    for command in indexes {
        database.batch_execute(&command).await.context(command)?;
    }
    let each = (bed::number(&database, SIZE).await? - before) / count as f64;
    bed::tidy(&database).await?;
    Ok(each)
}

/// Takes the indexes of the entries away, and says how each is made again.
async fn take_indexes(database: &Client) -> Result<Vec<String>> {
    const INDEXES: &str =
        "SELECT c.conname::text, i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid),
            pg_get_constraintdef(c.oid)
        FROM pg_index AS i LEFT JOIN pg_constraint AS c ON c.conindid = i.indexrelid
        WHERE i.indrelid = 'fencepost.entries'::regclass";
    let mut again = vec!["SET maintenance_work_mem = '512MB'".to_owned()];
    for row in database.query(INDEXES, &[]).await? {
        let (constraint, index): (Option<String>, String) = (row.get(0), row.get(1));
        let drop = match &constraint {
            Some(name) => {
                let definition: String = row.get(3);
                again.push(format!("ALTER TABLE fencepost.entries ADD CONSTRAINT {name} {definition}"));
                format!("ALTER TABLE fencepost.entries DROP CONSTRAINT {name}")
            }
            None => {
                again.push(row.get(2));
                format!("DROP INDEX {index}")
            }
        };
        database.batch_execute(&drop).await.context(drop)?;
    }
    Ok(again)
}

/// Copies the completed entry with a key of its own for each number from `first` to `last`.
pub async fn fill(database: &Client, first: u64, last: u64, until: &str) -> Result<()> {
    let columns: Vec<String> = database
        .query(
            "SELECT column_name::text FROM information_schema.columns
             WHERE table_schema = 'fencepost' AND table_name = 'entries' ORDER BY ordinal_position",
            &[],
        )
        .await?
        .iter()
        .map(|row| row.get(0))
        .collect();
    let value = |column: &String| match column.as_str() {
        "key" => "'bench:' || md5(n::text)".to_owned(),
        "until" => until.to_owned(),
        other => format!("t.{other}"),
    };
    let values: Vec<_> = columns.iter().map(value).collect();
    let sql = format!(
        "INSERT INTO fencepost.entries ({}) SELECT {} FROM
         (SELECT * FROM fencepost.entries WHERE state = 'completed' LIMIT 1) AS t, generate_series({first}, {last}) AS n",
        columns.join(", "),
        values.join(", ")
    );
    database.batch_execute(&sql).await.context("fill the table")
}

/// One completed entry with a body of 256 bytes: what the others are copied from.
pub async fn template(addr: SocketAddr) -> Result<()> {
    let mut random = Random::new(6);
    let mut client = clients(addr, Protocol::H2c, 1, 1).await?.pop().context("no client")?;
    let key = frames::key(12, 1)?;
    let (token, claim) = frames::claim(&key, &mut random, 0)?;
    let ClaimReply::Claimed { fence, .. } = frames::claimed(&client.frame(paths::CLAIMS, claim).await?)?
    else {
        bail!("a new key is not free");
    };
    client.frame(paths::COMPLETE, frames::complete(&key, token, fence, 256)?).await?;
    Ok(())
}
