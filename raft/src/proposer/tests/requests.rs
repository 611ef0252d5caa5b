//! Retries, races between leaders, and what the caller is told when the log fails.

use super::*;
use crate::state_machine::known_result;

#[tokio::test]
async fn a_retried_request_takes_effect_once() {
    let lab = Lab::new().await;
    let op = || Lab::sql_op("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')");
    let id = RequestId { client: [9; 16], seq: 5 };
    let first = lab.submit(id, op()).await;
    let ProposerAnswer::Outcome(Outcome::Committed(committed)) = first.clone() else { panic!("{first:?}") };
    assert_eq!(lab.submit(id, op()).await, first);
    let known = known_result(&lab.reader(), 0, &id).expect("reads");
    assert_eq!(known.map(|result| (result.index, result.affected)), Some((committed.index, 1)));
    // Both copies in one batch: one entry, one answer.
    let id = RequestId { seq: 6, ..id };
    let op = || Lab::sql_op("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (2, 'a')");
    let (left, right) = tokio::join!(lab.submit(id, op()), lab.submit(id, op()));
    assert_eq!(left, right);
    assert_eq!(lab.rows("SELECT count(*) FROM mysql_servers"), ["2"]);
    let late = lab.submit(RequestId { seq: 4, ..id }, op()).await;
    let ProposerAnswer::Outcome(Outcome::Rejected(rejection)) = late else { panic!("{late:?}") };
    assert_eq!(rejection.message, "ProxySQL Admin Error: request 4 is older than request 6 of the same connection");
    assert_eq!(known_result(&lab.reader(), 0, &RequestId { seq: 7, ..id }).expect("reads"), None);
}

/// An entry of another writer that changes MEMORY.
fn intruder(lab: &Lab, hostgroup: i64) -> Bytes {
    let row = vec![
        Value::Integer(hostgroup),
        Value::Text("intruder".into()),
        Value::Integer(3306),
        Value::Integer(0),
        Value::Text("ONLINE".into()),
        Value::Integer(1),
        Value::Integer(0),
        Value::Integer(1000),
        Value::Integer(0),
        Value::Integer(0),
        Value::Integer(0),
        Value::Text(String::new()),
    ];
    let columns = tables::table("mysql_servers").expect("exists").columns.iter().map(|column| column.name.into()).collect();
    let rows = vec![pb::RowChange { old: vec![], new: crate::state_machine::row::to_proto(&row) }];
    let table = pb::TableChange { table: "mysql_servers".into(), columns, rows, ..pb::TableChange::default() };
    let base: u64 = lab.rows("SELECT last_data_index FROM raft_meta")[0].parse().expect("number");
    let op = Some(pb::log_entry::Op::Change(pb::Change { tables: vec![table], affected: 1, ..pb::Change::default() }));
    let entry = pb::LogEntry { format: 1, required_level: 1, base_index: Some(base), batch: 99, op, ..pb::LogEntry::default() };
    entry.encode_to_vec().into()
}

#[tokio::test]
async fn an_entry_computed_on_old_rows_is_computed_again() {
    let lab = Lab::new().await;
    let foreign = intruder(&lab, 1);
    lab.log.inner.lock().intruders.push(foreign);
    assert_eq!(lab.ok("UPDATE mysql_servers SET weight = 7").await.affected, 0);
    // The statement met no row at first; it was not proposed at all, so the intruder is still to come.
    lab.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) SELECT count(*) + 100, 'counted' FROM mysql_servers").await;
    assert_eq!(lab.rows("SELECT hostgroup_id, hostname FROM mysql_servers ORDER BY 1"), ["1|intruder", "101|counted"]);
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn a_batch_on_old_rows_is_computed_again_as_a_whole() {
    let lab = Lab::new().await;
    let foreign = intruder(&lab, 1);
    lab.log.inner.lock().intruders.push(foreign);
    let insert = |n: u8| {
        let sql = format!("INSERT INTO mysql_servers (hostgroup_id, hostname) SELECT {n}, count(*) FROM mysql_servers");
        lab.submit(RequestId { client: [n; 16], seq: 1 }, Lab::sql_op(&sql))
    };
    let answers = futures::future::join_all((10..14).map(insert)).await;
    assert!(answers.iter().all(|answer| matches!(answer, ProposerAnswer::Outcome(Outcome::Committed(_)))), "{answers:?}");
    let mut counted = lab.rows("SELECT hostname FROM mysql_servers WHERE hostname <> 'intruder'");
    counted.sort();
    assert_eq!(counted, ["1", "2", "3", "4"]);
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn errors_of_the_log_are_told_apart() {
    let lab = Lab::new().await;
    let op = || Lab::sql_op("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')");
    for error in [ProposeError::LeaseExpired, ProposeError::NotLeader { leader: Some(2) }] {
        lab.log.inner.lock().errors.push(error);
        assert_eq!(lab.submit(lab.next_id(), op()).await, ProposerAnswer::NotLeader);
    }
    lab.log.inner.lock().errors.push(ProposeError::Discarded);
    let ProposerAnswer::Outcome(Outcome::Unknown(unknown)) = lab.submit(lab.next_id(), op()).await else { panic!("not unknown") };
    assert_eq!((unknown.mysql_code, unknown.pgsql_state.as_str()), (1105, "08007"));
    assert!(unknown.message.ends_with(&format!("(request {}:3)", "07".repeat(16))), "{}", unknown.message);
    lab.proposer.lead(None);
    assert_eq!(lab.submit(lab.next_id(), op()).await, ProposerAnswer::NotLeader);
    assert_eq!(lab.rows("SELECT count(*) FROM mysql_servers"), ["0"]);
}

#[tokio::test]
async fn work_begins_when_an_entry_of_the_term_is_applied() {
    let lab = Lab::new().await;
    lab.proposer.lead(Some(TERM + 1));
    let request = lab.submit(lab.next_id(), Lab::sql_op("DELETE FROM mysql_servers"));
    tokio::pin!(request);
    assert!(futures::poll!(&mut request).is_pending());
    let index = lab.log_length() as u64 + 1;
    lab.state.apply(vec![ApplyEntry { term: TERM + 1, index, payload: Payload::Blank }]).expect("applies");
    assert!(matches!(request.await, ProposerAnswer::Outcome(Outcome::Committed(_))));
}

#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_refused_at_once_and_has_no_effect() {
    let long = format!("/* {} */ DELETE FROM mysql_servers", "x".repeat(1 << 20));
    for (sql, requests, fitting) in [("DELETE FROM mysql_servers", 400, 256), (&*long, 10, 3)] {
        let lab = Lab::new().await;
        let mut all: Vec<_> = (0..requests).map(|_| Box::pin(lab.submit(lab.next_id(), Lab::sql_op(sql)))).collect();
        // The proposer does not run in between: it shares this thread.
        let (mut waiting, mut refused) = (Vec::new(), 0);
        for mut request in all.drain(..) {
            match futures::poll!(request.as_mut()) {
                std::task::Poll::Pending => waiting.push(request),
                std::task::Poll::Ready(ProposerAnswer::Outcome(Outcome::Rejected(rejection))) => {
                    assert_eq!((rejection.mysql_code, &*rejection.mysql_state, &*rejection.pgsql_state), (1205, "HY000", "53000"));
                    assert_eq!(rejection.message, "too many configuration changes in progress, try again");
                    refused += 1;
                }
                std::task::Poll::Ready(other) => panic!("{other:?}"),
            }
        }
        assert_eq!((waiting.len(), refused), (fitting, requests - fitting));
        for answer in futures::future::join_all(waiting).await {
            assert!(matches!(answer, ProposerAnswer::Outcome(Outcome::Committed(_))), "{answer:?}");
        }
        // There is room again.
        lab.ok("DELETE FROM mysql_servers").await;
    }
}
