//! Who is turned away at the peer port, with a line in the log for each.

use std::io;

use parking_lot::Mutex;
use quorumsql_proto::peer::raft_transport_client::RaftTransportClient;
use tonic::{
    Status,
    transport::{Certificate, Channel, Identity},
};

use super::*;
use crate::network::tls::{Authority, KeyRequest, peer_name};

/// What the log says, from the first use on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The nodes' threads are not the test's: the subscriber must be the process's.
    fn capture() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    /// Waits for a line about a refused peer of this machine with this reason.
    async fn refusal(&self, reason: &str) {
        let begin = Instant::now();
        loop {
            let text = String::from_utf8_lossy(&self.0.lock()).into_owned();
            let found = |line: &str| line.contains("peer refused") && line.contains("peer=\"127.0.0.1:") && line.contains(reason);
            if text.lines().any(found) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "no line for {reason}:\n{text}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// What a caller shows.
struct Caller {
    /// Certificate and key.
    identity: Option<(String, String)>,
    cluster: String,
    from: &'static str,
    to: &'static str,
    incarnation: String,
}

impl Caller {
    fn channel(&self, node: &Node) -> Channel {
        let tls = |name: &str| std::fs::read_to_string(node.directory.path().join("tls").join(name)).unwrap();
        let mut config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(tls("ca.pem")))
            .domain_name(peer_name(1, &node.on().identity().cluster_id));
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        endpoint(&node.options.advertise).unwrap().tls_config(config).unwrap().connect_lazy()
    }

    fn call<T>(&self, message: T) -> Call<T> {
        let mut call = Call::new(message);
        let headers = [
            (metadata::CLUSTER, self.cluster.as_str()),
            (metadata::FROM, self.from),
            (metadata::TO, self.to),
            (metadata::INCARNATION, &self.incarnation),
        ];
        for (name, value) in headers {
            call.metadata_mut().insert(name, value.parse().unwrap());
        }
        call
    }

    /// A call whose body never comes: who is refused is refused by the headers.
    async fn install(&self, node: &Node) -> Status {
        let mut client = RaftTransportClient::new(self.channel(node));
        client.install_snapshot(self.call(futures::stream::pending())).await.unwrap_err()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn only_certificates_of_members_speak_and_each_refusal_is_in_the_log() {
    let log = Log::capture();
    let mut node = Node::new("n1", LogStoreKind::Sqlite);
    let first = init(&node.options, Vec::new()).await.unwrap();
    node.start().await;
    node.until("leading", |status| status.leader_id == Some(1)).await;
    let (cluster, incarnation) = (first.cluster_id.clone(), node.on().identity().incarnation);
    let other_cluster = "0b0e7a52-0000-4000-8000-000000000001";

    let (own, foreign) = (Authority::load(&node.on().core().layout).unwrap(), Authority::create(&cluster).unwrap());
    let peer = |authority: &Authority, id: u64, cluster: &str| {
        let key = KeyRequest::new().unwrap();
        Some((authority.issue_peer(&key.request_pem, id, cluster).unwrap(), key.key_pem))
    };
    let key = KeyRequest::new().unwrap();
    let server = Some((own.issue_server(&key.request_pem, "n1", "127.0.0.1:6035").unwrap(), key.key_pem));
    let caller = |identity, cluster: &str, from, to, incarnation: &str| Caller {
        identity,
        cluster: cluster.to_owned(),
        from,
        to,
        incarnation: incarnation.to_owned(),
    };

    // A right one is served: what follows is not refused for some other reason.
    let member = caller(peer(&own, 1, &cluster), &cluster, "1", "1", &incarnation);
    let mut client = pb::internal_client::InternalClient::new(member.channel(&node));
    client.report_status(member.call(pb::NodeReport { node_id: 1, ..Default::default() })).await.unwrap();

    for (caller, code, reason) in [
        (caller(None, &cluster, "1", "1", &incarnation), Some(Code::Unauthenticated), "a client certificate of the cluster is required"),
        (caller(peer(&foreign, 1, &cluster), &cluster, "1", "1", &incarnation), None, "invalid peer certificate"),
        (caller(server, &cluster, "1", "1", &incarnation), None, "certificate does not allow extended key usage"),
        (
            caller(peer(&own, 1, other_cluster), &cluster, "1", "1", &incarnation),
            Some(Code::PermissionDenied),
            "the certificate is not that of node 1",
        ),
        (
            caller(peer(&own, 17, &cluster), &cluster, "18", "1", &incarnation),
            Some(Code::PermissionDenied),
            "the certificate is not that of node 18",
        ),
        (caller(peer(&own, 1, &cluster), other_cluster, "1", "1", &incarnation), Some(Code::PermissionDenied), "another cluster"),
        (caller(peer(&own, 1, &cluster), &cluster, "1", "2", &incarnation), Some(Code::PermissionDenied), "this is node 1"),
        (
            caller(peer(&own, 1, &cluster), &cluster, "1", "1", "another-disk"),
            Some(Code::PermissionDenied),
            "remove it and join again as a new node",
        ),
    ] {
        let status = caller.install(&node).await;
        if let Some(code) = code {
            assert_eq!(status.code(), code, "{reason}: {status:?}");
            assert!(status.message().contains(reason), "{status:?}");
        }
        log.refusal(reason).await;
    }
    tokens(&node, &first.first_token, &log).await;
}

/// Unknown, expired and used tokens, requests that are too large and too many let nobody in.
async fn tokens(node: &Node, token: &str, log: &Log) {
    let peer = &node.options.advertise;
    let (second, third) = (Node::new("n2", LogStoreKind::Sqlite), Node::new("n3", LogStoreKind::Sqlite));
    let guessed = Token { secret: [0; 32], ..Token::decode(token).unwrap() }.encode().unwrap();
    let expired = node.on().create_join_token(true, Duration::from_millis(1), origin()).await.unwrap();
    join(&second.options, token, peer, None).await.unwrap();
    for (token, reason) in
        [(guessed.as_str(), "join token is unknown"), (&expired, "join token has expired"), (token, "join token has been used")]
    {
        assert!(refusal(join(&third.options, token, peer, None).await).contains(reason), "{reason}");
        log.refusal(reason).await;
    }
    assert!(empty(third.directory.path()));

    let stranger = Caller { identity: None, cluster: String::new(), from: "0", to: "0", incarnation: String::new() };
    let mut client = pb::internal_client::InternalClient::new(stranger.channel(node));
    let large = pb::JoinRequest { peer_csr: "x".repeat(17 << 10), ..Default::default() };
    assert_eq!(client.join(large).await.unwrap_err().code(), Code::OutOfRange);

    let request = pb::JoinRequest {
        secret: vec![7; 32].into(),
        request_id: vec![7; 16].into(),
        name: "guesser".into(),
        raft_addr: "127.0.0.1:1".into(),
        ..Default::default()
    };
    let guesses = (0..40).map(|_| {
        let (mut client, request) = (client.clone(), request.clone());
        async move { client.join(request).await.unwrap_err() }
    });
    let refused = futures::future::join_all(guesses).await;
    assert!(refused.iter().any(|status| status.message().contains("too many nodes want to join at once")));
    assert!(refused.iter().any(|status| status.message().contains("join token is unknown")));
}
