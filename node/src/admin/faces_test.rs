//! The admin interface as drivers meet it: logins, prepared statements, warnings, over both faces.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use mysql_async::prelude::Queryable as _;
use tokio::net::TcpListener;

use super::script_test::{SingleNode, single_node};
use crate::sql_server::{Database as _, Face, Login, ServeOptions, serve};

async fn served(node: &SingleNode, face: Face) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(face, listener, Arc::clone(&node.database), ServeOptions::default()));
    address
}

async fn mysql(address: SocketAddr, user: &str) -> mysql_async::Conn {
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some(user))
        .pass(Some(user))
        .prefer_socket(false);
    mysql_async::Conn::new(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_driver() {
    let node = single_node().await;
    let address = served(&node, Face::Mysql).await;
    let mut client = mysql(address, "admin").await;
    client
        .exec_drop("INSERT INTO mysql_servers (hostgroup_id, hostname, port, comment) VALUES (?, ?, ?, ?)", (10, "db1", 3306, "it's"))
        .await
        .unwrap();
    assert_eq!(client.affected_rows(), 1);
    let rows: Vec<(String, String)> =
        client.exec("SELECT hostname, comment FROM mysql_servers WHERE hostgroup_id = ?", (10,)).await.unwrap();
    assert_eq!(rows, [("db1".into(), "it's".into())]);
    client.query_drop("LOAD MYSQL SERVERS TO RUNTIME; SAVE MYSQL SERVERS TO DISK").await.unwrap();
    client.query_drop("BEGIN").await.unwrap();
    assert_eq!(client.get_warnings(), 1);
    let mut stats = mysql(address, "stats").await;
    let error = stats.query_drop("SELECT * FROM mysql_users").await.unwrap_err().to_string();
    assert!(error.contains("no such table: mysql_users"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pgsql_driver() {
    let node = single_node().await;
    let address = served(&node, Face::Pgsql).await;
    let mut config = tokio_postgres::Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("admin").password("admin").dbname("admin");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let insert = "INSERT INTO pgsql_servers (comment, hostgroup_id, hostname) VALUES ($3, $1, $2)";
    assert_eq!(client.execute(insert, &[&"10", &"db1", &"c"]).await.unwrap(), 1);
    let row =
        client.query_one("SELECT hostgroup_id, hostname, port, comment FROM pgsql_servers WHERE hostname = $1", &[&"db1"]).await.unwrap();
    let found: Vec<String> = (0..4).map(|at| row.get(at)).collect();
    assert_eq!(found, ["10", "db1", "5432", "c"]);
    client.simple_query("LOAD PGSQL SERVERS TO RUNTIME; SAVE PGSQL SERVERS TO DISK").await.unwrap();
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
    let (token, running) = (client.cancel_token(), client.simple_query(endless));
    tokio::pin!(running);
    // A request that comes before the statement runs ends nothing: asked again after a pause.
    let error = loop {
        tokio::select! {
            ended = &mut running => break ended.unwrap_err(),
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => token.cancel_query(tokio_postgres::NoTls).await.unwrap(),
        }
    };
    assert_eq!(error.as_db_error().unwrap().code().code(), "57014");
    let error = client.execute(insert, &[&"10", &"db1", &"again"]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "28000");
    assert!(error.message().starts_with("ProxySQL Admin Error: UNIQUE constraint failed: pgsql_servers"), "{}", error.message());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_statements_make_room_for_others_and_can_be_killed() {
    let node = single_node().await;
    let address = served(&node, Face::Mysql).await;
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let mut client = mysql(address, "admin").await;
        tasks.push((client.id(), tokio::spawn(async move { client.query_drop(endless).await.unwrap_err().to_string() })));
    }
    let mut other = mysql(address, "admin").await;
    assert_eq!(other.query_first::<i64, _>("SELECT 42").await.unwrap(), Some(42));
    for (id, task) in tasks {
        // Those that made room have ended already.
        while !task.is_finished() {
            let _ended = other.query_drop(format!("KILL QUERY {id}")).await;
        }
        let error = task.await.unwrap();
        assert!(error.contains("3024") && error.contains("interrupted"), "{error}");
    }
    let error = other.query_drop("KILL QUERY 4000000000").await.unwrap_err().to_string();
    assert!(error.contains("1094") && error.contains("Unknown thread id: 4000000000"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shipped_accounts_log_in_from_loopback_only() {
    let node = single_node().await;
    let login = |user: &str, peer: IpAddr| Login { face: Face::Mysql, user: user.into(), database: String::new(), peer, connection_id: 1 };
    let elsewhere: IpAddr = "10.0.0.7".parse().unwrap();
    for (user, peer, refused) in [
        ("admin", "127.9.8.7".parse().unwrap(), false),
        ("stats", IpAddr::V6(Ipv6Addr::LOCALHOST), false),
        ("admin", elsewhere, true),
        ("stats", elsewhere, true),
        ("monitor", elsewhere, true),
    ] {
        let account = node.database.account(&login(user, peer)).await;
        assert_eq!(account.is_err(), refused, "{user} from {peer}");
        if let Err(error) = account {
            assert_eq!((error.mysql_code, error.pgsql_state.as_str()), (1040, "08004"));
            assert_eq!(error.message, format!("User '{user}' can only connect locally"));
        }
    }
    assert_eq!(node.database.account(&login("nobody", elsewhere)).await, Ok(None));
}
