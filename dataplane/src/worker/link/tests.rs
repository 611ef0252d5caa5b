use std::pin::Pin;

use super::*;
use crate::worker::chunk::{LARGE, SMALL};

fn run<T>(future: impl Future<Output = T>) -> T {
    crate::worker::driver::block_on(future)
}

#[test]
fn bytes_of_one_send_come_as_one_chunk_and_the_buffers_return() {
    run(async {
        let pool = ChunkPool::new();
        let (mut a, mut b) = Link::memory(1024, &pool);
        a.send(pool.copy_of(b"hello")).await.unwrap();
        let chunk = b.recv().await.unwrap();
        assert_eq!(&chunk[..], b"hello");
        b.send(chunk).await.unwrap();
        assert_eq!(&a.recv().await.unwrap()[..], b"hello");
        assert_eq!(pool.lent(), 0);
        drop(a);
        assert!(b.recv().await.unwrap().is_empty());
    });
}

#[test]
fn a_waiting_receive_owns_no_buffer() {
    let pool = ChunkPool::new();
    let (mut a, _b) = Link::memory(1024, &pool);
    let mut cx = Context::from_waker(Waker::noop());
    let mut wait = a.recv();
    assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
    assert_eq!(pool.lent(), 0);
    assert!(std::mem::size_of_val(&wait) <= 8);
    assert!(size_of::<Link>() <= 64, "{}", size_of::<Link>());
}

#[test]
fn an_answer_that_fills_two_buffers_gets_large_ones() {
    run(async {
        let pool = ChunkPool::new();
        let (mut a, mut b) = Link::memory(1 << 20, &pool);
        a.send_bytes(&vec![7; 2 * SMALL + LARGE + 5]).await.unwrap();
        let mut sizes = Vec::new();
        for _ in 0..4 {
            sizes.push(b.recv().await.unwrap().len());
        }
        assert_eq!(sizes, [SMALL, SMALL, LARGE, 5]);
        a.send_bytes(b"x").await.unwrap();
        assert_eq!(b.recv().await.unwrap().spare(), SMALL - 1);
    });
}

#[test]
fn more_bytes_are_appended_and_given_back_bytes_come_first() {
    run(async {
        let pool = ChunkPool::new();
        let (mut a, mut b) = Link::memory(1024, &pool);
        a.send_bytes(b"one").await.unwrap();
        let mut chunk = b.recv().await.unwrap();
        a.send_bytes(b"two").await.unwrap();
        assert_eq!(b.recv_more(&mut chunk).await.unwrap(), 3);
        assert_eq!(&chunk[..], b"onetwo");
        b.unread(pool.copy_of(b"two"));
        chunk.truncate(3);
        b.unread(chunk);
        assert_eq!(&b.recv().await.unwrap()[..], b"onetwo");
    });
}

#[test]
fn watching_sees_the_other_side_close_and_keeps_its_early_bytes() {
    run(async {
        let pool = ChunkPool::new();
        let (mut client, mut front) = Link::memory(1024, &pool);
        let (mut server, mut back) = Link::memory(1024, &pool);
        client.send_bytes(b"early").await.unwrap();
        server.send_bytes(b"answer").await.unwrap();
        assert!(matches!(back.recv_watching(&mut front).await.unwrap(), Watched::Bytes(chunk) if &chunk[..] == b"answer"));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(front.poll_closed(&mut cx).is_pending());
        assert!(front.has_early());
        assert_eq!(&front.recv().await.unwrap()[..], b"early");
        drop(client);
        assert!(matches!(back.recv_watching(&mut front).await.unwrap(), Watched::OtherClosed));
    });
}

#[test]
fn an_idle_connection_is_checked_without_waiting() {
    run(async {
        let pool = ChunkPool::new();
        let (mut server, mut back) = Link::memory(1024, &pool);
        assert!(matches!(back.check_idle(), IdleCheck::Quiet));
        server.send_bytes(b"bye").await.unwrap();
        assert!(matches!(back.check_idle(), IdleCheck::Bytes(chunk) if &chunk[..] == b"bye"));
        drop(server);
        assert!(matches!(back.check_idle(), IdleCheck::Closed));
        assert!(back.into_parcel().is_err());
    });
}
