//! Real database servers, HAProxy and PgBouncer, each in its own temporary directory, on its own port of 127.0.0.1.
//!
//! Accounts of every database: `demo`/`demo` (everything) and `monitor`/`monitor`; databases `demo` and `sbtest`.

mod haproxy;
mod mariadb;
mod mysql9;
mod pgbouncer;
mod postgres;

pub use haproxy::HaProxy;
pub use mariadb::MariaDb;
pub use mysql9::Mysql9;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

/// Accounts and databases of the MySQL family.
const MYSQL_ACCOUNTS: &str = "CREATE DATABASE demo; CREATE DATABASE sbtest; \
    CREATE USER demo@'%' IDENTIFIED BY 'demo'; GRANT ALL ON *.* TO demo@'%' WITH GRANT OPTION; \
    CREATE USER monitor@'%' IDENTIFIED BY 'monitor'; GRANT REPLICATION CLIENT, PROCESS ON *.* TO monitor@'%';";

/// A directory that other accounts may enter.
fn directory(name: &str) -> TempDir {
    let dir = TempDir::with_prefix(format!("quorumsql-{name}-")).expect("a temporary directory");
    set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("the directory is ours");
    dir
}

fn words(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|&word| word.to_owned()).collect()
}
