//! Sockets that a driver watches. Edge-triggered: the kernel tells once that there is something, and it is there until a read
//! or a write has found the end of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{CURRENT, Driver};

/// What is known of a socket, and whom it concerns.
struct Watched {
    driver: Rc<Driver>,
    number: Cell<usize>,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The other side will send no more: reads never wait again.
    ended: Cell<bool>,
    /// Left in place when woken: whoever waits next is most often the same.
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

/// The sockets of one driver by number.
pub(super) struct Sockets {
    registry: Registry,
    places: RefCell<Vec<Option<Rc<Watched>>>>,
    free: RefCell<Vec<usize>>,
}

impl Sockets {
    pub(super) fn new(registry: Registry) -> Self {
        Self { registry, places: RefCell::default(), free: RefCell::default() }
    }

    fn add(&self, fd: BorrowedFd<'_>, watched: &Rc<Watched>) -> io::Result<()> {
        let mut places = self.places.borrow_mut();
        let mut free = self.free.borrow_mut();
        let number = free.last().copied().unwrap_or(places.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(&mut SourceFd(&fd.as_raw_fd()), Token(number), interest)?;
        if free.pop().is_none() {
            places.push(None);
        }
        places[number] = Some(Rc::clone(watched));
        watched.number.set(number);
        Ok(())
    }

    /// An event that comes late concerns another socket of the same number, which then looks once in vain.
    pub(super) fn tell(&self, event: &Event) {
        let places = self.places.borrow();
        let Some(Some(socket)) = places.get(event.token().0) else { return };
        let failed = event.is_error();
        if event.is_read_closed() || failed {
            socket.ended.set(true);
        }
        if event.is_readable() || socket.ended.get() {
            socket.readable.set(true);
            wake(&socket.reader);
        }
        if event.is_writable() || event.is_write_closed() || failed {
            socket.writable.set(true);
            wake(&socket.writer);
        }
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = &*waker.borrow() {
        waker.wake_by_ref();
    }
}

fn keep(waker: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    match &mut *waker.borrow_mut() {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

/// A connected socket that does not block, watched by this thread's driver.
pub(crate) struct Driven {
    fd: OwnedFd,
    watch: Watch,
}

/// Gives the number back at its end. Closing the descriptor is what makes the kernel forget it.
struct Watch(Rc<Watched>);

impl Drop for Watch {
    fn drop(&mut self) {
        let Watched { driver, number, .. } = &*self.0;
        let place = driver.sockets.places.borrow_mut().get_mut(number.get()).and_then(Option::take);
        driver.sockets.free.borrow_mut().push(number.get());
        drop(place);
    }
}

impl Driven {
    /// Watches `fd`, which may be written to. Fails outside of a driver, or when the kernel watches no more.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::watch(fd, true)
    }

    /// Watches `fd`, whose connection is being opened.
    pub(crate) fn connecting(fd: OwnedFd) -> io::Result<Self> {
        Self::watch(fd, false)
    }

    fn watch(fd: OwnedFd, writable: bool) -> io::Result<Self> {
        let driver = CURRENT.with(|current| current.borrow().clone());
        let driver = driver.ok_or_else(|| io::Error::other("no driver runs on this thread"))?;
        let watched = Rc::new(Watched {
            driver: Rc::clone(&driver),
            number: Cell::new(0),
            readable: Cell::new(false),
            writable: Cell::new(writable),
            ended: Cell::new(false),
            reader: RefCell::default(),
            writer: RefCell::default(),
        });
        // What was there before the watch began is told, too.
        driver.sockets.add(fd.as_fd(), &watched)?;
        Ok(Self { fd, watch: Watch(watched) })
    }

    /// Ends the watch.
    pub(crate) fn into_fd(self) -> io::Result<OwnedFd> {
        let Self { fd, watch } = self;
        watch.0.driver.sockets.registry.deregister(&mut SourceFd(&fd.as_raw_fd()))?;
        Ok(fd)
    }

    /// Whether there is nothing to read as far as the driver knows. The task of `waiting` is woken when there is.
    pub(crate) fn is_quiet(&self, waiting: Option<&Context<'_>>) -> bool {
        let quiet = !self.watch.0.readable.get();
        if let (true, Some(cx)) = (quiet, waiting) {
            keep(&self.watch.0.reader, cx);
        }
        quiet
    }

    /// Reads into `buffer`; 0 = the peer closed (or there was no room).
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.watch.0.driver.spend(cx) {
            return Poll::Pending;
        }
        let read = self.glance(buffer);
        if read.is_pending() {
            keep(&self.watch.0.reader, cx);
        }
        read
    }

    /// Reads if there is something as far as the driver knows, which costs no system call otherwise. Wakes nobody later.
    pub(crate) fn glance(&self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let socket = &self.watch.0;
        while socket.readable.get() {
            match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => {
                    // Less than there was room for: that was all, and the next byte makes a new edge.
                    if count > 0 && count < buffer.len() {
                        socket.readable.set(socket.ended.get());
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => socket.readable.set(false),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Pending
    }

    /// Writes from the front of `bytes`.
    pub(crate) fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.watch.0.driver.spend(cx) {
            return Poll::Pending;
        }
        let socket = &self.watch.0;
        while socket.writable.get() {
            match send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    if count < bytes.len() {
                        socket.writable.set(false);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => socket.writable.set(false),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        keep(&socket.writer, cx);
        Poll::Pending
    }

    /// Ready when a connection that is being opened stands or has failed.
    pub(crate) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.watch.0.writable.get() {
            let outcome = rustix::net::sockopt::socket_error(&self.fd)?;
            return Poll::Ready(outcome.map_err(Into::into));
        }
        keep(&self.watch.0.writer, cx);
        Poll::Pending
    }
}

impl AsFd for Driven {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").field("fd", &self.fd).field("number", &self.watch.0.number).finish_non_exhaustive()
    }
}
