//! One connection that may decide: checked, with its statements prepared.

use super::address::Address;
use super::durability::{Durability, Found};
use super::statements::{ALL, Name, PLAN_ANEW, PLAN_ONCE, SERVER_CHECK, SESSION};
use super::{OpenError, heartbeat};
use fencepost_protocol::StoreId;
use futures_util::future::try_join_all;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Oldest server that is supported.
const VERSION_MIN: i32 = 150_000;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A session's opening, with the statements that it prepares.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long unacknowledged data may stay in the socket before the connection counts as dead.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

/// Where and how to connect.
#[derive(Clone)]
pub struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    unnamed: bool,
    durability: Arc<Durability>,
}

/// A checked connection.
pub struct Session {
    client: Client,
    tls: MakeRustlsConnect,
    /// Empty where statements are unnamed.
    prepared: Vec<Statement>,
}

/// Parameters of a statement.
pub type Params<'a> = [&'a (dyn ToSql + Sync)];

impl Connector {
    /// Reads the address.
    pub fn new(url: &str, unnamed: bool) -> Result<Self, OpenError> {
        let Address { mut config, tls } = Address::read(url)?;
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("fencepost-store");
        }
        config
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(TCP_TIMEOUT)
            .keepalives_idle(TCP_TIMEOUT);
        Ok(Self { config, tls, unnamed, durability: Arc::default() })
    }

    /// What is known of the server's failures, by the connections of this connector.
    pub fn durability(&self) -> &Arc<Durability> {
        &self.durability
    }

    /// A connection to a server that may decide, without statements.
    pub async fn client(&self) -> Result<Client, OpenError> {
        in_time(CONNECT_TIMEOUT * 2, self.checked_client()).await
    }

    async fn checked_client(&self) -> Result<Client, OpenError> {
        let connect = self.config.connect(self.tls.clone());
        let (client, connection) = connect.await.map_err(|error| unreachable(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "PostgreSQL connection ended");
            }
        });
        if !self.unnamed {
            client.batch_execute(SESSION).await.map_err(|error| unreachable(&error))?;
        }
        self.durability.note(&check_server(&client).await?);
        Ok(client)
    }

    /// Has the server plan each statement of a connection once. For connections whose statements all go
    /// by the same index whatever their values are.
    pub async fn plan_once(&self, client: &Client) -> Result<(), OpenError> {
        match self.unnamed {
            true => Ok(()),
            false => client.batch_execute(PLAN_ONCE).await.map_err(|error| unreachable(&error)),
        }
    }

    /// For what is asked of the same server beside a connection.
    pub fn tls(&self) -> MakeRustlsConnect {
        self.tls.clone()
    }

    /// A connection that hears notices; the texts arrive at the receiver, which ends with it.
    pub async fn listening(&self) -> Result<(Client, mpsc::UnboundedReceiver<String>), OpenError> {
        in_time(CONNECT_TIMEOUT * 2, self.checked_listening()).await
    }

    async fn checked_listening(&self) -> Result<(Client, mpsc::UnboundedReceiver<String>), OpenError> {
        let mut config = self.config.clone();
        // Who looks at the server's sessions sees why this one is idle.
        config.application_name("fencepost-store listener");
        let connect = config.connect(self.tls.clone());
        let (client, mut connection) = connect.await.map_err(|error| unreachable(&error))?;
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notice))) => {
                        if tell.send(notice.payload().to_owned()).is_err() {
                            return;
                        }
                    }
                    // Warnings of the server.
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(%error, "listening connection ended");
                        return;
                    }
                    None => return,
                }
            }
        });
        check_server(&client).await?;
        Ok((client, heard))
    }

    /// A session on the database with this identity.
    pub async fn session(&self, expected: StoreId) -> Result<Session, OpenError> {
        in_time(SESSION_TIMEOUT, self.prepared_session(expected)).await
    }

    async fn prepared_session(&self, expected: StoreId) -> Result<Session, OpenError> {
        let client = self.client().await?;
        self.plan_once(&client).await?;
        let mut session = Session { client, tls: self.tls.clone(), prepared: Vec::new() };
        if !self.unnamed {
            let prepare =
                |sql: &'static super::statements::Sql| session.client.prepare_typed(sql.text, sql.types);
            session.prepared =
                try_join_all(ALL.iter().map(prepare)).await.map_err(|error| unreachable(&error))?;
        }
        let found = heartbeat::store_id(&session).await.map_err(|error| unreachable(&error))?;
        if found != Some(expected) {
            return Err(OpenError::Unusable(format!(
                "the server now has the database {}; this service started on {}: restart it if the change is meant",
                found.map_or_else(|| "without an identity".into(), |id| id.to_hex()),
                expected.to_hex()
            )));
        }
        Ok(session)
    }
}

impl Session {
    /// Runs a statement.
    pub async fn query(&self, name: Name, params: &Params<'_>) -> Result<Vec<Row>, Error> {
        let sql = name.sql();
        match self.prepared.get(name as usize) {
            Some(statement) if name == Name::EntryList => {
                // Nobody else uses the session meanwhile; one that is given up in between is discarded.
                self.client.batch_execute(PLAN_ANEW).await?;
                let rows = self.client.query(statement, params).await;
                self.client.batch_execute(PLAN_ONCE).await?;
                rows
            }
            Some(statement) => self.client.query(statement, params).await,
            None => {
                let typed: Vec<_> = params.iter().copied().zip(sql.types.iter().cloned()).collect();
                self.client.query_typed(sql.text, &typed).await
            }
        }
    }

    /// Has the connection ended?
    pub fn ended(&self) -> bool {
        self.client.is_closed()
    }

    /// Ends the session; a statement that still runs on the server is asked to stop.
    pub fn discard(self) {
        let token = self.client.cancel_token();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CONNECT_TIMEOUT, token.cancel_query(self.tls)).await;
        });
    }
}

/// Refuses a server that may not decide; else what its failures could lose.
async fn check_server(client: &Client) -> Result<Found, OpenError> {
    let rows = client.query_typed(SERVER_CHECK, &[]).await.map_err(|error| unreachable(&error))?;
    let row =
        rows.first().ok_or_else(|| OpenError::Unreachable("the server told nothing about itself".into()))?;
    let get = |error: Error| unreachable(&error);
    let version: i32 = row.try_get("version_num").map_err(get)?;
    if version < VERSION_MIN {
        let found: &str = row.try_get("version").map_err(get)?;
        return Err(OpenError::Unusable(format!("found PostgreSQL {found}; expected version 15 or later")));
    }
    if row.try_get("in_recovery").map_err(get)? || row.try_get("read_only").map_err(get)? {
        return Err(OpenError::Unreachable(
            "found a server or role that takes no writes; expected the primary, with default_transaction_read_only \
             off"
                .into(),
        ));
    }
    let isolation: &str = row.try_get("isolation").map_err(get)?;
    if isolation != "read committed" {
        return Err(OpenError::Unusable(format!(
            "found isolation level {isolation:?}; expected read committed: ALTER ROLE .. SET \
             default_transaction_isolation = 'read committed'"
        )));
    }
    let commit: &str = row.try_get("synchronous_commit").map_err(get)?;
    if commit == "off" {
        return Err(OpenError::Unusable(
            "found synchronous_commit = off, which can forget claims and answers that were confirmed; expected on, \
             local, remote_write or remote_apply: ALTER ROLE .. SET synchronous_commit = on"
                .into(),
        ));
    }
    Ok(Found {
        standby_names: row.try_get("standby_names").map_err(get)?,
        standbys: row.try_get("standbys").map_err(get)?,
        commit: commit.to_owned(),
        fsync: row.try_get::<_, &str>("fsync").map_err(get)? != "off",
        timeline: row.try_get("timeline").map_err(get)?,
    })
}

/// Opens something, or says that it took too long. The driver's own timeout ends with the TCP
/// connection; a server that accepts and then says nothing, at whatever step, must not hold us either:
/// nobody would try again.
async fn in_time<T>(
    bound: Duration,
    opening: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    let late = |_| OpenError::Unreachable("PostgreSQL did not answer in time".into());
    tokio::time::timeout(bound, opening).await.map_err(late)?
}

/// What a failed connection says; the cause is in the error's source.
pub fn unreachable(error: &Error) -> OpenError {
    OpenError::Unreachable(format!("PostgreSQL: {}", told(error)))
}

/// An error with its causes, on one line.
pub fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
