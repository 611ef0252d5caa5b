//! The cases of a dialect, and which of them a driver runs.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One case: steps that a client runs in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// A sentence that names it in reports.
    pub(crate) name: String,
    /// Whether it keeps the server connection, so that the client must disconnect after it.
    #[serde(default)]
    pub(crate) pins: bool,
    /// The only server it is for (`mariadb`, `mysql9`); empty = all of the dialect.
    #[serde(default, skip_serializing)]
    only: String,
    /// Drivers that cannot run it, with the reason.
    #[serde(default, skip_serializing)]
    not: BTreeMap<String, String>,
    /// What is done.
    pub(crate) steps: Vec<Step>,
}

/// One step, as drivers read it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, from = "Written")]
pub(crate) struct Step {
    /// Kind, as `drivers/README.md` lists them.
    #[serde(rename = "do")]
    pub(crate) kind: String,
    /// The statement.
    pub(crate) sql: String,
    /// Name of a statement that is kept, of `keep`, `run` and `forget`.
    pub(crate) name: String,
    /// Parameter sets of `prepare` and `run`: the statement is run once with each.
    pub(crate) sets: Vec<Vec<Parameter>>,
    /// Rows per fetch of `fetch`.
    pub(crate) size: u32,
    /// Data of `copy_in`.
    pub(crate) data: String,
    /// Statements of `pipeline`, each with one set of parameters.
    pub(crate) pipeline: Vec<(String, Vec<Parameter>)>,
    /// Whether it must fail: a driver that fails everywhere would agree with itself.
    pub(crate) fails: bool,
}

/// Type and value of a parameter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Parameter(pub(crate) String, pub(crate) Value);

impl Parameter {
    /// Year, month, day, hour, minute, second, microseconds of a `date` or `timestamp`.
    pub(crate) fn date_time(&self) -> anyhow::Result<[u32; 7]> {
        let text = self.1.as_str().context("a text")?;
        let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00"));
        let date: Vec<u32> = date.split('-').map(str::parse).collect::<Result<_, _>>()?;
        let ([year, month, day], [hour, minute, second, micros]) = (date.try_into().ok().context("a date")?, clock(time)?);
        Ok([year, month, day, hour, minute, second, micros])
    }

    /// Hour, minute, second, microseconds of a `time`.
    pub(crate) fn time(&self) -> anyhow::Result<[u32; 4]> {
        clock(self.1.as_str().context("a text")?)
    }
}

fn clock(text: &str) -> anyhow::Result<[u32; 4]> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut fields = clock.split(':').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    fields.push(format!("{fraction:0<6}").parse()?);
    fields.try_into().ok().context("a time of day")
}

/// A step, as the files write it: a statement alone is a `query`; one behind an exclamation mark must fail.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Statement(String),
    Step(Fields),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fields {
    r#do: String,
    sql: String,
    name: String,
    sets: Vec<Vec<Parameter>>,
    size: u32,
    data: String,
    pipeline: Vec<(String, Vec<Parameter>)>,
    fails: bool,
}

impl From<Written> for Step {
    fn from(written: Written) -> Self {
        match written {
            Written::Statement(text) => {
                let fails = text.starts_with('!');
                Self { kind: "query".into(), sql: text.trim_start_matches('!').trim_start().into(), fails, ..Self::default() }
            }
            Written::Step(Fields { r#do: kind, sql, name, sets, size, data, pipeline, fails }) => {
                Self { kind, sql, name, sets, size, data, pipeline, fails }
            }
        }
    }
}

/// All cases of a dialect's file.
pub(crate) fn parse(file: &str) -> Vec<Case> {
    serde_json::from_str(file).expect("a file of cases")
}

/// The cases that `driver` runs on `server`, given the kinds of step that it knows.
pub(crate) fn select(all: &[Case], driver: &str, server: &str, kinds: &[&str]) -> Vec<Case> {
    let knows = |step: &Step| kinds.contains(&step.kind.as_str());
    let wanted =
        |case: &&Case| (case.only.is_empty() || case.only == server) && !case.not.contains_key(driver) && case.steps.iter().all(knows);
    all.iter().filter(wanted).cloned().collect()
}
