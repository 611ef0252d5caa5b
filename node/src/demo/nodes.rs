//! The node processes: formed into a cluster, watched, stopped.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::STEP;
use super::layout::{self, Layout};
use crate::cli::GrpcArgs;
use crate::ctl;

/// Time for all nodes to end by themselves before they are killed.
const STOP_TIME: Duration = Duration::from_secs(12);

/// Between two looks at something that is being waited for.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// All nodes of the demo.
pub(super) struct Nodes {
    layout: Layout,
    binary: PathBuf,
    running: Vec<(u8, Child)>,
}

/// A node process that is no more.
pub(super) struct Ended {
    pub(super) node: u8,
    pub(super) how: String,
}

impl Nodes {
    pub(super) fn new(layout: Layout) -> anyhow::Result<Self> {
        Ok(Self { layout, binary: std::env::current_exe().context("cannot find this program's own file")?, running: Vec::new() })
    }

    /// `init`, `token create`, `join` and `run`, as an operator would; returns when all are voters.
    pub(super) async fn form(&mut self) -> anyhow::Result<()> {
        self.command(1, &["init"], None).await?;
        self.start(1)?;
        self.until("node 1 to lead", |status| status.leader_id != 0 && status.read_only_reason.is_empty()).await?;
        let others: Vec<u8> = self.layout.nodes().skip(1).collect();
        for node in others {
            let token = self.command(1, &["token", "create", "--role", "voter"], None).await?;
            let peer = self.layout.address(1, layout::PEER);
            self.command(node, &["join", "--peer", &peer], Some(token.trim())).await?;
            self.start(node)?;
        }
        let count = self.layout.nodes().count();
        self.until("all nodes to be voters", |status| status.members.iter().filter(|member| member.voter).count() == count).await
    }

    /// This program's file.
    pub(super) fn program(&self) -> &Path {
        &self.binary
    }

    /// The next node that ends; waits for ever when none is left.
    pub(super) async fn next_end(&mut self) -> Ended {
        if self.running.is_empty() {
            std::future::pending::<()>().await;
        }
        let waits = self.running.iter_mut().map(|(node, child)| Box::pin(async { (*node, child.wait().await) }));
        let ended = match futures::future::select_all(waits).await.0 {
            (node, Ok(status)) => Ended { node, how: describe(status) },
            (node, Err(error)) => Ended { node, how: error.to_string() },
        };
        self.running.retain(|(node, _)| *node != ended.node);
        ended
    }

    /// Fails if a node has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        for (node, child) in &mut self.running {
            if let Some(status) = child.try_wait()? {
                let log = self.layout.log_file(*node);
                anyhow::bail!("node{node} has ended ({}):\n{}", describe(status), tail(&log));
            }
        }
        Ok(())
    }

    /// What a user types to start a node again.
    pub(super) fn restart_command(&self, node: u8) -> String {
        format!(
            "{} run --config {} --pid-file {}",
            self.binary.display(),
            self.layout.config_file(node).display(),
            self.layout.pid_file(node).display()
        )
    }

    /// Ends all nodes, also those that the user has started again; kills what does not end.
    pub(super) async fn stop(&mut self) {
        let pids: Vec<Pid> = self.layout.nodes().filter_map(|node| self.living(node)).collect();
        for pid in &pids {
            signal(*pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIME;
        loop {
            for (_, child) in &mut self.running {
                // Reaps it; an error means that there is nothing to reap.
                let _ = child.try_wait();
            }
            let left: Vec<&Pid> = pids.iter().filter(|pid| test_kill_process(**pid).is_ok()).collect();
            if left.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                for pid in left {
                    eprintln!("process {} does not end and is killed", pid.as_raw_nonzero());
                    signal(*pid, Signal::KILL);
                }
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Process id of a node: of our child, or of a process of this program that its pid file names.
    fn living(&self, node: u8) -> Option<Pid> {
        if let Some(pid) = self.running.iter().find(|(other, _)| *other == node).and_then(|(_, child)| child.id()) {
            return Pid::from_raw(i32::try_from(pid).ok()?);
        }
        let pid: i32 = fs::read_to_string(self.layout.pid_file(node)).ok()?.trim().parse().ok()?;
        let same_program = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == self.binary);
        if same_program { Pid::from_raw(pid) } else { None }
    }

    fn start(&mut self, node: u8) -> anyhow::Result<()> {
        let output = append(&self.layout.log_file(node))?;
        let child = Command::new(&self.binary)
            .args(["run", "--stop-with-parent", "--config"])
            .arg(self.layout.config_file(node))
            .arg("--pid-file")
            .arg(self.layout.pid_file(node))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C of the terminal reaches this process alone.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a node")?;
        self.running.push((node, child));
        Ok(())
    }

    /// Runs this program with `--config` of `node` and returns what it prints.
    async fn command(&self, node: u8, arguments: &[&str], token: Option<&str>) -> anyhow::Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--config").arg(self.layout.config_file(node)).stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        if let Some(token) = token {
            command.env("QUORUMSQL_JOIN_TOKEN", token);
        }
        let output = tokio::time::timeout(STEP, command.output())
            .await
            .with_context(|| format!("`{}` of node {node} does not end", arguments.join(" ")))??;
        anyhow::ensure!(
            output.status.success(),
            "`{}` of node {node} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits for node 1 to see the cluster as `wanted`.
    async fn until(&mut self, what: &str, wanted: impl Fn(&quorumsql_proto::admin::StatusResponse) -> bool) -> anyhow::Result<()> {
        let connection = GrpcArgs {
            config: None,
            endpoint: Some(self.layout.address(1, layout::GRPC)),
            ca: None,
            user: "admin".into(),
            password_file: None,
        };
        let deadline = Instant::now() + STEP;
        loop {
            self.check()?;
            let last = match ctl::status(&connection).await {
                Ok(status) if wanted(&status) => return Ok(()),
                Ok(status) => status.read_only_reason,
                Err(error) => format!("{error:#}"),
            };
            anyhow::ensure!(Instant::now() < deadline, "waited {} s for {what} {last}\n{}", STEP.as_secs(), tail(&self.layout.log_file(1)));
            tokio::time::sleep(POLL).await;
        }
    }
}

fn append(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("cannot write {}", path.display()))
}

fn signal(pid: Pid, signal: Signal) {
    // It may have ended in between.
    let _ = kill_process(pid, signal);
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".into(),
    }
}

/// The last lines of a log, for an error message.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
