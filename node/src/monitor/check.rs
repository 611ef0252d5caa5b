//! One check of one server, for ever: wait, ask, write down.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use quorumsql_dataplane::config::Protocol;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::board::Board;
use super::task::AbortOnDrop;
use super::{mysql, pgsql};
use crate::runtime::{Schedule, Target};
use crate::tls::ServerSide;

/// Every so many rounds a check uses a new connection: a wedged server may still serve old ones.
const FRESH_EVERY: u32 = 10;
/// An interval of nothing would be a busy loop.
const SHORTEST: Duration = Duration::from_millis(10);

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    /// Whether a new connection can be opened.
    Connect,
    /// Whether the server answers.
    Ping,
    /// Whether it is writable.
    Role,
}

/// With what the monitor logs in.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
    pub(super) dbname: String,
    pub(super) tls: ServerSide,
}

/// A check and all its settings: another setting is another check.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Check {
    pub(super) protocol: Protocol,
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) login: Arc<Login>,
    pub(super) schedule: Schedule,
}

/// What a server said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It lives.
    Alive,
    /// `read_only`, `pg_is_in_recovery()`.
    ReadOnly(bool),
}

/// Why a check failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    /// For the log.
    pub(super) text: String,
    /// The server itself answered (access denied, too many connections …): it lives.
    pub(super) answered: bool,
}

/// How a round ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Round {
    pub(super) started: SystemTime,
    pub(super) took: Duration,
    pub(super) result: Result<Found, Failure>,
}

/// A connection that is kept between rounds.
pub(super) enum Client {
    Mysql(mysql::Client),
    Pgsql(pgsql::Client),
}

/// Runs the check until it is aborted.
pub(super) async fn run(check: Check, board: Arc<Board>) {
    let check = Arc::new(check);
    let mut rounds = interval(check.schedule.interval.max(SHORTEST));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut kept = None;
    let mut count: u32 = 0;
    loop {
        rounds.tick().await;
        if count.is_multiple_of(FRESH_EVERY) || check.kind == Kind::Connect {
            kept = None;
        }
        count = count.wrapping_add(1);
        let (started, clock) = (SystemTime::now(), Instant::now());
        let result = match attempt(&check, kept.take()).await {
            Ok((client, found)) => {
                kept = Some(client);
                Ok(found)
            }
            Err(failure) => Err(failure),
        };
        board.record(&check, Round { started, took: clock.elapsed(), result });
    }
}

/// One round in a task of its own, so that a panic in a driver costs this round only. The deadline includes name
/// resolution, connecting, TLS and login.
async fn attempt(check: &Arc<Check>, kept: Option<Client>) -> Result<(Client, Found), Failure> {
    let limit = check.schedule.timeout;
    let (sender, result) = tokio::sync::oneshot::channel();
    let check = Arc::clone(check);
    let _task = AbortOnDrop::spawn(async move {
        let _ = sender.send(ask(&check, kept).await);
    });
    match timeout(limit, result).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Failure { text: "the client library failed".into(), answered: false }),
        Err(_) => Err(Failure { text: format!("timeout after {} ms", limit.as_millis()), answered: false }),
    }
}

/// An error with those behind it: the libraries say `error performing TLS handshake` and leave the reason to its source.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Asks on the kept connection; if that is broken, on a new one.
#[tracing::instrument(name = "monitor.probe", skip_all, fields(probe.kind = ?check.kind))]
async fn ask(check: &Check, kept: Option<Client>) -> Result<(Client, Found), Failure> {
    if let Some(mut client) = kept
        && let Ok(found) = query(check, &mut client).await
    {
        return Ok((client, found));
    }
    let mut client = match check.protocol {
        Protocol::Mysql => Client::Mysql(mysql::Client::connect(&check.target, &check.login).await?),
        Protocol::Pgsql => Client::Pgsql(pgsql::Client::connect(&check.target, &check.login).await?),
    };
    let found = query(check, &mut client).await?;
    Ok((client, found))
}

async fn query(check: &Check, client: &mut Client) -> Result<Found, Failure> {
    match (check.kind, client) {
        (Kind::Connect, _) => Ok(Found::Alive),
        (Kind::Ping, Client::Mysql(client)) => client.ping().await,
        (Kind::Ping, Client::Pgsql(client)) => client.ping().await,
        (Kind::Role, Client::Mysql(client)) => client.role(check.target.check).await,
        (Kind::Role, Client::Pgsql(client)) => client.role().await,
    }
}
