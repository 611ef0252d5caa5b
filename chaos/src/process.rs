//! Child processes that never outlive their owner, and waiting for conditions.

use std::fs::{File, OpenOptions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// How long a process may take to end after SIGTERM before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Polls `test` until it answers, at most for `limit`.
///
/// # Panics
/// When the limit has passed, naming what was waited for: in a test that is the failure.
pub fn wait_for<T>(what: &str, limit: Duration, mut test: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = test() {
            return answer;
        }
        assert!(Instant::now() < end, "waited {} s for {what}", limit.as_secs());
        // The pause between two looks at the condition; nothing depends on its length.
        thread::sleep(Duration::from_millis(20));
    }
}

/// A TCP port of 127.0.0.1 that was free a moment ago.
///
/// # Panics
/// When the machine has no free port.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// Whether something accepts connections at `address`.
#[must_use]
pub fn connects(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|a| TcpStream::connect_timeout(&a, Duration::from_secs(1)).is_ok())
}

/// A running child process with its output in a log file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    name: String,
}

impl Process {
    /// Starts `argv` so that it gets SIGTERM when the calling thread ends; `user` = run as that account.
    ///
    /// # Panics
    /// When the program cannot be started: it is not installed.
    #[must_use]
    pub fn start(name: &str, user: Option<&str>, argv: &[String], log: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if let Some(user) = user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.arg("--").args(argv);
        let output = || -> File { OpenOptions::new().create(true).append(true).open(log).expect("the log file can be opened") };
        let child = command.stdin(Stdio::null()).stdout(output()).stderr(output()).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {name} ({argv:?}): {error}; deploy/test installs it"));
        Self { child, log: log.to_owned(), name: name.to_owned() }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `ready` holds.
    ///
    /// # Panics
    /// When the process ends before, or `limit` passes; with the end of its log.
    pub fn wait_ready(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) {
        let end = Instant::now() + limit;
        while !ready() {
            assert!(self.running(), "{} ended during its start:\n{}", self.name, tail(&self.output()));
            assert!(Instant::now() < end, "{} was not ready within {} s:\n{}", self.name, limit.as_secs(), tail(&self.output()));
            thread::sleep(Duration::from_millis(30)); // the pause between two looks at the condition
        }
    }

    /// Sends `signal`.
    pub fn signal(&self, signal: Signal) {
        signal_pid(self.pid(), signal);
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }

    /// Waits for the end; `None` when it still runs after `limit`.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status.code().unwrap_or(-1));
            }
            if Instant::now() > end {
                return None;
            }
            thread::sleep(Duration::from_millis(20)); // the pause between two looks at the condition
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.running() {
            return;
        }
        self.signal(Signal::TERM);
        if self.wait_exit(STOP_LIMIT).is_none() {
            self.kill();
        }
    }
}

/// Sends `signal` to a process that is not our child (a node of a demo); a process that is gone is no error.
pub fn signal_pid(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

/// Runs a command to its end and returns what it printed on stdout.
///
/// # Panics
/// When it cannot be started or fails, with what it printed on stderr.
#[must_use]
pub fn run(argv: &[&str]) -> String {
    let output = Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {}: {error}; deploy/test installs it", argv[0]));
    assert!(output.status.success(), "{argv:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(3000);
    let from = (from..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
    &text[from..]
}
