//! What became of a request can be asked on every node, and nothing is executed twice.

use quorumsql_proto::peer::outcome_response::Result as Known;

use super::*;

async fn ask(node: &Node, leader: u64, address: &str, id: RequestId) -> Known {
    let core = node.on().core().clone();
    let address = address.to_owned();
    let question = pb::OutcomeRequest { client_id: id.client.to_vec().into(), seq: id.seq };
    let answer = async move { core.peers.internal(leader, &address).unwrap().outcome(question).await.unwrap().into_inner() };
    node.on().run(answer).await.result.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_leader_knows_what_became_of_a_request() {
    let mut nodes = cluster(2, LogStoreKind::Sqlite).await;
    let status = nodes[0].until("led", |status| status.leader_id.is_some()).await;
    let leader = nodes.iter().position(|node| Some(node.on().identity().node_id) == status.leader_id).unwrap();
    let (address, follower) = (nodes[leader].options.advertise.clone(), 1 - leader);
    let (first, second) = (nodes[follower].insert("10.0.0.1").await, nodes[follower].insert("10.0.0.2").await);
    assert!(first.index < second.index);
    let client = [nodes[follower].options.name.as_bytes()[1]; 16];
    for (client, seq, expected) in [
        (client, 2, format!("committed at {}", second.index)),
        (client, 1, "rejected: ProxySQL Admin Error: request 1 is older than request 2 of the same connection".to_owned()),
        (client, 3, "not applied".to_owned()),
        ([0; 16], 1, "not applied".to_owned()),
    ] {
        let known = match ask(&nodes[follower], status.leader_id.unwrap(), &address, RequestId { client, seq }).await {
            Known::Committed(committed) => format!("committed at {}", committed.index),
            Known::Rejected(rejection) => format!("rejected: {}", rejection.message),
            Known::NotApplied(_) => "not applied".to_owned(),
            Known::NotLeader(not_leader) => format!("not leader: {}", not_leader.reason),
        };
        assert_eq!(known, expected, "{seq}");
    }
    // Sent again, a request is answered with its stored result and has no second effect.
    nodes[follower].next_seq = 2;
    assert_eq!(nodes[follower].insert("10.0.0.2").await.index, second.index);
    assert_eq!(nodes[leader].hosts(), ["10.0.0.1", "10.0.0.2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_write_whose_quorum_dies_is_unknown_after_the_time_that_was_really_waited() {
    let mut nodes = cluster(2, LogStoreKind::Sqlite).await;
    let status = nodes[0].until("led", |status| status.leader_id.is_some()).await;
    let leader = nodes.iter().position(|node| Some(node.on().identity().node_id) == status.leader_id).unwrap();
    let mut leader = nodes.remove(leader);
    nodes[0].kill();
    // Its lease still holds: the entry is appended and nobody else ever has it.
    let begin = Instant::now();
    let unknown = match leader.submit("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'h')".into()).await {
        Outcome::Unknown(unknown) => unknown,
        decided => panic!("{decided:?}"),
    };
    let waited = begin.elapsed().as_millis();
    assert_eq!((unknown.mysql_code, &*unknown.pgsql_state), (1105, "08007"));
    let client: String = "31".repeat(16);
    let client = if leader.options.name == "n1" { client } else { "32".repeat(16) };
    let text = unknown.message.strip_prefix("no answer within ").unwrap();
    let (ms, rest) = text.split_once(" ms; the change may still be applied (request ").unwrap();
    assert_eq!(rest, format!("{client}:{})", leader.next_seq - 1));
    let named: u128 = ms.parse().unwrap();
    assert!(named <= waited && waited - named < 1_000, "{named} of {waited} ms");
}
