//! Runs one driver directly and through the node, and compares what it prints.

use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::cases::{self, Case};
use crate::differences;
use crate::node::Target;

/// A driver and how to run it.
pub(crate) struct Driver {
    /// Its name in cases and reports.
    pub(crate) name: &'static str,
    /// Kinds of step that it knows.
    pub(crate) kinds: &'static [&'static str],
    /// How it is run.
    pub(crate) program: Program,
}

/// How a driver is run.
pub(crate) enum Program {
    /// A program as `drivers/README.md` says, with its first arguments.
    Process(Vec<String>),
    /// Rust, in this process.
    Here(InProcess),
}

/// A driver in Rust.
type InProcess = fn(&Target, &[Case]) -> anyhow::Result<Vec<Value>>;

/// A driver that runs in this process.
pub(crate) fn here(name: &'static str, kinds: &'static [&'static str], run: InProcess) -> Driver {
    Driver { name, kinds, program: Program::Here(run) }
}

/// The drivers of a dialect on one server: all, or the one that `QUORUMSQL_CORPUS_DRIVER` names.
pub(crate) fn compare(drivers: &[Driver], file: &str, ends: &Ends<'_>) {
    let wanted = std::env::var("QUORUMSQL_CORPUS_DRIVER").ok();
    let cases = cases::parse(file);
    let chosen = drivers.iter().filter(|driver| wanted.as_ref().is_none_or(|name| name == driver.name));
    let wrong: Vec<String> = chosen.flat_map(|driver| driver.compare(&cases, ends)).collect();
    assert!(wrong.is_empty(), "{}\n{} differences", wrong.join("\n"), wrong.len());
}

/// The ends of a comparison.
pub(crate) struct Ends<'a> {
    /// `mariadb`, `mysql9` or `postgresql`.
    pub(crate) server: &'a str,
    pub(crate) direct: Target,
    pub(crate) through: Target,
}

impl Driver {
    /// Runs all cases that this driver can run on both ends; returns what is wrong, one text each.
    fn compare(&self, all: &[Case], ends: &Ends<'_>) -> Vec<String> {
        let cases = cases::select(all, self.name, ends.server, self.kinds);
        let start = Instant::now();
        let direct = self.lines(&ends.direct, &cases);
        let middle = Instant::now();
        let through = self.lines(&ends.through, &cases);
        let wrong = match (direct, through) {
            (Ok(direct), Ok(through)) => [unexpected(&direct, &cases), differences::between(&direct, &through)].concat(),
            (direct, through) => {
                let failed = [("direct", direct), ("through the node", through)];
                failed.into_iter().filter_map(|(end, lines)| Some(format!("{end}: {}", lines.err()?))).collect()
            }
        };
        let (first, second) = (middle - start, middle.elapsed());
        println!("{} on {}: {} cases in {first:.1?} and {second:.1?}, {} differences", self.name, ends.server, cases.len(), wrong.len());
        wrong.into_iter().map(|text| format!("{} on {}: {text}", self.name, ends.server)).collect()
    }

    fn lines(&self, target: &Target, cases: &[Case]) -> Result<Vec<Value>, String> {
        let argv = match &self.program {
            Program::Process(argv) => argv,
            Program::Here(run) => return run(target, cases).map_err(|error| format!("{error:#}")),
        };
        let text = run(argv, target, cases)?;
        text.lines().map(|line| serde_json::from_str(line).map_err(|error| format!("printed {line:?}: {error}"))).collect()
    }
}

/// Runs a program to its end. A driver that hangs is ended after two minutes.
fn run(argv: &[String], target: &Target, cases: &[Case]) -> Result<String, String> {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(&serde_json::to_vec(cases).expect("cases are plain data")).expect("the file is ours");
    let mut command = Command::new("timeout");
    command.arg("120").args(argv).args([&target.host, &target.port.to_string(), "demo", "demo", "demo"]).arg(file.path());
    let output = command.output().map_err(|error| format!("cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let last: String = text.lines().last().unwrap_or_default().chars().take(200).collect();
    Err(format!("ended with {} after {last}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Steps that failed on the server although they should not, or the other way round: a driver that fails everywhere would
/// agree with itself.
fn unexpected(lines: &[Value], cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines {
        let Some(case) = cases.iter().find(|case| line["case"] == case.name.as_str()) else { continue };
        for (step, results) in case.steps.iter().zip(line["steps"].as_array().into_iter().flatten()) {
            let error = results.as_array().into_iter().flatten().find_map(|result| result.get("error"));
            if error.is_some() != step.fails {
                wrong.push(format!(
                    "{}: {} {:?}: expected {} but got {error:?}",
                    case.name,
                    step.kind,
                    step.sql,
                    if step.fails { "an error" } else { "none" }
                ));
            }
        }
    }
    wrong
}
