//! Upkeep of idle connections: once a second, and at once when the configuration has changed.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::connection::Entry;
use super::row::ServerRow;
use super::{Dialect, Pool};
use crate::stats::Counter;
use crate::worker::Sweep;
use crate::worker::driver;
use crate::worker::snapshot::Snapshot;
use crate::worker::ticker::TICK;

/// Time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

impl<D: Dialect> Sweep for Pool<D> {
    /// Closes idle connections whose server is not ONLINE or closed them, that are too old or made with other TLS settings,
    /// or that are too many.
    fn sweep(&self, config: &Snapshot) {
        let variables = &config.side(D::PROTOCOL).variables;
        let max_age = ticks(variables.connection_max_age);
        self.max_age.set(max_age);
        let now = self.ticker.now();
        let unwanted = self.idle.borrow_mut().take_all(|entry| {
            !entry.row.keeps_connections()
                || now.saturating_sub(entry.born) >= max_age
                || entry.row.slots.held() > entry.row.max()
                || has_other_tls(entry, config)
                || !entry.is_alive()
        });
        for entry in unwanted {
            entry.row.cells(self.worker).free.sub(1);
            self.close(entry);
        }
        self.trim(variables.free_connections_pct);
        self.ping(ticks(variables.ping_interval_server));
        self.serve_waiters();
    }

    fn reclaim(&self, row: &Arc<ServerRow>) {
        while row.slots.has_waiters() {
            let idle = self.idle.borrow_mut().take_first(|entry| entry.row.id == row.id);
            let Some(entry) = idle else { return };
            row.cells(self.worker).free.sub(1);
            self.give_back(entry);
        }
    }

    /// Gives idle connections to sessions that wait for their server; the rare case that a message was lost.
    fn serve_waiters(&self) {
        loop {
            let idle = self.idle.borrow_mut().take_first(|entry| entry.row.slots.has_waiters());
            let Some(entry) = idle else { return };
            entry.row.cells(self.worker).free.sub(1);
            self.give_back(entry);
        }
    }
}

impl<D: Dialect> Pool<D> {
    /// `free_connections_pct`: this worker keeps its share of what may be idle, the oldest go.
    fn trim(&self, percent: u32) {
        let share = |row: &ServerRow| {
            let all = u64::from(row.max()) * u64::from(percent) / 100;
            all.div_ceil(self.shared.seats.len() as u64).max(1)
        };
        let surplus = self.idle.borrow_mut().take_all(|entry| {
            let free = &entry.row.cells(self.worker).free;
            let too_many = free.get() > share(&entry.row);
            if too_many {
                free.sub(1);
            }
            too_many
        });
        for entry in surplus {
            self.close(entry);
        }
    }
}

impl<D: Dialect> Pool<D> {
    /// Pings what has been idle for `interval`, each in a task of its own; meanwhile it counts as used.
    fn ping(&self, interval: u64) {
        let Some(pool) = self.ctx.upgrade().map(|ctx| Self::of(&ctx)) else { return };
        let now = self.ticker.now();
        let silent = self.idle.borrow_mut().take_all(|entry| now.saturating_sub(entry.last_used) >= interval);
        for entry in silent {
            entry.row.cells(self.worker).free.sub(1);
            let mut ping = Pinged { pool: Rc::clone(&pool), entry: Some(entry) };
            ping.count().add(1);
            driver::spawn(async move { ping.run().await });
        }
    }
}

/// An idle connection that is being pinged; closed unless it answers.
struct Pinged<D: Dialect> {
    pool: Rc<Pool<D>>,
    entry: Option<Box<Entry<D>>>,
}

impl<D: Dialect> Pinged<D> {
    async fn run(&mut self) {
        let Some(entry) = &mut self.entry else { return };
        let answer = self.pool.ticker.guard(PING_TIMEOUT, Box::pin(D::ping(&mut entry.backend))).await;
        if let Ok(Ok(())) = answer
            && entry.row.keeps_connections()
            && let Some(entry) = self.take()
        {
            self.pool.give_back(entry);
        }
    }

    fn take(&mut self) -> Option<Box<Entry<D>>> {
        let entry = self.entry.take()?;
        entry.row.cells(self.pool.worker).used.sub(1);
        Some(entry)
    }

    fn count(&self) -> &Counter {
        &self.entry.as_ref().expect("taken at the end only").row.cells(self.pool.worker).used
    }
}

impl<D: Dialect> Drop for Pinged<D> {
    fn drop(&mut self) {
        if let Some(entry) = self.take() {
            tracing::debug!(server = %entry.row.address(), "idle connection does not answer its ping");
            self.pool.discard(entry);
        }
    }
}

/// Whether the server's row has got other TLS settings since the connection was made.
fn has_other_tls<D: Dialect>(entry: &Entry<D>, config: &Snapshot) -> bool {
    let candidates = config.candidates(D::PROTOCOL, entry.row.hostgroup());
    candidates.iter().any(|candidate| candidate.row.id == entry.row.id && candidate.server.tls != entry.tls)
}

fn ticks(duration: Duration) -> u64 {
    if duration.is_zero() { u64::MAX } else { u64::try_from(duration.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX) }
}
