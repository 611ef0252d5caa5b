//! What a statement leaves behind on a connection is not seen by the next session, however it asks.

use crate::mysql_support::Proxy;
use crate::{close, direct, outcomes};

/// Statements that leave an error or a warning behind, and free the connection. The second of a pair has no table, so that
/// MariaDB forgets nothing.
const LEFT: &[&[&str]] = &[&["SELECT nonsense"], &["SELECT CAST('x' AS SIGNED)", "SELECT 1"], &["SIGNAL SQLSTATE '45000'"]];

/// What the next session does.
const SEEN: &[&[&str]] = &[
    &["SELECT 1"],
    &["SHOW WARNINGS"],
    &["SHOW ERRORS LIMIT 5"],
    &["SHOW COUNT(*) WARNINGS"],
    &["SELECT @@warning_count + 0, @@error_count + 0"],
    &["GET DIAGNOSTICS @number = NUMBER", "SELECT @number"],
    &["CALL counts()"],
    &["EXECUTE IMMEDIATE 'SHOW WARNINGS'"],
    &["BEGIN NOT ATOMIC DECLARE n INT; GET DIAGNOSTICS n = NUMBER; SELECT n; END"],
    // Nothing here has a table: on MariaDB the area is as the session found it.
    &["BEGIN", "SHOW WARNINGS", "SHOW COUNT(*) ERRORS", "SELECT @@warning_count", "ROLLBACK"],
    &["SET @a = 1", "SHOW ERRORS"],
    &["SELECT GET_LOCK('l', 0)", "SHOW WARNINGS", "GET DIAGNOSTICS @number = NUMBER", "SELECT @number"],
    &["LOCK TABLES ids READ", "SHOW WARNINGS"],
    &["XA START 'x'", "SHOW WARNINGS"],
    // Its own error takes the place of the other's.
    &["SELECT nothing", "SHOW WARNINGS LIMIT 5", "BEGIN", "SELECT something", "SHOW WARNINGS", "ROLLBACK"],
];

/// Tries all; the tables and procedures are there.
pub(crate) async fn all(proxy: &Proxy, server: u16) {
    let mut wrong = Vec::new();
    for seen in SEEN {
        let mut fresh = direct(server).await;
        let expected = outcomes(&mut fresh, seen).await;
        close(fresh).await;
        for left in LEFT {
            let (mut a, mut b, mut c) = (proxy.client().await, proxy.client().await, proxy.client().await);
            outcomes(&mut a, left).await;
            let got = outcomes(&mut b, seen).await;
            if got != expected {
                wrong.push(format!("{left:?}, then {seen:?}\n    {got}\n    direct: {expected}"));
            }
            // The other way round: what is left by the second for the first.
            b.reset().await.expect("a session can be reset");
            outcomes(&mut c, left).await;
            let got = outcomes(&mut b, seen).await;
            if got != expected {
                wrong.push(format!("after a reset: {left:?}, then {seen:?}\n    {got}\n    direct: {expected}"));
            }
            for client in [a, b, c] {
                close(client).await;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 2 * SEEN.len() * LEFT.len(), wrong.join("\n"));
}

/// A session that has been reset has nothing open any more, and nobody waits for its rows.
pub(crate) async fn a_reset_has_ended_what_was_open(proxy: &Proxy, server: u16) {
    let mut direct = direct(server).await;
    outcomes(&mut direct, &["CREATE TABLE held (a INT PRIMARY KEY)", "INSERT INTO held VALUES (1)"]).await;
    for round in 0..20 {
        let mut client = proxy.client().await;
        for _ in 0..2 {
            assert_eq!(outcomes(&mut client, &["XA START 'r'"]).await, "[] affected 0 warnings 0", "round {round}");
            client.reset().await.expect("a session can be reset");
        }
        outcomes(&mut client, &["BEGIN", "SELECT a FROM held WHERE a = 1 FOR UPDATE"]).await;
        client.reset().await.expect("a session can be reset");
        let free = outcomes(&mut direct, &["SELECT a FROM held WHERE a = 1 FOR UPDATE NOWAIT"]).await;
        assert!(free.contains("Bytes"), "round {round}: {free}");
        close(client).await;
    }
    close(direct).await;
}

/// MariaDB: what a session took from a sequence last is its own, however it took it.
pub(crate) async fn sequences_are_ones_own(proxy: &Proxy, server: u16) {
    const LAST: &[&str] = &["SELECT LASTVAL(sq)", "SELECT PREVIOUS VALUE FOR sq"];
    let mut direct = direct(server).await;
    outcomes(&mut direct, &["CREATE SEQUENCE sq", "CREATE TABLE numbered (a INT DEFAULT NEXTVAL(sq), b INT)"]).await;
    let none = outcomes(&mut proxy.client().await, LAST).await;
    for take in [
        "SELECT NEXTVAL(sq)",
        "SELECT NEXT VALUE FOR sq",
        "INSERT INTO numbered (b) VALUES (1)",
        "INSERT INTO numbered VALUES (NEXTVAL(sq), 2)",
    ] {
        let (mut a, mut b) = (proxy.client().await, proxy.client().await);
        outcomes(&mut a, &[take]).await;
        let is_known = !take.contains("(b)");
        if is_known {
            assert_ne!(outcomes(&mut a, LAST).await, none, "{take}: its own");
        }
        close(a).await;
        assert_eq!(outcomes(&mut b, LAST).await, none, "{take}: another's");
        close(b).await;
    }
    close(direct).await;
}
