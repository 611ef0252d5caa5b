//! Drivers of the MySQL protocol, on MariaDB and MySQL 9.

use std::path::Path;

use quorumsql_chaos::servers::{MariaDb, Mysql9};

use crate::driver::{self, Driver, Ends, here};
use crate::node::{Node, Target};
use crate::programs::{command_line, go, java, node_js, python};
use crate::rust::{self, mysql_bytes, mysql_library};

fn drivers() -> Vec<Driver> {
    let commands = &["query", "prepare", "ping", "reset", "change_user"];
    vec![
        here("bytes", mysql_bytes::KINDS, rust::run::<mysql_bytes::Client<false>>),
        here("bytes with session state", mysql_bytes::KINDS, rust::run::<mysql_bytes::Client<true>>),
        here("mysql_async", mysql_library::KINDS, rust::run::<mysql_library::Client>),
        Driver { name: "mariadb", kinds: &["query"], program: command_line("mariadb", Path::new("/")) },
        Driver { name: "mysql", kinds: &["query"], program: command_line("mysql", &Mysql9::chroot()) },
        Driver { name: "PyMySQL", kinds: &["query", "prepare", "fetch", "ping"], program: python("mysql_pymysql.py") },
        Driver { name: "mysql-connector-python", kinds: commands, program: python("mysql_connector.py") },
        Driver { name: "go-sql-driver", kinds: &["query", "prepare", "ping"], program: go("go-sql-driver") },
        Driver { name: "Connector/J", kinds: &["query", "prepare", "fetch", "ping"], program: java("mysql") },
        Driver { name: "mysql2", kinds: commands, program: node_js("mysql2.js") },
    ]
}

#[test]
fn every_driver_sees_mariadb_through_a_node_as_it_is() {
    let server = MariaDb::start(1, &[]);
    let version = format!("5.5.5-{}", server.root("SELECT VERSION()").trim());
    same("mariadb", server.port, &server.address(), &version);
}

#[test]
fn every_driver_sees_mysql_9_through_a_node_as_it_is() {
    let server = Mysql9::start(1, &[]);
    let version = server.root("SELECT VERSION()");
    same("mysql9", server.port, &server.address(), version.trim());
}

fn same(server: &str, port: u16, address: &str, version: &str) {
    let node = Node::mysql(address, version);
    let ends = Ends { server, direct: Target::server(port), through: node.target() };
    driver::compare(&drivers(), include_str!("cases/mysql.json"), &ends);
}
