//! A data plane in front of one or two MySQL or MariaDB servers, for measuring and for trying clients by hand:
//!
//! `mysql_relay LISTEN THREADS USER PASSWORD WRITER [READER]`, addresses as `host:port`. Ends at end of file on standard input.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use quorumsql_dataplane::config::{
    Domain, Hostgroup, HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, ServerAddress, ServerStatus, User,
};
use quorumsql_dataplane::rules::{CompileOptions, RuleRow, RuleSet};
use quorumsql_dataplane::tls::ServerTls;
use quorumsql_dataplane::{DataPlane, DataPlaneOptions};

fn hostgroup(id: u32, address: &str) -> (HostgroupId, Arc<Hostgroup>) {
    let (host, port) = address.rsplit_once(':').expect("host:port");
    let id = HostgroupId(id);
    let server = Server {
        hostgroup: id,
        address: ServerAddress { host: host.into(), port: port.parse().expect("a port") },
        status: ServerStatus::Online,
        weight: 1,
        max_connections: 1000,
        tls: ServerTls::Disable,
        latency_us: 0,
        trouble: None,
    };
    (id, Arc::new(Hostgroup { id, servers: vec![Arc::new(server)] }))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, threads, name, password, servers @ ..] = arguments.as_slice() else {
        eprintln!("mysql_relay LISTEN THREADS USER PASSWORD WRITER [READER]");
        std::process::exit(2);
    };
    let user = User {
        name: name.clone(),
        password: password.clone(),
        additional_password: None,
        require_tls: false,
        default_hostgroup: HostgroupId(10),
        default_schema: None,
        transaction_persistent: true,
        max_connections: 10_000,
    };
    let rows = if servers.len() > 1 {
        vec![RuleRow {
            rule_id: 1,
            match_digest: Some("^SELECT".into()),
            caseless: true,
            destination_hostgroup: Some(HostgroupId(20)),
            apply: true,
            ..RuleRow::default()
        }]
    } else {
        Vec::new()
    };
    let (rules, _) = RuleSet::compile(rows, CompileOptions::default()).expect("the rule is good");
    let side = ProtocolConfig {
        users: HashMap::from([(name.clone(), Arc::new(user))]),
        hostgroups: servers.iter().zip([10, 20]).map(|(address, id)| hostgroup(id, address)).collect(),
        rules: Arc::new(rules),
        domains: vec![Domain { writer: HostgroupId(10), reader: HostgroupId(20) }],
        ..ProtocolConfig::default()
    };
    let config = RuntimeConfig { index: 1, revision: 1, mysql: Arc::new(side), pgsql: Arc::default() };
    let options = DataPlaneOptions { threads: threads.parse().expect("a number of threads"), slot: 1 };
    let plane = DataPlane::start(options, Arc::new(config)).expect("workers start");
    println!("listening on {}", plane.listen(Protocol::Mysql, listen).expect("the address is free"));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    plane.shutdown();
}
