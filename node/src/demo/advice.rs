//! What to try next, to copy and paste.

use std::path::Path;

use super::layout::{self, Backends, Layout};

/// Shown once, before `ready`.
pub(super) fn text(program: &Path, layout: &Layout, backends: &Backends, user: &(String, String)) -> String {
    let (name, password) = user;
    let last = layout.nodes().last().unwrap_or(1);
    let (first_host, last_host) = (layout.host(1), layout.host(last));
    let mysql = format!("mysql -h {last_host} -P {} -u {name} -p{password}", layout::MYSQL);
    let admin = |host: &str| format!("mysql -h {host} -P {} -u admin -padmin", layout::ADMIN_MYSQL);
    let writer = |servers: &[(String, u16)]| servers.first().cloned().unwrap_or_default();
    let (writer_host, writer_port) = writer(&backends.mysql);
    let second = backends.mysql.get(1);
    let mut text = format!(
        "
a query through node {last}, MySQL and PostgreSQL (reads go to hostgroup 20, the rest to 10):
  {mysql} -e 'SELECT @@hostname, @@read_only'
  PGPASSWORD={password} psql -h {last_host} -p {} -U {name} -d demo -c 'SELECT pg_is_in_recovery()'
a rule loaded on node 1 is followed on every node:
  {} -e \"INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (0, 1, '^SELECT @@hostname', 10, 1); LOAD MYSQL QUERY RULES TO RUNTIME\"
  {mysql} -e 'SELECT @@hostname, @@read_only'
  {} -e 'SELECT rule_id, hits FROM stats_mysql_query_rules; SELECT * FROM stats_cluster_nodes'
",
        layout::PGSQL,
        admin(&first_host),
        admin(&last_host),
    );
    if let Some((host, port)) = second {
        text.push_str(&format!(
            "the writer moves; every node follows:
  mysql -h {writer_host} -P {writer_port} -u {name} -p{password} -e 'SET GLOBAL read_only = 1'; mysql -h {host} -P {port} -u {name} -p{password} -e 'SET GLOBAL read_only = 0'
  sleep 2; {} -e 'SELECT hostgroup_id, hostname, port, status FROM runtime_mysql_servers'
",
            admin(&first_host),
        ));
    }
    if layout.nodes().count() > 1 {
        text.push_str(&format!(
            "node 1, the leader at the start, is killed; the others go on:
  kill -9 $(cat {})
",
            layout.pid_file(1).display()
        ));
    }
    text.push_str(&format!(
        "the cluster by gRPC and HTTP:
  grpcurl -plaintext {} quorumsql.admin.v1.ClusterAdmin/Status
  {} ctl --endpoint {} status
  curl http://{}/metrics
Ctrl-C stops everything.

",
        layout.address(last, layout::GRPC),
        program.display(),
        layout.address(last, layout::GRPC),
        layout.address(last, layout::HTTP),
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_real_addresses() {
        let layout = Layout::new("/d".into(), [127, 0, 0], 3);
        let backends = Backends { mysql: vec![("127.0.0.1".into(), 5001), ("127.0.0.1".into(), 5002)], pgsql: Vec::new() };
        let text = text(Path::new("/q"), &layout, &backends, &("demo".into(), "demo".into()));
        for expected in [
            "mysql -h 127.0.0.3 -P 6033 -u demo -pdemo",
            "psql -h 127.0.0.3 -p 6133",
            "-P 5002",
            "grpcurl -plaintext 127.0.0.3:6034",
            "/d/node1/quorumsql.pid",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.lines().any(|line| line.trim() == "ready"));
    }
}
