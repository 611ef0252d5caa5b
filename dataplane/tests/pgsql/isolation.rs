//! Two clients that share server connections never see each other's state.

use quorumsql_wire::pgsql::frame;

use crate::bytes::Raw;
use crate::support::{in_front_of_server, one, told};

#[tokio::test]
async fn a_plain_set_follows_its_client_without_a_pin() {
    let (_server, plane) = in_front_of_server(1);
    let (first, second) = (plane.client().await, plane.client().await);
    let looks = ["SHOW search_path", "SHOW work_mem", "SHOW DateStyle", "SHOW app.tenant"];
    second.simple_query("SET app.tenant = 'other'").await.unwrap();
    let mut theirs = Vec::new();
    for look in looks {
        theirs.push(one(&second, look).await);
    }
    for set in ["SET search_path = a, \"B c\"", "SET work_mem TO '8MB'", "SET datestyle = ISO, DMY", "SET app.tenant = 'it''s'"] {
        first.simple_query(set).await.unwrap();
    }
    assert_eq!(told(&first.simple_query("SET work_mem = nonsense").await.unwrap_err()).0, "22023");
    for _ in 0..3 {
        for ((look, mine), theirs) in looks.iter().zip(["a, \"B c\"", "8MB", "ISO, DMY", "it's"]).zip(&theirs) {
            assert_eq!(one(&first, look).await, mine);
            assert_eq!(one(&second, look).await, *theirs, "{look}");
        }
    }
    assert_eq!(plane.opened(), 2, "one for who had not named app.tenant");
    first.simple_query("DISCARD ALL").await.unwrap();
    assert_eq!(one(&first, "SHOW work_mem").await, "4MB");
}

#[tokio::test]
async fn discard_all_unpins() {
    let (_server, plane) = in_front_of_server(1);
    let mut config = plane.config();
    config.application_name("keeper");
    let first = crate::support::connect(&config).await.unwrap();
    first.simple_query("SET work_mem = '8MB'; CREATE TEMP TABLE t (i int)").await.unwrap();
    first.simple_query("DISCARD ALL").await.unwrap();
    let second = plane.client().await;
    assert_eq!(one(&second, "SHOW work_mem").await, "4MB");
    assert_eq!(one(&first, "SHOW application_name").await, "keeper");
}

#[tokio::test]
async fn a_transaction_that_its_client_leaves_is_rolled_back() {
    let (_server, plane) = in_front_of_server(1);
    let first = plane.client().await;
    first.simple_query("CREATE TABLE left_open (i int)").await.unwrap();
    first.simple_query("BEGIN; INSERT INTO left_open VALUES (1)").await.unwrap();
    drop(first);
    let second = plane.client().await;
    assert_eq!(one(&second, "SELECT count(*) FROM left_open").await, "0");
    assert_eq!(plane.opened(), 1);
}

#[tokio::test]
async fn notifications_reach_an_idle_listener() {
    let (_server, plane) = in_front_of_server(2);
    let (client, mut connection) = plane.config().connect(tokio_postgres::NoTls).await.unwrap();
    let (sender, mut notifications) = tokio::sync::mpsc::channel(10);
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let tokio_postgres::AsyncMessage::Notification(notification) = message {
                let _ = sender.send(notification.payload().to_owned()).await;
            }
        }
    });
    client.simple_query("LISTEN news").await.unwrap();
    let other = plane.client().await;
    other.simple_query("NOTIFY news, 'hello'").await.unwrap();
    assert_eq!(notifications.recv().await.unwrap(), "hello");
}

#[tokio::test]
async fn a_waiter_gets_the_connection_when_a_transaction_ends() {
    let (_server, plane) = in_front_of_server(1);
    let (first, second) = (plane.client().await, plane.client().await);
    first.simple_query("BEGIN").await.unwrap();
    let waiting = one(&second, "SELECT 5");
    let ending = first.simple_query("COMMIT");
    let (value, ended) = tokio::join!(waiting, ending);
    ended.unwrap();
    assert_eq!(value, "5");
    first.simple_query("BEGIN").await.unwrap();
    let (code, text) = told(&second.simple_query("SELECT 6").await.unwrap_err());
    assert_eq!(code, "08001");
    assert!(text.starts_with("Max connect timeout reached while reaching hostgroup 10 after"), "{text}");
}

/// Functions that are called by their numbers, as libpq's PQfn does.
#[tokio::test]
async fn what_a_function_call_leaves_is_seen_by_nobody_else() {
    let (_server, plane) = in_front_of_server(1);
    let used = || plane.plane.stats().pool.iter().map(|row| row.used).sum::<u64>();
    let other = plane.client().await;
    let make = "CREATE FUNCTION hide() RETURNS text LANGUAGE sql AS $$SELECT set_config('work_mem', '8MB', false)$$";
    other.simple_query(make).await.unwrap();
    let hide: u32 = one(&other, "SELECT 'hide'::regproc::oid").await.parse().unwrap();
    let set_config: u32 = one(&other, "SELECT 'set_config'::regproc::oid").await.parse().unwrap();
    let lo_creat: u32 = one(&other, "SELECT 'lo_creat'::regproc::oid").await.parse().unwrap();
    for (number, arguments, keeps) in [(hide, &[][..], 0), (set_config, &["work_mem", "8MB", "f"], 1), (lo_creat, &["-1"], 0)] {
        let mut raw = Raw::login(&plane).await;
        raw.send(|out| {
            frame::encode(out, b'F', |out| {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&[0, 0, 0, arguments.len() as u8]);
                for text in arguments {
                    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                    out.extend_from_slice(text.as_bytes());
                }
                out.extend_from_slice(&[0, 0]);
            });
        })
        .await;
        assert_eq!((raw.tags().await, used()), ("VZI".into(), keeps), "{arguments:?}");
        drop(raw);
        assert_eq!(one(&other, "SHOW work_mem").await, "4MB", "{arguments:?}");
    }
}
