//! A cluster of real node processes: the demo, with its nodes killed, paused and started again one by one.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, run, signal_pid, wait_for};

/// The binary under test: `QUORUMSQL_BIN`, which `deploy/test` sets; without it, the one beside this program.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn binary() -> PathBuf {
    let path = std::env::var_os("QUORUMSQL_BIN").map(PathBuf::from).or_else(beside);
    let path = path.expect("QUORUMSQL_BIN names the binary under test; deploy/test sets it");
    assert!(path.exists(), "QUORUMSQL_BIN names {}, which is not there", path.display());
    path
}

/// `quorumsql` in the directory of this program, where cargo puts both.
fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name("quorumsql")).filter(|path| path.exists())
}

/// An address prefix `127.A.B` that no other cluster of this machine uses: tests run side by side on standard ports.
#[must_use]
pub fn own_net() -> String {
    // Process ids of living processes are distinct; the counter tells the clusters of one process apart, those of long tests from
    // the many that others start beside them, too.
    const CLUSTERS: u32 = 64;
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let count = u32::from(COUNT.fetch_add(1, Ordering::Relaxed)) % CLUSTERS;
    let number = (std::process::id() % (200 * 250 / CLUSTERS)) * CLUSTERS + count;
    format!("127.{}.{}", 10 + number / 250, 1 + number % 250)
}

/// A running `quorumsql demo`.
#[derive(Debug)]
pub struct Demo {
    /// The parent process.
    pub process: Process,
    /// Address prefix; node `i` is at `NET.i`.
    pub net: String,
    restarted: Vec<(usize, Process)>,
    /// Unmounted when all processes have ended, and before the directory is removed.
    disks: Vec<SmallDisk>,
    dir: TempDir,
}

/// A file system in memory with a fixed size.
#[derive(Debug)]
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf, mebibytes: u32) -> Self {
        std::fs::create_dir_all(&path).expect("a directory to mount on");
        let _quiet = run(&["mount", "-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs", &path.display().to_string()]);
        Self(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

impl Demo {
    /// Starts a demo of `nodes` nodes with further arguments (`--mysql`, `--pgsql` …) and waits for its line `ready`.
    ///
    /// # Panics
    /// When it does not become ready.
    #[must_use]
    pub fn start(nodes: usize, args: &[&str]) -> Self {
        Self::start_with(nodes, args, &[])
    }

    /// As [`Self::start`], with environment variables such as `("QUORUMSQL_DRAIN__INITIAL_WAIT", "1s")` for every node.
    ///
    /// # Panics
    /// When it does not become ready.
    #[must_use]
    pub fn start_with(nodes: usize, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let dir = TempDir::with_prefix("quorumsql-demo-").expect("a temporary directory");
        let net = own_net();
        let data = dir.path().join("d").display().to_string();
        let mut argv = vec!["env".to_owned()];
        argv.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
        argv.extend([binary().display().to_string(), "demo".into(), "--nodes".into(), nodes.to_string()]);
        argv.extend(["--data".into(), data, "--net".into(), net.clone()]);
        argv.extend(args.iter().map(|&a| a.to_owned()));
        let log = dir.path().join("log");
        let mut process = Process::start("quorumsql demo", None, &argv, &log);
        process.wait_ready(Duration::from_secs(120), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.lines().any(|line| line.trim() == "ready"))
        });
        Self { process, net, restarted: Vec::new(), disks: Vec::new(), dir }
    }

    /// IP address of node `i` (from 1).
    #[must_use]
    pub fn host(&self, node: usize) -> String {
        format!("{}.{node}", self.net)
    }

    /// Directory of node `i`.
    #[must_use]
    pub fn node_dir(&self, node: usize) -> PathBuf {
        self.dir.path().join("d").join(format!("node{node}"))
    }

    /// Process id of node `i`.
    ///
    /// # Panics
    /// When the node has no pid file.
    #[must_use]
    pub fn pid(&self, node: usize) -> u32 {
        if let Some((_, process)) = self.restarted.iter().rev().find(|(n, _)| *n == node) {
            return process.pid();
        }
        let text = std::fs::read_to_string(self.node_dir(node).join("quorumsql.pid")).expect("a node writes its pid file");
        text.trim().parse().expect("a pid file holds a number")
    }

    /// Sends `signal` to node `i`.
    pub fn signal(&self, node: usize, signal: Signal) {
        signal_pid(self.pid(node), signal);
    }

    /// kill -9 of node `i`; returns when the process is gone.
    pub fn kill(&mut self, node: usize) {
        let pid = self.pid(node);
        self.signal(node, Signal::KILL);
        if let Some((_, process)) = self.restarted.iter_mut().rev().find(|(n, _)| *n == node) {
            process.kill();
        }
        wait_for("a killed node to be gone", Duration::from_secs(10), || gone(pid).then_some(()));
    }

    /// Moves the data of node `i`, which does not run, to a disk of this size; root only.
    ///
    /// # Panics
    /// When it cannot be mounted, or is too small.
    pub fn move_to_small_disk(&mut self, node: usize, mebibytes: u32) {
        let (data, aside) = (self.node_dir(node).join("data"), self.node_dir(node).join("data-before"));
        std::fs::rename(&data, &aside).expect("the data is moved aside");
        self.disks.push(SmallDisk::mount(data.clone(), mebibytes));
        let _quiet = run(&["cp", "--archive", &format!("{}/.", aside.display()), &data.display().to_string()]);
    }

    /// Starts node `i` again with `quorumsql run`, as the demo says it.
    pub fn restart(&mut self, node: usize) {
        self.restart_with(node, &[]);
    }

    /// As [`Self::restart`], with environment variables.
    pub fn restart_with(&mut self, node: usize, environment: &[(&str, &str)]) {
        let dir = self.node_dir(node);
        let config = dir.join("quorumsql.toml").display().to_string();
        let mut argv = vec!["env".to_owned()];
        argv.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
        argv.extend([binary().display().to_string(), "run".into(), "--config".into(), config]);
        let process = Process::start("quorumsql run", None, &argv, &dir.join("log.restarted"));
        self.restarted.push((node, process));
    }

    /// Exit code of node `i`, which was started again, once it has ended; `None` = it runs longer than `limit`.
    pub fn exit_code(&mut self, node: usize, limit: Duration) -> Option<i32> {
        self.restarted.iter_mut().rev().find(|(n, _)| *n == node)?.1.wait_exit(limit)
    }

    /// What node `i` has logged and, since it was started again, printed.
    #[must_use]
    pub fn logs(&self, node: usize) -> String {
        let read = |name| std::fs::read_to_string(self.node_dir(node).join(name)).unwrap_or_default();
        read("log") + &read("log.restarted")
    }

    /// Makes the bootstrap file of a further node as node 1 has it, and returns its path; it must still join.
    ///
    /// # Errors
    /// When the files cannot be read or written.
    pub fn configure(&self, node: usize) -> std::io::Result<PathBuf> {
        let first = std::fs::read_to_string(self.node_dir(1).join("quorumsql.toml"))?;
        let config =
            first.replace(&format!("{}:", self.host(1)), &format!("{}:", self.host(node))).replace("node1", &format!("node{node}"));
        std::fs::create_dir_all(self.node_dir(node))?;
        let path = self.node_dir(node).join("quorumsql.toml");
        std::fs::write(&path, config)?;
        Ok(path)
    }

    /// Ends the demo as Ctrl-C does and returns its exit code; `None` = it did not end in time.
    pub fn interrupt(&mut self) -> Option<i32> {
        self.process.signal(Signal::INT);
        self.process.wait_exit(Duration::from_secs(30))
    }

    /// Body of an HTTP GET on node `i`'s port 6070 with its status code.
    #[must_use]
    pub fn http(&self, node: usize, path: &str) -> Option<(u16, String)> {
        let url = format!("http://{}:6070{path}", self.host(node));
        let output = Command::new("curl").args(["-s", "-m", "5", "-w", "\n%{http_code}", &url]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n')?;
        Some((code.trim().parse().ok()?, body.to_owned()))
    }
}

/// Whether a process has ended (a zombie has).
#[must_use]
pub fn gone(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.restarted.clear();
        let _code = self.interrupt();
        if std::thread::panicking() {
            let kept = std::env::temp_dir().join(format!("quorumsql-failed-{}", std::process::id()));
            let _copied = Command::new("cp").arg("-r").arg(self.dir.path()).arg(&kept).status();
            eprintln!("logs of the failed cluster are kept in {}", kept.display());
        }
        self.disks.clear();
    }
}
