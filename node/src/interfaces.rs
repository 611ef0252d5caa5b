//! The traffic listeners: per node, seeded by the bootstrap file, afterwards ruled by the node's override rows.

use std::time::Duration;

use quorumsql_dataplane::DataPlane;
use quorumsql_dataplane::config::Protocol;
use quorumsql_raft::Consensus;
use quorumsql_raft::command::{Channel, Op, Origin, Outcome, Request, RequestId};

use crate::lifecycle::{Lifecycle, Stage};
use crate::runtime::Runtime;

/// Between two attempts to write the seed rows.
const SEED_INTERVAL: Duration = Duration::from_secs(1);

/// `listen.mysql` and `listen.pgsql`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interfaces {
    pub(crate) mysql: String,
    pub(crate) pgsql: String,
}

/// Opens the listeners once there is a configuration, goes to `Serving` once every server of a pair has been probed,
/// and writes the seed rows.
pub(crate) async fn open(bootstrap: Interfaces, consensus: &Consensus, runtime: &Runtime, dataplane: &DataPlane, life: &Lifecycle) {
    let mut changes = runtime.watch();
    let configured = changes.wait_for(|effective| effective.index > 0).await.map(|effective| effective.committed.overrides.clone());
    let Ok(overrides) = configured else { return };
    let row = |name: &str| overrides.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    let interfaces = Interfaces {
        mysql: row("mysql-interfaces").unwrap_or_else(|| bootstrap.mysql.clone()),
        pgsql: row("pgsql-interfaces").unwrap_or_else(|| bootstrap.pgsql.clone()),
    };
    let opened = listen(dataplane, Protocol::Mysql, &interfaces.mysql).and_then(|()| listen(dataplane, Protocol::Pgsql, &interfaces.pgsql));
    if let Err(error) = opened {
        tracing::error!(error, "cannot listen for clients; the node stops");
        life.request_shutdown();
        return;
    }
    if changes.wait_for(|_| runtime.unready().is_none()).await.is_err() {
        return;
    }
    life.enter(Stage::Serving);
    tracing::info!(mysql = interfaces.mysql, pgsql = interfaces.pgsql, "in service");
    for (name, value) in [("mysql-interfaces", bootstrap.mysql), ("pgsql-interfaces", bootstrap.pgsql)] {
        if row(name).is_none() {
            seed(consensus, name, &value).await;
        }
    }
}

/// Several addresses are separated by `;`.
fn listen(dataplane: &DataPlane, protocol: Protocol, addresses: &str) -> Result<(), String> {
    for address in addresses.split(';').map(str::trim).filter(|address| !address.is_empty()) {
        dataplane.listen(protocol, address).map_err(|error| format!("{address}: {error}"))?;
    }
    Ok(())
}

/// Writes this node's row, as soon as there is a leader to write it.
async fn seed(consensus: &Consensus, name: &str, value: &str) {
    let node_id = consensus.identity().node_id;
    let mut client = [0; 16];
    if let Err(error) = getrandom::fill(&mut client) {
        tracing::error!(%error, "no random numbers: {name} is not recorded");
        return;
    }
    for seq in 1.. {
        let request = Request {
            id: RequestId { client, seq },
            origin: Origin { actor: "bootstrap".into(), channel: Channel::Internal, node: node_id, client_addr: String::new() },
            op: Op::NodeOverride { node_id, name: name.into(), value: Some(value.into()) },
            timeout: Duration::from_secs(5),
        };
        match consensus.submit(request).await {
            Outcome::Committed(_) => return,
            Outcome::Rejected(rejection) | Outcome::Unknown(rejection) => {
                tracing::debug!(name, message = rejection.message, "not recorded yet")
            }
        }
        tokio::time::sleep(SEED_INTERVAL).await;
    }
}
