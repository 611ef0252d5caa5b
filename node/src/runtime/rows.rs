//! From rows as SQLite stores them to values with types. Every error names table, row and column.

use quorumsql_dataplane::config::{HostgroupId, Protocol, ServerStatus, User};
use quorumsql_dataplane::rules::RuleRow;
use quorumsql_raft::command::{TableRows, Value};

/// One row of `*_servers` as the operator wrote it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ServerRow {
    pub(crate) hostgroup: HostgroupId,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) status: ServerStatus,
    pub(crate) weight: u32,
    pub(crate) max_connections: u32,
    pub(crate) max_latency_ms: u64,
    pub(crate) use_ssl: bool,
    /// The row itself, for `runtime_*_servers`.
    pub(crate) values: Vec<Value>,
}

/// What a server of a pair is asked to tell writers from readers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum CheckType {
    /// `read_only` (PostgreSQL: `pg_is_in_recovery()`).
    ReadOnly,
    /// `innodb_read_only`.
    InnodbReadOnly,
    /// `super_read_only`.
    SuperReadOnly,
    /// `read_only|innodb_read_only`.
    Either,
    /// `read_only&innodb_read_only`.
    Both,
}

/// One row of `*_replication_hostgroups`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    pub(crate) writer: HostgroupId,
    pub(crate) reader: HostgroupId,
    pub(crate) check: CheckType,
}

/// Parses `mysql_servers`, `pgsql_servers`.
pub(crate) fn servers(table: &TableRows) -> Result<Vec<ServerRow>, String> {
    each(table, |row| {
        let host = row.text("hostname")?;
        if host.is_empty() {
            return Err(row.error("hostname", "must not be empty"));
        }
        Ok(ServerRow {
            hostgroup: HostgroupId(row.number("hostgroup_id")?),
            host,
            port: row.number("port")?,
            status: status(&row)?,
            weight: row.number("weight")?,
            max_connections: row.number("max_connections")?,
            max_latency_ms: row.number("max_latency_ms")?,
            use_ssl: row.flag("use_ssl")?,
            values: row.values.to_vec(),
        })
    })
}

/// Parses `mysql_replication_hostgroups`, `pgsql_replication_hostgroups`.
pub(crate) fn pairs(table: &TableRows) -> Result<Vec<Pair>, String> {
    let pairs = each(table, |row| {
        let check = match row.text("check_type")?.to_ascii_lowercase().as_str() {
            "read_only" => CheckType::ReadOnly,
            "innodb_read_only" => CheckType::InnodbReadOnly,
            "super_read_only" => CheckType::SuperReadOnly,
            "read_only|innodb_read_only" => CheckType::Either,
            "read_only&innodb_read_only" => CheckType::Both,
            other => return Err(row.error("check_type", &format!("`{other}` is no check type"))),
        };
        Ok(Pair { writer: HostgroupId(row.number("writer_hostgroup")?), reader: HostgroupId(row.number("reader_hostgroup")?), check })
    })?;
    // A hostgroup in two pairs would be moved by both: the columns are unique each, but not across.
    for pair in &pairs {
        if let Some(other) = pairs.iter().find(|other| other.reader == pair.writer) {
            return Err(format!(
                "{}: hostgroup {} is the writer side of ({}, {}) and the reader side of ({}, {})",
                table.table, pair.writer.0, pair.writer.0, pair.reader.0, other.writer.0, other.reader.0
            ));
        }
    }
    Ok(pairs)
}

/// Parses `mysql_users`, `pgsql_users`: the active frontend rows.
pub(crate) fn users(table: &TableRows) -> Result<Vec<User>, String> {
    let users = each(table, |row| {
        if !(row.flag("active")? && row.flag("frontend")?) {
            return Ok(None);
        }
        let attributes = row.text("attributes")?;
        let attributes: serde_json::Value = if attributes.is_empty() {
            serde_json::Value::Null
        } else {
            serde_json::from_str(&attributes).map_err(|error| row.error("attributes", &format!("no JSON: {error}")))?
        };
        if !(attributes.is_null() || attributes.is_object()) {
            return Err(row.error("attributes", "must be a JSON object"));
        }
        let name = row.text("username")?;
        if name.is_empty() {
            return Err(row.error("username", "must not be empty"));
        }
        Ok(Some(User {
            name,
            password: row.optional_text("password")?.unwrap_or_default(),
            additional_password: attributes.get("additional_password").and_then(|value| value.as_str()).map(str::to_owned),
            require_tls: row.flag("use_ssl")?,
            default_hostgroup: HostgroupId(row.number("default_hostgroup")?),
            default_schema: if row.has("default_schema") {
                row.optional_text("default_schema")?.filter(|schema| !schema.is_empty())
            } else {
                None
            },
            transaction_persistent: row.flag("transaction_persistent")?,
            max_connections: row.number("max_connections")?,
        }))
    })?;
    Ok(users.into_iter().flatten().collect())
}

/// Columns of `*_query_rules` that are kept but do nothing yet.
const WITHOUT_EFFECT: [&str; 15] = [
    "replace_pattern",
    "cache_ttl",
    "cache_empty_result",
    "cache_timeout",
    "reconnect",
    "sticky_conn",
    "timeout",
    "retries",
    "delay",
    "next_query_flagIN",
    "mirror_flagOUT",
    "mirror_hostgroup",
    "gtid_from_hostgroup",
    "log",
    "attributes",
];

/// Parses `mysql_query_rules`, `pgsql_query_rules`: the active rows, and a warning for each column without effect.
pub(crate) fn rules(table: &TableRows, protocol: Protocol) -> Result<(Vec<RuleRow>, Vec<String>), String> {
    let mut warnings = Vec::new();
    let schema = match protocol {
        Protocol::Mysql => "schemaname",
        Protocol::Pgsql => "database",
    };
    let rules = each(table, |row| {
        if !row.flag("active")? {
            return Ok(None);
        }
        for column in WITHOUT_EFFECT {
            if row.has(column) && row.optional_text(column)?.is_some_and(|text| !text.is_empty()) {
                warnings.push(row.error(column, "is stored and has no effect in this version"));
            }
        }
        let digest = match row.optional_text("digest")? {
            Some(text) if !text.is_empty() => {
                Some(parse_digest(&text).ok_or_else(|| row.error("digest", "must be 0x and 16 hexadecimal digits"))?)
            }
            _ => None,
        };
        let client_addr = row.optional_text("client_addr")?;
        if client_addr.as_deref().is_some_and(|addr| addr.find('%').is_some_and(|at| at + 1 != addr.len())) {
            return Err(row.error("client_addr", "may contain `%` only at its end"));
        }
        Ok(Some(RuleRow {
            rule_id: row.number("rule_id")?,
            username: row.optional_text("username")?,
            schemaname: row.optional_text(schema)?,
            flag_in: row.number("flagIN")?,
            client_addr,
            proxy_addr: row.optional_text("proxy_addr")?,
            proxy_port: row.optional_number("proxy_port")?,
            digest,
            match_digest: row.optional_text("match_digest")?,
            match_pattern: row.optional_text("match_pattern")?,
            negate_match_pattern: row.flag("negate_match_pattern")?,
            caseless: row.optional_text("re_modifiers")?.is_some_and(|text| text.to_ascii_uppercase().contains("CASELESS")),
            flag_out: row.optional_number("flagOUT")?,
            destination_hostgroup: row.optional_number("destination_hostgroup")?.map(HostgroupId),
            apply: row.flag("apply")?,
            error_msg: row.optional_text("error_msg")?,
            ok_msg: row.optional_text("OK_msg")?,
            multiplex: row.optional_number("multiplex")?,
        }))
    })?;
    let mut rules: Vec<RuleRow> = rules.into_iter().flatten().collect();
    rules.sort_by_key(|rule| rule.rule_id);
    Ok((rules, warnings))
}

/// Parses `global_variables`.
pub(crate) fn variables(table: &TableRows) -> Result<Vec<(String, String)>, String> {
    each(table, |row| Ok((row.text("variable_name")?, row.optional_text("variable_value")?.unwrap_or_default())))
}

fn status(row: &Row<'_>) -> Result<ServerStatus, String> {
    match row.text("status")?.to_ascii_uppercase().as_str() {
        "ONLINE" => Ok(ServerStatus::Online),
        "SHUNNED" => Ok(ServerStatus::Shunned),
        "OFFLINE_SOFT" => Ok(ServerStatus::OfflineSoft),
        "OFFLINE_HARD" => Ok(ServerStatus::OfflineHard),
        other => Err(row.error("status", &format!("`{other}` is no status"))),
    }
}

fn parse_digest(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    (digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| u64::from_str_radix(digits, 16).ok())?
}

fn each<T>(table: &TableRows, mut parse: impl FnMut(Row<'_>) -> Result<T, String>) -> Result<Vec<T>, String> {
    table.rows.iter().map(|values| parse(Row { table, values })).collect()
}

/// A row whose columns are asked for by name.
struct Row<'a> {
    table: &'a TableRows,
    values: &'a [Value],
}

impl Row<'_> {
    fn has(&self, column: &str) -> bool {
        self.table.columns.iter().any(|name| name == column)
    }

    fn value(&self, column: &str) -> Result<&Value, String> {
        let position = self.table.columns.iter().position(|name| name == column);
        position.and_then(|at| self.values.get(at)).ok_or_else(|| format!("{}: no column {column}", self.table.table))
    }

    fn optional_text(&self, column: &str) -> Result<Option<String>, String> {
        Ok(match self.value(column)? {
            Value::Null => None,
            Value::Integer(number) => Some(number.to_string()),
            Value::Real(number) => Some(number.to_string()),
            Value::Text(text) => Some(text.clone()),
            Value::Blob(bytes) => Some(String::from_utf8(bytes.clone()).map_err(|_| self.error(column, "is no text"))?),
        })
    }

    fn text(&self, column: &str) -> Result<String, String> {
        self.optional_text(column)?.ok_or_else(|| self.error(column, "must not be NULL"))
    }

    fn optional_number<N: TryFrom<i64>>(&self, column: &str) -> Result<Option<N>, String> {
        let number = match self.value(column)? {
            Value::Null => return Ok(None),
            Value::Integer(number) => Some(*number),
            // INT affinity turns numbers into integers; what is still text is no number.
            Value::Real(_) | Value::Text(_) | Value::Blob(_) => None,
        };
        match number.and_then(|number| N::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.error(column, "is no number in range")),
        }
    }

    fn number<N: TryFrom<i64>>(&self, column: &str) -> Result<N, String> {
        self.optional_number(column)?.ok_or_else(|| self.error(column, "must not be NULL"))
    }

    fn flag(&self, column: &str) -> Result<bool, String> {
        Ok(self.number::<i64>(column)? != 0)
    }

    /// `mysql_query_rules (7): digest must be …`; the first columns name the row.
    fn error(&self, column: &str, message: &str) -> String {
        let key: Vec<String> = self.values.iter().take(if self.table.table.ends_with("_servers") { 3 } else { 1 }).map(show).collect();
        format!("{} ({}): {column} {message}", self.table.table, key.join(", "))
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(_) => "BLOB".into(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A table from `column=value` texts: numbers become integers, `NULL` NULL.
    pub(in crate::runtime) fn table(name: &str, rows: &[&str]) -> TableRows {
        let pairs = |row: &str| -> Vec<(String, String)> {
            row.split(';').map(|pair| pair.split_once('=').unwrap()).map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())).collect()
        };
        let value = |text: String| match text.as_str() {
            "NULL" => Value::Null,
            number if number.parse::<i64>().is_ok() => Value::Integer(number.parse().unwrap()),
            _ => Value::Text(text),
        };
        TableRows {
            table: name.into(),
            columns: rows.first().map(|row| pairs(row).into_iter().map(|(column, _)| column).collect()).unwrap_or_default(),
            rows: rows.iter().map(|row| pairs(row).into_iter().map(|(_, text)| value(text)).collect()).collect(),
        }
    }

    /// A `mysql_servers` row with the columns that matter.
    pub(in crate::runtime) fn server(hostgroup: u32, host: &str, status: &str) -> String {
        format!(
            "hostgroup_id={hostgroup};hostname={host};port=3306;status={status};weight=1;max_connections=100;max_latency_ms=0;use_ssl=0"
        )
    }

    const RULE: &str = "rule_id=7;active=1;username=NULL;schemaname=NULL;flagIN=0;client_addr=NULL;proxy_addr=NULL;proxy_port=NULL;digest=NULL;\
        match_digest=^SELECT;match_pattern=NULL;negate_match_pattern=0;re_modifiers=CASELESS;flagOUT=NULL;destination_hostgroup=20;\
        error_msg=NULL;OK_msg=NULL;multiplex=NULL;cache_ttl=NULL;apply=1";

    const USER: &str = "username=demo;password=demo;active=1;use_ssl=0;default_hostgroup=10;default_schema=NULL;transaction_persistent=1;\
        frontend=1;max_connections=10;attributes=";

    #[test]
    fn good_rows_become_values() {
        let servers = servers(&table("mysql_servers", &[&server(10, "a", "online"), &server(20, "b", "OFFLINE_SOFT")])).unwrap();
        assert_eq!(servers[0].hostgroup, HostgroupId(10));
        assert_eq!((servers[0].status, servers[1].status), (ServerStatus::Online, ServerStatus::OfflineSoft));
        let (rules, warnings) =
            rules(&table("mysql_query_rules", &[&RULE.replace("rule_id=7", "rule_id=9"), RULE]), Protocol::Mysql).unwrap();
        assert_eq!(rules.iter().map(|rule| rule.rule_id).collect::<Vec<_>>(), [7, 9]);
        assert!(rules[0].apply && rules[0].caseless && warnings.is_empty());
        let with_password = USER.replace("attributes=", r#"attributes={"additional_password":"old"}"#);
        let users = users(&table("mysql_users", &[USER, &with_password, &USER.replace("active=1", "active=0")])).unwrap();
        assert_eq!(users.len(), 2);
        assert_eq!((users[0].default_schema.as_deref(), users[1].additional_password.as_deref()), (None, Some("old")));
    }

    #[test]
    fn bad_rules_are_refused_by_row_and_column() {
        for (change, expected) in [
            (("digest=NULL", "digest=0x12"), "mysql_query_rules (7): digest must be 0x and 16 hexadecimal digits"),
            (("client_addr=NULL", "client_addr=10.%.1"), "mysql_query_rules (7): client_addr may contain `%` only at its end"),
            (("flagIN=0", "flagIN=-1"), "mysql_query_rules (7): flagIN is no number in range"),
            (("proxy_port=NULL", "proxy_port=70000"), "mysql_query_rules (7): proxy_port is no number in range"),
            (("multiplex=NULL", "multiplex=x"), "mysql_query_rules (7): multiplex is no number in range"),
            (("flagIN=0", "flagIN=NULL"), "mysql_query_rules (7): flagIN must not be NULL"),
        ] {
            let row = RULE.replace(change.0, change.1);
            assert_eq!(rules(&table("mysql_query_rules", &[&row]), Protocol::Mysql).unwrap_err(), expected);
        }
        let (_, warnings) = rules(&table("mysql_query_rules", &[&RULE.replace("cache_ttl=NULL", "cache_ttl=5")]), Protocol::Mysql).unwrap();
        assert_eq!(warnings, ["mysql_query_rules (7): cache_ttl is stored and has no effect in this version"]);
    }

    #[test]
    fn bad_servers_pairs_and_users_are_refused() {
        let wrong = servers(&table("mysql_servers", &[&server(10, "a", "UP")])).unwrap_err();
        assert_eq!(wrong, "mysql_servers (10, a, 3306): status `UP` is no status");
        let wrong = users(&table("mysql_users", &[&USER.replace("attributes=", "attributes=[1]")])).unwrap_err();
        assert_eq!(wrong, "mysql_users (demo): attributes must be a JSON object");
        let pair = |w, r| format!("writer_hostgroup={w};reader_hostgroup={r};check_type=read_only;comment=x");
        let wrong = pairs(&table("mysql_replication_hostgroups", &[&pair(10, 20), &pair(20, 30)])).unwrap_err();
        assert!(wrong.contains("hostgroup 20 is the writer side of (20, 30) and the reader side of (10, 20)"), "{wrong}");
    }
}
