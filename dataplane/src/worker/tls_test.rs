//! TLS over chunks: against rustls' own buffered connections, byte for byte, and against itself.

use std::io::{Read as _, Write as _};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use quorumsql_chaos::certificates::{Authority, Validity};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, NoKeyLog, RootCertStore, SupportedProtocolVersion};

use crate::config::{Protocol, TlsMode};
use crate::tls::{ClientTls, Connector, Identity, TlsError, Trust};
use crate::worker::chunk::{ChunkPool, LARGE, SMALL};
use crate::worker::driver::{block_on, yield_now};
use crate::worker::link::{IdleCheck, Link};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

fn run<T>(future: impl Future<Output = T>) -> T {
    block_on(future)
}

/// What our side shows, and a far side's settings that believe it.
struct Setup {
    tls: ClientTls,
    roots: Vec<rustls::pki_types::CertificateDer<'static>>,
}

impl Setup {
    fn new() -> Self {
        Self::with(Validity::Long)
    }

    fn with(validity: Validity) -> Self {
        let authority = Authority::new("test");
        let certified = authority.issue(&["localhost"], validity);
        let identity = Identity::from_pem(certified.certificate.as_bytes(), certified.key.as_bytes()).unwrap();
        let tls = ClientTls::new(Protocol::Mysql, &identity, Arc::new(NoKeyLog)).unwrap();
        let roots = Identity::from_pem(authority.pem.as_bytes(), certified.key.as_bytes()).unwrap().chain;
        Self { tls, roots }
    }

    fn connector(&self) -> Connector {
        let trust = Trust { roots: self.roots.clone(), revoked: Vec::new() };
        Connector::new(TlsMode::VerifyFull, &trust, None, Arc::new(NoKeyLog)).unwrap()
    }

    /// A buffered client, and a link to it whose far end carries ciphertext.
    fn far(&self, version: &'static SupportedProtocolVersion, pool: &ChunkPool) -> (Far, Link) {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.roots.iter().cloned());
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        let (wire, near) = Link::memory(1 << 20, pool);
        (Far { tls, wire }, near)
    }
}

/// The far side: rustls' buffered client over a wire on which the test cuts the bytes.
struct Far {
    tls: ClientConnection,
    wire: Link,
}

impl Far {
    /// The ciphertext that is ready to go.
    fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(plain).unwrap();
        self.outgoing()
    }

    fn incoming(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).unwrap();
            self.tls.process_new_packets().unwrap();
        }
    }

    /// Everything that can be read now.
    fn plain(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // "Would block" is the end of what is there.
        let _ = self.tls.reader().read_to_end(&mut bytes);
        bytes
    }

    /// Sends `bytes` in pieces, letting the other side run in between.
    async fn send(&mut self, bytes: &[u8], piece: usize) {
        for part in bytes.chunks(piece) {
            self.wire.send_bytes(part).await.unwrap();
            yield_now().await;
        }
    }

    async fn handshake(&mut self, piece: usize) {
        while self.tls.is_handshaking() || self.tls.wants_write() {
            let bytes = self.outgoing();
            self.send(&bytes, piece).await;
            if self.tls.is_handshaking() {
                let bytes = self.wire.recv().await.unwrap();
                assert!(!bytes.is_empty(), "closed during the handshake");
                self.incoming(&bytes);
            }
        }
    }
}

/// Both sides through the handshake, in pieces of `piece` bytes from the far side.
async fn established(setup: &Setup, version: &'static SupportedProtocolVersion, piece: usize, pool: &ChunkPool) -> (Far, Link) {
    let (mut far, mut near) = setup.far(version, pool);
    let (accepted, ()) = tokio::join!(near.accept_tls(&setup.tls), far.handshake(piece));
    accepted.unwrap();
    (far, near)
}

/// A pattern that no shift maps onto itself.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8).collect()
}

async fn receive(near: &mut Link, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        let chunk = near.recv().await.unwrap();
        assert!(!chunk.is_empty(), "closed after {} of {length} bytes", all.len());
        all.extend_from_slice(&chunk);
    }
    all
}

#[test]
fn records_may_be_cut_anywhere() {
    let setup = Setup::new();
    let plain = pattern(3 * 16384 + 700);
    run(async {
        for version in VERSIONS {
            for piece in [1, 2, 3, 5, 21, 1000, 16384, 16406, 1 << 20] {
                let pool = ChunkPool::new();
                let (mut far, mut near) = established(&setup, version, piece, &pool).await;
                let sealed = far.seal(&plain[..if piece < 5 { 700 } else { plain.len() }]);
                let expected = if piece < 5 { 700 } else { plain.len() };
                let (received, ()) = tokio::join!(receive(&mut near, expected), far.send(&sealed, piece));
                assert!(received == plain[..expected], "{version:?} in pieces of {piece}");
                assert_eq!(pool.lent(), 0, "{version:?} in pieces of {piece}: buffers are kept");
                let answer = pool.copy_of(&received[..500]);
                near.send(answer).await.unwrap();
                let bytes = far.wire.recv().await.unwrap();
                far.incoming(&bytes);
                assert_eq!(far.plain(), &plain[..500]);
            }
        }
    });
}

#[test]
fn several_records_of_one_read_come_as_one_chunk() {
    let setup = Setup::new();
    run(async {
        for version in VERSIONS {
            let pool = ChunkPool::new();
            let (mut far, mut near) = established(&setup, version, 1 << 20, &pool).await;
            let mut sealed = far.seal(b"one ");
            sealed.extend(far.seal(b"two "));
            sealed.extend(far.seal(b"three"));
            far.wire.send_bytes(&sealed[..sealed.len() - 1]).await.unwrap();
            assert_eq!(&near.recv().await.unwrap()[..], b"one two ");
            assert_eq!(pool.lent(), 1, "the beginning of the third record waits");
            far.wire.send_bytes(&sealed[sealed.len() - 1..]).await.unwrap();
            let mut chunk = pool.copy_of(b"and ");
            near.recv_more(&mut chunk).await.unwrap();
            assert_eq!(&chunk[..], b"and three");
        }
    });
}

#[test]
fn a_waiting_receive_owns_no_buffer() {
    let setup = Setup::new();
    run(async {
        let pool = ChunkPool::new();
        let (_far, mut near) = established(&setup, &TLS13, 1 << 20, &pool).await;
        {
            let mut wait = near.recv();
            assert!(crate::worker::testing::poll_once(Pin::new(&mut wait)).is_pending());
        }
        assert_eq!(pool.lent(), 0);
        assert!(size_of::<Link>() <= 64, "{}", size_of::<Link>());
    });
}

#[test]
fn ten_megabytes_pass_through_narrow_pipes_between_two_links() {
    let setup = Setup::new();
    let plain = pattern(10 << 20);
    run(async {
        for capacity in [10_000, 1 << 18] {
            let pool = ChunkPool::new();
            let (mut client, mut server) = Link::memory(capacity, &pool);
            let connector = setup.connector();
            let (one, other) = tokio::join!(client.connect_tls(&connector, "localhost"), server.accept_tls(&setup.tls));
            one.unwrap();
            other.unwrap();
            for from_client in [true, false] {
                let (sender, receiver) = if from_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
                let send = async {
                    for part in plain.chunks(LARGE) {
                        let mut chunk = pool.take_large();
                        chunk.extend_from_slice(part);
                        sender.send(chunk).await.unwrap();
                    }
                };
                let (received, ()) = tokio::join!(receive(receiver, plain.len()), send);
                assert!(received == plain, "from the client: {from_client}, {capacity} bytes in flight");
            }
            assert_eq!(pool.lent(), 0);
        }
    });
}

#[test]
fn new_keys_are_answered_with_new_keys() {
    let setup = Setup::new();
    run(async {
        let pool = ChunkPool::new();
        let (mut far, mut near) = established(&setup, &TLS13, 1 << 20, &pool).await;
        far.tls.refresh_traffic_keys().unwrap();
        let sealed = far.seal(b"with new keys");
        far.wire.send_bytes(&sealed).await.unwrap();
        assert_eq!(&near.recv().await.unwrap()[..], b"with new keys");
        near.send(pool.copy_of(b"with ours, too")).await.unwrap();
        let bytes = far.wire.recv().await.unwrap();
        far.incoming(&bytes);
        assert_eq!(far.plain(), b"with ours, too");
    });
}

#[test]
fn the_end_can_be_told_from_a_cut() {
    let setup = Setup::new();
    run(async {
        for version in VERSIONS {
            let pool = ChunkPool::new();
            let (mut far, near) = established(&setup, version, 1 << 20, &pool).await;
            drop(near);
            let bytes = far.wire.recv().await.unwrap();
            far.incoming(&bytes);
            assert_eq!(far.tls.reader().read(&mut [0]).ok(), Some(0), "{version:?}: a clean end");
            let (mut far, mut near) = established(&setup, version, 1 << 20, &pool).await;
            far.tls.send_close_notify();
            let bytes = far.outgoing();
            far.wire.send_bytes(&bytes).await.unwrap();
            assert!(near.recv().await.unwrap().is_empty());
            assert!(near.recv().await.unwrap().is_empty(), "and stays so");
        }
    });
}

#[test]
fn an_idle_connection_to_a_server_is_checked_without_waiting() {
    let setup = Setup::new();
    run(async {
        let pool = ChunkPool::new();
        let (mut client, mut server) = Link::memory(1 << 20, &pool);
        let connector = setup.connector();
        let (one, other) = tokio::join!(client.connect_tls(&connector, "localhost"), server.accept_tls(&setup.tls));
        one.unwrap();
        other.unwrap();
        // The server's session tickets have arrived, and are nothing that it said.
        assert!(matches!(client.check_idle(), IdleCheck::Quiet));
        server.send_bytes(b"bye").await.unwrap();
        assert!(matches!(client.check_idle(), IdleCheck::Bytes(chunk) if &chunk[..] == b"bye"));
        drop(server);
        assert!(matches!(client.check_idle(), IdleCheck::Closed));
    });
}

#[test]
fn hellos_that_are_none() {
    let setup = Setup::new();
    run(async {
        // A hello that says to be a little shorter than 64 KiB, in records of one byte and then of many.
        let mut long: Vec<u8> = [1, 0, 0xff, 0xf0].into_iter().flat_map(|byte| [0x16, 3, 1, 0, 1, byte]).collect();
        for _ in 0..4 {
            long.extend_from_slice(&[0x16, 3, 1, 0x3f, 0xff]);
            long.resize(long.len() + 0x3fff, 0);
        }
        for (bytes, alert) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], true),
            (b"\x16\x03\x01\xff\xff", true),
            (&long, false),
            // More than 64 KiB.
            (b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", false),
            (b"\x16\x03\x01\x00\x05\x01\x01\x00\x00\x00", false),
        ] {
            let pool = ChunkPool::new();
            let (mut wire, mut near) = Link::memory(1 << 20, &pool);
            wire.send_bytes(bytes).await.unwrap();
            let error = near.accept_tls(&setup.tls).await.unwrap_err();
            let refused = match &error {
                TlsError::Protocol(_) => true,
                TlsError::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
                _ => false,
            };
            assert!(refused, "{error:?}");
            assert!(near.recv().await.is_ok_and(|chunk| chunk.is_empty()), "nothing comes any more");
            assert!(near.send_bytes(b"plain").await.is_err(), "nothing goes out in plain text");
            assert_eq!(pool.lent(), 0);
            drop(near);
            let told = wire.recv().await.unwrap();
            assert_eq!(told.first() == Some(&0x15), alert, "{error}: {told:x?}");
        }
    });
}

#[test]
fn a_hello_that_is_cut_off() {
    let setup = Setup::new();
    run(async {
        for bytes in [&b"\x16\x03\x01\x00\x50\x01"[..], b"\x16", b""] {
            let pool = ChunkPool::new();
            let (mut wire, mut near) = Link::memory(1 << 20, &pool);
            wire.send_bytes(bytes).await.unwrap();
            drop(wire);
            let outcome = near.accept_tls(&setup.tls).await;
            assert!(matches!(outcome, Err(TlsError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof));
            assert_eq!(pool.lent(), 0);
        }
    });
}

#[test]
fn what_was_changed_on_the_way_ends_the_connection() {
    let setup = Setup::new();
    run(async {
        for version in VERSIONS {
            let pool = ChunkPool::new();
            let (mut far, mut near) = established(&setup, version, 1 << 20, &pool).await;
            let mut sealed = far.seal(b"SELECT 1");
            let last = sealed.len() - 1;
            sealed[last] ^= 1;
            far.wire.send_bytes(&sealed).await.unwrap();
            assert_eq!(near.recv().await.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
            let alert = far.wire.recv().await.unwrap();
            assert!(far.tls.read_tls(&mut &alert[..]).is_ok() && far.tls.process_new_packets().is_err(), "the peer is told");
            assert!(near.send_bytes(b"x").await.is_err());
        }
    });
}

#[test]
fn a_certificate_that_is_not_good_ends_the_handshake_of_both() {
    let (setup, other, expired) = (Setup::new(), Setup::new(), Setup::with(Validity::Expired));
    run(async {
        let pool = ChunkPool::new();
        for (setup, connector, host) in [
            (&setup, other.connector(), "localhost"),
            (&setup, setup.connector(), "elsewhere"),
            (&expired, expired.connector(), "localhost"),
        ] {
            let (mut client, mut server) = Link::memory(1 << 20, &pool);
            let (one, two) = tokio::join!(client.connect_tls(&connector, host), server.accept_tls(&setup.tls));
            assert!(matches!(one, Err(TlsError::Protocol(rustls::Error::InvalidCertificate(_)))), "{one:?}");
            assert!(matches!(two, Err(TlsError::Protocol(rustls::Error::AlertReceived(_)))), "{two:?}");
            assert!(client.send_bytes(b"plain").await.is_err());
        }
    });
}

#[test]
fn a_connection_goes_on_at_another_worker() {
    let setup = Setup::new();
    run(async {
        let (pool, other_pool) = (ChunkPool::new(), ChunkPool::new());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let [mut client, mut server] = [dialled, accepted].map(|socket| {
            socket.set_nonblocking(true).unwrap();
            Link::tcp(socket, pool.clone()).unwrap()
        });
        let connector = setup.connector();
        let (one, other) = tokio::join!(client.connect_tls(&connector, "localhost"), server.accept_tls(&setup.tls));
        one.unwrap();
        other.unwrap();
        server.send_bytes(b"before").await.unwrap();
        assert_eq!(&client.recv().await.unwrap()[..], b"before");
        let mut client = Link::from_parcel(client.into_parcel().unwrap(), other_pool).unwrap();
        server.send_bytes(b"after").await.unwrap();
        assert_eq!(&client.recv().await.unwrap()[..], b"after");
        client.send_bytes(&pattern(SMALL + 1)).await.unwrap();
        assert_eq!(receive(&mut server, SMALL + 1).await, pattern(SMALL + 1));
        assert!(client.connect_tls(&connector, "localhost").await.is_err(), "TLS starts once");
    });
}

#[test]
fn whatever_a_peer_sends_there_is_no_panic_and_no_growth() {
    static SETUP: LazyLock<Setup> = LazyLock::new(Setup::new);
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>, u8)>().with_iterations(400).for_each(|(first, second, piece)| {
        run(async {
            let pool = ChunkPool::new();
            // As a hello, and behind one.
            let (mut wire, mut near) = Link::memory(1 << 20, &pool);
            wire.send_bytes(first).await.unwrap();
            drop(wire);
            assert!(near.accept_tls(&SETUP.tls).await.is_err());
            let (mut far, mut near) = established(&SETUP, &TLS13, usize::from(*piece) + 1, &pool).await;
            far.send(second, usize::from(*piece) + 1).await;
            drop(far);
            if let Ok(chunk) = near.recv().await {
                assert!(chunk.is_empty(), "{} bytes that nobody sealed", chunk.len());
            }
            drop(near);
            assert_eq!(pool.lent(), 0);
        });
    });
}
