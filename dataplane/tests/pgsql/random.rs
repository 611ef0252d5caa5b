//! Dialogues at random, of messages in any order and in parts of any length: a client reads through the plane what it reads of a server directly,
//! and the data are the same.
#![allow(clippy::unwrap_used, reason = "a step that fails is the test's failure")]

use std::time::Duration;

use quorumsql_chaos::servers::Postgres;
use quorumsql_wire::pgsql::error_fields::ErrorFields;
use quorumsql_wire::pgsql::frame;
use quorumsql_wire::pgsql::frontend::{self, Target};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::bytes::Raw;
use crate::support::Setup;

/// Dialogues of one run; `QUORUMSQL_DIALOGUES=FIRST..LAST` runs others.
const DIALOGUES: std::ops::Range<u64> = 400..460;
/// What ends each, as far as the client reads it.
const MARK: &str = "the end";
/// What another client sees when the dialogue is over: the data, and nothing of the session.
const LOOK: &str = "SELECT concat_ws(' ', current_setting('work_mem'), coalesce(current_setting('app.x', true), 'NULL'), to_regclass('t'),
    (SELECT count(*) FROM pg_cursors WHERE is_holdable), (SELECT count(*) FROM pg_prepared_statements WHERE from_sql),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), (SELECT count(*) FROM pg_listening_channels()),
    (SELECT format('%s rows, %s', count(*), sum(i)) FROM r))";
/// The end of the connection.
const CLOSED: &str = "closed";
/// Time for an answer that the other side has given.
const PATIENCE: Duration = Duration::from_secs(10);

const QUERIES: &[&str] = &[
    "SELECT 1",
    "SELECT generate_series(1, 3)",
    "SELECT 1; SELECT 2; SELECT 1/0; SELECT 3",
    "SELECT 1/0 FROM generate_series(1, 1)",
    "SELECT nothing",
    "SELEC 1",
    "",
    ";",
    "SHOW work_mem",
    "SET work_mem = '8MB'",
    "SET LOCAL work_mem = '7MB'",
    "RESET work_mem",
    "DISCARD ALL",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "BEGIN; INSERT INTO r VALUES (1); COMMIT; INSERT INTO r VALUES (2); SELECT 1/0",
    "COPY r FROM STDIN",
    "COPY r TO STDOUT",
    "COPY r FROM STDIN; SELECT 4",
    "COPY r FROM STDIN; COPY r FROM STDIN",
    "INSERT INTO r VALUES (3)",
    "SELECT count(*) FROM r",
    "PREPARE p AS SELECT 5",
    "EXECUTE p",
    "EXECUTE a",
    "DEALLOCATE p",
    "DEALLOCATE a",
    "DEALLOCATE ALL",
    "SELECT 6; EXECUTE a; DEALLOCATE a; SELECT 7",
    "CREATE TEMP TABLE IF NOT EXISTS t AS SELECT 8",
    "DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 3)",
    "FETCH 2 FROM c",
    "CLOSE ALL",
    "SET app.x = 'y'",
    "SET LOCAL app.x = 'y'",
    "SHOW app.x",
    "LISTEN n",
    "UNLISTEN *",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_unlock(1)",
    "DO $$BEGIN SET work_mem = '6MB'; END$$",
    "SELECT set_config('work_mem', '5MB', false)",
];
const NAMES: &[&str] = &["", "a", "a", "b"];
const PORTALS: &[&str] = &["", "", "", "c"];

/// A generator of numbers (Numerical Recipes' constants).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<'t>(&mut self, table: &[&'t str]) -> &'t str {
        table[self.below(table.len())]
    }
}

/// One thing that a client does.
#[derive(Clone, Debug)]
enum Step {
    /// It sends these bytes.
    Send(String, Vec<u8>),
    /// It reads what there is.
    Read,
}

fn message(dice: &mut Dice) -> (String, Vec<u8>) {
    let mut out = Vec::new();
    let (name, portal) = (dice.of(NAMES), dice.of(PORTALS));
    let text = match dice.below(31) {
        0..5 => {
            let sql = dice.of(QUERIES);
            frontend::query(&mut out, sql.as_bytes());
            format!("Q {sql:?}")
        }
        5..9 => {
            // A statement that names itself is refused with other words.
            let sql = Some(dice.of(QUERIES)).filter(|sql| !sql.ends_with("E a")).unwrap_or("SELECT 10");
            frontend::parse(&mut out, name.as_bytes(), sql.as_bytes(), b"");
            format!("P {name:?} {sql:?}")
        }
        9..13 => {
            frontend::bind(&mut out, portal.as_bytes(), name.as_bytes(), b"\0\0\0\0\0\0");
            format!("B {portal:?} {name:?}")
        }
        13 => {
            frontend::describe(&mut out, Target::Statement, name.as_bytes());
            format!("D statement {name:?}")
        }
        14 => {
            frontend::describe(&mut out, Target::Portal, portal.as_bytes());
            format!("D portal {portal:?}")
        }
        15..19 => {
            let rows = dice.below(3) as u32;
            frontend::execute(&mut out, portal.as_bytes(), rows);
            format!("E {portal:?} {rows}")
        }
        19 => {
            frontend::close(&mut out, Target::Statement, name.as_bytes());
            format!("C statement {name:?}")
        }
        20 => {
            frontend::close(&mut out, Target::Portal, portal.as_bytes());
            format!("C portal {portal:?}")
        }
        21 => {
            frame::encode(&mut out, b'H', |_| {});
            "H".into()
        }
        22..26 => {
            frontend::sync(&mut out);
            "S".into()
        }
        26 => {
            frame::encode(&mut out, b'd', |out| out.extend_from_slice(b"9\n"));
            "d".into()
        }
        27 => {
            // Whether a server answers a Sync behind such data tells how far it had come.
            frame::encode(&mut out, b'd', |out| out.extend_from_slice(b"x\n"));
            frame::encode(&mut out, b'c', |_| {});
            "d that is no number, c".into()
        }
        28 => {
            frame::encode(&mut out, b'c', |_| {});
            "c".into()
        }
        29 => {
            // int4pl(1, 2), with arguments and result as text.
            frame::encode(&mut out, b'F', |out| out.extend_from_slice(b"\0\0\0\xb1\0\0\0\x02\0\0\0\x011\0\0\0\x012\0\0"));
            "F".into()
        }
        _ => {
            frontend::copy_fail(&mut out, b"no");
            "f".into()
        }
    };
    (text, out)
}

fn dialogue(seed: u64) -> Vec<Step> {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut steps = Vec::new();
    for _ in 0..=dice.below(14) {
        let (text, bytes) = message(&mut dice);
        // A statement that is parsed is most often run.
        let follows = text.starts_with('P') && dice.below(3) > 0;
        steps.push(Step::Send(text, bytes));
        if follows {
            let (name, mut out) = (dice.of(NAMES), Vec::new());
            frontend::bind(&mut out, b"", name.as_bytes(), b"\0\0\0\0\0\0");
            frontend::execute(&mut out, b"", 0);
            steps.push(Step::Send(format!("B {name:?} E"), out));
        }
        // A server says without being asked what a client need not read yet: errors. The plane may wait for the rest of the batch.
        let is_asked = matches!(steps.last(), Some(Step::Send(text, _)) if matches!(text.as_bytes()[0], b'S' | b'H' | b'Q'));
        if is_asked && dice.below(2) == 0 {
            steps.push(Step::Read);
        }
    }
    steps
}

/// What is read: rows and errors in full, of other messages the tag. Notices and parameters come when they like.
fn shown(tag: u8, body: &[u8]) -> Option<String> {
    match tag {
        b'S' | b'N' => None,
        b'E' => {
            let ErrorFields { code, message, .. } = ErrorFields::decode(body).unwrap();
            // In place of a Bind that cannot succeed the server gets another message that fails.
            let message = message.split("unexpected message type").next().unwrap();
            Some(format!("E {code} {message}"))
        }
        b'D' | b'C' | b'Z' | b'd' | b'V' => Some(format!("{} {}", tag as char, String::from_utf8_lossy(body))),
        _ => Some((tag as char).to_string()),
    }
}

/// Plays a dialogue. At each [`Step::Read`] so many messages are awaited as `before` has seen by then; `None` = those that come at once.
async fn play(raw: &mut Raw, steps: &[Step], before: Option<&[usize]>, dice: &mut Dice) -> (Vec<String>, Vec<usize>) {
    let (mut seen, mut counts) = (Vec::new(), Vec::new());
    let mut pending = Vec::new();
    for step in steps {
        match step {
            Step::Send(_, bytes) => pending.extend_from_slice(bytes),
            Step::Read => {
                let mut rest = &pending[..];
                while !rest.is_empty() {
                    let part = if dice.below(2) == 0 { rest.len() } else { 1 + dice.below(rest.len()) };
                    let _closed = raw.socket.write_all(&rest[..part]).await;
                    rest = &rest[part..];
                    tokio::task::yield_now().await;
                }
                pending.clear();
                let limit = if before.is_some() { PATIENCE } else { Duration::from_millis(15) };
                let wanted = before.map_or(usize::MAX, |before| before[counts.len()]);
                while seen.len() < wanted {
                    match timeout(limit, raw.next()).await {
                        Ok(Some((tag, body))) => seen.extend(shown(tag, &body)),
                        Ok(None) => break,
                        Err(_) if before.is_some() => {
                            seen.push("nothing comes".into());
                            return (seen, counts);
                        }
                        Err(_) => break,
                    }
                }
                counts.push(seen.len());
            }
        }
    }
    if dice.below(4) == 0 {
        frontend::terminate(&mut pending);
    } else {
        frontend::sync(&mut pending);
        frontend::query(&mut pending, format!("SELECT '{MARK}'").as_bytes());
    }
    let _closed = raw.socket.write_all(&pending).await;
    let mut is_marked = false;
    loop {
        match timeout(PATIENCE, raw.next()).await {
            Ok(Some((tag, body))) => {
                let text = shown(tag, &body);
                is_marked |= text.as_ref().is_some_and(|text| text.contains(MARK) || text.contains("25P02"));
                seen.extend(text);
                if is_marked && tag == b'Z' {
                    return (seen, counts);
                }
            }
            Ok(None) => {
                seen.push(CLOSED.into());
                return (seen, counts);
            }
            Err(_) => {
                seen.push("nothing comes".into());
                return (seen, counts);
            }
        }
    }
}

#[tokio::test]
async fn a_client_reads_what_it_would_read_directly() {
    let range = std::env::var("QUORUMSQL_DIALOGUES").ok().and_then(|range| {
        let (first, last) = range.split_once("..")?;
        Some(first.parse().ok()?..last.parse().ok()?)
    });
    let servers = [Postgres::start(&[]), Postgres::start(&[])];
    let made: Vec<_> = servers.iter().map(|server| server.root("demo", "CREATE TABLE r (i int)")).collect();
    assert_eq!(made.len(), 2);
    let plane = Setup::writer(&servers[1], 1).start();
    let ports = [servers[0].port, plane.port];
    let mut looks = Vec::new();
    for port in ports {
        looks.push(Raw::login_at(port).await);
    }
    let mut failed = Vec::new();
    for seed in range.unwrap_or(DIALOGUES) {
        let steps = dialogue(seed);
        let mut direct = Raw::login_at(ports[0]).await;
        let (expected, counts) = play(&mut direct, &steps, None, &mut Dice(seed)).await;
        drop(direct);
        let mut through = Raw::login_at(ports[1]).await;
        let (seen, _) = play(&mut through, &steps, Some(&counts), &mut Dice(seed)).await;
        drop(through);
        let mut rows = Vec::new();
        for look in &mut looks {
            look.send(|out| frontend::query(out, format!("{LOOK}; DELETE FROM r").as_bytes())).await;
            let mut all = Vec::new();
            while let Some((tag, body)) = look.next().await {
                all.extend(shown(tag, &body));
                if tag == b'Z' {
                    break;
                }
            }
            rows.push(all);
        }
        // What a server has not sent when it reads the good-bye it never sends.
        let is_same = seen == expected
            || (seen.ends_with(&[CLOSED.into()])
                && expected.ends_with(&[CLOSED.into()])
                && seen.starts_with(&expected[..expected.len() - 1]));
        if !is_same || rows[0] != rows[1] {
            let texts: Vec<_> = steps.iter().map(|step| if let Step::Send(text, _) = step { text.as_str() } else { "(read)" }).collect();
            failed.push(format!(
                "dialogue {seed}: {texts:#?}\n direct: {expected:?}\nthrough: {seen:?}\n direct: {:?}\nthrough: {:?}",
                rows[0], rows[1]
            ));
        }
    }
    assert!(failed.is_empty(), "{} dialogues differ:\n{}", failed.len(), failed.join("\n\n"));
}
