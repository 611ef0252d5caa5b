//! Drivers of the PostgreSQL protocol.

use quorumsql_chaos::servers::Postgres;

use crate::cases;
use crate::driver::{Driver, Ends};
use crate::node::{Node, Target};
use crate::programs::{command_line, go, java, node_js, python};

fn drivers() -> Vec<Driver> {
    let most = &["query", "prepare", "fetch", "copy_in", "copy_out"];
    let all = &["query", "prepare", "fetch", "copy_in", "copy_out", "pipeline"];
    vec![
        Driver { name: "psql", kinds: &["query", "copy_in", "copy_out"], program: command_line("psql") },
        Driver { name: "psycopg", kinds: all, program: python("pgsql_psycopg.py") },
        Driver { name: "asyncpg", kinds: &["query", "prepare", "fetch"], program: python("pgsql_asyncpg.py") },
        Driver { name: "pgx", kinds: &["query", "prepare", "copy_in", "copy_out", "pipeline"], program: go("pgx") },
        Driver { name: "pgjdbc", kinds: most, program: java("postgresql") },
        Driver { name: "node-postgres", kinds: most, program: node_js("pg.js") },
    ]
}

#[test]
fn every_driver_sees_postgresql_through_a_node_as_it_is() {
    let server = Postgres::start(&[]);
    let version = server.root("postgres", "SHOW server_version");
    let node = Node::pgsql(&server.address(), version.trim());
    let ends = Ends { server: "postgresql", direct: Target::server(server.port), through: node.target() };
    let cases = cases::parse(include_str!("cases/pgsql.json"));
    let wrong: Vec<String> = drivers().iter().flat_map(|driver| driver.compare(&cases, &ends)).collect();
    assert!(wrong.is_empty(), "{}\n{} differences", wrong.join("\n"), wrong.len());
}
