//! `monitor.*`: results of the checks of this node's monitor (admin-tables.md 9).

/// A table whose rows the monitor has.
#[derive(Debug)]
pub(super) struct LogTable {
    pub(super) name: &'static str,
    /// Its definition, ` , ` between the parts.
    pub(super) columns: &'static str,
}

const CONNECT: &str = "hostname VARCHAR NOT NULL , port INT NOT NULL , time_start_us INT NOT NULL DEFAULT 0 , connect_success_time_us INT DEFAULT 0 , \
    connect_error VARCHAR , PRIMARY KEY (hostname, port, time_start_us)";
const PING: &str = "hostname VARCHAR NOT NULL , port INT NOT NULL , time_start_us INT NOT NULL DEFAULT 0 , ping_success_time_us INT DEFAULT 0 , \
    ping_error VARCHAR , PRIMARY KEY (hostname, port, time_start_us)";
const READ_ONLY: &str = "hostname VARCHAR NOT NULL , port INT NOT NULL , time_start_us INT NOT NULL DEFAULT 0 , success_time_us INT DEFAULT 0 , \
    read_only INT DEFAULT 1 , error VARCHAR , PRIMARY KEY (hostname, port, time_start_us)";

pub(super) static TABLES: [LogTable; 6] = [
    LogTable { name: "mysql_server_connect_log", columns: CONNECT },
    LogTable { name: "mysql_server_ping_log", columns: PING },
    LogTable { name: "mysql_server_read_only_log", columns: READ_ONLY },
    LogTable { name: "pgsql_server_connect_log", columns: CONNECT },
    LogTable { name: "pgsql_server_ping_log", columns: PING },
    LogTable { name: "pgsql_server_read_only_log", columns: READ_ONLY },
];
