//! Whole nodes in one process, on ports of their own: forming, forwarding, dying, coming back, catching up.

use std::{
    net::TcpListener,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use quorumsql_proto::peer as pb;
use tempfile::TempDir;
use tonic::{Code, Request as Call, transport::ClientTlsConfig};

use crate::{
    ClusterStatus, Consensus, LogStoreKind, RaftOptions, Timings,
    command::{Channel, Committed, Op, Origin, Outcome, ReadLevel, Request, RequestId, TableRows, Validator},
    error::StartError,
    membership::{Token, init, join},
    network::{client::endpoint, metadata, tls::PinnedAuthority},
};

mod diverge;
mod members;
mod peers;
mod random;
mod retries;
mod snapshots;

/// Slower machines than any of ours stay below this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

struct AcceptAll;

impl Validator for AcceptAll {
    fn validate(&self, _module: &str, _tables: &[TableRows]) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

pub(crate) struct Node {
    directory: TempDir,
    pub(crate) options: RaftOptions,
    consensus: Option<Consensus>,
    next_seq: u64,
}

impl Node {
    fn new(name: &str, log_store: LogStoreKind) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let options = RaftOptions {
            data_dir: directory.path().to_owned(),
            name: name.to_owned(),
            log_store,
            timings: Timings::default(),
            peer_listen: address.clone(),
            advertise: address,
            build: "test".into(),
        };
        Self { directory, options, consensus: None, next_seq: 1 }
    }

    /// Starts; after a kill the lock of the log and the port are free only when the last thread has ended.
    pub(crate) async fn start(&mut self) {
        let begin = Instant::now();
        self.consensus = Some(loop {
            match Consensus::start(self.options.clone(), Arc::new(AcceptAll)).await {
                Ok(consensus) => break consensus,
                Err(e) => assert!(begin.elapsed() < PATIENCE, "{}: {e}", self.options.name),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }

    pub(crate) fn on(&self) -> &Consensus {
        self.consensus.as_ref().unwrap()
    }

    /// As kill -9 does: nothing is handed over or flushed.
    pub(crate) fn kill(&mut self) {
        self.consensus = None;
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&ClusterStatus) -> bool) -> ClusterStatus {
        let begin = Instant::now();
        loop {
            let status = self.on().status();
            if condition(&status) {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "{}: not {what}: {status:?}", self.options.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn submit(&mut self, sql: String) -> Outcome {
        let id = RequestId { client: [self.options.name.as_bytes()[1]; 16], seq: self.next_seq };
        self.next_seq += 1;
        let op = Op::Sql { text: sql.clone(), params: Vec::new(), masked: sql };
        self.on().submit(Request { id, origin: origin(), op, timeout: Duration::from_secs(5) }).await
    }

    /// Leaves nothing in its log of what it has applied.
    async fn snapshot_and_purge(&self) {
        let core = self.on().core().clone();
        let work = async move {
            let applied = core.metrics().last_applied.unwrap().index;
            core.raft.trigger().snapshot().await.unwrap();
            core.raft
                .wait(Some(PATIENCE))
                .metrics(|metrics| metrics.snapshot.is_some_and(|id| id.index >= applied), "snapshot")
                .await
                .unwrap();
            core.raft.trigger().purge_log(applied).await.unwrap();
            core.raft.wait(Some(PATIENCE)).metrics(|metrics| metrics.purged.is_some_and(|id| id.index >= applied), "purged").await.unwrap();
        };
        self.on().run(work).await;
    }

    async fn insert(&mut self, host: &str) -> Committed {
        match self.submit(format!("INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (10, '{host}', 3306)")).await {
            Outcome::Committed(committed) => committed,
            other => panic!("{}: {other:?}", self.options.name),
        }
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        let connection = self.on().reader().unwrap();
        let mut statement = connection.prepare("SELECT hostname FROM mysql_servers ORDER BY hostname").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

fn origin() -> Origin {
    Origin { actor: "admin".into(), channel: Channel::Internal, node: 1, client_addr: String::new() }
}

/// A cluster of `n` voters; each node joins through the one before it.
pub(crate) async fn cluster(n: usize, log_store: LogStoreKind) -> Vec<Node> {
    let mut nodes = vec![Node::new("n1", log_store)];
    let mut token = init(&nodes[0].options, Vec::new()).await.unwrap().first_token;
    nodes[0].start().await;
    nodes[0].until("leading", |status| status.leader_id == Some(1)).await;
    for position in 1..n {
        let mut node = Node::new(&format!("n{}", position + 1), log_store);
        let report = join(&node.options, &token, &nodes[position - 1].options.advertise, None).await.unwrap();
        assert_eq!(usize::from(report.slot), position + 1);
        node.start().await;
        node.until("a voter", |status| status.members.iter().any(|member| member.node_id == report.node_id && member.voter)).await;
        token = node.on().create_join_token(true, Duration::from_secs(60), origin()).await.unwrap();
        nodes.push(node);
    }
    for node in &nodes {
        node.until("complete", |status| status.voters == n && status.voters_reachable == n && status.read_only_reason.is_none()).await;
    }
    nodes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn three_nodes_form_survive_the_leader_and_refuse_without_a_quorum() {
    let mut nodes = cluster(3, LogStoreKind::Sled).await;

    // A write on a follower is live there when it is answered, and readable everywhere after a barrier.
    let committed = nodes[2].insert("10.0.0.1").await;
    assert!(committed.live && committed.affected == 1);
    for node in &nodes {
        let mark = node.on().barrier(ReadLevel::Linearizable, Duration::from_secs(5)).await.unwrap();
        assert!(mark.applied_index >= committed.index && mark.warning.is_none());
        assert_eq!(node.hosts(), ["10.0.0.1"]);
    }
    // Followers know all members.
    let status = nodes[1].until("told of all", |status| status.members.iter().all(|member| member.build == "test")).await;
    assert_eq!(status.members.iter().map(|member| member.slot).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(status.members.iter().filter(|member| member.role == "leader").count(), 1);

    // The leader dies: writes through a survivor go on inside their deadline.
    let leader = status.leader_id.unwrap();
    let position = nodes.iter().position(|node| node.on().identity().node_id == leader).unwrap();
    let mut dead = vec![nodes.remove(position)];
    dead[0].kill();
    nodes[0].insert("10.0.0.2").await;
    let third = nodes[1].insert("10.0.0.3").await;
    // What the other one has in its log but was not yet told to be committed would rightly be missing below.
    nodes[0].until("told of it", |status| status.applied_index >= third.index).await;

    // The second one dies: refused at once and with the reason, and pre-vote keeps the term where it is.
    dead.push(nodes.remove(1));
    dead[1].kill();
    let alone = nodes[0].until("without a quorum", |status| status.read_only_reason.is_some()).await;
    let begin = Instant::now();
    let Outcome::Rejected(refusal) = nodes[0].submit("DELETE FROM mysql_servers".into()).await else { panic!("not refused") };
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert!(refusal.message.contains("no quorum, 1 of 3 voters reachable"), "{}", refusal.message);
    let mark = nodes[0].on().barrier(ReadLevel::Auto, Duration::from_millis(250)).await.unwrap();
    assert!(mark.warning.is_some());
    assert_eq!(nodes[0].hosts(), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let silent = nodes[0].until("silent", |status| status.leader_contact_ms.is_some_and(|ms| ms > 4_000)).await;
    assert_eq!(silent.term, alone.term);

    // Both come back and catch up.
    for mut node in dead {
        node.start().await;
        nodes.push(node);
    }
    nodes[0].until("writable", |status| status.read_only_reason.is_none() && status.leader_id.is_some()).await;
    let last = nodes[0].insert("10.0.0.4").await;
    for node in &nodes {
        node.until("caught up", |status| status.applied_index >= last.index).await;
        assert_eq!(node.hosts().len(), 4);
    }

    // A planned end hands leadership over.
    let leader = nodes[0].until("led", |status| status.leader_id.is_some()).await.leader_id.unwrap();
    let position = nodes.iter().position(|node| node.on().identity().node_id == leader).unwrap();
    let old = nodes.remove(position);
    old.on().shutdown().await;
    nodes[0].insert("10.0.0.5").await;
    nodes[1].until("led by another", |status| status.leader_id.is_some_and(|now| now != leader)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_statements_are_refused_alike_on_every_node() {
    let mut nodes = cluster(2, LogStoreKind::Sqlite).await;
    for (bytes, expected) in [(7 << 20, "change of "), (15 << 20, "change of "), (17 << 20, "statement of ")] {
        let sql = format!("INSERT INTO mysql_servers (hostgroup_id, hostname, comment) VALUES (1, 'h', '{}')", "x".repeat(bytes));
        let mut texts = Vec::new();
        for node in &mut nodes {
            let Outcome::Rejected(refusal) = node.submit(sql.clone()).await else { panic!("{bytes} bytes: not refused") };
            assert_eq!(refusal.mysql_code, 1153, "{}", refusal.message);
            texts.push(refusal.message);
        }
        assert!(texts[0].starts_with(expected) && texts[0] == texts[1], "{texts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_that_needs_purged_entries_joins_by_snapshot() {
    let mut nodes = cluster(1, LogStoreKind::Sqlite).await;
    for host in 0..20 {
        nodes[0].insert(&format!("10.0.1.{host}")).await;
    }
    nodes[0].snapshot_and_purge().await;
    let token = nodes[0].on().create_join_token(false, Duration::from_secs(60), origin()).await.unwrap();
    let mut learner = Node::new("n2", LogStoreKind::Sqlite);
    join(&learner.options, &token, &nodes[0].options.advertise, None).await.unwrap();
    learner.start().await;
    let last = nodes[0].insert("10.0.2.1").await;
    let learns =
        |status: &ClusterStatus| status.members.iter().any(|member| member.name == "n2" && member.role == "learner" && !member.voter);
    learner.until("caught up as a learner", |status| status.applied_index >= last.index && learns(status)).await;
    assert_eq!(learner.hosts().len(), 21);
    // A learner writes too, through the leader, and survives a restart from its snapshot.
    learner.insert("10.0.2.2").await;
    learner.kill();
    learner.start().await;
    learner.insert("10.0.2.3").await;
    assert_eq!(learner.hosts().len(), 23);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn strangers_are_refused() {
    let node = Node::new("n1", LogStoreKind::Sled);
    let first = init(&node.options, Vec::new()).await.unwrap();
    assert!(matches!(init(&node.options, Vec::new()).await, Err(StartError::Formed { node_id: 1, .. })));
    let mut node = node;
    node.start().await;
    node.until("leading", |status| status.leader_id == Some(1)).await;
    let peer = node.options.advertise.clone();

    // Without a client certificate only Join is open.
    let token = Token::decode(&first.first_token).unwrap();
    let verifier = Arc::new(PinnedAuthority::new(token.authority_sha256, &token.cluster_id).unwrap());
    let channel = endpoint(&peer).unwrap().tls_config_with_verifier(ClientTlsConfig::new(), verifier).unwrap().connect_lazy();
    let mut client = pb::internal_client::InternalClient::new(channel);
    let mut call = Call::new(pb::NodeReport { node_id: 1, ..Default::default() });
    for (name, value) in [(metadata::CLUSTER, &*first.cluster_id), (metadata::FROM, "1"), (metadata::TO, "1")] {
        call.metadata_mut().insert(name, value.parse().unwrap());
    }
    assert_eq!(client.report_status(call).await.unwrap_err().code(), Code::Unauthenticated);

    // A token lets one node in, and a guessed one nobody.
    let (second, third) = (Node::new("n2", LogStoreKind::Sled), Node::new("n3", LogStoreKind::Sled));
    let guessed = Token { secret: [0; 32], ..token }.encode().unwrap();
    assert!(refusal(join(&second.options, &guessed, &peer, None).await).contains("unknown"));
    join(&second.options, &first.first_token, &peer, None).await.unwrap();
    assert!(refusal(join(&third.options, &first.first_token, &peer, None).await).contains("used"));
    assert!(empty(third.directory.path()));
}

fn refusal<T>(result: Result<T, StartError>) -> String {
    result.err().map_or_else(String::new, |e| e.to_string())
}

fn empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test]
async fn an_empty_directory_does_not_become_a_cluster() {
    let node = Node::new("n1", LogStoreKind::Sled);
    let refused = Consensus::start(node.options.clone(), Arc::new(AcceptAll)).await.err().unwrap();
    assert_eq!(refused.to_string(), "data directory is empty: run quorumsql init for a new cluster, or quorumsql join to enter one");
}
