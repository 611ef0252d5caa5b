//! Prepared statements whose tables change under them.

use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, OptsBuilder, Row, Statement};

use crate::mysql_support::Proxy;
use crate::{close, direct_options};

const SELECT: &str = "SELECT * FROM altered WHERE id = ?";

/// What is done to the table, one after the other.
const CHANGES: &[&str] = &[
    "ALTER TABLE altered ADD COLUMN name VARCHAR(9) DEFAULT 'new'",
    "ALTER TABLE altered MODIFY COLUMN id BIGINT UNSIGNED NOT NULL",
    "ALTER TABLE altered CHANGE COLUMN name other TEXT CHARACTER SET latin1",
    "ALTER TABLE altered DROP COLUMN other",
    "DROP TABLE altered",
    "CREATE TABLE altered (name CHAR(3), id INT PRIMARY KEY) AS SELECT 'abc' AS name, 1 AS id",
];

/// A statement that was prepared before its table changed shows the table as it is, to the session that prepared it, to another
/// that prepared the same text before, and to one that prepares it now: as on a direct connection, through one server connection.
pub(crate) async fn definitions_are_fresh(proxy: &Proxy, server: u16) {
    let mut admin = uncached(direct_options(server)).await;
    admin.query_drop("CREATE TABLE altered (id INT)").await.expect("the table is new");
    admin.query_drop("INSERT INTO altered VALUES (1)").await.expect("a row goes in");
    let options = proxy.login_options("demo", "demo");
    let (mut a, mut b) = (uncached(options.clone()).await, uncached(options).await);
    let prepared = [prepare(&mut admin).await, prepare(&mut a).await, prepare(&mut b).await];
    let [of_admin, of_a, of_b] = prepared.map(|statement| statement.expect("the table is there"));
    for change in CHANGES {
        admin.query_drop(*change).await.expect("the table changes");
        let expected = execute(&mut admin, &of_admin).await;
        // The order matters: the first execution makes the server prepare anew, or gets the error.
        for (client, statement) in [(&mut a, &of_a), (&mut b, &of_b)] {
            assert_eq!(execute(client, statement).await, expected, "{change}");
        }
        for client in [&mut b, &mut a] {
            let (direct, through) = (prepare(&mut admin).await, prepare(client).await);
            assert_eq!(through.as_ref().map(definitions), direct.as_ref().map(definitions), "{change}");
            if let (Ok(direct), Ok(through)) = (direct, through) {
                assert_eq!(execute(client, &through).await, execute(&mut admin, &direct).await, "{change}");
                client.close(through).await.expect("a statement can be closed");
                admin.close(direct).await.expect("a statement can be closed");
            }
        }
        assert_eq!(execute(&mut b, &of_b).await, expected, "{change}");
    }
    for client in [a, b, admin] {
        close(client).await;
    }
}

/// A client that prepares each time it is told to.
async fn uncached(options: OptsBuilder) -> Conn {
    Conn::new(options.stmt_cache_size(0)).await.expect("demo may log in")
}

async fn prepare(client: &mut Conn) -> Result<Statement, String> {
    client.prep(SELECT).await.map_err(|error| error.to_string())
}

fn definitions(statement: &Statement) -> Vec<String> {
    statement.columns().iter().map(definition).collect()
}

fn definition(column: &Column) -> String {
    let (kind, flags) = (column.column_type(), column.flags());
    let (table, name, charset) = (column.org_table_str(), column.name_str(), column.character_set());
    format!("{table}.{name} {kind:?} {flags:?} {charset} {} {}", column.column_length(), column.decimals())
}

/// Definitions and rows, or the error.
async fn execute(client: &mut Conn, statement: &Statement) -> String {
    match client.exec::<Row, _, _>(statement, (1,)).await {
        Ok(rows) => {
            let columns = rows.first().map(|row| row.columns_ref().iter().map(definition).collect::<Vec<_>>());
            format!("{columns:?} {:?}", rows.into_iter().map(Row::unwrap).collect::<Vec<_>>())
        }
        Err(error) => error.to_string(),
    }
}
