//! Where consensus and the data plane meet: committed rows and this node's observations become a `RuntimeConfig`.
//!
//! ```text
//! Consensus::watch ─► source (changed modules) ─┐
//!                                               ├─► build (placement, variables, rules) ─► DataPlane::swap ─► Consensus::runtime_live
//! monitor ─► observed ──────────────────────────┘                                    └──► Effective ─► runtime_* tables
//! ```
//! Rebuilt only when `Applied::runtime_index` or an observation moves. A configuration that cannot be built (rows of
//! another version, damage) leaves the previous one in force and says so: losing the new one never costs the old one.

mod build;
mod observed;
mod placement;
mod rows;
mod source;
mod targets;
mod validate;
mod variables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use quorumsql_dataplane::DataPlane;
use quorumsql_dataplane::config::RuntimeConfig;
use quorumsql_dataplane::rules::{CompileOptions, RuleRow, RuleSet};
use quorumsql_raft::Consensus;
use tokio::sync::watch;

use crate::tls::Certificates;

use self::build::Carried;
pub(crate) use self::build::Effective;
pub(crate) use self::observed::Observed;
pub(crate) use self::validate::RowValidator;
pub(crate) use self::{
    placement::Seen,
    rows::CheckType,
    targets::{ProtocolTargets, Schedule, Target, Targets},
};

/// Observations that differ in nothing but ping times are put in force at most this often.
const LATENCY_INTERVAL: Duration = Duration::from_secs(2);

/// The configuration in force and how it came about.
pub(crate) struct Runtime {
    consensus: Consensus,
    certificates: Arc<Certificates>,
    effective: ArcSwap<Effective>,
    /// Fires with every new `Effective`.
    changes: watch::Sender<Arc<Effective>>,
    /// Fires when what the monitor has to probe changes.
    targets: watch::Sender<Arc<Targets>>,
    builder: Mutex<Builder>,
}

/// What one build leaves for the next.
#[derive(Default)]
struct Builder {
    carried: [Carried; 2],
    several_writers: Vec<String>,
}

impl Runtime {
    /// Builds the configuration with which the data plane starts: the committed one, or nothing (index 0) where there is
    /// none yet or it cannot be read.
    pub(crate) fn start(consensus: Consensus, certificates: Arc<Certificates>, observed: &Observed) -> (Arc<Self>, Arc<RuntimeConfig>) {
        let runtime = Arc::new(Self {
            consensus,
            certificates,
            effective: ArcSwap::default(),
            changes: watch::Sender::default(),
            targets: watch::Sender::new(Arc::new(targets::targets(&Effective::default()))),
            builder: Mutex::default(),
        });
        let config = runtime.rebuild(observed).unwrap_or_else(|error| {
            tracing::error!(error, "starting without a configuration");
            RuntimeConfig { index: 0, revision: 0, mysql: Arc::default(), pgsql: Arc::default() }
        });
        (runtime, Arc::new(config))
    }

    /// Keeps `dataplane` on the committed configuration for as long as it is polled.
    pub(crate) async fn follow(&self, dataplane: &DataPlane, mut observed: watch::Receiver<Observed>) {
        let mut applied = self.consensus.watch();
        let mut certificates = self.certificates.watch();
        let mut last_seen = Observed::default();
        let mut built_at = Instant::now();
        let mut generation = 0;
        let (mut live, mut revision) = (dataplane.config().index, dataplane.config().revision);
        self.consensus.runtime_live(live);
        loop {
            let index = applied.borrow_and_update().runtime_index;
            dataplane.set_nodes(self.consensus.status().members.into_iter().map(|member| (member.slot, member.name)));
            let seen = observed.borrow_and_update().clone();
            let shown = certificates.borrow_and_update().generation;
            let only_latency = seen.same_but_for_latency(&last_seen);
            if index > live || !only_latency || shown != generation || (seen != last_seen && built_at.elapsed() >= LATENCY_INTERVAL) {
                match tokio::task::block_in_place(|| self.rebuild(&seen)) {
                    Ok(config) => {
                        live = config.index.max(live);
                        if config.revision != revision {
                            revision = config.revision;
                            tracing::info!(revision, index = live, "configuration in force");
                        }
                        dataplane.swap(Arc::new(config));
                        self.consensus.runtime_live(live);
                    }
                    // Not live: LOAD says so to its client after its deadline.
                    Err(error) => {
                        tracing::error!(error, index, "the committed configuration cannot be put in force; the previous one stays")
                    }
                }
                last_seen = seen;
                generation = shown;
                built_at = Instant::now();
            }
            tokio::select! {
                changed = applied.changed() => if changed.is_err() { return },
                changed = observed.changed() => if changed.is_err() { return },
                changed = certificates.changed() => if changed.is_err() { return },
            }
        }
    }

    /// What is in force on this node.
    pub(crate) fn effective(&self) -> Arc<Effective> {
        self.effective.load_full()
    }

    /// Follows what is in force.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Effective>> {
        self.changes.subscribe()
    }

    /// Follows what has to be probed.
    pub(crate) fn targets(&self) -> watch::Receiver<Arc<Targets>> {
        self.targets.subscribe()
    }

    /// Why this node should not get traffic yet; `None` = it should.
    pub(crate) fn unready(&self) -> Option<String> {
        let effective = self.effective.load();
        if effective.index == 0 {
            return Some("no configuration has been applied".into());
        }
        effective.unprobed.clone()
    }

    #[tracing::instrument(name = "runtime.rebuild", skip_all)]
    fn rebuild(&self, observed: &Observed) -> Result<RuntimeConfig, String> {
        let mut builder = self.builder.lock();
        // Opened anew: an installed snapshot replaces the file.
        let connection = self.consensus.reader().map_err(|error| error.to_string())?;
        let before = self.effective.load();
        let committed = before.committed.refresh(&connection, self.consensus.identity().node_id).map_err(|error| error.to_string())?;
        let (config, effective) = build::build(committed, observed, Some(&self.certificates.current()), &mut builder.carried)?;
        if effective.several_writers != builder.several_writers {
            for writers in &effective.several_writers {
                tracing::error!(writers, "more than one server of a pair accepts writes");
            }
            builder.several_writers.clone_from(&effective.several_writers);
        }
        self.certificates.key_log().follow(effective.committed.variables.get("admin-ssl_keylog_file").unwrap_or_default());
        let probed = targets::targets(&effective);
        self.targets.send_if_modified(|current| {
            let changed = **current != probed;
            if changed {
                *current = Arc::new(probed);
            }
            changed
        });
        let effective = Arc::new(effective);
        self.effective.store(effective.clone());
        self.changes.send_replace(effective);
        Ok(config)
    }
}

fn compile_rules(rows: Vec<RuleRow>, backtracking: bool) -> Result<(RuleSet, Vec<String>), String> {
    RuleSet::compile(rows, CompileOptions { backtracking }).map_err(|error| error.to_string())
}
