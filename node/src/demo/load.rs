//! The demo's configuration, loaded through the admin port as an operator would.

use anyhow::Context as _;
use mysql_async::prelude::Queryable as _;

use super::layout::{self, Backends, Layout};

/// Hostgroups that scripts rely on.
const WRITER: u32 = 10;
const READER: u32 = 20;

/// Stages, publishes and saves everything.
pub(super) async fn load(layout: &Layout, backends: &Backends, user: &(String, String)) -> anyhow::Result<()> {
    let mut admin = connect(layout.host(1), layout::ADMIN_MYSQL, ("admin", "admin")).await?;
    for statement in statements(backends, user) {
        admin.query_drop(&statement).await.with_context(|| statement.clone())?;
    }
    admin.disconnect().await?;
    Ok(())
}

/// A MySQL connection without the client's habit of moving to a socket.
pub(super) async fn connect(host: String, port: u16, (user, password): (&str, &str)) -> Result<mysql_async::Conn, mysql_async::Error> {
    let options =
        mysql_async::OptsBuilder::default().ip_or_hostname(host).tcp_port(port).user(Some(user)).pass(Some(password)).prefer_socket(false);
    mysql_async::Conn::new(options).await
}

fn statements(backends: &Backends, user: &(String, String)) -> Vec<String> {
    let mut statements = Vec::new();
    for (protocol, servers) in [("mysql", &backends.mysql), ("pgsql", &backends.pgsql)] {
        for (position, (host, port)) in servers.iter().enumerate() {
            let hostgroup = if position == 0 { WRITER } else { READER };
            statements.push(format!("INSERT INTO {protocol}_servers (hostgroup_id, hostname, port, comment) VALUES ({hostgroup}, {}, {port}, 'server {} of the demo')", quote(host), position + 1));
        }
        statements.push(format!("INSERT INTO {protocol}_replication_hostgroups (writer_hostgroup, reader_hostgroup, comment) VALUES ({WRITER}, {READER}, 'demo')"));
        let (name, password) = (quote(&user.0), quote(&user.1));
        statements.push(match protocol {
            "mysql" => format!("INSERT INTO mysql_users (username, password, default_hostgroup, default_schema) VALUES ({name}, {password}, {WRITER}, 'demo')"),
            _ => format!("INSERT INTO {protocol}_users (username, password, default_hostgroup) VALUES ({name}, {password}, {WRITER})"),
        });
        for (rule, pattern, hostgroup) in [(1, "^SELECT.*FOR UPDATE", WRITER), (2, "^SELECT", READER)] {
            statements.push(format!("INSERT INTO {protocol}_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES ({rule}, 1, '{pattern}', {hostgroup}, 1)"));
        }
        // Quick enough to watch: a writer that moves is followed within a second.
        for (variable, value) in [
            ("monitor_writer_is_also_reader", "false"),
            ("monitor_username", "monitor"),
            ("monitor_password", "monitor"),
            ("monitor_ping_interval", "1000"),
            ("monitor_read_only_interval", "500"),
            ("monitor_connect_interval", "10000"),
            // A busy machine is no dead server: three nodes and their databases may share two cores.
            ("monitor_connect_timeout", "3000"),
            ("monitor_ping_timeout", "2000"),
            ("monitor_read_only_timeout", "2000"),
        ] {
            statements
                .push(format!("UPDATE global_variables SET variable_value = '{value}' WHERE variable_name = '{protocol}-{variable}'"));
        }
    }
    // Variables first: servers are placed by them.
    for module in [
        "MYSQL VARIABLES",
        "PGSQL VARIABLES",
        "MYSQL USERS",
        "PGSQL USERS",
        "MYSQL QUERY RULES",
        "PGSQL QUERY RULES",
        "MYSQL SERVERS",
        "PGSQL SERVERS",
    ] {
        statements.push(format!("LOAD {module} TO RUNTIME"));
        statements.push(format!("SAVE {module} TO DISK"));
    }
    statements
}

/// An SQL string.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_is_the_writer_and_texts_are_quoted() {
        let backends = Backends { mysql: vec![("a".into(), 1), ("it's".into(), 2)], pgsql: vec![("c".into(), 3)] };
        let statements = statements(&backends, &("demo".into(), "p'w".into()));
        let inserts: Vec<&String> = statements.iter().filter(|statement| statement.contains("_servers (")).collect();
        assert_eq!(inserts.len(), 3);
        assert!(
            inserts[0].contains("VALUES (10, 'a', 1,")
                && inserts[1].contains("VALUES (20, 'it''s', 2,")
                && inserts[2].contains("pgsql_servers")
        );
        assert!(statements.iter().any(|statement| statement.contains("mysql_users") && statement.contains("'p''w'")));
    }
}
