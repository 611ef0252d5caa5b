//! Drivers of the PostgreSQL protocol.

use std::path::Path;

use quorumsql_chaos::servers::Postgres;

use crate::driver::{self, Driver, Ends, here};
use crate::node::{Node, Target};
use crate::programs::{command_line, go, java, node_js, python};
use crate::rust::{self, pgsql_bytes, pgsql_library};

fn drivers() -> Vec<Driver> {
    let most = &["query", "prepare", "fetch", "copy_in", "copy_out"];
    let all = &["query", "prepare", "fetch", "copy_in", "copy_out", "pipeline"];
    vec![
        here("bytes", pgsql_bytes::KINDS, rust::run::<pgsql_bytes::Client<0>>),
        here("bytes in binary", pgsql_bytes::KINDS, rust::run::<pgsql_bytes::Client<1>>),
        here("tokio-postgres", pgsql_library::KINDS, rust::run::<pgsql_library::Client>),
        Driver { name: "psql", kinds: &["query", "copy_in", "copy_out"], program: command_line("psql", Path::new("/")) },
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
    driver::compare(&drivers(), include_str!("cases/pgsql.json"), &ends);
}
