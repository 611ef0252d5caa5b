//! The shape of a table: columns with their SQLite clauses, and the statements that follow from them.

use crate::command::Layer;

/// A column.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// Name.
    pub name: &'static str,
    /// Declared type, e.g. `INT`.
    pub kind: &'static str,
    /// The rest of its definition: CHECK, NOT NULL, DEFAULT.
    pub clause: &'static str,
}

/// A replicated table.
#[derive(Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// Visible name, e.g. `mysql_servers`.
    pub name: &'static str,
    /// Columns in order.
    pub columns: &'static [ColumnDescription],
    /// Columns of the primary key, all NOT NULL.
    pub primary_key: &'static [&'static str],
    /// Other unique keys.
    pub unique: &'static [&'static [&'static str]],
    /// Whether the one key column is `INTEGER PRIMARY KEY AUTOINCREMENT`.
    pub autoincrement: bool,
    /// Columns that history, logs and errors never show.
    pub secrets: &'static [&'static str],
}

pub(super) const fn column(name: &'static str, kind: &'static str, clause: &'static str) -> ColumnDescription {
    ColumnDescription { name, kind, clause }
}

impl TableDescription {
    /// Name of the table in `state.db` that holds `layer`.
    #[must_use]
    pub fn physical(&self, layer: Layer) -> String {
        match layer {
            Layer::Memory => self.name.to_string(),
            Layer::Runtime => format!("base_runtime_{}", self.name),
            Layer::Disk => format!("disk_{}", self.name),
        }
    }

    /// Name of the mirror of the runtime layer that users see.
    #[must_use]
    pub fn runtime_name(&self) -> String {
        format!("runtime_{}", self.name)
    }

    /// CREATE TABLE for `layer`, in the form in which the reference stores it (` , ` between the parts).
    /// The runtime base has no AUTOINCREMENT: its keys always come from MEMORY.
    #[must_use]
    pub fn ddl(&self, layer: Layer) -> String {
        self.create_table(&self.physical(layer), self.autoincrement && layer != Layer::Runtime)
    }

    /// The text that `SHOW CREATE TABLE` prints for a table with these columns under the name `visible`:
    /// [`Self::ddl`] with a line for each part.
    #[must_use]
    pub fn show_create(&self, visible: &str) -> String {
        let open = format!("CREATE TABLE {visible} (");
        self.create_table(visible, self.autoincrement).replace(" , ", ",\n    ").replacen(&open, &format!("{open}\n    "), 1)
    }

    fn create_table(&self, name: &str, autoincrement: bool) -> String {
        let mut parts: Vec<String> = self.columns.iter().map(|column| self.column_clause(column, autoincrement)).collect();
        let inline = self.columns.iter().any(|column| column.clause.contains("PRIMARY KEY"));
        if !self.rowid_key() && !inline {
            parts.push(format!("PRIMARY KEY ({})", self.primary_key.join(", ")));
        }
        parts.extend(self.unique.iter().map(|columns| format!("UNIQUE ({})", columns.join(", "))));
        format!("CREATE TABLE {name} ({})", parts.join(" , "))
    }

    fn column_clause(&self, column: &ColumnDescription, autoincrement: bool) -> String {
        let ColumnDescription { name, kind, clause } = column;
        if !self.rowid_key() || !self.primary_key.contains(name) {
            return format!("{name} {kind} {clause}").trim_end().to_string();
        }
        let counter = if autoincrement { " AUTOINCREMENT" } else { "" };
        format!("{name} {kind} PRIMARY KEY{counter} {clause}").trim_end().to_string()
    }

    /// Whether the key is SQLite's rowid.
    fn rowid_key(&self) -> bool {
        self.autoincrement
    }

    /// Position of a column, without regard to case.
    #[must_use]
    pub fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|candidate| candidate.name.eq_ignore_ascii_case(column))
    }

    /// Positions of the key columns, in key order.
    #[must_use]
    pub fn key_positions(&self) -> Vec<usize> {
        self.primary_key.iter().filter_map(|name| self.position(name)).collect()
    }

    /// Column names joined for a statement.
    #[must_use]
    pub fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::tables::{TABLES, table};

    #[test]
    fn sqlite_accepts_every_table_in_every_layer_and_agrees_about_keys() {
        let connection = Connection::open_in_memory().expect("opens");
        for description in TABLES {
            for layer in [Layer::Memory, Layer::Runtime, Layer::Disk] {
                connection.execute_batch(&description.ddl(layer)).expect(description.name);
            }
            let mut statement = connection
                .prepare("SELECT name FROM pragma_table_info(?1) WHERE pk > 0 AND \"notnull\" = 1 ORDER BY pk")
                .expect("prepares");
            let keys: Vec<String> =
                statement.query_map([description.name], |row| row.get(0)).expect("runs").map(|row| row.expect("row")).collect();
            assert_eq!(keys, description.primary_key, "{}", description.name);
            assert_eq!(description.key_positions().len(), description.primary_key.len());
        }
    }

    #[test]
    fn show_create_table_reads_as_the_reference_prints_it() {
        let text = table("mysql_replication_hostgroups").expect("exists").show_create("mysql_replication_hostgroups");
        let expected = "CREATE TABLE mysql_replication_hostgroups (\n    writer_hostgroup INT CHECK (writer_hostgroup>=0) NOT NULL PRIMARY KEY,\n    \
            reader_hostgroup INT NOT NULL CHECK (reader_hostgroup<>writer_hostgroup AND reader_hostgroup>=0),\n    \
            check_type VARCHAR CHECK (LOWER(check_type) IN ('read_only','innodb_read_only','super_read_only','read_only|innodb_read_only','read_only&innodb_read_only')) NOT NULL DEFAULT 'read_only',\n    \
            comment VARCHAR NOT NULL DEFAULT '',\n    UNIQUE (reader_hostgroup))";
        assert_eq!(text, expected);
        assert!(table("pgsql_query_rules").expect("exists").ddl(Layer::Memory).starts_with("CREATE TABLE pgsql_query_rules (rule_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL , active INT CHECK (active IN (0,1)) NOT NULL DEFAULT 0 , "));
    }
}
