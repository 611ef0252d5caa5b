//! Statements that read at the same time: bounded, and none keeps the others out or runs after it was told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sql_server::Face;
use crate::sql_server::engine::Cancel;

/// Statements that read at the same time (raft-and-storage.md 4.1).
const READERS: usize = 16;
/// While others wait for a place, the one that has run longest is interrupted if it has run this long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks of one that waits.
const LOOK: Duration = Duration::from_millis(100);

/// Whose statement it is: the connection's number on its listener.
pub(crate) type Owner = (Face, u32);

/// All statements that run now.
#[derive(Debug)]
pub(crate) struct Running {
    places: Arc<Semaphore>,
    list: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    since: Instant,
    owner: Option<Owner>,
    cancelled: Arc<AtomicBool>,
}

/// A statement's place; it is interrupted when this is dropped.
pub(crate) struct Place<'a> {
    running: &'a Running,
    cancel: Cancel,
    permit: Option<OwnedSemaphorePermit>,
}

impl Default for Running {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(READERS)), list: Mutex::default() }
    }
}

impl Running {
    /// Waits for a place; `None` = the server is shutting down.
    pub(crate) async fn enter(&self, owner: Option<Owner>) -> Option<Place<'_>> {
        let permit = loop {
            match tokio::time::timeout(LOOK, Arc::clone(&self.places).acquire_owned()).await {
                Ok(permit) => break permit.ok()?,
                Err(_) => self.make_room(Instant::now()),
            }
        };
        let cancel = Cancel::default();
        self.list.lock().push(Entry { since: Instant::now(), owner, cancelled: cancel.flag() });
        Some(Place { running: self, cancel, permit: Some(permit) })
    }

    /// Interrupts what `owner` runs; `false` = nothing.
    pub(crate) fn interrupt(&self, owner: Owner) -> bool {
        let list = self.list.lock();
        let mut found = list.iter().filter(|entry| entry.owner == Some(owner));
        found.next().inspect(|entry| entry.cancelled.store(true, Ordering::Relaxed)).is_some()
    }

    fn make_room(&self, now: Instant) {
        let list = self.list.lock();
        let long = |entry: &&Entry| now.saturating_duration_since(entry.since) >= PATIENCE && !entry.cancelled.load(Ordering::Relaxed);
        if let Some(oldest) = list.iter().filter(long).min_by_key(|entry| entry.since) {
            tracing::warn!(connection = ?oldest.owner, "admin statement interrupted: others wait for its place");
            oldest.cancelled.store(true, Ordering::Relaxed);
        }
    }
}

impl Place<'_> {
    /// For the statement's connection.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.cancel.flag()
    }

    /// Held by the thread that runs the statement: whoever waits gets the place when the thread is free, not before.
    pub(crate) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let flag = self.cancel.flag();
        self.running.list.lock().retain(|entry| !Arc::ptr_eq(&entry.cancelled, &flag));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_makes_room_when_others_have_waited() {
        let running = Running::default();
        let mut places = Vec::new();
        for number in 0..READERS {
            places.push(running.enter(Some((Face::Mysql, u32::try_from(number).unwrap()))).await.unwrap());
        }
        running.make_room(Instant::now());
        assert!(places.iter().all(|place| !place.flag().load(Ordering::Relaxed)), "all are young");
        let later = Instant::now() + PATIENCE;
        running.make_room(later);
        running.make_room(later);
        let told: Vec<bool> = places.iter().map(|place| place.flag().load(Ordering::Relaxed)).collect();
        assert_eq!((told[0], told[1], told.iter().filter(|told| **told).count()), (true, true, 2));
        places.truncate(READERS - 1);
        assert!(running.enter(None).await.is_some());
    }

    #[tokio::test]
    async fn a_connection_interrupts_its_own_statement() {
        let running = Running::default();
        let (mysql, pgsql) = (running.enter(Some((Face::Mysql, 7))).await.unwrap(), running.enter(Some((Face::Pgsql, 7))).await.unwrap());
        assert!(running.interrupt((Face::Mysql, 7)) && !running.interrupt((Face::Mysql, 8)));
        assert!(mysql.flag().load(Ordering::Relaxed) && !pgsql.flag().load(Ordering::Relaxed));
        drop(mysql);
        assert!(!running.interrupt((Face::Mysql, 7)));
    }
}
