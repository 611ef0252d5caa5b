use crate::sql::{Class, Effects, Scan, ScanOptions, Transaction, scan_mysql};

fn scan(sql: &str) -> Scan {
    let mut scan = Scan::new();
    scan_mysql(sql.as_bytes(), &ScanOptions::MYSQL, &mut scan);
    scan
}

const BEGIN: Class = Class::Transaction(Transaction::Begin { read_only: false });
const BEGIN_READ_ONLY: Class = Class::Transaction(Transaction::Begin { read_only: true });
const COMMIT: Class = Class::Transaction(Transaction::Commit);
const ROLLBACK: Class = Class::Transaction(Transaction::Rollback);
const SAVEPOINT: Class = Class::Transaction(Transaction::Savepoint);
const TWO_PHASE: Class = Class::Transaction(Transaction::TwoPhase);

#[test]
fn statements_without_effects() {
    let table = [
        ("", Class::Empty),
        (" ;; /* x */ -- y", Class::Empty),
        ("SELECT 1", Class::Read),
        ("select c from sbtest1 where id=5", Class::Read),
        ("(SELECT 1) UNION (SELECT 2)", Class::Read),
        ("VALUES ROW(1)", Class::Read),
        ("TABLE t", Class::Read),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Class::Read),
        ("(WITH x AS (SELECT 1) SELECT * FROM x)", Class::Read),
        ("SELECT `update` FROM `for` WHERE a='for update'", Class::Read),
        ("SELECT a FROM t -- FOR UPDATE", Class::Read),
        ("SELECT a FROM t # FOR UPDATE", Class::Read),
        ("SELECT a FROM t /* FOR UPDATE */", Class::Read),
        ("SELECT `a'b` FROM t", Class::Read),
        ("EXPLAIN SELECT 1", Class::Read),
        ("EXPLAIN FORMAT=JSON UPDATE t SET a=1", Class::Read),
        ("DESC t", Class::Read),
        ("DESCRIBE t a", Class::Read),
        ("SELECT /*! STRAIGHT_JOIN */ a FROM t", Class::Read),
        ("SELECT a FROM t FOR UPDATE", Class::LockingRead),
        ("select a from t\tfor\nupdate", Class::LockingRead),
        ("SELECT a FROM t FOR/**/UPDATE", Class::LockingRead),
        ("SELECT a FROM t FOR SHARE SKIP LOCKED", Class::LockingRead),
        ("SELECT a FROM t LOCK IN SHARE MODE", Class::LockingRead),
        ("SELECT `a'b` FROM t FOR UPDATE", Class::LockingRead),
        ("SELECT 'a\\'b' FROM t FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t /*!80000 FOR UPDATE */", Class::LockingRead),
        ("SELECT a FROM (SELECT b FROM u FOR UPDATE) x", Class::LockingRead),
        ("SELECT a FROM t WHERE b=1.0FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t WHERE b=1.FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t WHERE b=.5FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t WHERE b=1e0FOR UPDATE", Class::LockingRead),
        ("SELECT a FROM t WHERE b=1.5E-3FOR SHARE", Class::LockingRead),
        ("SELECT a FROM t WHERE b=1.0INTO OUTFILE '/tmp/f'", Class::Write),
        ("SELECT a AS 1FOR, 0x1FOR, 1e, 1eFOR FROM t", Class::Read),
        ("SELECT a FROM t FOR /*!99999 x */ UPDATE", Class::LockingRead),
        ("SELECT a FROM t /*!50000 FOR */ UPDATE", Class::LockingRead),
        ("SELECT a FROM t LOCK IN /*M!999999 x */ SHARE MODE", Class::LockingRead),
        ("WITH x AS (SELECT 1 FROM t FOR /*!99999 x */ UPDATE) SELECT * FROM x", Class::LockingRead),
        ("SELECT a INTO /*!99999 x */ OUTFILE '/tmp/f' FROM t", Class::Write),
        ("WITH x AS (SELECT 1 FROM t FOR UPDATE) SELECT * FROM x", Class::LockingRead),
        ("EXPLAIN ANALYZE SELECT 1 FROM t FOR UPDATE", Class::LockingRead),
        ("SELECT * INTO OUTFILE '/tmp/x' FROM t", Class::Write),
        ("INSERT INTO t SELECT * FROM u", Class::Write),
        ("WITH x AS (SELECT 1) UPDATE t SET a=1", Class::Write),
        ("WITH x AS (SELECT 1) DELETE FROM t", Class::Write),
        ("REPLACE INTO t VALUES (1)", Class::Write),
        ("UPDATE t SET a=1", Class::Write),
        ("delete from t", Class::Write),
        ("EXPLAIN ANALYZE DELETE FROM t", Class::Write),
        ("ANALYZE UPDATE t SET a=1", Class::Write),
        ("ANALYZE FORMAT=JSON SELECT 1", Class::Read),
        ("LOAD DATA INFILE 'x' INTO TABLE t", Class::Write),
        ("CREATE TABLE t (a INT)", Class::Ddl),
        ("ANALYZE TABLE t", Class::Ddl),
        ("TRUNCATE t", Class::Ddl),
        ("FLUSH TABLES", Class::Ddl),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; DELETE FROM t; END", Class::Ddl),
        ("BEGIN", BEGIN),
        ("begin work;", BEGIN),
        ("BEGIN NOT ATOMIC SELECT 1; END", Class::Other),
        ("START TRANSACTION", BEGIN),
        ("START TRANSACTION WITH CONSISTENT SNAPSHOT", BEGIN),
        ("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", BEGIN_READ_ONLY),
        ("START TRANSACTION READ WRITE", BEGIN),
        ("START SLAVE", Class::Other),
        ("COMMIT", COMMIT),
        ("COMMIT AND CHAIN", COMMIT),
        ("ROLLBACK", ROLLBACK),
        ("ROLLBACK WORK TO SAVEPOINT a", SAVEPOINT),
        ("SAVEPOINT a", SAVEPOINT),
        ("RELEASE SAVEPOINT a", SAVEPOINT),
        ("SET autocommit=0", Class::Set),
        ("/*!40101 SET NAMES utf8 */", Class::Set),
        ("SET NAMES utf8; SET autocommit=1", Class::Set),
        ("SET STATEMENT max_statement_time=1 FOR SELECT 1", Class::Read),
        ("SET STATEMENT max_statement_time=1 FOR DELETE FROM t", Class::Write),
        ("SHOW TABLES", Class::Neutral),
        ("HELP 'x'", Class::Neutral),
        ("USE db", Class::Use),
        ("CALL p()", Class::Call),
        ("KILL 5", Class::Kill),
        ("DO SLEEP(1)", Class::Other),
        ("?", Class::Other),
        ("1", Class::Other),
        ("nonsense", Class::Other),
        ("(", Class::Other),
        ("SELECT 1; SELECT 2", Class::Read),
        ("SELECT 1; DELETE FROM t", Class::Other),
        ("SELECT ';'; ", Class::Read),
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
        ("SELECT @a", Class::Read, Effects::USER_VARIABLE),
        ("SELECT@a", Class::Read, Effects::USER_VARIABLE),
        ("SELECT @`a b` := 1", Class::Read, Effects::USER_VARIABLE),
        ("SELECT '@a', \"@b\", a@`c`", Class::Read, Effects::USER_VARIABLE),
        ("SELECT '@a', \"@b\"", Class::Read, Effects::NONE),
        ("SELECT @@version, @@session.sql_mode", Class::Read, Effects::NONE),
        ("SET @a=1", Class::Set, Effects::USER_VARIABLE),
        ("GRANT ALL ON x.* TO 'u'@'%'", Class::Ddl, Effects::NONE),
        ("GRANT ALL ON x.* TO u@localhost", Class::Ddl, Effects::NONE),
        ("REVOKE ALL ON x.* FROM u@a.b, `v`@localhost", Class::Ddl, Effects::NONE),
        ("DROP USER u@localhost, v@localhost", Class::Ddl, Effects::NONE),
        ("SHOW GRANTS FOR u@localhost", Class::Neutral, Effects::NONE),
        ("SET PASSWORD FOR u@localhost = 'p'", Class::Set, Effects::NONE),
        ("CREATE OR REPLACE DEFINER=u@'%' VIEW v AS SELECT 1", Class::Ddl, Effects::NONE),
        ("CREATE DEFINER = u@'%' PROCEDURE p() SET @a = 1", Class::Ddl, Effects::NONE),
        ("CREATE TABLE t AS SELECT @user AS user", Class::Ddl, Effects::USER_VARIABLE),
        ("CREATE TEMPORARY TABLE t (a INT)", Class::Ddl, Effects::TEMP_TABLE),
        ("CREATE OR REPLACE TEMPORARY TABLE t (a INT)", Class::Ddl, Effects::TEMP_TABLE),
        ("SELECT GET_LOCK('a',1)", Class::Read, Effects::LOCK),
        ("SELECT `get_lock` ('a',1)", Class::Read, Effects::LOCK),
        ("SELECT `get_lock`, `row_count` FROM t", Class::Read, Effects::NONE),
        ("SELECT `Last_Insert_Id`(), `found_rows`()", Class::Read, Effects::LAST_INSERT_ID | Effects::FOUND_ROWS),
        ("SELECT `last_insert_id`(5)", Class::Read, Effects::LAST_INSERT_ID | Effects::HIDDEN),
        ("SELECT NEXT VALUE FOR s", Class::Write, Effects::NEXTVAL),
        ("SELECT NEXTVAL(s)", Class::Write, Effects::NEXTVAL),
        ("SELECT NEXT /*!99999 x */ VALUE FOR s", Class::Write, Effects::NEXTVAL),
        ("SELECT NEXTVAL /*!99999 x */ (s)", Class::Write, Effects::NEXTVAL),
        ("SELECT `nextval`(s)", Class::Write, Effects::NEXTVAL),
        ("INSERT INTO t VALUES (NEXT VALUE FOR s)", Class::Write, Effects::NEXTVAL),
        ("SELECT PREVIOUS VALUE FOR s", Class::Read, Effects::NEXTVAL),
        ("SELECT LASTVAL(s)", Class::Write, Effects::NEXTVAL),
        ("DO RELEASE_ALL_LOCKS()", Class::Other, Effects::RELEASE_LOCKS),
        ("select release_all_locks ( );", Class::Read, Effects::RELEASE_LOCKS),
        ("SELECT RELEASE_ALL_LOCKS() FROM DUAL WHERE 1=0", Class::Read, Effects::NONE),
        ("SELECT IF(0, RELEASE_ALL_LOCKS(), 5)", Class::Read, Effects::NONE),
        ("/*!99999 UNLOCK TABLES */", Class::Other, Effects::NONE),
        ("LOCK TABLES t READ", Class::Ddl, Effects::LOCK_TABLES),
        ("FLUSH TABLES WITH READ LOCK", Class::Ddl, Effects::LOCK_TABLES),
        ("LOCK INSTANCE FOR BACKUP", Class::Ddl, Effects::LOCK_TABLES),
        ("FLUSH LOCAL TABLES t FOR EXPORT", Class::Ddl, Effects::LOCK_TABLES),
        ("LOCK /*!99999 x */ TABLES t READ", Class::Ddl, Effects::LOCK_TABLES),
        ("FLUSH TABLES t WITH READ /*!99999 x */ LOCK", Class::Ddl, Effects::LOCK_TABLES),
        ("COMMIT WORK RELEASE", COMMIT, Effects::HIDDEN),
        ("ROLLBACK AND NO CHAIN RELEASE", ROLLBACK, Effects::HIDDEN),
        ("COMMIT NO RELEASE", COMMIT, Effects::NONE),
        ("RELEASE SAVEPOINT a", SAVEPOINT, Effects::NONE),
        ("UNLOCK TABLES", Class::Neutral, Effects::UNLOCK_TABLES),
        ("SELECT LAST_INSERT_ID()", Class::Read, Effects::LAST_INSERT_ID),
        ("INSERT INTO t VALUES (last_insert_id())", Class::Write, Effects::LAST_INSERT_ID),
        ("SELECT @@IDENTITY", Class::Read, Effects::LAST_INSERT_ID),
        ("SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 1", Class::Read, Effects::CALC_FOUND_ROWS),
        ("SELECT FOUND_ROWS()", Class::Read, Effects::FOUND_ROWS),
        ("PREPARE s FROM 'SELECT 1'", Class::Other, Effects::PREPARE_TEXT),
        ("EXECUTE s", Class::Other, Effects::EXECUTE_TEXT),
        ("SHOW WARNINGS LIMIT 1", Class::Neutral, Effects::SHOW_WARNINGS),
        ("SHOW COUNT(*) WARNINGS", Class::Neutral, Effects::SHOW_WARNINGS),
        ("SHOW ERRORS", Class::Neutral, Effects::SHOW_WARNINGS),
        ("GET CURRENT DIAGNOSTICS @a = NUMBER", Class::Other, Effects::SHOW_WARNINGS | Effects::USER_VARIABLE),
        ("SELECT @@warning_count", Class::Read, Effects::SHOW_WARNINGS),
        ("SET ROLE admin", Class::Set, Effects::ROLE),
        ("SET TRANSACTION READ ONLY", Class::Set, Effects::TRANSACTION_SETTING),
        ("HANDLER t OPEN", Class::Other, Effects::HANDLER),
        ("XA START 'a'", TWO_PHASE, Effects::XA),
        ("LOAD DATA LOCAL INFILE 'x' INTO TABLE t", Class::Write, Effects::LOCAL_INFILE),
        ("LOAD DATA LOW_PRIORITY LOCAL INFILE 'x' INTO TABLE t", Class::Write, Effects::LOCAL_INFILE),
    ];
    for (sql, class, effects) in table {
        let scan = scan(sql);
        assert_eq!((scan.class, scan.effects), (class, effects), "{sql}");
    }
}

/// Texts that servers of different versions read differently are never plain.
#[test]
fn ambiguous_texts_are_no_reads() {
    for sql in [
        "/*!99999 SELECT 1 -- */ DELETE FROM t",
        "/*!99999 EXPLAIN */ DELETE FROM t",
        "EXPLAIN /*!99999 SELECT 1; */ DELETE FROM t",
        "WITH x AS (SELECT 1) /*!99999 SELECT 1 # */ DELETE FROM t",
        "SELECT 1 /*!99999 , ' */ FOR UPDATE -- '",
        "SELECT 1 /*!99999 /* */ FOR UPDATE",
        "SELECT 1 /*!99999 + 1",
        "START TRANSACTION /*!99999 READ ONLY */",
        "SELECT 1 -- \0 FOR UPDATE",
    ] {
        let scan = scan(sql);
        assert!(!scan.class.is_plain_read() && !scan.class.is_neutral(), "{sql}: {scan:?}");
    }
    assert_eq!(scan(&format!("SELECT {}1{}", "(".repeat(2000), ")".repeat(2000))).class, Class::Other);
}

#[test]
fn the_first_statement_and_their_number_are_known() {
    let scan = scan("START TRANSACTION; SELECT 1;; COMMIT;");
    assert_eq!((scan.first, scan.class, scan.statements), (BEGIN, Class::Other, 3));
    assert!(scan.effects.contains(Effects::MULTI));
}

#[test]
fn backslashes_can_be_plain() {
    let mut scan = Scan::new();
    let options = ScanOptions { backslash_escapes: false, ..ScanOptions::MYSQL };
    scan_mysql(b"SELECT 'a\\' FROM t FOR UPDATE -- '", &options, &mut scan);
    assert_eq!(scan.class, Class::LockingRead);
}

#[test]
fn double_quotes_can_hold_names() {
    let mut scan = Scan::new();
    let options = ScanOptions { ansi_quotes: true, ..ScanOptions::MYSQL };
    scan_mysql(b"SELECT \"a\\\" FROM t FOR UPDATE -- \"", &options, &mut scan);
    assert_eq!(scan.class, Class::LockingRead);
}

/// With an argument the function sets the value; only the answer to a write tells it.
#[test]
fn last_insert_id_can_be_set() {
    for (sql, sets) in [
        ("SELECT LAST_INSERT_ID()", false),
        ("SELECT LAST_INSERT_ID ( )", false),
        ("SELECT LAST_INSERT_ID(5)", true),
        ("SELECT LAST_INSERT_ID((a)) FROM t", true),
        ("DO LAST_INSERT_ID(5)", true),
        ("UPDATE t SET a = LAST_INSERT_ID(a + 1)", false),
        ("INSERT INTO t VALUES (LAST_INSERT_ID())", false),
    ] {
        let scan = scan(sql);
        assert!(scan.effects.contains(Effects::LAST_INSERT_ID), "{sql}");
        assert_eq!(scan.effects.contains(Effects::HIDDEN), sets, "{sql}");
    }
}
