//! Tasks, wake-ups and sockets of a driver, on the test's own thread.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A watched end and the test's end.
fn pair() -> (Driven, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Driven::new(ours.into()).unwrap(), theirs)
}

async fn read(socket: &Driven, room: usize) -> Vec<u8> {
    let mut buffer = vec![0; room];
    let count = std::future::poll_fn(|cx| socket.poll_read(cx, &mut buffer)).await.unwrap();
    buffer.truncate(count);
    buffer
}

async fn write(socket: &Driven, bytes: &[u8]) -> usize {
    std::future::poll_fn(|cx| socket.poll_write(cx, bytes)).await.unwrap()
}

#[test]
fn a_task_wakes_when_its_socket_has_something() {
    block_on(async {
        let (socket, mut peer) = pair();
        let (told, heard) = tokio::sync::oneshot::channel();
        spawn(async move {
            let bytes = read(&socket, 16).await;
            write(&socket, b"answer").await;
            told.send(bytes).unwrap();
        });
        yield_now().await;
        peer.write_all(b"question").unwrap();
        assert_eq!(heard.await.unwrap(), b"question");
        let mut answer = [0; 6];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    });
}

#[test]
fn what_comes_piece_by_piece_is_read_to_its_end() {
    block_on(async {
        let (socket, mut peer) = pair();
        peer.write_all(&[7; 20]).unwrap();
        // A full buffer says nothing about what is left; a half full one does.
        assert_eq!(read(&socket, 16).await.len(), 16);
        assert_eq!(read(&socket, 16).await.len(), 4);
        let mut nothing = [0; 16];
        assert!(socket.glance(&mut nothing).is_pending());
        peer.write_all(b"last words").unwrap();
        drop(peer);
        assert_eq!(read(&socket, 16).await, b"last words");
        assert!(read(&socket, 16).await.is_empty(), "the end");
        assert!(read(&socket, 16).await.is_empty(), "is told as often as one asks");
    });
}

#[test]
fn a_writer_waits_for_room() {
    block_on(async {
        let (socket, mut peer) = pair();
        let total = 4 << 20;
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let bytes: Vec<u8> = (0..total).map(|i| (i % 251) as u8).collect();
        let mut sent = 0;
        while sent < total {
            sent += write(&socket, &bytes[sent..]).await;
        }
        drop(socket);
        assert!(reader.join().unwrap() == bytes);
    });
}

#[test]
fn other_threads_wake_tasks() {
    block_on(async {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
        let thread = std::thread::spawn(move || (0..1000).for_each(|number| sender.blocking_send(number).unwrap()));
        let mut expected = 0;
        while let Some(number) = receiver.recv().await {
            assert_eq!(number, expected);
            expected += 1;
        }
        assert_eq!(expected, 1000);
        thread.join().unwrap();
    });
}

#[test]
fn a_task_that_never_waits_lets_others_run() {
    block_on(async {
        let (socket, mut peer) = pair();
        peer.write_all(&[1; 2 * BUDGET as usize]).unwrap();
        let others = Rc::new(Cell::new(0));
        let seen = Rc::clone(&others);
        spawn(async move {
            loop {
                seen.set(seen.get() + 1);
                yield_now().await;
            }
        });
        for _ in 0..2 * BUDGET {
            assert_eq!(read(&socket, 1).await.len(), 1);
        }
        assert!(others.get() >= 1);
    });
}

struct Dropped(Arc<AtomicUsize>, bool);

impl Drop for Dropped {
    fn drop(&mut self) {
        assert_eq!(std::thread::panicking(), self.1);
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_panic_ends_its_task_and_no_other() {
    let dropped = Arc::new(AtomicUsize::new(0));
    block_on(async {
        let held = Dropped(Arc::clone(&dropped), true);
        spawn(async move {
            let _held = held;
            panic!("on purpose");
        });
        let (told, heard) = tokio::sync::oneshot::channel();
        spawn(async move { told.send(()).unwrap() });
        heard.await.unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn tasks_that_are_left_are_dropped_and_may_spawn_in_vain() {
    struct Spawns {
        _dropped: Dropped,
    }
    impl Drop for Spawns {
        fn drop(&mut self) {
            spawn(async { unreachable!() });
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    block_on(async {
        let held = Spawns { _dropped: Dropped(Arc::clone(&dropped), false) };
        let (socket, peer) = pair();
        spawn(async move {
            let _held = (held, peer);
            read(&socket, 1).await;
        });
        yield_now().await;
    });
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    spawn(async { unreachable!() });
}

#[test]
fn places_are_used_again_and_late_wake_ups_reach_nobody() {
    block_on(async {
        let kept: Rc<RefCell<Option<std::task::Waker>>> = Rc::default();
        let keep = Rc::clone(&kept);
        spawn(std::future::poll_fn(move |cx| {
            *keep.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        }));
        yield_now().await;
        let polls = Rc::new(Cell::new(0));
        let count = Rc::clone(&polls);
        spawn(std::future::poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::Pending
        }));
        yield_now().await;
        assert_eq!(polls.get(), 1);
        kept.take().unwrap().wake();
        yield_now().await;
        assert_eq!(polls.get(), 1, "it has the place of the one that ended");
    });
}

#[test]
fn a_socket_goes_to_another_thread() {
    let fd = block_on(async {
        let (socket, peer) = pair();
        (socket.into_fd().unwrap(), peer)
    });
    std::thread::spawn(move || {
        let (fd, mut peer) = fd;
        block_on(async {
            let socket = Driven::new(fd).unwrap();
            peer.write_all(b"moved").unwrap();
            assert_eq!(read(&socket, 16).await, b"moved");
        });
    })
    .join()
    .unwrap();
}
