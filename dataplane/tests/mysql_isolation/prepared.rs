//! Prepared statements whose tables change under them, and what their executions leave behind.

use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, OptsBuilder, Params, Row, Statement, Value};

use crate::mysql_support::{Proxy, run};
use crate::{close, direct_options, outcome};

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

/// Statements in which the type of a parameter shows.
const TYPED: &[&str] = &[
    "SELECT ? + 1",
    "SELECT ?",
    "SELECT COALESCE(?, 1.5)",
    "SELECT ? FROM ten WHERE a = 1",
    "SELECT 1 FROM ten WHERE a = ?",
    "SELECT COUNT(*) FROM ten WHERE ? > 0",
    "SELECT CONCAT(?, 'x')",
    "SELECT ? > '2020-01-01'",
];

/// Executions of one text by two clients in turns: a number says whose, and with what.
const EXECUTIONS: &[&[(usize, Bound)]] = &[
    &[(0, Bound::Double), (1, Bound::Int)],
    &[(0, Bound::Int), (1, Bound::Double)],
    &[(0, Bound::Int), (1, Bound::Double), (0, Bound::Int), (1, Bound::Int), (0, Bound::Double), (0, Bound::Int)],
    &[(0, Bound::Null), (1, Bound::Int), (0, Bound::Double), (1, Bound::Null), (0, Bound::Null)],
    &[(0, Bound::Text), (1, Bound::Null), (0, Bound::Int), (1, Bound::Int), (1, Bound::Text)],
    &[(0, Bound::UInt), (1, Bound::Int), (0, Bound::Int), (1, Bound::UInt)],
    &[(0, Bound::Date), (1, Bound::Text), (0, Bound::Text), (1, Bound::Date), (1, Bound::Int)],
    &[(0, Bound::BigText), (1, Bound::Text), (0, Bound::Int), (1, Bound::Int)],
    &[(0, Bound::Text), (1, Bound::BigText), (0, Bound::Text), (1, Bound::Int)],
    &[(0, Bound::Double), (0, Bound::Int), (1, Bound::Double), (1, Bound::UInt), (0, Bound::Double), (1, Bound::Int), (0, Bound::BigText)],
    &[(0, Bound::Null), (0, Bound::Text), (1, Bound::Null), (1, Bound::Text), (0, Bound::Int), (1, Bound::Double), (0, Bound::Null)],
    &[(0, Bound::Date), (0, Bound::Text), (1, Bound::Date), (1, Bound::Null), (0, Bound::Date), (1, Bound::Double), (0, Bound::Text)],
    &[(0, Bound::Int), (1, Bound::Int), (0, Bound::Double), (1, Bound::Int), (1, Bound::Double), (1, Bound::Int), (0, Bound::Int)],
];

#[derive(Clone, Copy, Debug)]
enum Bound {
    Null,
    Int,
    UInt,
    Double,
    Text,
    BigText,
    Date,
}

impl Bound {
    fn value(self) -> Value {
        match self {
            Self::Null => Value::NULL,
            Self::Int => Value::Int(1),
            Self::UInt => Value::UInt(u64::MAX),
            Self::Double => Value::Double(0.5),
            Self::Text => Value::from("7"),
            Self::BigText => Value::from("123456789012345678901234567890"),
            Self::Date => Value::Date(2024, 2, 29, 0, 0, 0, 0),
        }
    }
}

/// What one client binds to a statement does not show in another's executions of the same text.
pub(crate) async fn types_are_ones_own(proxy: &Proxy, server: u16) {
    let mut wrong = Vec::new();
    let through = || async { uncached(proxy.login_options("demo", "demo")).await };
    let direct = || async { uncached(direct_options(server)).await };
    let (mut through, mut direct) = ([through().await, through().await], [direct().await, direct().await]);
    for sql in TYPED {
        for executions in EXECUTIONS {
            let (through, direct) = (take_turns(&mut through, sql, executions).await, take_turns(&mut direct, sql, executions).await);
            if through != direct {
                wrong.push(format!("{sql} {executions:?}\n    through {through:?}\n    direct  {direct:?}"));
            }
        }
    }
    for client in through.into_iter().chain(direct) {
        close(client).await;
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), TYPED.len() * EXECUTIONS.len(), wrong.join("\n"));
}

/// Statements whose types a parameter changes for good, by executions that bring them elsewhere on a connection of their own.
const MOVED: &[&str] = &[
    "SELECT GREATEST(?, 2)",
    "SELECT ? + 1",
    "SELECT ?",
    "SELECT ? FROM ten WHERE a = 1 LIMIT 1",
    "SELECT COALESCE(?, 1.5) FROM ten ORDER BY a LIMIT 2",
    "SELECT * FROM (SELECT ? AS x FROM ten) AS y WHERE y.x > 0",
    "SELECT a FROM ten WHERE a = ?",
];

/// A statement that moves to another connection of its server goes on there with what its client has executed before.
pub(crate) async fn a_past_moves_with_its_statement(proxy: &Proxy, server: u16) {
    let mut wrong = Vec::new();
    let mut through = uncached(proxy.login_options("demo", "demo")).await;
    let mut direct = uncached(direct_options(server)).await;
    let mut thief = uncached(proxy.login_options("other", "other")).await;
    for sql in MOVED {
        for executions in EXECUTIONS {
            let mut outcomes = [Vec::new(), Vec::new()];
            for (client, outcomes) in [&mut through, &mut direct].into_iter().zip(&mut outcomes) {
                let statement = client.prep(*sql).await.expect("the statement is good");
                for (_, bound) in *executions {
                    outcomes.push(bind(client, &statement, (bound.value(),)).await);
                    // Warnings would keep the connection; the other user's statement then takes it.
                    run(client, &["SELECT COUNT(*) FROM ten"]).await;
                    run(&mut thief, &["SELECT 1"]).await;
                }
                client.close(statement).await.expect("a statement can be closed");
            }
            if outcomes[0] != outcomes[1] {
                wrong.push(format!("{sql} {executions:?}\n    through {:?}\n    direct  {:?}", outcomes[0], outcomes[1]));
            }
        }
    }
    for client in [through, direct, thief] {
        close(client).await;
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), MOVED.len() * EXECUTIONS.len(), wrong.join("\n"));
}

async fn take_turns(clients: &mut [Conn; 2], sql: &str, executions: &[(usize, Bound)]) -> Vec<String> {
    let mut statements = Vec::new();
    for client in clients.iter_mut() {
        statements.push(client.prep(sql).await.expect("the statement is good"));
    }
    let mut outcomes = Vec::new();
    for (who, bound) in executions {
        outcomes.push(bind(&mut clients[*who], &statements[*who], (bound.value(),)).await);
        // Warnings would keep the connection.
        run(&mut clients[*who], &["SELECT COUNT(*) FROM ten"]).await;
    }
    for (client, statement) in clients.iter_mut().zip(statements) {
        client.close(statement).await.expect("a statement can be closed");
    }
    outcomes
}

/// The definitions of the columns and the rows, or the error.
async fn bind(client: &mut Conn, statement: &Statement, values: impl Into<Params>) -> String {
    let outcome = async {
        let mut result = client.exec_iter(statement, values).await?;
        let columns: Vec<_> = result.columns_ref().iter().map(definition).collect();
        let rows: Vec<Row> = result.collect().await?;
        Ok::<_, mysql_async::Error>(format!("{columns:?} {:?}", rows.into_iter().map(Row::unwrap).collect::<Vec<_>>()))
    };
    outcome.await.unwrap_or_else(|error| error.to_string())
}

/// A text and what two clients do in turns: a statement, `prepare`, or `execute`.
type Turns = (&'static str, &'static [(usize, &'static str)]);

/// Clients whose settings differ, before or after they prepare the same text.
const SETTINGS: &[Turns] = &[
    (CHARSET, &[(0, "SET NAMES latin1"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)]),
    (CHARSET, &[(0, PREPARE), (1, "SET NAMES latin1"), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)]),
    (CHARSET, &[(0, PREPARE), (0, "SET NAMES latin1"), (1, PREPARE), (1, EXECUTE), (0, EXECUTE), (1, EXECUTE)]),
    (CHARSET, &[(0, PREPARE), (0, "SET NAMES latin1"), (1, "SET lock_wait_timeout = 7"), (1, PREPARE), (1, EXECUTE), (0, EXECUTE)]),
    (
        CHARSET,
        &[(0, "USE other"), (0, "SET CHARACTER SET latin1"), (0, "USE demo"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE)],
    ),
    (r#"SELECT "a" FROM (SELECT 1 AS a) AS x"#, ANSI_FIRST),
    (r#"SELECT "a" FROM (SELECT 1 AS a) AS x"#, ANSI_SECOND),
    ("SELECT 1 || 0, MAX (1)", ANSI_FIRST),
    ("SELECT 1 || 0, MAX (1)", ANSI_SECOND),
    (
        r"SELECT 'a\\b'",
        &[(0, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)],
    ),
    (
        r"SELECT 'a\\b'",
        &[(0, PREPARE), (1, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'"), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)],
    ),
    ("SELECT MONTHNAME('2024-03-01'), DATE_FORMAT('2024-03-01', '%M')", GERMAN),
    ("SELECT GROUP_CONCAT(a) FROM ten", &[(0, "SET group_concat_max_len = 4"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE)]),
    ("SELECT a FROM ten", &[(0, "SET sql_select_limit = 1"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)]),
    ("SELECT @@sql_mode, NOW() > '2020-01-01'", &[(0, "SET timestamp = 1"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE)]),
    ("SELECT FROM_UNIXTIME(0)", &[(0, "SET time_zone = '+03:00'"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)]),
    ("SELECT DATABASE(), COUNT(*) FROM ids", &[(0, PREPARE), (0, "USE other"), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)]),
];
const PREPARE: &str = "prepare";
const EXECUTE: &str = "execute";
const CHARSET: &str = "SELECT CHARSET('x'), COLLATION('x'), CONCAT('x', 1), @@collation_connection";
const ANSI_FIRST: &[(usize, &str)] = &[
    (0, "SET sql_mode = 'ANSI'"),
    (0, PREPARE),
    (1, PREPARE),
    (0, EXECUTE),
    (1, EXECUTE),
    (0, EXECUTE),
    (0, "SET sql_mode = DEFAULT"),
    (0, EXECUTE),
];
const ANSI_SECOND: &[(usize, &str)] = &[
    (0, PREPARE),
    (1, "SET sql_mode = 'ANSI'"),
    (1, PREPARE),
    (0, EXECUTE),
    (1, EXECUTE),
    (0, EXECUTE),
    (0, "SET sql_mode = 'ANSI'"),
    (0, EXECUTE),
];
const GERMAN: &[(usize, &str)] =
    &[(0, "SET lc_time_names = 'de_DE'"), (0, PREPARE), (1, PREPARE), (0, EXECUTE), (1, EXECUTE), (0, EXECUTE)];

/// The settings under which a client prepares, and those under which it executes, are its own.
pub(crate) async fn settings_are_ones_own(proxy: &Proxy, server: u16) {
    let mut wrong = Vec::new();
    for turns in SETTINGS {
        let (through, direct) =
            (in_turns(|| proxy.login_options("demo", "demo"), turns).await, in_turns(|| direct_options(server), turns).await);
        if through != direct {
            wrong.push(format!("{turns:?}\n    through {through:?}\n    direct  {direct:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SETTINGS.len(), wrong.join("\n"));
}

async fn in_turns(options: impl Fn() -> OptsBuilder, (sql, turns): &Turns) -> Vec<String> {
    let mut clients = [uncached(options()).await, uncached(options()).await];
    let mut statements: [Option<Statement>; 2] = [None, None];
    let mut outcomes = Vec::new();
    for (who, what) in *turns {
        let client = &mut clients[*who];
        outcomes.push(match (*what, &statements[*who]) {
            (EXECUTE, None) => "not prepared".to_owned(),
            (EXECUTE, Some(statement)) => bind(client, statement, ()).await,
            (PREPARE, _) => match client.prep(*sql).await {
                Ok(statement) => {
                    let columns = format!("{:?}", definitions(&statement));
                    statements[*who] = Some(statement);
                    columns
                }
                Err(error) => error.to_string(),
            },
            (sql, _) => outcome(client, sql).await,
        });
        // Warnings would keep the connection.
        run(client, &["SELECT COUNT(*) FROM demo.ten"]).await;
    }
    for client in clients {
        close(client).await;
    }
    outcomes
}
