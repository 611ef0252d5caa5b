//! The pool with a dialect that logs in by script, on workers whose clock the tests move.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use super::*;
use crate::config::{Domain, HostgroupId, ProtocolConfig, RuntimeConfig, ServerStatus};
use crate::stats::PoolRow;
use crate::worker::driver::{block_on, yield_now};
use crate::worker::link::LinkParcel;
use crate::worker::session::{SessionGuard, Signal};
use crate::worker::testing::{Workers, client, config, poll_once, server};

struct Fake;

struct Backend {
    link: Link,
    number: u32,
    host: String,
}

/// What the next logins do; empty = succeed.
#[derive(Default)]
struct Script {
    answers: RefCell<VecDeque<Answer>>,
    opened: RefCell<Vec<UnixStream>>,
}

enum Answer {
    Refuse(Fault),
    Fail,
    Hang,
}

impl Dialect for Fake {
    const PROTOCOL: Protocol = Protocol::Mysql;
    type Backend = Backend;
    type Login = Script;
    type Parcel = (LinkParcel, u32, String);

    async fn connect(ctx: Rc<WorkerContext>, server: Arc<Server>, _key: PoolKey, login: &Script) -> Result<Backend, ConnectError> {
        let answer = login.answers.borrow_mut().pop_front();
        match answer {
            None => {}
            Some(Answer::Fail) => return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            Some(Answer::Hang) => pending().await,
            Some(Answer::Refuse(fault)) => {
                let error = ServerError { code: 1045, sqlstate: *b"28000", message: "denied".into(), raw: vec![] };
                return Err(ConnectError::Server { error, fault });
            }
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let number = u32::try_from(login.opened.borrow().len()).unwrap();
        login.opened.borrow_mut().push(theirs);
        Ok(Backend { link: Link::unix(ours, ctx.chunks().clone())?, number, host: server.address.host.to_string() })
    }

    fn link(backend: &mut Backend) -> &mut Link {
        &mut backend.link
    }

    async fn ping(backend: &mut Backend) -> io::Result<()> {
        backend.link.send_bytes(b"ping").await?;
        match &backend.link.recv().await?[..] {
            b"pong" => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn goodbye() -> &'static [u8] {
        b"bye"
    }

    fn pack(backend: Backend) -> io::Result<Self::Parcel> {
        Ok((backend.link.into_parcel()?, backend.number, backend.host))
    }

    fn unpack((link, number, host): Self::Parcel, ctx: &WorkerContext) -> io::Result<Backend> {
        Ok(Backend { link: Link::from_parcel(link, ctx.chunks().clone())?, number, host })
    }
}

/// A client of one worker that wants connections.
struct User {
    ctx: Rc<WorkerContext>,
    pool: Rc<Pool<Fake>>,
    session: SessionGuard,
    front: Link,
    far: Option<Link>,
    key: PoolKey,
    script: Rc<Script>,
}

type Acquired = Result<PooledConnection<Fake>, AcquireError>;
type Acquiring<'a> = Pin<Box<dyn Future<Output = Acquired> + 'a>>;

impl User {
    fn new(workers: &Workers, worker: usize, name: &str, script: &Rc<Script>) -> Self {
        let ctx = Rc::clone(&workers.contexts[worker]);
        let (far, front, session) = client(&ctx, Protocol::Mysql);
        let key = PoolKey::new(KeyParts { user: name.into(), ..KeyParts::default() });
        Self { pool: Pool::of(&ctx), ctx, session, front, far: Some(far), key, script: Rc::clone(script) }
    }

    fn acquire(&mut self, hostgroup: u32) -> Acquiring<'_> {
        let config = self.ctx.config();
        let Self { pool, session, front, key, script, .. } = self;
        Box::pin(async move {
            let hostgroup = HostgroupId(hostgroup);
            pool.acquire(&config, Request { session, client: front, key, login: script, hostgroup }).await
        })
    }

    /// A connection that is there without waiting.
    fn take(&mut self, hostgroup: u32) -> PooledConnection<Fake> {
        ready(&mut self.acquire(hostgroup)).unwrap()
    }
}

fn ready(future: &mut Acquiring<'_>) -> Acquired {
    match poll_once(future.as_mut()) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("not ready"),
    }
}

fn waits(future: &mut Acquiring<'_>) {
    assert!(poll_once(future.as_mut()).is_pending());
}

/// Runs a test where sockets can be made.
fn with_runtime(test: impl FnOnce()) {
    block_on(async { test() });
}

fn row(workers: &Workers, position: usize) -> PoolRow {
    workers.contexts[0].shared().rows.stats()[position].clone()
}

/// used, free, opened.
fn counts(workers: &Workers, position: usize) -> (u64, u64, u64) {
    let row = row(workers, position);
    (row.used, row.free, row.ok)
}

#[test]
fn a_released_connection_is_used_again_and_a_dropped_one_is_not() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 10)]));
        let script = Rc::default();
        let mut user = User::new(&workers, 0, "u", &script);
        let first = user.take(1);
        assert_eq!((first.number, counts(&workers, 0)), (0, (1, 0, 1)));
        assert_eq!((first.hostgroup(), first.host.as_str()), (HostgroupId(1), "a"));
        first.release();
        assert_eq!(counts(&workers, 0), (0, 1, 1));
        let again = user.take(1);
        assert_eq!(again.number, 0);
        drop(again);
        assert_eq!(counts(&workers, 0), (0, 0, 1));
        assert_eq!(user.take(1).number, 1);
    });
}

#[test]
fn most_used_at_a_time_is_no_more_than_the_limit() {
    with_runtime(|| {
        let workers = Workers::new(2, config(1, &[server(1, "a", 1)]));
        let script = Rc::default();
        for worker in [0, 1] {
            drop(User::new(&workers, worker, "u", &script).take(1));
        }
        assert_eq!(row(&workers, 0).max_used, 1, "one after the other on two workers");
    });
}

#[test]
fn at_the_limit_waiters_are_served_in_their_order() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 1)]));
        let script = Rc::default();
        let mut users: Vec<User> = (0..3).map(|_| User::new(&workers, 0, "u", &script)).collect();
        let [one, two, three] = users.get_disjoint_mut([0, 1, 2]).unwrap();
        let first = one.take(1);
        let (mut second, mut third) = (two.acquire(1), three.acquire(1));
        waits(&mut second);
        waits(&mut third);
        first.release();
        waits(&mut third);
        // One that comes now queues behind, though a connection is on its way.
        let mut fourth = one.acquire(1);
        waits(&mut fourth);
        let second = ready(&mut second).unwrap();
        drop(second);
        waits(&mut fourth);
        let third = ready(&mut third).unwrap();
        assert_eq!(third.number, 1, "the dropped one was replaced");
        third.release();
        assert_eq!(ready(&mut fourth).unwrap().number, 1);
        assert_eq!(row(&workers, 0).max_used, 1);
    });
}

#[test]
fn an_idle_connection_of_another_user_makes_room() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 1)]));
        let script = Rc::default();
        let mut anna = User::new(&workers, 0, "anna", &script);
        let mut bert = User::new(&workers, 0, "bert", &script);
        anna.take(1).release();
        let held = bert.take(1);
        assert_eq!((held.number, counts(&workers, 0)), (1, (1, 0, 2)));
        // And one in use is closed for a waiter of another key when it comes back.
        let mut waiting = anna.acquire(1);
        waits(&mut waiting);
        held.release();
        assert_eq!(ready(&mut waiting).unwrap().number, 2);
    });
}

#[test]
fn a_connection_goes_over_to_a_waiter_of_another_worker() {
    with_runtime(|| {
        let mut workers = Workers::new(2, config(1, &[server(1, "a", 1)]));
        let script = Rc::default();
        let mut here = User::new(&workers, 0, "u", &script);
        let mut there = User::new(&workers, 1, "u", &script);
        let held = here.take(1);
        let mut waiting = there.acquire(1);
        waits(&mut waiting);
        held.release();
        let moved = ready(&mut waiting).unwrap();
        assert_eq!((moved.number, counts(&workers, 0)), (0, (1, 0, 1)));
        moved.release();
        drop(waiting);
        // Now it is idle there, and this worker asks for it.
        let mut waiting = here.acquire(1);
        waits(&mut waiting);
        workers.deliver();
        assert_eq!(ready(&mut waiting).unwrap().number, 0);
        assert_eq!(workers.contexts[0].stats(Protocol::Mysql).handed_over.get(), 1);
        assert_eq!(workers.contexts[1].stats(Protocol::Mysql).handed_over.get(), 1);
    });
}

#[test]
fn what_a_waiter_was_given_when_it_gave_up_goes_to_the_next() {
    with_runtime(|| {
        for given in ["slot", "connection"] {
            let workers = Workers::new(1, config(1, &[server(1, "a", 1)]));
            let script = Rc::default();
            let mut users: Vec<User> = (0..3).map(|_| User::new(&workers, 0, "u", &script)).collect();
            let [one, two, three] = users.get_disjoint_mut([0, 1, 2]).unwrap();
            let held = one.take(1);
            let (mut second, mut third) = (two.acquire(1), three.acquire(1));
            waits(&mut second);
            waits(&mut third);
            if given == "slot" {
                drop(held)
            } else {
                held.release()
            }
            drop(second);
            let third = ready(&mut third).unwrap();
            assert_eq!(third.number, u32::from(given == "slot"));
            drop(third);
            assert_eq!(two.take(1).number, 1 + u32::from(given == "slot"));
        }
    });
}

#[test]
fn a_wait_ends_by_deadline_signal_or_the_clients_end() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 1)]));
        let script = Rc::default();
        let mut holder = User::new(&workers, 0, "u", &script);
        let _held = holder.take(1);
        let mut late = User::new(&workers, 0, "u", &script);
        let mut waiting = late.acquire(1);
        waits(&mut waiting);
        workers.advance(100);
        waits(&mut waiting);
        workers.advance(1);
        let error = ready(&mut waiting).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("Max connect timeout reached while reaching hostgroup 1 after "), "{text}");
        assert_eq!(error.cause(), "1 connections of a:1 are in use");

        let mut killed = User::new(&workers, 0, "u", &script);
        let entry = killed.session.entry();
        let mut waiting = killed.acquire(1);
        waits(&mut waiting);
        entry.signal(Signal::KillQuery);
        assert!(matches!(ready(&mut waiting), Err(AcquireError::Interrupted(Signal::KillQuery))));

        let mut gone = User::new(&workers, 0, "u", &script);
        let far = gone.far.take();
        let mut waiting = gone.acquire(1);
        waits(&mut waiting);
        drop(far);
        assert!(matches!(ready(&mut waiting), Err(AcquireError::ClientGone)));
        assert!(!row_has_waiters(&workers));
    });
}

fn row_has_waiters(workers: &Workers) -> bool {
    let config = workers.contexts[0].config();
    config.candidates(Protocol::Mysql, HostgroupId(1))[0].row.slots.has_waiters()
}

#[test]
fn an_unknown_hostgroup_is_waited_for_until_a_server_appears() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[]));
        let script = Rc::default();
        let mut user = User::new(&workers, 0, "u", &script);
        let mut waiting = user.acquire(1);
        waits(&mut waiting);
        workers.swap(config(2, &[server(1, "a", 1)]));
        workers.advance(1);
        assert_eq!(ready(&mut waiting).unwrap().host, "a");
    });
}

#[test]
fn a_refused_login_is_told_at_once_and_never_shuns() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
        let script: Rc<Script> = Rc::default();
        let mut user = User::new(&workers, 0, "u", &script);
        for _ in 0..20 {
            script.answers.borrow_mut().push_back(Answer::Refuse(Fault::Client));
            assert!(matches!(ready(&mut user.acquire(1)), Err(AcquireError::Refused(error)) if error.code == 1045));
        }
        assert_eq!((row(&workers, 0).err, row(&workers, 0).status), (20, ServerStatus::Online));
        assert_eq!(user.take(1).number, 0);
    });
}

#[test]
fn a_server_that_is_coming_up_is_waited_for_and_not_shunned() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
        let script: Rc<Script> = Rc::default();
        script.answers.borrow_mut().extend((0..12).map(|_| Answer::Refuse(Fault::Starting)));
        let mut user = User::new(&workers, 0, "u", &script);
        let mut waiting = user.acquire(1);
        for attempt in 1..=12 {
            waits(&mut waiting);
            assert_eq!((row(&workers, 0).err, row(&workers, 0).status), (attempt, ServerStatus::Online));
            workers.advance(attempt.min(10) - 1);
            waits(&mut waiting);
            assert_eq!(row(&workers, 0).err, attempt, "attempts become rarer");
            workers.advance(1);
        }
        assert_eq!(ready(&mut waiting).unwrap().number, 0);
    });
}

#[test]
fn failures_go_on_to_another_server_and_shun_the_bad_one() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
        let script: Rc<Script> = Rc::default();
        script.answers.borrow_mut().extend((0..5).map(|_| Answer::Fail));
        let mut user = User::new(&workers, 0, "u", &script);
        let mut waiting = user.acquire(1);
        // Five failures shun the only server; the statement waits on.
        waits(&mut waiting);
        assert_eq!((row(&workers, 0).err, row(&workers, 0).status), (5, ServerStatus::Shunned));
        drop(waiting);
        assert_eq!(counts(&workers, 0), (0, 0, 0));
        let held = workers.contexts[0].config().candidates(Protocol::Mysql, HostgroupId(1))[0].row.slots.held();
        assert_eq!(held, 0);

        // A second server takes over after one failure.
        workers.swap(config(2, &[server(1, "a", 5), server(1, "b", 5)]));
        assert_eq!(user.take(1).host, "b");
    });
}

#[test]
fn one_attempt_has_its_own_deadline() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
        let script: Rc<Script> = Rc::default();
        script.answers.borrow_mut().push_back(Answer::Hang);
        let mut user = User::new(&workers, 0, "u", &script);
        let mut waiting = user.acquire(1);
        waits(&mut waiting);
        workers.advance(31);
        assert_eq!(ready(&mut waiting).unwrap().number, 0);
        assert_eq!(row(&workers, 0).err, 1);
    });
}

#[test]
fn a_closed_idle_connection_is_not_given_out() {
    block_on(async {
        let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
        let script: Rc<Script> = Rc::default();
        let mut user = User::new(&workers, 0, "u", &script);
        user.take(1).release();
        script.opened.borrow_mut().clear();
        // The runtime learns of the end when it looks at its sockets.
        while counts(&workers, 0).1 == 1 {
            yield_now().await;
            workers.advance(10);
        }
        assert_eq!(counts(&workers, 0), (0, 0, 1));
        drop(user.take(1));
        assert_eq!(counts(&workers, 0), (0, 0, 2));
    });
}

#[test]
fn a_server_out_of_service_loses_its_connections() {
    with_runtime(|| {
        for status in [ServerStatus::OfflineSoft, ServerStatus::OfflineHard, ServerStatus::Shunned, ServerStatus::Unreachable] {
            let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
            let script: Rc<Script> = Rc::default();
            let mut users: Vec<User> = (0..3).map(|_| User::new(&workers, 0, "u", &script)).collect();
            let [one, two, three] = users.get_disjoint_mut([0, 1, 2]).unwrap();
            let (held, returned) = (one.take(1), two.take(1));
            returned.release();
            let entry = one.session.entry();
            // An observation: the log index stays.
            workers.swap(config(1, &[Server { status, ..server(1, "a", 5) }]));
            assert!(!held.is_current());
            let mut waiting = three.acquire(1);
            waits(&mut waiting);
            workers.advance(1);
            assert_eq!(counts(&workers, 0), (1, 0, 2), "{status:?}");
            let cut = matches!(status, ServerStatus::OfflineHard | ServerStatus::Unreachable);
            assert_eq!(entry.take_signal(), cut.then_some(Signal::ServerGone), "{status:?}");
            held.release();
            assert_eq!(counts(&workers, 0), (0, 0, 2));
            waits(&mut waiting);
        }
    });
}

#[test]
fn a_removed_server_disappears_when_its_connections_have() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
        let script: Rc<Script> = Rc::default();
        let mut user = User::new(&workers, 0, "u", &script);
        let held = user.take(1);
        workers.swap(config(2, &[]));
        assert_eq!(row(&workers, 0).status, ServerStatus::OfflineHard);
        held.release();
        assert!(workers.contexts[0].shared().rows.stats().is_empty());
    });
}

#[test]
fn a_server_that_changes_sides_keeps_reads_running_but_not_writes() {
    with_runtime(|| {
        for (from, to, cut) in [(20, 10, false), (10, 20, true), (30, 20, false)] {
            let workers = Workers::new(1, config(1, &[server(from, "a", 5)]));
            let script: Rc<Script> = Rc::default();
            let mut user = User::new(&workers, 0, "u", &script);
            let held = user.take(from);
            let entry = user.session.entry();
            let mut moved = RuntimeConfig::clone(&config(1, &[server(to, "a", 5)]));
            let mut mysql = ProtocolConfig::clone(&moved.mysql);
            mysql.domains.push(Domain { writer: HostgroupId(10), reader: HostgroupId(20) });
            moved.mysql = Arc::new(mysql);
            workers.swap(Arc::new(moved));
            workers.advance(1);
            assert!(!held.is_current());
            let signal = entry.take_signal();
            assert_eq!(signal, cut.then_some(Signal::ServerGone), "{from} to {to}");
        }
    });
}

#[test]
fn hostgroups_share_the_connections_of_a_server_and_keep_their_accounts() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 1), server(2, "a", 1)]));
        let script: Rc<Script> = Rc::default();
        let mut users: Vec<User> = (0..2).map(|_| User::new(&workers, 0, "u", &script)).collect();
        let [one, two] = users.get_disjoint_mut([0, 1]).unwrap();
        one.take(1).release();
        let held = one.take(2);
        assert_eq!((held.number, held.hostgroup()), (0, HostgroupId(2)));
        assert_eq!((counts(&workers, 0), counts(&workers, 1)), ((0, 0, 1), (1, 0, 0)));
        assert_eq!(two.take(1).number, 1, "hostgroup 1 has its slot back");
    });
}

#[test]
fn surplus_and_old_idle_connections_are_closed() {
    with_runtime(|| {
        let workers = Workers::new(1, config(1, &[server(1, "a", 20)]));
        let script: Rc<Script> = Rc::default();
        let mut users: Vec<User> = (0..5).map(|_| User::new(&workers, 0, "u", &script)).collect();
        let held: Vec<_> = users.iter_mut().map(|user| user.take(1)).collect();
        held.into_iter().for_each(PooledConnection::release);
        assert_eq!(counts(&workers, 0).1, 5);
        workers.advance(10);
        assert_eq!(counts(&workers, 0).1, 2, "10 % of 20");
    });
}

#[test]
fn what_is_idle_for_long_must_answer_a_ping() {
    block_on(async {
        for (answer, kept) in [("pong", 1), ("what?", 0)] {
            let workers = Workers::new(1, config(1, &[server(1, "a", 5)]));
            let script: Rc<Script> = Rc::default();
            let mut user = User::new(&workers, 0, "u", &script);
            user.take(1).release();
            workers.advance(1210);
            assert_eq!(counts(&workers, 0), (1, 0, 1));
            let mut server = script.opened.borrow_mut().pop().unwrap();
            let mut ping = [0; 16];
            while server.read(&mut ping).is_err() {
                yield_now().await;
            }
            assert!(ping.starts_with(b"ping"));
            server.write_all(answer.as_bytes()).unwrap();
            while counts(&workers, 0).0 == 1 {
                yield_now().await;
            }
            assert_eq!(counts(&workers, 0), (0, kept, 1));
        }
    });
}

#[test]
fn idle_and_used_never_exceed_the_limit_and_nobody_is_forgotten() {
    bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
        with_runtime(|| {
            const MAX: u32 = 2;
            let mut workers = Workers::new(2, config(1, &[server(1, "a", MAX)]));
            let script: Rc<Script> = Rc::default();
            let mut users: Vec<User> = (0..6).map(|n| User::new(&workers, n % 2, if n < 4 { "u" } else { "v" }, &script)).collect();
            let row = Arc::clone(&workers.contexts[0].config().candidates(Protocol::Mysql, HostgroupId(1))[0].row);
            let mut states: Vec<(Option<Acquiring<'_>>, Option<PooledConnection<Fake>>)> =
                users.iter_mut().map(|user| (Some(user.acquire(1)), None)).collect();
            for (who, what) in steps {
                let (future, held) = &mut states[usize::from(*who) % 6];
                match what % 4 {
                    0 | 1 => {
                        if let Some(waiting) = future
                            && let Poll::Ready(result) = poll_once(waiting.as_mut())
                        {
                            (*future, *held) = (None, Some(result.unwrap()));
                        }
                    }
                    2 => held.take().into_iter().for_each(PooledConnection::release),
                    _ if held.is_some() => *held = None,
                    _ => *future = None,
                }
                workers.deliver();
                let used = states.iter().filter(|(_, held)| held.is_some()).count();
                assert!(used <= MAX as usize && row.slots.held() <= MAX);
                assert_eq!(counts(&workers, 0).0, used as u64);
            }
            // Everybody who still waits is served in the end.
            for round in 0.. {
                let mut waiting = 0;
                for (future, held) in &mut states {
                    held.take().into_iter().for_each(PooledConnection::release);
                    if let Some(acquiring) = future {
                        waiting += 1;
                        if let Poll::Ready(result) = poll_once(acquiring.as_mut()) {
                            (*future, *held) = (None, Some(result.unwrap()));
                        }
                    }
                }
                workers.deliver();
                if waiting == 0 {
                    break;
                }
                assert!(round < 100, "somebody is forgotten");
            }
            assert_eq!(u64::from(row.slots.held()), counts(&workers, 0).0 + counts(&workers, 0).1);
        });
    });
}
