//! The gRPC client behind `ctl` and `token`.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quorumsql_proto::admin::cluster_admin_client::ClusterAdminClient;
use quorumsql_proto::admin::create_join_token_request::Role as WireRole;
use quorumsql_proto::admin::{CreateJoinTokenRequest, RemoveRequest, StatusRequest, StatusResponse, TransferLeadershipRequest};
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::cli::{CtlArgs, CtlVerb, GrpcArgs, Role, TokenCreateArgs};
use crate::config::NodeConfig;

/// Time for the whole call.
const CALL_TIME: Duration = Duration::from_secs(15);

/// Answers `ctl …`.
pub(crate) async fn ctl(args: &CtlArgs) -> anyhow::Result<()> {
    match &args.verb {
        CtlVerb::Status => print!("{}", table(&status(&args.connection).await?)),
        CtlVerb::Remove(remove) => {
            let request = RemoveRequest { node_id: remove.node_id, force: remove.force };
            let (mut client, request) = call(&args.connection, request).await?;
            let done = client.remove(request).await.map_err(refused)?.into_inner();
            println!("node {} removed at index {}", remove.node_id, done.index);
            done.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        }
        CtlVerb::TransferLeadership(transfer) => {
            let request = TransferLeadershipRequest { to: transfer.to.unwrap_or(0), timeout_ms: 0 };
            let (mut client, request) = call(&args.connection, request).await?;
            let done = client.transfer_leadership(request).await.map_err(refused)?.into_inner();
            println!("node {} leads, after {} ms", done.new_leader, done.took_ms);
        }
    }
    Ok(())
}

/// A client, and the request with the account that makes it.
async fn call<T>(connection: &GrpcArgs, request: T) -> anyhow::Result<(ClusterAdminClient<Channel>, tonic::Request<T>)> {
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("authorization", authorization(connection)?);
    Ok((ClusterAdminClient::new(connect(connection).await?), request))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status.message())
}

/// Answers `token create`.
pub(crate) async fn create_token(args: &TokenCreateArgs) -> anyhow::Result<String> {
    let role = match args.role {
        Role::Voter => WireRole::Voter,
        Role::Learner => WireRole::Learner,
    };
    let ttl_seconds = u32::try_from(args.ttl.as_secs()).context("--ttl is too long")?;
    anyhow::ensure!(ttl_seconds > 0, "--ttl must be at least 1s");
    let (mut client, request) = call(&args.connection, CreateJoinTokenRequest { role: role.into(), ttl_seconds }).await?;
    Ok(client.create_join_token(request).await.map_err(refused)?.into_inner().token)
}

/// Asks a node for its view of the cluster.
pub(crate) async fn status(connection: &GrpcArgs) -> anyhow::Result<StatusResponse> {
    let (mut client, request) = call(connection, StatusRequest {}).await?;
    Ok(client.status(request).await.map_err(refused)?.into_inner())
}

async fn connect(args: &GrpcArgs) -> anyhow::Result<Channel> {
    let config = args.config.as_deref().map(|file| NodeConfig::load(Some(file))).transpose()?;
    let address = match (&args.endpoint, &config) {
        (Some(endpoint), _) => endpoint.clone(),
        (None, Some(config)) => config.listen.grpc.clone(),
        (None, None) => "127.0.0.1:6034".into(),
    };
    anyhow::ensure!(!address.is_empty(), "listen.grpc is empty: this node has no admin gRPC");
    let scheme = if args.ca.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?.connect_timeout(Duration::from_secs(5)).timeout(CALL_TIME);
    if let Some(ca) = &args.ca {
        let pem = fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))?;
    }
    endpoint.connect().await.with_context(|| format!("no answer from {address}; is the node running?"))
}

fn authorization(args: &GrpcArgs) -> anyhow::Result<MetadataValue<tonic::metadata::Ascii>> {
    let password = match &args.password_file {
        Some(file) => {
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?.trim_end_matches(['\r', '\n']).to_owned()
        }
        None => std::env::var("QUORUMSQL_ADMIN_PASSWORD").unwrap_or_else(|_| "admin".into()),
    };
    Ok(format!("Basic {}", STANDARD.encode(format!("{}:{password}", args.user))).parse()?)
}

/// The status for people.
fn table(status: &StatusResponse) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: &str| writeln!(text, "{key:<10} {value}").expect("writing to a String does not fail");
    line("cluster", &status.cluster_id);
    line("node", &format!("{} (id {}, slot {})", status.name, status.node_id, status.slot));
    let leader = status.members.iter().find(|member| member.node_id == status.leader_id && status.leader_id != 0);
    let leader = leader.map_or_else(|| "none".to_owned(), |member| format!("{} (id {})", member.name, member.node_id));
    line("leader", &format!("{leader}, term {}", status.term));
    line("applied", &format!("index {}, revision {}", status.applied_index, status.revision));
    if let Some(quorum) = &status.quorum {
        line("quorum", &format!("{} of {} voters reachable, {} needed", quorum.reachable, quorum.voters, quorum.needed));
    }
    for (key, reason) in [("read-only", &status.read_only_reason), ("stopped", &status.consensus_stopped)] {
        if !reason.is_empty() {
            line(key, reason);
        }
    }
    let members = status.members.iter().map(|member| {
        let contact = member.contact_ms.map_or_else(|| "self".to_owned(), |millis| format!("{millis} ms"));
        let cells = [
            member.node_id.to_string(),
            member.slot.to_string(),
            member.name.clone(),
            member.role.clone(),
            if member.voter { "yes" } else { "no" }.to_owned(),
            member.raft_addr.clone(),
            member.applied_index.to_string(),
            member.lag_entries.to_string(),
            contact,
            member.build.clone(),
        ];
        cells.to_vec()
    });
    text.push('\n');
    text.push_str(&columns(&["id", "slot", "name", "role", "voter", "address", "applied", "lag", "contact", "build"], members));
    let modules = status.modules.iter().map(|module| vec![module.module.clone(), module.revision.to_string(), module.hash.clone()]);
    text.push('\n');
    text.push_str(&columns(&["module", "revision", "hash"], modules));
    text
}

/// Columns as wide as their widest cell.
fn columns(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines: Vec<Vec<String>> = vec![header.iter().map(|name| (*name).to_owned()).collect()];
    lines.extend(rows);
    let width = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use quorumsql_proto::admin::{Member, Quorum};

    use super::*;

    #[test]
    fn the_status_is_readable() {
        let member = |node_id, name: &str, role: &str, contact_ms| Member {
            node_id,
            slot: 1,
            name: name.into(),
            role: role.into(),
            voter: true,
            contact_ms,
            ..Member::default()
        };
        let status = StatusResponse {
            cluster_id: "c".into(),
            node_id: 1,
            name: "node1".into(),
            leader_id: 9,
            term: 3,
            members: vec![member(1, "node1", "follower", None), member(9, "node2", "leader", Some(12))],
            quorum: Some(Quorum { voters: 2, needed: 2, reachable: 2 }),
            read_only_reason: "configuration is read-only: no quorum".into(),
            ..StatusResponse::default()
        };
        let text = table(&status);
        for expected in [
            "leader     node2 (id 9), term 3\n",
            "quorum     2 of 2 voters reachable, 2 needed\n",
            "read-only  configuration is",
            "self",
            "12 ms",
        ] {
            assert!(text.contains(expected), "{expected:?} in {text}");
        }
    }
}
