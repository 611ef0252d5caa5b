//! The wait of an idle session.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::chunk::Chunk;
use super::link::Link;
use super::session::{SessionEntry, Signal};

/// What ended the wait of an idle session.
#[derive(Debug)]
pub enum Wake {
    /// The client sent these bytes; empty = it closed.
    Bytes(Chunk),
    /// The session's timer is due.
    Expired,
    /// Told from outside.
    Signal(Signal),
    /// The socket broke.
    Broken(io::Error),
}

/// Future of [`super::session::SessionGuard::wait`]. Bytes of the client come before a drain, so that what was sent is still executed.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Wait<'a> {
    entry: &'a SessionEntry,
    link: &'a mut Link,
    heeds_drain: bool,
}

impl<'a> Wait<'a> {
    pub(super) fn new(entry: &'a SessionEntry, link: &'a mut Link, heeds_drain: bool) -> Self {
        Self { entry, link, heeds_drain }
    }
}

impl Future for Wait<'_> {
    type Output = Wake;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wake> {
        let Self { entry, link, heeds_drain } = &mut *self;
        entry.forget_kill_query();
        if let Poll::Ready(signal) = entry.poll_interrupt(cx) {
            return Poll::Ready(Wake::Signal(signal));
        }
        match link.poll_recv(cx) {
            Poll::Ready(Ok(chunk)) => return Poll::Ready(Wake::Bytes(chunk)),
            Poll::Ready(Err(error)) => return Poll::Ready(Wake::Broken(error)),
            Poll::Pending => {}
        }
        if *heeds_drain && entry.is_draining() {
            return Poll::Ready(Wake::Signal(Signal::Drain));
        }
        entry.timer.poll_expired(cx).map(|()| Wake::Expired)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Protocol;
    use crate::worker::session::SessionGuard;
    use crate::worker::testing::{Workers, client, config, poll_once};

    #[test]
    fn an_idle_session_wakes_for_what_concerns_it() {
        let workers = Workers::new(1, config(1, &[]));
        let ctx = &workers.contexts[0];
        let (_far, mut front, session) = client(ctx, Protocol::Mysql);
        let entry = session.entry();
        let mut wake = |session: &SessionGuard, busy: bool| {
            let mut wait = if busy { session.wait_busy(&mut front) } else { session.wait(&mut front) };
            match poll_once(Pin::new(&mut wait)) {
                Poll::Ready(Wake::Signal(signal)) => Some(signal),
                Poll::Ready(other) => panic!("{other:?}"),
                Poll::Pending => None,
            }
        };
        for ignored in [Signal::KillQuery, Signal::ServerGone] {
            entry.signal(ignored);
            assert_eq!(wake(&session, false), None, "{ignored:?}");
            assert_eq!(entry.take_signal(), None);
        }
        entry.hold(1);
        entry.signal(Signal::ServerGone);
        assert_eq!(wake(&session, false), Some(Signal::ServerGone));
        entry.signal(Signal::Drain);
        assert_eq!(wake(&session, true), None);
        assert_eq!(wake(&session, false), Some(Signal::Drain));
        entry.signal(Signal::Kill);
        assert_eq!(wake(&session, true), Some(Signal::Kill));
        assert_eq!(wake(&session, false), Some(Signal::Kill), "stays");
    }

    #[test]
    fn bytes_come_before_a_drain_and_a_timer_ends_the_wait() {
        let workers = Workers::new(1, config(1, &[]));
        let (mut far, mut front, session) = client(&workers.contexts[0], Protocol::Mysql);
        session.timer.arm(Duration::from_millis(100));
        workers.advance(2);
        session.signal(Signal::Drain);
        far.send_at_once(b"last words");
        assert!(
            matches!(poll_once(Pin::new(&mut session.wait(&mut front))), Poll::Ready(Wake::Bytes(bytes)) if &bytes[..] == b"last words")
        );
        assert!(matches!(poll_once(Pin::new(&mut session.wait_busy(&mut front))), Poll::Ready(Wake::Expired)));
    }
}
