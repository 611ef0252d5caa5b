//! SET statements and what becomes of them.

use super::*;

fn of(sql: &str) -> SetStatement {
    parse(sql.as_bytes(), true, &DefaultNames { charset: "utf8mb4", collation: "utf8mb4_general_ci" })
}

fn absorbed(sql: &str) -> Absorbed {
    match of(sql) {
        SetStatement::Absorbed(absorbed) => absorbed,
        other => panic!("{sql}: {other:?}"),
    }
}

fn names(charset: &str, collation: Option<&str>) -> NamesChange {
    NamesChange::Names { charset: charset.into(), collation: collation.map(str::to_owned) }
}

#[test]
fn autocommit_in_all_its_spellings() {
    for (text, on) in [
        ("SET autocommit=0", false),
        ("set AUTOCOMMIT = 1;", true),
        ("SET @@autocommit := ON", true),
        ("SET @@session.autocommit='off'", false),
        ("SET SESSION autocommit=true", true),
        ("SET LOCAL `autocommit`=FALSE", false),
        ("SET autocommit=0 /* x */", false),
        ("/* x */ SET autocommit=0 ;", false),
        ("/*!40101 SET autocommit=0 */", false),
    ] {
        assert_eq!(absorbed(text), Absorbed { autocommit: Some(on), ..Absorbed::default() }, "{text}");
    }
}

#[test]
fn names_of_character_sets() {
    let cases = [
        ("SET NAMES utf8mb4", vec![names("utf8mb4", None)], false),
        ("SET NAMES 'latin1' COLLATE 'latin1_bin'", vec![names("latin1", Some("latin1_bin"))], false),
        ("SET NAMES utf8", vec![names("utf8", None)], true),
        ("SET NAMES ucs2", vec![names("ucs2", None)], true),
        ("SET NAMES utf8mb4 COLLATE utf8mb4_0900_ai_ci", vec![names("utf8mb4", Some("utf8mb4_0900_ai_ci"))], true),
        ("SET NAMES latin1 COLLATE utf8mb4_bin", vec![names("latin1", Some("utf8mb4_bin"))], true),
        ("SET NAMES latin1 COLLATE unheard_of_ci", vec![names("latin1", Some("unheard_of_ci"))], true),
        ("SET NAMES DEFAULT", vec![names("utf8mb4", Some("utf8mb4_general_ci"))], false),
        ("SET CHARACTER SET latin1", vec![NamesChange::CharacterSet("latin1".into())], false),
        ("SET CHARSET 'latin1'", vec![NamesChange::CharacterSet("latin1".into())], false),
        ("SET character_set_results=NULL", vec![NamesChange::Results(None)], false),
        ("SET character_set_client=latin1", vec![NamesChange::Client("latin1".into())], false),
        (
            "SET @@character_set_connection=latin1, collation_connection='latin1_bin'",
            vec![NamesChange::Connection("latin1".into()), NamesChange::Collation("latin1_bin".into())],
            true,
        ),
    ];
    for (sql, names, ask) in cases {
        assert_eq!(absorbed(sql), Absorbed { names, ask, ..Absorbed::default() }, "{sql}");
    }
    for sql in ["SET NAMES klingon", "SET character_set_client=klingon", "SET CHARSET klingon"] {
        assert_eq!(of(sql), SetStatement::UnknownCharset("klingon".into()), "{sql}");
    }
}

#[test]
fn tracked_variables() {
    let variables =
        |list: &[(&'static str, Option<&str>)]| list.iter().map(|(name, literal)| (*name, literal.map(str::to_owned))).collect::<Vec<_>>();
    let list = absorbed("SET @@SESSION.time_zone = 'UTC', long_query_time=0.5, wait_timeout=100, unique_checks = DEFAULT;");
    assert_eq!(list.variables, variables(&[("time_zone", Some("'UTC'")), ("long_query_time", Some("0.5")), ("unique_checks", None)]));
    assert!(list.ask && !list.told_sql_mode);
    let list = absorbed("SET NAMES latin1, autocommit=1, sql_mode='', time_zone='+1:00'");
    assert_eq!((list.autocommit, list.names.len(), list.ask), (Some(true), 1, false));
    assert_eq!(list.variables, variables(&[("sql_mode", Some("''")), ("time_zone", Some("'+1:00'"))]));
    let told = absorbed("SET SESSION sql_mode=CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')");
    assert_eq!(told, Absorbed { told_sql_mode: true, ask: true, ..Absorbed::default() });
    let both = absorbed("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY");
    assert_eq!(both.variables, variables(&[(tracked::ISOLATION, Some("READ COMMITTED")), (tracked::ACCESS_MODE, Some("READ ONLY"))]));
}

#[test]
fn all_else_is_not_absorbed() {
    for (text, single) in [
        ("SET @a=1", true),
        ("SET autocommit=0, sql_mode=@old", false),
        ("SET long_query_time=1+1", true),
        ("SET unheard_of=1", true),
        ("SET autocommit=2", true),
        ("SET autocommit=@a", true),
        ("SET autocommit", false),
        ("/*!80000 SET autocommit=0 */", false),
        ("SET autocommit=0 /*!80000 , unique_checks=0 */", false),
        ("SET autocommit=0; SELECT 1", false),
        ("SET NAMES DEFAULT COLLATE latin1_bin", true),
        ("SET TRANSACTION READ ONLY", true),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", true),
        ("SET GLOBAL max_connections=10, autocommit=0", false),
        ("SET GLOBAL max_connections=@a", true),
        ("SET", false),
        ("SETautocommit=0", false),
    ] {
        assert_eq!(of(text), SetStatement::Untracked { single }, "{text}");
    }
    for text in [
        "SET PASSWORD FOR u@localhost = 'p'",
        "SET PASSWORD = 'x'",
        "SET GLOBAL max_connections = 10",
        "SET @@global.read_only=ON",
        "SET GLOBAL TRANSACTION READ ONLY",
    ] {
        assert_eq!(of(text), SetStatement::Global, "{text}");
    }
    let names = DefaultNames { charset: "", collation: "" };
    assert_eq!(parse(b"\xff", true, &names), SetStatement::Untracked { single: false });
}

#[test]
fn any_text_is_read_without_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let mut text = b"SET ".to_vec();
        text.extend_from_slice(bytes);
        let _ = parse(&text, bytes.len().is_multiple_of(2), &DefaultNames { charset: "latin1", collation: "" });
    });
}
