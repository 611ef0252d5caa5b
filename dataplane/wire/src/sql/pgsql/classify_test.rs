use crate::sql::{Class, Effects, Scan, ScanOptions, Transaction, scan_pgsql};

fn scan(sql: &str) -> Scan {
    let mut scan = Scan::new();
    scan_pgsql(sql.as_bytes(), &ScanOptions::PGSQL, &mut scan);
    scan
}

const BEGIN: Class = Class::Transaction(Transaction::Begin { read_only: false });
const BEGIN_READ_ONLY: Class = Class::Transaction(Transaction::Begin { read_only: true });
const TWO_PHASE: Class = Class::Transaction(Transaction::TwoPhase);

#[test]
fn classes_of_the_specification() {
    let table = [
        ("", Class::Empty),
        (";; -- x", Class::Empty),
        ("SELECT 1", Class::Read),
        ("(select 1) union select 2", Class::Read),
        ("VALUES (1)", Class::Read),
        ("TABLE t", Class::Read),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Class::Read),
        ("SELECT 'for update', $$insert into$$, \"update\" FROM t", Class::Read),
        ("SELECT a /* FOR UPDATE /* nested */ */ FROM t", Class::Read),
        ("SELECT lower(a), count(*) FROM t", Class::Read),
        ("EXPLAIN DELETE FROM t", Class::Read),
        ("EXPLAIN (FORMAT JSON) DELETE FROM t", Class::Read),
        ("EXPLAIN (ANALYZE off) DELETE FROM t", Class::Read),
        ("COPY t TO STDOUT", Class::Read),
        ("COPY (SELECT 1) TO STDOUT WITH (FORMAT csv)", Class::Read),
        ("SELECT 1; SHOW x; SELECT 2", Class::Read),
        ("SELECT a FROM t FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t FOR NO KEY UPDATE", Class::LockingRead),
        ("SELECT a FROM t FOR KEY SHARE", Class::LockingRead),
        ("SELECT a FROM t FOR SHARE OF t", Class::LockingRead),
        ("SELECT E'a\\'' FROM t FOR SHARE", Class::LockingRead),
        ("SELECT 'a\\' FROM t FOR SHARE -- '", Class::LockingRead),
        ("SELECT E'a'\n'b\\'' FROM t FOR SHARE", Class::LockingRead),
        ("SELECT E'a' -- '\n -- ''\n\t'b\\'' FROM t FOR SHARE --'", Class::LockingRead),
        ("SELECT 'a'\n'b' FROM t FOR SHARE", Class::LockingRead),
        ("SELECT E'a' /* */ 'b\\' FROM t FOR SHARE --'", Class::LockingRead),
        ("SELECT a FROM t WHERE b = 1FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t WHERE b = 1.5e-3FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t WHERE b = .5FOR UPDATE", Class::LockingRead),
        ("EXPLAIN (\"analyze\") INSERT INTO t VALUES (1)", Class::Write),
        ("EXPLAIN (ANALYZE off, \"analyze\" true) DELETE FROM t", Class::Write),
        ("EXPLAIN (\"costs\" off) SELECT 1", Class::Read),
        ("SELECT a INTO b FROM t", Class::Write),
        ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", Class::Write),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", Class::Write),
        ("SELECT pg_notify('a','b')", Class::Write),
        ("SELECT pg_catalog.pg_terminate_backend(1)", Class::Write),
        ("SELECT lo_create(0)", Class::Write),
        ("EXPLAIN ANALYZE DELETE FROM t", Class::Write),
        ("EXPLAIN (ANALYZE, BUFFERS) INSERT INTO t VALUES (1)", Class::Write),
        ("EXPLAIN ANALYZE (SELECT a FROM t FOR UPDATE)", Class::LockingRead),
        ("EXPLAIN (ANALYZE, ANALYZE off) INSERT INTO t VALUES (1)", Class::Read),
        ("EXPLAIN ANALYSE DELETE FROM t", Class::Write),
        ("EXPLAIN (ANALYSE, VERBOSE) DELETE FROM t", Class::Write),
        ("EXPLAIN (FORMAT execute, ANALYZE) DELETE FROM t", Class::Write),
        ("ANALYSE t", Class::Ddl),
        ("SELECT e'a' -- c\r \n--'\n\t'b\\''; INSERT INTO t VALUES (1); --'", Class::Other),
        ("SELECT E'a'\n'b'\n'c\\''; INSERT INTO t VALUES (1); --'", Class::Other),
        ("SELECT a FROM t WHERE a=1.FOR SHARE", Class::LockingRead),
        ("SELECT a FROM t WHERE a=$1FOR SHARE", Class::LockingRead),
        ("SELECT 1E'\\'' FROM t FOR SHARE --'", Class::LockingRead),
        ("SELECT 1$$ ' $$ FROM t FOR SHARE", Class::LockingRead),
        ("SELECT 0x1f, 1_000, 1.5e+3, 1_0.5_0 FROM t", Class::Read),
        ("COPY t FROM STDIN", Class::Write),
        ("COPY t TO '/tmp/x'", Class::Write),
        ("COPY (DELETE FROM t RETURNING *) TO STDOUT", Class::Write),
        ("COPY (SELECT pg_notify('a','b')) TO STDOUT", Class::Write),
        ("INSERT INTO t VALUES (1)", Class::Write),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN DO NOTHING", Class::Write),
        ("TRUNCATE t", Class::Ddl),
        ("NOTIFY a", Class::Ddl),
        ("VACUUM", Class::Ddl),
        ("CREATE TABLE t (a int, temp int)", Class::Ddl),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END", Class::Ddl),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END AS end; SELECT 2; END; SELECT 1", Class::Other),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END", Class::Ddl),
        ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)", Class::Ddl),
        ("BEGIN", BEGIN),
        ("BEGIN READ ONLY", BEGIN_READ_ONLY),
        ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", BEGIN_READ_ONLY),
        ("BEGIN; SELECT 1; COMMIT", Class::Other),
        ("COMMIT", Class::Transaction(Transaction::Commit)),
        ("END", Class::Transaction(Transaction::Commit)),
        ("ABORT", Class::Transaction(Transaction::Rollback)),
        ("ROLLBACK TO s", Class::Transaction(Transaction::Savepoint)),
        ("PREPARE TRANSACTION 'x'", TWO_PHASE),
        ("COMMIT PREPARED 'x'", TWO_PHASE),
        ("SHOW transaction_read_only", Class::Neutral),
        ("SELECT pg_is_in_recovery()", Class::Neutral),
        ("select pg_catalog.pg_is_in_recovery();", Class::Neutral),
        ("SELECT pg_is_in_recovery(), a FROM t", Class::Read),
        ("FETCH 5 FROM c", Class::Neutral),
        ("DECLARE c CURSOR FOR SELECT 1", Class::Read),
        ("DECLARE c CURSOR FOR SELECT 1 FOR UPDATE", Class::LockingRead),
        ("nonsense", Class::Other),
    ];
    for (sql, want) in table {
        let scan = scan(sql);
        assert_eq!(scan.class, want, "{sql}");
        let multi = if scan.statements > 1 { Effects::MULTI } else { Effects::NONE };
        assert_eq!(scan.effects, multi, "{sql}");
    }
}

#[test]
fn statements_with_effects() {
    let table = [
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; LISTEN c", Class::Ddl, Effects::LISTEN | Effects::MULTI),
        ("LISTEN c", Class::Ddl, Effects::LISTEN),
        ("UNLISTEN *", Class::Neutral, Effects::UNLISTEN),
        ("SELECT pg_advisory_lock(1)", Class::Write, Effects::LOCK),
        ("SELECT \"pg_try_advisory_lock_shared\" (1)", Class::Write, Effects::LOCK),
        ("SELECT pg_advisory_xact_lock(1)", Class::Write, Effects::NONE),
        ("SELECT pg_advisory_unlock(1)", Class::Write, Effects::MAY_UNPIN),
        ("SELECT pg_advisory_unlock_all()", Class::Write, Effects::MAY_UNPIN),
        ("CREATE TEMP TABLE t (a int)", Class::Ddl, Effects::TEMP_TABLE),
        ("CREATE LOCAL TEMPORARY TABLE t AS SELECT 1", Class::Ddl, Effects::TEMP_TABLE),
        ("CREATE TEMP TABLE t (a int) ON COMMIT DROP", Class::Ddl, Effects::NONE),
        ("CREATE TEMP TABLE t (a int, b int GENERATED ALWAYS AS (a) STORED) ON COMMIT DROP", Class::Ddl, Effects::NONE),
        ("CREATE TEMP TABLE t AS EXECUTE p(1)", Class::Ddl, Effects::TEMP_TABLE | Effects::EXECUTE_TEXT),
        ("CREATE TEMP TABLE t ON COMMIT DROP AS EXECUTE p", Class::Ddl, Effects::EXECUTE_TEXT),
        ("CREATE TEMP TABLE t AS SELECT mine()", Class::Ddl, Effects::TEMP_TABLE | Effects::CALLS_UNKNOWN),
        ("CREATE TABLE pg_temp.t (a int)", Class::Ddl, Effects::TEMP_TABLE),
        ("SELECT 1 AS a INTO LOCAL TEMP TABLE t", Class::Write, Effects::TEMP_TABLE),
        ("CREATE TABLE U&\"pg_t\\0065mp\".\"tt\" (a int)", Class::Other, Effects::AMBIGUOUS | Effects::CALLS_UNKNOWN | Effects::TEMP_TABLE),
        ("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", Class::Ddl, Effects::TEMP_TABLE),
        ("CREATE PROCEDURE \"pg_temp\".p() LANGUAGE sql AS ''", Class::Ddl, Effects::TEMP_TABLE),
        ("SET search_path = pg_temp, public", Class::Set, Effects::TEMP_TABLE | Effects::SESSION_SETTING),
        ("SET LOCAL search_path TO 'PG_TEMP'", Class::Set, Effects::TEMP_TABLE | Effects::TRANSACTION_SETTING),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", Class::Ddl, Effects::TEMP_TABLE),
        ("SELECT 1 AS a INTO TEMP t", Class::Write, Effects::TEMP_TABLE),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Class::Read, Effects::HOLD_CURSOR),
        ("CLOSE c", Class::Neutral, Effects::MAY_UNPIN),
        ("PREPARE p (int) AS SELECT $1", Class::Read, Effects::PREPARE_TEXT),
        ("EXECUTE p(1)", Class::Other, Effects::EXECUTE_TEXT),
        ("DEALLOCATE ALL", Class::Neutral, Effects::MAY_UNPIN),
        ("SET a = 1", Class::Set, Effects::SESSION_SETTING),
        ("RESET ALL", Class::Set, Effects::SESSION_SETTING),
        ("SET ROLE admin", Class::Set, Effects::ROLE | Effects::SESSION_SETTING),
        ("SET SESSION AUTHORIZATION bob", Class::Set, Effects::ROLE | Effects::SESSION_SETTING),
        ("RESET ROLE", Class::Set, Effects::ROLE | Effects::SESSION_SETTING),
        ("SET LOCAL a = 1", Class::Set, Effects::TRANSACTION_SETTING),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", BEGIN, Effects::TRANSACTION_SETTING),
        ("SELECT nextval('s')", Class::Write, Effects::NEXTVAL),
        ("SELECT \"nextval\"('s')", Class::Write, Effects::NEXTVAL),
        ("SELECT pg_catalog.\"set_config\"('a','b',false)", Class::Write, Effects::SET_CONFIG),
        ("SELECT \"Nextval\"('s')", Class::Read, Effects::CALLS_UNKNOWN),
        ("SELECT \"Lower\"('s')", Class::Read, Effects::CALLS_UNKNOWN),
        ("SELECT currval('s')", Class::Write, Effects::LAST_INSERT_ID),
        ("SELECT set_config('a','b',false)", Class::Write, Effects::SET_CONFIG),
        ("SELECT setseed(0.5)", Class::Write, Effects::SEED),
        ("DISCARD ALL", Class::Neutral, Effects::DISCARD_ALL),
        ("DISCARD TEMP", Class::Neutral, Effects::DISCARD_TEMP),
        ("LOAD 'x'", Class::Other, Effects::LOAD_LIBRARY),
        ("DO $$begin perform set_config('a','b',false); end$$", Class::Other, Effects::HIDDEN | Effects::CALLS_UNKNOWN),
        ("DO $$begin set work_mem = '1MB'; end$$", Class::Other, Effects::HIDDEN | Effects::CALLS_UNKNOWN),
        ("DO $$begin RESET ALL; end$$", Class::Other, Effects::HIDDEN | Effects::CALLS_UNKNOWN),
        ("DO $$begin execute 'SE' || 'T a = 1'; end$$", Class::Other, Effects::HIDDEN | Effects::CALLS_UNKNOWN),
        ("DO $$begin load 'x'; end$$", Class::Other, Effects::HIDDEN | Effects::CALLS_UNKNOWN),
        ("DO $$begin raise notice 'x'; end$$", Class::Other, Effects::CALLS_UNKNOWN),
        ("CALL p()", Class::Call, Effects::CALLS_UNKNOWN),
        ("SELECT mine(1)", Class::Read, Effects::CALLS_UNKNOWN),
        ("SELECT app.lower(1)", Class::Read, Effects::CALLS_UNKNOWN),
        ("SELECT * FROM mine('x') AS t (a int)", Class::Read, Effects::CALLS_UNKNOWN),
        ("COPY (SELECT mine()) TO STDOUT", Class::Read, Effects::CALLS_UNKNOWN),
        ("INSERT INTO t (a) VALUES (mine())", Class::Write, Effects::CALLS_UNKNOWN),
        ("SELECT pg_catalog.lower('x'), \"count\"(*)", Class::Read, Effects::NONE),
        ("SELECT 'x'::varchar(3), CAST(a AS mytype(3)) FROM generate_series(1, 3) AS s (i) WHERE i IN (1)", Class::Read, Effects::NONE),
        ("INSERT INTO app.t (a, b) VALUES (1, now()) ON CONFLICT (a) DO UPDATE SET (b) = (2)", Class::Write, Effects::NONE),
        ("WITH RECURSIVE x (n) AS (SELECT 1), y AS (SELECT 2) SELECT sum(n) OVER (ORDER BY n) FROM x", Class::Read, Effects::NONE),
        ("COPY t (a, b) FROM STDIN", Class::Write, Effects::NONE),
        ("CREATE TABLE t (a int DEFAULT mine())", Class::Ddl, Effects::NONE),
        ("SELECT query_to_xml('SELECT 1', true, true, '')", Class::Write, Effects::CALLS_UNKNOWN),
        ("UPDATE pg_settings SET setting = 'b' WHERE name = 'a'", Class::Write, Effects::SET_CONFIG),
        ("UPDATE pg_catalog.\"pg_settings\" SET setting = 'b'", Class::Write, Effects::SET_CONFIG),
        ("DROP TABLE t", Class::Ddl, Effects::MAY_UNPIN),
        ("ALTER ROLE x SET app.y = 'z'", Class::Ddl, Effects::CALLS_UNKNOWN),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql SET app.y = 'z' AS 'SELECT 1'", Class::Ddl, Effects::CALLS_UNKNOWN),
    ];
    for (sql, class, effects) in table {
        let scan = scan(sql);
        assert_eq!((scan.class, scan.effects), (class, effects), "{sql}");
    }
}

#[test]
fn deep_nesting_is_no_read() {
    assert_eq!(scan(&format!("SELECT {}1{}", "(".repeat(2000), ")".repeat(2000))).class, Class::Other);
}

#[test]
fn backslashes_of_bit_strings_never_escape() {
    let mut scan = Scan::new();
    let options = ScanOptions { backslash_escapes: true, ..ScanOptions::PGSQL };
    scan_pgsql(b"SELECT B'\\' FROM t FOR SHARE --'", &options, &mut scan);
    assert_eq!(scan.class, Class::LockingRead);
    scan_pgsql(b"SELECT N'\\' FROM t FOR SHARE --'", &options, &mut scan);
    assert_eq!(scan.class, Class::Read);
}

#[test]
fn what_a_continued_constant_holds_is_no_call_and_hides_none() {
    assert!(!scan("SELECT E'a'\n'b\\'', f(1), '' --'").bare);
    assert!(!scan("SELECT ARRAY[E'a'\n'b\\''], f(1), '' --'").bare);
}
