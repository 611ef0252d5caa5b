//! SHOW (admin-commands.md 6).

use std::collections::BTreeMap;

use quorumsql_raft::tables as stored;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::context::Context;
use super::parse::{ShowCommand, ShowFilter};
use super::read::{Audience, Query, execute};
use super::tables::{Place, VirtualTable, virtual_tables};
use super::variables::{Layered, client_variable, client_variable_names, effective, staged, value_or_default};
use crate::sql_server::engine::EngineError;
use crate::sql_server::{Face, Rows};

/// Answers `command`; `template` says who asks. Warnings are not known here.
///
/// # Errors
/// SQLite's words for what does not exist.
pub(crate) fn show(context: &Context, connection: &mut Connection, command: &ShowCommand, template: &Query) -> Result<Rows, EngineError> {
    let audience = template.audience;
    match command {
        ShowCommand::Tables { schema, filter } => tables(schema, filter, audience),
        ShowCommand::CreateTable { schema, table } => create_table(schema.as_deref(), table, audience),
        ShowCommand::Databases => Ok(databases(audience)),
        ShowCommand::Variables { prefix, filter } => variables(context, connection, prefix, filter, audience),
        ShowCommand::Rows { table, order } => run(context, connection, template, format!("SELECT * FROM main.{table} ORDER BY {order}")),
        ShowCommand::Status { table, filter } => {
            let rows = run(
                context,
                connection,
                template,
                format!("SELECT Variable_Name, Variable_Value FROM stats.{table} ORDER BY Variable_Name"),
            )?;
            filtered(&["Variable_name", "Value", "Variable_value"], rows.rows, filter, 2, "Variable_name")
        }
        ShowCommand::Charset => Ok(Rows::text(
            &["Charset", "Default collation"],
            CHARSETS.iter().map(|(charset, collation)| texts(&[charset, collation])).collect(),
        )),
        ShowCommand::Collation => Ok(Rows::text(
            &["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"],
            COLLATIONS.iter().map(|row| texts(row)).collect(),
        )),
        ShowCommand::Fields(table) => fields(context, connection, template, table),
        ShowCommand::TableStatus(filter) => table_status(filter, audience),
        ShowCommand::Nothing | ShowCommand::Errors | ShowCommand::Warnings => Ok(Rows::text(&["Level", "Code", "Message"], Vec::new())),
        ShowCommand::WarningCount => Ok(Rows::text(&["@@session.warning_count"], vec![texts(&["0"])])),
        ShowCommand::Parameter(name) => parameter(context, connection, name, template.face),
    }
}

fn run(context: &Context, connection: &mut Connection, template: &Query, sql: String) -> Result<Rows, EngineError> {
    execute(context, connection, &Query { sql, params: Vec::new(), ..template.clone() }).map(|shown| shown.rows)
}

fn texts(values: &[&str]) -> Vec<Value> {
    values.iter().map(|value| Value::Text((*value).into())).collect()
}

/// Rows that meet a condition, by SQLite itself, in a database that holds nothing else. `shown` columns are returned.
fn filtered(columns: &[&str], rows: Vec<Vec<Value>>, filter: &ShowFilter, shown: usize, like_on: &str) -> Result<Rows, EngineError> {
    let connection = Connection::open_in_memory()?;
    let list = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    connection.execute_batch(&format!("CREATE TABLE shown ({})", list(columns)))?;
    {
        let mut insert = connection.prepare(&format!("INSERT INTO shown VALUES ({})", vec!["?"; columns.len()].join(", ")))?;
        for mut row in rows {
            // A column beyond the row is another name of its last value.
            while row.len() < columns.len() {
                row.push(row.last().cloned().unwrap_or(Value::Null));
            }
            insert.execute(rusqlite::params_from_iter(row))?;
        }
    }
    let condition = match filter {
        ShowFilter::None => String::new(),
        ShowFilter::Like(pattern) => format!("WHERE \"{like_on}\" LIKE '{}' ESCAPE '\\'", pattern.replace('\'', "''")),
        ShowFilter::Where(condition) => format!("WHERE {condition}"),
    };
    let mut connection = connection;
    connection.authorizer(Some(|context: rusqlite::hooks::AuthContext<'_>| match context.action {
        rusqlite::hooks::AuthAction::Select | rusqlite::hooks::AuthAction::Read { .. } | rusqlite::hooks::AuthAction::Function { .. } => {
            rusqlite::hooks::Authorization::Allow
        }
        _ => rusqlite::hooks::Authorization::Deny,
    }))?;
    let mut statement = connection.prepare(&format!("SELECT {} FROM shown {condition}", list(&columns[..shown])))?;
    let found = statement.query_map([], |row| (0..shown).map(|at| row.get(at)).collect::<rusqlite::Result<Vec<Value>>>())?;
    let rows = found.collect::<Result<Vec<_>, _>>()?;
    Ok(Rows::text(&columns[..shown], rows))
}

/// Names of the tables of a schema, in order.
fn table_names(schema: &str, audience: Audience) -> Vec<String> {
    let made = |place: Place| virtual_tables().into_iter().filter(move |table| table.place == place).map(|table| table.name);
    let mut names: Vec<String> = match (schema, audience) {
        ("main" | "stats", Audience::Stats) | ("stats", Audience::Admin) => made(Place::Stats).collect(),
        ("main" | "admin", Audience::Admin) => stored::TABLES.iter().map(|table| table.name.to_owned()).chain(made(Place::Temp)).collect(),
        ("disk", Audience::Admin) => made(Place::Disk).collect(),
        ("monitor", _) => made(Place::Monitor).collect(),
        _ => Vec::new(),
    };
    names.sort();
    names
}

fn tables(schema: &str, filter: &ShowFilter, audience: Audience) -> Result<Rows, EngineError> {
    let rows = table_names(schema, audience).iter().map(|name| texts(&[name])).collect();
    filtered(&["tables"], rows, filter, 1, "tables")
}

fn find_made(schema: Option<&str>, table: &str, audience: Audience) -> Option<VirtualTable> {
    let place = match schema {
        None => None,
        Some("disk") => Some(Place::Disk),
        Some("stats") => Some(Place::Stats),
        Some("monitor") => Some(Place::Monitor),
        Some(_) => Some(Place::Temp),
    };
    let fits = |found: &VirtualTable| {
        let by_place = place.map_or(found.place != Place::Disk, |place| found.place == place);
        found.name == table && by_place && (audience == Audience::Admin || found.place.is_for_stats())
    };
    virtual_tables().into_iter().find(fits)
}

fn create_table(schema: Option<&str>, table: &str, audience: Audience) -> Result<Rows, EngineError> {
    let is_main = matches!(schema, None | Some("main" | "admin")) && audience == Audience::Admin;
    let text = match stored::table(table).filter(|_| is_main) {
        Some(stored) => Some(stored.show_create(stored.name)),
        None => find_made(schema, table, audience).map(|made| made.show_create()),
    };
    let text = text.ok_or_else(|| EngineError::Sql(format!("no such table: {table}")))?;
    Ok(Rows::text(&["table", "Create Table"], vec![texts(&[table, &text])]))
}

fn databases(audience: Audience) -> Rows {
    let names: &[(&str, &str)] = match audience {
        Audience::Admin => &[("0", "main"), ("2", "disk"), ("3", "stats"), ("4", "monitor")],
        Audience::Stats => &[("0", "main"), ("2", "monitor")],
    };
    Rows::text(&["seq", "name", "file"], names.iter().map(|(seq, name)| texts(&[seq, name, ""])).collect())
}

fn variables(
    context: &Context,
    connection: &Connection,
    prefix: &str,
    filter: &ShowFilter,
    audience: Audience,
) -> Result<Rows, EngineError> {
    let all = effective(context, connection, Layered::Memory)?;
    let mut rows: Vec<Vec<Value>> = Vec::new();
    if audience == Audience::Admin {
        rows.extend(all.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(name, value)| texts(&[name, value])));
    }
    rows.extend(asked_by_clients(&all, filter));
    let mut shown = filtered(&["Variable_name", "Value", "variable_value"], rows, filter, 2, "Variable_name")?;
    if audience == Audience::Admin {
        shown.notices = not_in_force(&shown, &staged(connection)?);
    }
    Ok(shown)
}

/// What is shown is what SET has written; a value that LOAD has not put in force yet is marked.
fn not_in_force(shown: &Rows, staged: &BTreeMap<String, String>) -> Vec<String> {
    let name = |row: &Vec<Value>| row.first().and_then(|name| if let Value::Text(name) = name { Some(name.clone()) } else { None });
    let marked = shown.rows.iter().filter_map(name).filter_map(|name| staged.get(&name).map(|value| (name, value)));
    marked
        .map(|(name, value)| {
            let module = name.split('-').next().unwrap_or_default().to_ascii_uppercase();
            let value = if stored::is_secret_variable(&name) { "***" } else { value };
            format!("{name} is staged: '{value}' is in force until LOAD {module} VARIABLES TO RUNTIME")
        })
        .collect()
}

/// Variables of a MySQL server, listed only if the condition names them.
fn asked_by_clients(values: &BTreeMap<String, String>, filter: &ShowFilter) -> Vec<Vec<Value>> {
    let text = match filter {
        ShowFilter::None => return Vec::new(),
        ShowFilter::Like(text) | ShowFilter::Where(text) => text.to_ascii_lowercase().replace("\\_", "_"),
    };
    let named = |name: &str| match filter {
        ShowFilter::Like(_) => text == name,
        _ => text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name),
    };
    let value = |name: &str| match name {
        "read_only" => Some("OFF".to_owned()),
        "sql_mode" => Some("STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION".to_owned()),
        other => client_variable(values, other),
    };
    client_variable_names().filter(|name| named(name)).filter_map(|name| value(name).map(|value| texts(&[name, &value]))).collect()
}

fn fields(context: &Context, connection: &mut Connection, template: &Query, table: &str) -> Result<Rows, EngineError> {
    let is_config = stored::table(table).is_some() && template.audience == Audience::Admin;
    if !is_config && find_made(None, table, template.audience).is_none() {
        return Err(EngineError::Sql("Table does not exist".into()));
    }
    let sql = format!(
        "SELECT name, 'varchar(255)', iif(\"notnull\", 'NO', 'YES'), iif(pk, 'PRI', ''), dflt_value, '' FROM pragma_table_info('{}')",
        table.replace('\'', "''")
    );
    let found = run(context, connection, template, sql)?;
    Ok(Rows::text(&["Field", "Type", "Null", "Key", "Default", "Extra"], found.rows))
}

const STATUS_COLUMNS: [&str; 18] = [
    "Name",
    "Engine",
    "Version",
    "Row_format",
    "Rows",
    "Avg_row_length",
    "Data_length",
    "Max_data_length",
    "Index_length",
    "Data_free",
    "Auto_increment",
    "Create_time",
    "Update_time",
    "Check_time",
    "Collation",
    "Checksum",
    "Create_options",
    "Comment",
];

fn table_status(filter: &ShowFilter, audience: Audience) -> Result<Rows, EngineError> {
    let row = |name: &String| {
        let mut row = texts(&[name, "SQLite", "10", "Dynamic"]);
        row.push(Value::Null);
        row.extend(texts(&["0", "0", "0", "0", "0"]));
        row.extend([Value::Null, Value::Null, Value::Null, Value::Null]);
        row.push(Value::Text("utf8_bin".into()));
        row.push(Value::Null);
        row.extend(texts(&["", ""]));
        row
    };
    filtered(&STATUS_COLUMNS, table_names("main", audience).iter().map(row).collect(), filter, 18, "Name")
}

/// PostgreSQL's run-time parameters that drivers ask for.
fn parameter(context: &Context, connection: &Connection, name: &str, face: Face) -> Result<Rows, EngineError> {
    let fixed = match name {
        "transaction_isolation" | "default_transaction_isolation" => Some("read committed".to_owned()),
        "standard_conforming_strings" | "is_superuser" | "integer_datetimes" => Some("on".to_owned()),
        "client_encoding" | "server_encoding" => Some("UTF8".to_owned()),
        "timezone" => Some("UTC".to_owned()),
        "datestyle" => Some("ISO, MDY".to_owned()),
        "search_path" => Some("main".to_owned()),
        "server_version" => Some(value_or_default(&effective(context, connection, Layered::Runtime)?, "pgsql-server_version").to_owned()),
        _ => None,
    };
    match fixed.filter(|_| face == Face::Pgsql) {
        Some(value) => Ok(Rows::text(&[name], vec![texts(&[&value])])),
        None => Err(EngineError::Sql("near \"SHOW\": syntax error".into())),
    }
}

const CHARSETS: [(&str, &str); 5] = [
    ("utf8", "utf8_general_ci"),
    ("utf8mb4", "utf8mb4_general_ci"),
    ("latin1", "latin1_swedish_ci"),
    ("ascii", "ascii_general_ci"),
    ("binary", "binary"),
];

/// Ids as in MySQL's `information_schema.collations`.
const COLLATIONS: [[&str; 6]; 7] = [
    ["utf8_general_ci", "utf8", "33", "Yes", "Yes", "1"],
    ["utf8mb4_general_ci", "utf8mb4", "45", "Yes", "Yes", "1"],
    ["utf8mb4_bin", "utf8mb4", "46", "", "Yes", "1"],
    ["utf8mb4_0900_ai_ci", "utf8mb4", "255", "", "Yes", "0"],
    ["latin1_swedish_ci", "latin1", "8", "Yes", "Yes", "1"],
    ["ascii_general_ci", "ascii", "11", "Yes", "Yes", "1"],
    ["binary", "binary", "63", "Yes", "Yes", "1"],
];
