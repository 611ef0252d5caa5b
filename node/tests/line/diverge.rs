//! A node whose tables differ ends with exit code 79 and says what differs; the others go on and stay equal.

use std::time::Duration;

use quorumsql_chaos::cluster::Demo;

use super::support::{admin, eventually, execute, fingerprint, leader, one, run, text};

/// Slower machines than any of ours stay below this.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_node_that_differs_exits_with_79_and_the_others_stay_equal() {
    let mut demo = Demo::start(3, &[]);
    run(async {
        let leads = leader(&demo, &[1, 2, 3]).await.expect("a leader");
        let different = (1..=3).find(|node| *node != leads).expect("a follower");
        let others: Vec<usize> = (1..=3).filter(|node| *node != different).collect();
        let mut conn = admin(&demo.host(leads)).await;
        let sql = "SELECT count(DISTINCT node_id) FROM stats_cluster_config";
        eventually("rows of all nodes", PATIENCE, async || one(&mut conn, sql).await == "3").await;

        demo.kill(different);
        demo.restart_with(different, &[("QUORUMSQL_TEST_OMIT", "mysql_query_rules")]);
        eventually("the node to be back", PATIENCE, async || demo.http(different, "/readyz").is_some_and(|(code, _)| code == 200)).await;
        for rule in [801, 802] {
            execute(&mut conn, &[&format!("INSERT INTO mysql_query_rules (rule_id, active) VALUES ({rule}, 1)")]).await;
        }
        assert_eq!(demo.exit_code(different, PATIENCE), Some(79));
        let log = demo.logs(different);
        for part in ["tables differ", "a majority of voters has other tables at index", "memory mysql_query_rules: ", "state.db.diverged-"]
        {
            assert!(log.contains(part), "{part} is not in the log:\n{log}");
        }

        execute(&mut conn, &["INSERT INTO mysql_query_rules (rule_id, active) VALUES (803, 1)"]).await;
        let (mut first, mut second) = (admin(&demo.host(others[0])).await, admin(&demo.host(others[1])).await);
        for conn in [&mut first, &mut second] {
            let rules = text(conn, "SELECT rule_id FROM mysql_query_rules WHERE rule_id > 800 ORDER BY 1").await;
            assert_eq!(rules, [["801"], ["802"], ["803"]]);
        }
        assert_eq!(fingerprint(&demo.host(others[0])).await, fingerprint(&demo.host(others[1])).await);
        for node in others {
            let (_, metrics) = demo.http(node, "/metrics").expect("metrics");
            assert!(metrics.contains("quorumsql_config_diverged 0"), "node {node}");
        }

        demo.restart(different);
        assert_eq!(demo.exit_code(different, PATIENCE), Some(79), "it does not come back");
        let log = demo.logs(different);
        assert!(log.contains("replace it: quorumsql join --replace"), "{log}");
    });
}
