//! KILL, from a client and towards a server (mysql-dataplane 3.5).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_wire::mysql::error_code;
use tokio::sync::mpsc;

use super::{Client, Flow};
use crate::backend::mysql::Mysql;
use crate::config::{Protocol, Server};
use crate::pool::{Dialect, PooledConnection};
use crate::worker::driver;
use crate::worker::session::Signal;

/// How long a KILL towards a server may take.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// What is killed on a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// The running statement.
    Statement,
    /// The connection with it.
    Connection,
}

/// Whose session it is that is to be killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Same,
    Other,
}

impl Client {
    /// KILL, COM_PROCESS_KILL.
    pub(super) async fn kill(&mut self, id: u32, query_only: bool, sequence: u8) -> Flow {
        let slot = u8::try_from(id >> 24).unwrap_or_default();
        if slot != self.ctx.slot()
            && let Some(node) = self.ctx.shared().node_name(slot)
        {
            let text = format!("Unknown thread id: {id} (a session of node {node}; send the KILL there)");
            return self.send_error(sequence, error_code::NO_SUCH_THREAD, text).await;
        }
        match self.kill_session(id, query_only).await {
            Some(Owner::Same) => self.send_ok(sequence, "").await,
            Some(Owner::Other) => self.send_error(sequence, error_code::KILL_DENIED, format!("You are not owner of thread {id}")).await,
            None => self.send_error(sequence, error_code::NO_SUCH_THREAD, format!("Unknown thread id: {id}")).await,
        }
    }

    /// Kills a session of the same user, on whatever worker of this node it is; tells whose it is. A worker that is too busy
    /// to be asked has none.
    async fn kill_session(&self, id: u32, query_only: bool) -> Option<Owner> {
        let signal = if query_only { Signal::KillQuery } else { Signal::Kill };
        let shared = self.ctx.shared();
        let (tell, mut told) = mpsc::channel(shared.seats.len());
        for worker in 0..shared.seats.len() {
            let (user, tell) = (self.identity.user.name.clone(), tell.clone());
            shared.run_on(worker, move |ctx| {
                let sessions = ctx.sessions();
                let list = sessions.process_list(worker, &ctx.shared().rows);
                let Some(row) = list.iter().find(|row| row.id == id && row.protocol == Protocol::Mysql) else { return };
                let owner = if row.facts.user == user { Owner::Same } else { Owner::Other };
                if owner == Owner::Same {
                    sessions.signal(id, signal);
                }
                // Whoever asked may be gone.
                let _ = tell.try_send(owner);
            });
        }
        drop(tell);
        told.recv().await
    }

    /// Stops what runs on a server connection, by a connection of its own, without waiting for it. The statement's own
    /// connection must not be used again: a late KILL QUERY would hit the next statement.
    pub(super) fn kill_on_server(&self, victim: &PooledConnection<Mysql>, aim: Aim) {
        let Some(server) = self.server_of(victim) else { return };
        let thread = victim.state.thread_id;
        let sql = match aim {
            Aim::Statement => format!("KILL QUERY {thread}"),
            Aim::Connection => format!("KILL {thread}"),
        };
        let (ctx, key, login) = (Rc::clone(&self.ctx), self.key.clone(), self.server_login.clone());
        let ticker = self.ctx.ticker().clone();
        driver::spawn(async move {
            let work = Box::pin(async {
                let mut killer = Mysql::connect(ctx, server, key, &login).await.map_err(|error| error.to_string())?;
                killer.run(&sql).await.map_err(|error| error.to_string())
            });
            match ticker.guard(KILL_LIMIT, work).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(error, "{sql} failed"),
                Err(_) => tracing::warn!("{sql} took too long"),
            }
        });
    }

    fn server_of(&self, connection: &PooledConnection<Mysql>) -> Option<Arc<Server>> {
        let config = self.ctx.config();
        let hostgroup = config.side(Protocol::Mysql).hostgroups.get(&connection.hostgroup())?;
        hostgroup.servers.iter().find(|server| server.address == *connection.address()).cloned()
    }
}
