use super::*;

fn set(name: &str, value: &str) -> Change {
    Change::Set(vec![Setting { name: name.into(), value: Some(value.into()) }])
}

fn local(name: &str) -> Change {
    Change::Set(vec![Setting { name: name.into(), value: None }])
}

#[test]
fn what_statements_do() {
    use Change::{Authorization, Nothing, Reset, ResetAll, Role, RollbackTo, Savepoint, Unfollowed, Unnamed};
    for (sql, expected) in [
        ("SET work_mem = '8MB'", set("work_mem", "8MB")),
        ("set session Work_Mem to 64;", set("work_mem", "64")),
        ("SET search_path = mine, \"Odd\", 'x y'", set("search_path", "mine, \"Odd\", \"x y\"")),
        ("SET search_path TO ''", set("search_path", "\"\"")),
        ("SET DateStyle = ISO, DMY", set("datestyle", "iso, dmy")),
        ("SET app.tenant = 'it''s'", set("app.tenant", "it's")),
        ("SET TIME ZONE 'Asia/Tokyo'", set("timezone", "Asia/Tokyo")),
        ("SET TIME ZONE -7", Unfollowed),
        ("SET work_mem = DEFAULT", Reset("work_mem".into())),
        ("RESET TIME ZONE", Reset("timezone".into())),
        ("SET LOCAL work_mem = 64", Nothing),
        ("SET ROLE x", Role(false)),
        ("SET role = none", Role(true)),
        ("RESET session_authorization", Authorization(true)),
        ("SET transaction_read_only = on", Nothing),
        ("SET standard_conforming_strings = off", Unfollowed),
        ("SET standard_conforming_strings = On", set("standard_conforming_strings", "on")),
        ("SELECT set_config('standard_conforming_strings', 'on', false)", set("standard_conforming_strings", "on")),
        ("RESET ALL", ResetAll),
        ("SET a = 1, 2", Unfollowed),
        ("SAVEPOINT a", Savepoint("a".into())),
        ("ROLLBACK TO a", RollbackTo("a".into())),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", set("default_transaction_read_only", "on")),
        ("SELECT set_config('a.b', 'c', false)", set("a.b", "c")),
        ("SELECT set_config('A.b', 'c', true)", local("a.b")),
        ("SELECT set_config('a', 'c', true)", Change::Set(Vec::new())),
        ("SELECT set_config('a b', 'c', true)", Unnamed),
        ("SELECT set_config('a.b', 'c', true), set_config('role', 'c', false)", Unnamed),
        ("SET LOCAL app.X = E'a'", local("app.x")),
        ("SET LOCAL app.x TO DEFAULT", local("app.x")),
        ("SET LOCAL app.\"ü\" = 1", Unnamed),
        ("SET app.x = 1, 2", Unnamed),
        ("SET app.x = E'a\\t'", Unnamed),
        ("RESET app.x", Reset("app.x".into())),
        ("SELECT set_config('role', 'c', false)", Unfollowed),
    ] {
        let read = parse_pgsql_session(sql.as_bytes(), false, 1).unwrap();
        assert_eq!(read.into_iter().map(Change::of).collect::<Vec<_>>(), [expected], "{sql}");
    }
}

#[test]
fn values_that_come_with_bind() {
    let sql = b"SELECT set_config('jit', $2, false), set_config('role', $1, true)";
    let change = Change::of(parse_pgsql_session(sql, false, 1).unwrap().remove(0));
    let bind = |rest: &'static [u8]| change.bind(&Bind { portal: b"", statement: b"", rest });
    assert!(is_followed(Effects::SET_CONFIG, std::slice::from_ref(&change)));
    assert_eq!(bind(b"\0\0\0\x02\xff\xff\xff\xff\0\0\0\x02on\0\0"), set("jit", "on"));
    assert_eq!(bind(b"\0\0\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\0"), Change::Unfollowed, "NULL");
    assert_eq!(bind(b"\0\0\0\x02\0\0\0\x01x\0\0\0\x01\xff\0\0"), Change::Unfollowed, "no UTF-8");
    assert_eq!(bind(b"\0\0\0\x01\0\0\0\x01x\0\0"), Change::Unnamed, "too few");
    assert_eq!(bind(b"\0"), Change::Unnamed);
    let change = Change::of(parse_pgsql_session(b"SELECT set_config($1, $2, true)", false, 1).unwrap().remove(0));
    let bind = |rest: &'static [u8]| change.bind(&Bind { portal: b"", statement: b"", rest });
    assert_eq!(bind(b"\0\0\0\x02\0\0\0\x03A.b\xff\xff\xff\xff\0\0"), local("a.b"));
    assert_eq!(bind(b"\0\0\0\x02\0\0\0\x03jit\0\0\0\x02on\0\0"), Change::Set(Vec::new()));
    assert_eq!(bind(b"\0\0\0\x02\xff\xff\xff\xff\0\0\0\x02on\0\0"), Change::Unnamed);
}

#[test]
fn texts_without_settings_are_not_looked_at() {
    assert_eq!(changes(b"SELECT 1", Class::Read, Effects::NONE), None);
    assert_eq!(changes(b"SELECT 1; SELECT 2", Class::Read, Effects::MULTI), None);
    assert_eq!(changes(b"SELECT 1; SET a = 1", Class::Other, Effects::MULTI).map(|all| all.len()), Some(2));
    assert_eq!(changes(b"SET transaction_read_only = on", Class::Set, Effects::SESSION_SETTING), Some(vec![Change::Nothing]));
    let unfollowed = |sql: &str| changes(sql.as_bytes(), Class::Write, Effects::SET_CONFIG);
    assert_eq!(unfollowed("SELECT set_config('jit', 'on', false) FROM t"), Some(vec![Change::Nothing]));
    assert_eq!(unfollowed("SELECT set_config('a.b', 'on', false) FROM t"), Some(vec![Change::Nothing, Change::Unnamed]));
    assert_eq!(changes(b"SET LOCAL jit = on", Class::Set, Effects::TRANSACTION_SETTING), None);
    assert_eq!(changes(b"SET LOCAL a.b = on", Class::Set, Effects::TRANSACTION_SETTING), Some(vec![local("a.b")]));
    assert!(!is_followed(Effects::SET_CONFIG, &[Change::Nothing]));
    assert!(is_followed(Effects::SET_CONFIG, &[Change::Set(Vec::new())]));
    assert!(is_followed(Effects::SESSION_SETTING, &[Change::Nothing, Change::ResetAll]));
}
