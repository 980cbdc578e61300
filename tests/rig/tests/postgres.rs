//! The rig's own PostgreSQL.

use fencepost_rig::postgres::{Options, Postgres};
use tokio_postgres::NoTls;

async fn number(url: &str, sql: &str) -> anyhow::Result<i32> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client.query_one(sql, &[]).await?.get(0))
}

#[tokio::test]
async fn databases_of_the_shared_server_are_separate() {
    let server = Postgres::shared().await;
    let (a, b) = tokio::join!(server.create_database(), server.create_database());
    assert_ne!(a, b);
    assert_eq!(number(&a, "SELECT current_setting('server_version_num')::int / 10000").await.unwrap(), 18);
    assert_eq!(number(&b, "SELECT (current_setting('fsync') = 'on')::int").await.unwrap(), 1);
}

#[tokio::test]
async fn a_second_test_gets_a_database_from_another_runtime() {
    let url = Postgres::shared().await.create_database().await;
    assert_eq!(number(&url, "SELECT 1").await.unwrap(), 1);
}

#[tokio::test]
async fn what_was_committed_survives_a_kill() {
    let server = Postgres::start(Options::default()).await.unwrap();
    let url = server.create_database().await;
    number(&url, "WITH a AS (SELECT 1) SELECT 1 FROM a").await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").await.unwrap();
    server.kill().await.unwrap();
    assert!(number(&url, "SELECT 1").await.is_err());
    server.start_again().await.unwrap();
    assert_eq!(number(&url, "SELECT n FROM t").await.unwrap(), 7);
    server.restart().await.unwrap();
    assert_eq!(number(&url, "SELECT n FROM t").await.unwrap(), 7);
}

#[tokio::test]
async fn a_frozen_server_is_silent_and_goes_on_after_the_thaw() {
    let server = Postgres::start(Options { fsync: false, ..Options::default() }).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query_one("SELECT 1", &[]).await.unwrap();
    server.freeze();
    let asked = client.query_one("SELECT 2", &[]);
    tokio::pin!(asked);
    let silence = tokio::time::timeout(std::time::Duration::from_millis(200), &mut asked).await;
    assert!(silence.is_err(), "answered while frozen");
    server.thaw();
    assert_eq!(asked.await.unwrap().get::<_, i32>(0), 2);
}
