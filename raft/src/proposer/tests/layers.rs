//! LOAD and SAVE: directions, revisions, guard, editors, validation, history.

use super::*;
use crate::state_machine::{changes_of, module_hash};

async fn with_servers() -> Lab {
    let lab = Lab::new().await;
    lab.ok("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'a'), (20, 'b')").await;
    lab
}

fn state(lab: &Lab, module: &str) -> String {
    lab.rows(&format!("SELECT memory_index, memory_author, memory_node, runtime_revision, runtime_index, disk_index FROM module_state WHERE module = '{module}'"))
        .remove(0)
}

#[tokio::test]
async fn rows_move_in_all_four_directions() {
    let lab = with_servers().await;
    let hosts = |table: &str| lab.rows(&format!("SELECT hostname FROM {table} ORDER BY 1")).join(",");
    let layers = || [hosts("mysql_servers"), hosts("base_runtime_mysql_servers"), hosts("disk_mysql_servers")];
    let (memory, runtime, disk) = (Layer::Memory, Layer::Runtime, Layer::Disk);

    let loaded = lab.copy(load("MYSQL SERVERS")).await;
    assert_eq!((loaded.info.as_str(), loaded.revision, loaded.affected), ("revision 2, 2 rows changed in mysql_servers", Some(2), 0));
    lab.ok("UPDATE mysql_servers SET hostname = 'c' WHERE hostname = 'b'").await;
    let saved = lab.copy(copy("MYSQL SERVERS", memory, disk)).await;
    assert_eq!((saved.info.as_str(), saved.revision), ("2 rows changed in mysql_servers", None));
    assert_eq!(layers(), ["a,c", "a,b", "a,c"]);
    let back = lab.copy(copy("MYSQL SERVERS", runtime, memory)).await;
    assert_eq!(back.memory, [("MYSQL SERVERS".to_string(), back.index)]);
    assert_eq!(layers(), ["a,b", "a,b", "a,c"]);
    lab.copy(copy("MYSQL SERVERS", disk, memory)).await;
    assert_eq!(layers(), ["a,c", "a,b", "a,c"]);
    assert_eq!(lab.rows("SELECT pair, count(*) FROM dirty GROUP BY 1"), ["mr|2"]);
    assert!(matches!(lab.outcome(Op::LayerCopy(copy("MYSQL SERVERS", disk, runtime))).await, Outcome::Rejected(_)));
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn only_what_differs_makes_a_revision() {
    let lab = with_servers().await;
    lab.copy(load("MYSQL SERVERS")).await;
    let again = lab.copy(load("MYSQL SERVERS")).await;
    assert_eq!((again.info.as_str(), again.revision), ("revision 2 unchanged, 0 rows changed", None));
    lab.ok("UPDATE mysql_servers SET weight = 2 WHERE hostname = 'a'").await;
    lab.ok("UPDATE mysql_servers SET weight = 1 WHERE hostname = 'a'").await;
    assert_eq!(lab.copy(load("mysql servers")).await.revision, None);
    lab.ok("INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (10, 20)").await;
    lab.ok("UPDATE mysql_servers SET weight = 3").await;
    let third = lab.copy(load("MYSQL SERVERS")).await;
    assert_eq!(third.info, "revision 3, 2 rows changed in mysql_servers, 1 row changed in mysql_replication_hostgroups");
    assert_eq!(lab.state.watch().borrow().revision, 3);
    assert_eq!(lab.state.watch().borrow().runtime_index, third.index);
}

#[tokio::test]
async fn unique_values_may_change_places() {
    let lab = Lab::new().await;
    lab.ok("INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (1, 2), (3, 4), (5, 6)").await;
    lab.copy(load("MYSQL SERVERS")).await;
    for (new, old) in [(99, 2), (2, 4), (4, 99)] {
        lab.ok(&format!("UPDATE mysql_replication_hostgroups SET reader_hostgroup = {new} WHERE reader_hostgroup = {old}")).await;
    }
    lab.copy(load("MYSQL SERVERS")).await;
    assert_eq!(
        lab.rows("SELECT writer_hostgroup, reader_hostgroup FROM base_runtime_mysql_replication_hostgroups ORDER BY 1"),
        ["1|4", "3|2", "5|6"]
    );
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn variables_move_by_prefix_and_are_never_deleted_by_a_copy() {
    let lab = Lab::new().await;
    lab.ok("UPDATE global_variables SET variable_value = '5' WHERE variable_name IN ('mysql-max_connections', 'pgsql-max_connections')")
        .await;
    lab.ok("DELETE FROM global_variables WHERE variable_name = 'mysql-wait_timeout'").await;
    let loaded = lab.copy(load("MYSQL VARIABLES")).await;
    assert_eq!(loaded.info, "revision 2, 1 row changed in global_variables");
    let runtime = "SELECT variable_name, variable_value FROM base_runtime_global_variables WHERE variable_name IN \
                   ('mysql-max_connections', 'pgsql-max_connections', 'mysql-wait_timeout') ORDER BY 1";
    assert_eq!(lab.rows(runtime), ["mysql-max_connections|5", "mysql-wait_timeout|28800000", "pgsql-max_connections|10000"]);
    lab.copy(copy("MYSQL VARIABLES", Layer::Runtime, Layer::Memory)).await;
    assert_eq!(lab.rows("SELECT variable_value FROM global_variables WHERE variable_name = 'mysql-wait_timeout'"), ["28800000"]);
    assert!(state(&lab, "PGSQL VARIABLES").contains("|1|"), "{}", state(&lab, "PGSQL VARIABLES"));
    replay::assert_equal_elsewhere(&lab);
}

#[tokio::test]
async fn a_wrong_variable_refuses_the_load_and_names_it() {
    let lab = Lab::new().await;
    let set = |name: &str, value: &str| format!("INSERT OR REPLACE INTO global_variables VALUES ('{name}', '{value}')");
    let cases = [
        (
            "mysql-threads",
            "many",
            "global_variables ('mysql-threads'), column variable_value: invalid value 'many' for mysql-threads: expected an integer",
        ),
        ("mysql-nonsense", "1", "global_variables ('mysql-nonsense'), column variable_value: unknown variable mysql-nonsense"),
    ];
    for (name, value, expected) in cases {
        let before = lab.rows("SELECT variable_value FROM global_variables WHERE variable_name = 'mysql-threads'");
        lab.ok(&set(name, value)).await;
        let length = lab.log_length();
        let rejection = lab.refused(Op::LayerCopy(load("MYSQL VARIABLES"))).await;
        assert_eq!(rejection.message, format!("ProxySQL Admin Error: LOAD MYSQL VARIABLES TO RUNTIME refused: {expected}"));
        assert_eq!(lab.log_length(), length);
        lab.ok(&set("mysql-threads", &before[0])).await;
    }
    lab.copy(load("ADMIN VARIABLES")).await;
}

#[tokio::test]
async fn the_validator_sees_the_rows_to_come_and_refuses_the_whole_load() {
    let lab = with_servers().await;
    lab.ok("UPDATE mysql_servers SET comment = 'odd' WHERE hostname = 'a'").await;
    *lab.validator.refuse.lock() = Some("mysql_servers (10, 'a', 3306), column comment: too odd".into());
    let rejection = lab.refused(Op::LayerCopy(load("MYSQL SERVERS"))).await;
    assert!(rejection.message.ends_with("refused: mysql_servers (10, 'a', 3306), column comment: too odd"), "{}", rejection.message);
    assert_eq!(lab.rows("SELECT count(*) FROM base_runtime_mysql_servers"), ["0"]);
    *lab.validator.refuse.lock() = None;
    assert_eq!(lab.copy(load("MYSQL SERVERS")).await.warnings, ["MYSQL SERVERS: odd"]);
}

#[tokio::test]
async fn a_runtime_table_is_emptied_only_with_force() {
    let lab = with_servers().await;
    lab.copy(load("MYSQL SERVERS")).await;
    lab.ok("DELETE FROM mysql_servers").await;
    let rejection = lab.refused(Op::LayerCopy(load("MYSQL SERVERS"))).await;
    assert_eq!(
        (rejection.mysql_code, rejection.message.as_str()),
        (1045, "ProxySQL Admin Error: LOAD MYSQL SERVERS TO RUNTIME would remove all 2 rows of mysql_servers; add FORCE to confirm")
    );
    lab.copy(LayerCopy { force: true, ..load("MYSQL SERVERS") }).await;
    assert_eq!(lab.rows("SELECT count(*) FROM base_runtime_mysql_servers"), ["0"]);
}

#[tokio::test]
async fn if_revision_is_exact() {
    let lab = with_servers().await;
    lab.copy(LayerCopy { if_revision: Some(0), ..load("MYSQL SERVERS") }).await;
    lab.ok("UPDATE mysql_servers SET weight = 9").await;
    let rejection = lab.refused(Op::LayerCopy(LayerCopy { if_revision: Some(1), ..load("MYSQL SERVERS") })).await;
    assert_eq!(
        (rejection.mysql_code, rejection.mysql_state.as_str(), rejection.message.as_str()),
        (1213, "40001", "revision conflict: module mysql_servers is at 2, expected 1, changed by admin@10.0.0.7 on node 2")
    );
    assert_eq!(lab.copy(LayerCopy { if_revision: Some(2), ..load("MYSQL SERVERS") }).await.revision, Some(3));
}

#[tokio::test]
async fn a_dry_run_reports_and_changes_nothing() {
    let lab = with_servers().await;
    let before = dump(lab.state.path());
    let report = lab.copy(LayerCopy { dry_run: true, ..load("MYSQL SERVERS") }).await;
    assert_eq!((report.info.as_str(), report.revision), ("dry run: revision 2, 2 rows changed in mysql_servers", None));
    assert_eq!(dump(lab.state.path()), before);
}

#[tokio::test]
async fn rows_staged_by_others_after_the_last_look_are_named() {
    let lab = with_servers().await;
    let seen = lab.ok("UPDATE mysql_servers SET weight = 2 WHERE hostname = 'a'").await.memory[0].1;
    let index = lab.ok("UPDATE mysql_servers SET weight = 3 WHERE hostname = 'b'").await.index;
    let with = |conflicts| LayerCopy { seen: vec![Some(seen)], conflicts, ..load("MYSQL SERVERS") };
    let by = format!("was changed by admin@10.0.0.7 on node 2 at index {index}, after index {seen} which this connection has seen");

    let rejection = lab.refused(Op::LayerCopy(with(EditConflicts::Error))).await;
    assert_eq!(
        (rejection.mysql_code, rejection.message),
        (1213, format!("MYSQL SERVERS {by}; read the table again, or SAVE MYSQL SERVERS FROM RUNTIME, and retry"))
    );
    let off = LayerCopy { dry_run: true, ..with(EditConflicts::Off) };
    assert_eq!(lab.copy(off).await.warnings, Vec::<String>::new());
    assert_eq!(lab.copy(with(EditConflicts::Warn)).await.warnings, [format!("row (20, 'b', 3306) of mysql_servers {by}")]);
    // Nothing unseen is left to be published.
    assert_eq!(lab.copy(with(EditConflicts::Error)).await.revision, None);
}

#[tokio::test]
async fn history_keeps_who_what_and_masks_secrets() {
    let lab = Lab::new().await;
    lab.ok("INSERT INTO mysql_users (username, password) VALUES ('app', 'secret')").await;
    lab.copy(LayerCopy { comment: "first user".into(), ..load("MYSQL USERS") }).await;
    let history =
        lab.rows("SELECT revision, node, actor, client_addr, channel, statement, modules, reason, result FROM config_history ORDER BY 1");
    assert_eq!(history[0], "1|0|||internal||ADMIN VARIABLES,MYSQL VARIABLES,PGSQL VARIABLES||bootstrap");
    assert_eq!(
        history[1],
        "2|2|admin|10.0.0.7|mysql|LOAD MYSQL USERS TO RUNTIME|MYSQL USERS|first user|revision 2, 1 row changed in mysql_users"
    );
    let changes = changes_of(&lab.reader(), 2).expect("reads");
    assert_eq!((changes.len(), changes[0].op.as_str(), changes[0].key.as_str()), (1, "+", "('app', 1)"));
    let new = changes[0].new.clone().expect("a new row");
    assert_eq!(new[..3], [Value::Text("app".into()), Value::Text("********".into()), Value::Integer(1)]);
}

#[tokio::test]
async fn module_states_and_hashes_follow() {
    let lab = with_servers().await;
    let hash = |layer| module_hash(&lab.reader(), "MYSQL SERVERS", layer).expect("hash");
    let empty = hash(Layer::Runtime);
    assert_eq!(hash(Layer::Disk), empty.clone().replace(&empty, &hash(Layer::Disk)));
    let loaded = lab.copy(load("MYSQL SERVERS")).await;
    assert_ne!(hash(Layer::Runtime), empty);
    assert_eq!(state(&lab, "MYSQL SERVERS"), format!("4|admin@10.0.0.7|2|2|{}|0", loaded.index));
    lab.ok("DELETE FROM mysql_servers").await;
    lab.copy(LayerCopy { force: true, ..load("MYSQL SERVERS") }).await;
    assert_eq!(hash(Layer::Runtime), empty);
}

#[tokio::test]
async fn a_load_in_the_same_batch_as_its_statement_sees_it() {
    let lab = Lab::new().await;
    let insert = lab.submit(lab.next_id(), Lab::sql_op("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'a')"));
    let publish = lab.submit(lab.next_id(), Op::LayerCopy(load("MYSQL SERVERS")));
    let (insert, publish) = tokio::join!(insert, publish);
    assert!(matches!(insert, ProposerAnswer::Outcome(Outcome::Committed(_))), "{insert:?}");
    assert!(matches!(publish, ProposerAnswer::Outcome(Outcome::Committed(_))), "{publish:?}");
    assert_eq!(lab.rows("SELECT hostname FROM base_runtime_mysql_servers"), ["a"]);
}

#[tokio::test]
async fn several_modules_are_loaded_as_one_revision_or_not_at_all() {
    let lab = with_servers().await;
    lab.ok("INSERT INTO pgsql_users (username, password) VALUES ('app', 'x')").await;
    let both = || LayerCopy { modules: vec!["MYSQL SERVERS".into(), "PGSQL USERS".into()], seen: vec![None, None], ..load("") };
    let loaded = lab.copy(both()).await;
    assert_eq!(
        (loaded.revision, loaded.info.as_str()),
        (Some(2), "revision 2, 2 rows changed in mysql_servers, 1 row changed in pgsql_users")
    );
    assert_eq!(lab.rows("SELECT module FROM module_state WHERE runtime_revision = 2 ORDER BY 1"), ["MYSQL SERVERS", "PGSQL USERS"]);

    lab.ok("UPDATE mysql_servers SET weight = 4").await;
    lab.ok("DELETE FROM pgsql_users").await;
    assert!(lab.refused(Op::LayerCopy(both())).await.message.ends_with("would remove all 1 rows of pgsql_users; add FORCE to confirm"));
    assert_eq!(lab.rows("SELECT DISTINCT weight FROM base_runtime_mysql_servers"), ["1"]);
    let wrong = lab.refused(Op::LayerCopy(LayerCopy { if_revision: Some(1), ..both() })).await;
    assert_eq!(wrong.message, "revision conflict: configuration is at 2, expected 1, changed by admin@10.0.0.7 on node 2");
    assert_eq!(lab.copy(LayerCopy { force: true, if_revision: Some(2), ..both() }).await.revision, Some(3));
}
