//! Every kind of session state, in both orders: what a client sets it reads back as from a direct connection, and another
//! client of the same server connection reads what a fresh direct connection reads.
#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod counts;
#[path = "../mysql_support/mod.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod mysql_support;
mod prepared;
mod remains;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};
use mysql_support::{Proxy, Setup, block_on, run};
use quorumsql_chaos::servers::{MariaDb, Mysql9};

#[test]
fn no_client_of_mariadb_sees_the_state_of_another() {
    let server = MariaDb::start(1, &["--lock-wait-timeout=50"]);
    let mut setup = Setup::sharing(server.port);
    // A wait for the connection is a failure here.
    setup.variables.connect_timeout_server_max = std::time::Duration::from_millis(700);
    let proxy = setup.start();
    block_on(async {
        all(&proxy, server.port).await;
        remains::all(&proxy, server.port).await;
        counts::all(&proxy, server.port).await;
        prepared::definitions_are_fresh(&proxy, server.port).await;
        prepared::types_are_ones_own(&proxy, server.port).await;
        prepared::settings_are_ones_own(&proxy, server.port).await;
    });
}

#[test]
fn no_client_of_mysql_9_sees_the_state_of_another() {
    let server = Mysql9::start(1, &[]);
    let mut setup = Setup::sharing(server.port);
    // A wait for the connection is a failure here.
    setup.variables.connect_timeout_server_max = std::time::Duration::from_millis(700);
    let proxy = setup.start();
    block_on(async {
        all(&proxy, server.port).await;
        remains::all(&proxy, server.port).await;
        counts::all(&proxy, server.port).await;
        prepared::definitions_are_fresh(&proxy, server.port).await;
        prepared::types_are_ones_own(&proxy, server.port).await;
        prepared::settings_are_ones_own(&proxy, server.port).await;
    });
}

/// Whether the state stays on its server connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// The session keeps the connection until it ends.
    Pinned,
    /// The state follows the client: both use the one connection in turns.
    Shared,
}
use Kept::{Pinned, Shared};

/// What a client does, what then shows it, and whether that pins.
const STATES: &[(Kept, &[&str], &str)] = &[
    // Tracked variables.
    (Shared, &["SET autocommit=0"], "SELECT @@autocommit"),
    (Shared, &["SET sql_mode=''"], "SELECT @@sql_mode"),
    (Shared, &["SET SESSION sql_mode='NO_ZERO_DATE'"], "SELECT @@sql_mode"),
    (Shared, &["SET sql_mode='ANSI_QUOTES'"], r#"SELECT "a" FROM (SELECT 1 AS a) AS x"#),
    (Shared, &["SET sql_mode='NO_BACKSLASH_ESCAPES'"], r"SELECT 'a\'"),
    (Shared, &["SET sql_mode=CONCAT(@@sql_mode, ',ANSI')"], "SELECT @@sql_mode"),
    (Shared, &["SET sql_mode=(SELECT REPLACE(@@sql_mode, 'STRICT_TRANS_TABLES', ''))"], "SELECT @@sql_mode"),
    (Shared, &["SET sql_mode='ANSI'", "SET sql_mode=DEFAULT"], "SELECT @@sql_mode"),
    (Shared, &["SET sql_mode='nonsense'"], "SELECT @@sql_mode"),
    (Shared, &["SET time_zone='+03:00'"], "SELECT @@time_zone"),
    (Shared, &["SET time_zone='Nowhere/Nothing'"], "SELECT @@time_zone"),
    (Shared, &["SET SESSION time_zone = \"-1:30\""], "SELECT @@time_zone"),
    (Shared, &["SET foreign_key_checks=0, unique_checks=OFF"], "SELECT @@foreign_key_checks, @@unique_checks"),
    (Shared, &["SET group_concat_max_len=4, max_sort_length=64"], "SELECT @@group_concat_max_len, @@max_sort_length"),
    (Shared, &["SET group_concat_max_len=1"], "SELECT @@group_concat_max_len"),
    (Shared, &["SET sql_select_limit=3"], "SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4"),
    (Shared, &["SET sql_select_limit=3", "SET sql_select_limit=DEFAULT"], "SELECT @@sql_select_limit"),
    (Shared, &["SET max_join_size=5"], "SELECT @@max_join_size, @@sql_big_selects"),
    (Shared, &["SET long_query_time=0.5"], "SELECT @@long_query_time"),
    (Shared, &["SET lc_time_names='de_DE'"], "SELECT MONTHNAME('2020-03-01')"),
    (Shared, &["SET lc_messages='de_DE'"], "SELECT @@lc_messages"),
    (Shared, &["SET auto_increment_increment=7, auto_increment_offset=2"], "SELECT @@auto_increment_increment, @@auto_increment_offset"),
    (Shared, &["SET default_storage_engine=MyISAM"], "SELECT @@default_storage_engine"),
    (Shared, &["SET innodb_lock_wait_timeout=3, lock_wait_timeout=4"], "SELECT @@innodb_lock_wait_timeout, @@lock_wait_timeout"),
    (Shared, &["SET optimizer_search_depth=3, optimizer_prune_level=0"], "SELECT @@optimizer_search_depth, @@optimizer_prune_level"),
    (Shared, &["SET optimizer_switch='index_merge=off'"], "SELECT @@optimizer_switch LIKE '%index_merge=off%'"),
    (Shared, &["SET max_execution_time=1000"], "SELECT @@max_execution_time"),
    (Shared, &["SET max_statement_time=10"], "SELECT @@max_statement_time"),
    (Shared, &["SET sql_safe_updates=1, sql_quote_show_create=0"], "SELECT @@sql_safe_updates, @@sql_quote_show_create"),
    (Shared, &["SET sort_buffer_size=65536, join_buffer_size=65536"], "SELECT @@sort_buffer_size, @@join_buffer_size"),
    (Shared, &["SET tmp_table_size=2000000, max_heap_table_size=2000000"], "SELECT @@tmp_table_size, @@max_heap_table_size"),
    (Shared, &["SET timestamp=1000000000"], "SELECT NOW()"),
    (Shared, &["SET timestamp=1000000000", "SET timestamp=DEFAULT"], "SELECT NOW() > '2020-01-01'"),
    (Shared, &["SET SESSION information_schema_stats_expiry=0"], "SELECT @@information_schema_stats_expiry"),
    (Shared, &["SET session_track_gtids=OWN_GTID", "INSERT INTO children VALUES (7)"], "SELECT @@session_track_gtids"),
    (Shared, &["SET unheard_of=1"], "SELECT 1"),
    (Shared, &["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"], "SHOW VARIABLES LIKE 't%_isolation'"),
    (Shared, &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"], "SHOW VARIABLES LIKE 't%_read_only'"),
    (Shared, &["SET SESSION TRANSACTION READ ONLY"], "SHOW VARIABLES LIKE 't%_read_only'"),
    (Shared, &["SET tx_isolation='READ-UNCOMMITTED'"], "SHOW VARIABLES LIKE 't%_isolation'"),
    (Shared, &["SET transaction_isolation='READ-UNCOMMITTED'"], "SHOW VARIABLES LIKE 't%_isolation'"),
    // Schema and character sets.
    (Shared, &["USE other"], "SELECT DATABASE()"),
    (Shared, &["USE /* a comment */ `other`"], "SELECT DATABASE()"),
    (Shared, &["SET NAMES latin1"], CHARSETS),
    (Shared, &["SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'"], CHARSETS),
    (Shared, &["SET NAMES utf8 COLLATE utf8_unicode_ci"], CHARSETS),
    (Shared, &["SET NAMES latin1, character_set_results=NULL"], CHARSETS),
    (Shared, &["SET NAMES utf8mb4", "SET character_set_results=latin1"], CHARSETS),
    (Shared, &["SET character_set_client=latin1"], CHARSETS),
    (Shared, &["SET character_set_connection=latin1"], CHARSETS),
    (Shared, &["SET collation_connection='latin1_bin'"], CHARSETS),
    (Shared, &["SET collation_connection='latin1_bin'", "SET NAMES utf8mb4"], CHARSETS),
    (Shared, &["SET CHARACTER SET latin1"], CHARSETS),
    (Shared, &["USE other", "SET CHARSET utf8mb4", "USE demo"], CHARSETS),
    (Shared, &["SET NAMES nosuch"], CHARSETS),
    (Shared, &["SET NAMES latin1 COLLATE utf8mb4_bin"], CHARSETS),
    (Shared, &["SET NAMES utf16"], CHARSETS),
    (Shared, &["SET character_set_client=ucs2"], CHARSETS),
    // What servers keep for the next statement, or of the last one.
    (Shared, &["INSERT INTO ids VALUES (NULL)"], "SELECT LAST_INSERT_ID() > 0, @@identity = LAST_INSERT_ID()"),
    (Shared, &["INSERT INTO ids SELECT MAX(id) + 1000 FROM ids"], "SELECT LAST_INSERT_ID()"),
    (
        Shared,
        &["INSERT INTO ids VALUES (NULL)", "INSERT INTO children SELECT LAST_INSERT_ID()"],
        "SELECT COUNT(*) > 0 FROM children WHERE id = LAST_INSERT_ID()",
    ),
    (Shared, &["UPDATE ids SET id = LAST_INSERT_ID(id + 100000) ORDER BY id DESC LIMIT 1"], "SELECT LAST_INSERT_ID() > 100000"),
    (Pinned, &["SELECT LAST_INSERT_ID(55)"], "SELECT LAST_INSERT_ID()"),
    (Pinned, &["SET insert_id=90000"], "SELECT @@insert_id"),
    (Pinned, &["SET last_insert_id=31"], "SELECT LAST_INSERT_ID()"),
    (Pinned, &["SET rand_seed1=1, rand_seed2=2"], "SELECT RAND() < 0.0000001"),
    (Shared, &["SELECT 1 UNION SELECT 2 UNION SELECT 3"], "SELECT FOUND_ROWS()"),
    (Shared, &["INSERT INTO ids VALUES (NULL), (NULL)"], "SELECT ROW_COUNT()"),
    (Shared, &["SELECT 1 UNION SELECT 2 UNION SELECT 3"], "SELECT ROW_COUNT() + 0"),
    (Shared, &["SELECT 1 UNION SELECT 2", "COMMIT"], "SELECT CONCAT('', ROW_COUNT())"),
    (Shared, &["SELECT nonsense"], "SELECT ROW_COUNT() + 0"),
    (Shared, &["ALTER TABLE children COMMENT 'more'"], "SELECT ROW_COUNT() + 0"),
    // Nobody else was on the connection: it knows.
    (Shared, &["UPDATE ids SET id = id + 1000000 ORDER BY id DESC LIMIT 2"], "SELECT ROW_COUNT() + 0"),
    (Pinned, &["SELECT SQL_CALC_FOUND_ROWS 1 FROM (SELECT 1 UNION SELECT 2) AS x LIMIT 1"], "SELECT FOUND_ROWS()"),
    (Pinned, &["SELECT CAST('x' AS SIGNED)"], "SHOW WARNINGS"),
    (Pinned, &["SELECT CAST('x' AS SIGNED)"], "SHOW COUNT(*) WARNINGS"),
    (Pinned, &["SELECT CAST('x' AS SIGNED)"], "SELECT @@warning_count"),
    (Shared, &["SELECT nonsense"], "SHOW WARNINGS"),
    (Shared, &["SELECT nonsense"], "SHOW ERRORS"),
    (Shared, &["SELECT nonsense"], "SELECT @@warning_count, @@error_count"),
    (Shared, &["SELECT nonsense"], "SELECT @@warning_count + 0, @@error_count + 0"),
    (Shared, &["SELECT nonsense"], "SHOW WARNINGS LIMIT 1"),
    (Shared, &["SELECT nonsense"], "SHOW ERRORS LIMIT 0"),
    (Shared, &["SELECT nonsense"], "SHOW /* all */ COUNT(*) ERRORS"),
    (Shared, &["SELECT nonsense"], "CALL counts()"),
    (Pinned, &["SELECT nonsense"], "GET DIAGNOSTICS CONDITION 1 @text = MESSAGE_TEXT, @state = RETURNED_SQLSTATE"),
    (Pinned, &["SELECT nonsense", "GET DIAGNOSTICS CONDITION 1 @text = MESSAGE_TEXT"], "SELECT @text"),
    (Pinned, &["SELECT CAST('x' AS SIGNED)"], "SHOW WARNINGS LIMIT 1"),
    (Pinned, &["SELECT CAST('x' AS SIGNED)", "GET DIAGNOSTICS CONDITION 1 @text = MESSAGE_TEXT"], "SELECT @text"),
    (Shared, &["SELECT nonsense", "SELECT COUNT(*) > -1 FROM ids"], "SELECT @@warning_count + 0"),
    (Shared, &["SET STATEMENT max_statement_time = 5 FOR SELECT 4"], "SELECT @@max_statement_time"),
    (Shared, &["SET STATEMENT sql_mode = 'NO_BACKSLASH_ESCAPES' FOR SELECT 4"], r"SELECT 'a\''"),
    (Shared, &["SELECT /*+ SET_VAR(sql_mode = 'ANSI') */ 1"], "SELECT @@sql_mode"),
    (Pinned, &["SELECT /*+ SET_VAR(sort_buffer_size = 262144) */ sets()"], "SELECT @inside"),
    (Shared, &["SET PASSWORD FOR other@localhost = 'p'"], "SELECT 1"),
    (Shared, &["SHOW GRANTS FOR demo@'%'", "CREATE OR REPLACE DEFINER=demo@'%' VIEW defined AS SELECT 1"], "SELECT 1"),
    // What is not tracked.
    (Pinned, &["SET STATEMENT max_statement_time = 5 FOR SELECT sets()"], "SELECT @inside"),
    (Pinned, &["SET @a=5"], "SELECT @a"),
    (Pinned, &["SELECT @b := 6"], "SELECT @b"),
    (Pinned, &["SELECT 7 INTO @c"], "SELECT @c"),
    (Pinned, &["SET SESSION min_examined_row_limit=5"], "SELECT @@min_examined_row_limit"),
    (Pinned, &["SET profiling=1", "SELECT 1"], "SELECT @@profiling"),
    (Pinned, &["CREATE TEMPORARY TABLE tmp (a INT)", "INSERT INTO tmp VALUES (1)"], "SELECT * FROM tmp"),
    (Pinned, &["SELECT GET_LOCK('mine', 0)"], "SELECT IS_USED_LOCK('mine') = CONNECTION_ID()"),
    (Shared, &["SELECT GET_LOCK('mine', 0)", "DO RELEASE_ALL_LOCKS()"], "SELECT IS_USED_LOCK('mine')"),
    (Pinned, &["LOCK TABLES ids READ"], "SELECT * FROM children"),
    (Shared, &["LOCK TABLES ids READ", "UNLOCK TABLES"], "SELECT COUNT(*) >= 0 FROM children"),
    (Pinned, &["PREPARE p FROM 'SELECT 11'"], "EXECUTE p"),
    (Pinned, &["HANDLER ids OPEN AS h"], "HANDLER h READ FIRST LIMIT 0"),
    (Pinned, &["SET ROLE NONE"], "SELECT CURRENT_ROLE()"),
    (Pinned, &["BEGIN", "INSERT INTO children VALUES (1234567)"], "SELECT COUNT(*) FROM children WHERE id = 1234567"),
    (Pinned, &["SET autocommit=0", "INSERT INTO children VALUES (1234568)"], "SELECT COUNT(*) FROM children WHERE id = 1234568"),
    (Pinned, &["BEGIN", "SAVEPOINT s"], "ROLLBACK TO s"),
    (Shared, &["BEGIN", "SAVEPOINT s", "ROLLBACK"], "ROLLBACK TO s"),
    (Pinned, &["XA START 'x'"], "XA END 'x'"),
    (Pinned, &["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"], ISOLATION_NOW),
    (Shared, &["SET TRANSACTION READ ONLY", "START TRANSACTION", "COMMIT"], "INSERT INTO children VALUES (1)"),
    (Pinned, &["SET TRANSACTION READ ONLY", "START TRANSACTION"], "INSERT INTO children VALUES (1)"),
    (Pinned, &["CALL modes()"], "SELECT @@sql_mode"),
    (Pinned, &["CALL changes()"], "SELECT @@lock_wait_timeout, @inside"),
];

const CHARSETS: &str = "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, @@collation_connection, \
     CHARSET('x'), COLLATION('x')";
/// The level of the next transaction does not show in a variable.
const ISOLATION_NOW: &str = "SELECT 1";

async fn all(proxy: &Proxy, server: u16) {
    let mut admin = direct(server).await;
    run(
        &mut admin,
        &[
            "CREATE TABLE ids (id INT PRIMARY KEY AUTO_INCREMENT)",
            "CREATE TABLE children (id INT)",
            "CREATE DATABASE other CHARACTER SET latin1",
            "CREATE PROCEDURE counts() BEGIN DECLARE n INT; GET DIAGNOSTICS n = NUMBER; SELECT n; END",
            "CREATE PROCEDURE modes() SET SESSION sql_mode = 'ANSI'",
            "CREATE FUNCTION sets() RETURNS INT NO SQL BEGIN SET @inside = 2; RETURN 1; END",
            "CREATE PROCEDURE changes() BEGIN SET @inside = 1; SET SESSION lock_wait_timeout = 77; END",
        ],
    )
    .await;
    let mut wrong = Vec::new();
    for (kept, set, read) in STATES {
        let case = format!("{}: {read}", set.join("; "));
        if let Err(error) = one(proxy, server, *kept, set, read).await {
            wrong.push(format!("{case}\n    {error}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} kinds of state:\n{}", wrong.len(), STATES.len(), wrong.join("\n"));
}

/// One kind of state: `mine` is what a direct connection sees that has it, `others` what one sees that does not.
async fn one(proxy: &Proxy, server: u16, kept: Kept, set: &[&str], read: &str) -> Result<(), String> {
    let (mut with, mut without) = (direct(server).await, direct(server).await);
    let others = outcome(&mut without, read).await;
    let said = outcomes(&mut with, set).await;
    let mine = outcome(&mut with, read).await;
    with.reset().await.map_err(|error| error.to_string())?;
    let anew = outcome(&mut with, read).await;
    close(with).await;
    close(without).await;
    let expect = |who: &str, got: String, want: &str| (got == want).then_some(()).ok_or(format!("{who}: {got}\n    direct: {want}"));

    // First the one with the state, then the other.
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    expect("said", outcomes(&mut a, set).await, &said)?;
    expect("own", outcome(&mut a, read).await, &mine)?;
    if kept == Pinned {
        close(a).await;
        expect("other, after the end", outcome(&mut b, read).await, &others)?;
    } else {
        expect("other", outcome(&mut b, read).await, &others)?;
        close(a).await;
        expect("other, after the end", outcome(&mut b, read).await, &others)?;
    }
    close(b).await;

    // First the other, then the one with the state, then both again.
    let (mut a, mut b) = (proxy.client().await, proxy.client().await);
    expect("other, before", outcome(&mut b, read).await, &others)?;
    // The question itself may have pinned the other.
    b.reset().await.map_err(|error| error.to_string())?;
    expect("said, second", outcomes(&mut a, set).await, &said)?;
    if kept == Shared {
        // What the last statement left is the last statement's: read by its own client it may change.
        expect("own, second", outcome(&mut a, read).await, &mine)?;
        expect("other, second", outcome(&mut b, read).await, &others)?;
        close(a).await;
    } else {
        expect("own, second", outcome(&mut a, read).await, &mine)?;
        a.reset().await.map_err(|error| error.to_string())?;
        expect("own, after a reset", outcome(&mut a, read).await, &anew)?;
        close(a).await;
        expect("other, second", outcome(&mut b, read).await, &others)?;
    }
    close(b).await;
    Ok(())
}

pub(crate) async fn direct(port: u16) -> Conn {
    Conn::new(direct_options(port)).await.unwrap()
}

fn direct_options(port: u16) -> OptsBuilder {
    OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some("demo"))
        .pass(Some("demo"))
        .db_name(Some("demo"))
        .prefer_socket(false)
}

pub(crate) async fn close(client: Conn) {
    client.disconnect().await.unwrap();
}

/// All rows, or the error, with the counters that came with them.
pub(crate) async fn outcome(client: &mut Conn, sql: &str) -> String {
    match client.query::<Row, _>(sql).await {
        Ok(rows) => {
            let rows: Vec<_> = rows.into_iter().map(Row::unwrap).collect();
            // Answered here where nothing holds the connection, and so without MySQL 9's warning that the function is old.
            let warnings = if sql.contains("FOUND_ROWS()") { 0 } else { client.get_warnings() };
            format!("{rows:?} affected {} warnings {warnings}", client.affected_rows())
        }
        Err(mysql_async::Error::Server(error)) => format!("{} {} {}", error.code, error.state, error.message),
        Err(error) => format!("broken: {error}"),
    }
}

pub(crate) async fn outcomes(client: &mut Conn, statements: &[&str]) -> String {
    let mut all = Vec::new();
    for sql in statements {
        all.push(outcome(client, sql).await);
    }
    all.join("; ")
}
