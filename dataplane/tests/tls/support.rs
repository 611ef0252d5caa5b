//! A data plane in this process in front of one server, with TLS on either side as a test says.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_chaos::certificates::Certified;
use quorumsql_dataplane::config::{
    Hostgroup, HostgroupId, Protocol, ProtocolConfig, RuntimeConfig, Server, ServerAddress, ServerStatus, TlsMode, User, Variables,
};
use quorumsql_dataplane::tls::{ClientTls, Connector, Identity, ServerTls, Trust};
use quorumsql_dataplane::{DataPlane, DataPlaneOptions};
use rustls::NoKeyLog;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

/// A running data plane; stops when it is dropped.
pub(crate) struct Plane {
    pub(crate) plane: DataPlane,
    pub(crate) port: u16,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.plane.shutdown();
    }
}

/// What clients are shown.
pub(crate) fn shown(protocol: Protocol, certified: &Certified) -> Option<Arc<ClientTls>> {
    Some(Arc::new(ClientTls::new(protocol, &identity(certified), Arc::new(NoKeyLog)).unwrap()))
}

/// How servers are connected to.
pub(crate) fn towards(mode: TlsMode, ca: &str, crl: Option<&str>) -> ServerTls {
    let roots = CertificateDer::pem_slice_iter(ca.as_bytes()).collect::<Result<_, _>>().unwrap();
    let revoked = crl.map(|crl| CertificateRevocationListDer::from_pem_slice(crl.as_bytes()).unwrap()).into_iter().collect();
    ServerTls::new(mode, Connector::new(mode, &Trust { roots, revoked }, None, Arc::new(NoKeyLog)).unwrap())
}

fn identity(certified: &Certified) -> Identity {
    Identity::from_pem(certified.certificate.as_bytes(), certified.key.as_bytes()).unwrap()
}

/// Users `demo`, and `secure` with `use_ssl=1`, in front of `host:port`.
pub(crate) fn start(protocol: Protocol, client_tls: Option<Arc<ClientTls>>, (host, port): (&str, u16), tls: ServerTls) -> Plane {
    let id = HostgroupId(1);
    let address = ServerAddress { host: host.into(), port };
    let server =
        Server { hostgroup: id, address, status: ServerStatus::Online, weight: 1, max_connections: 10, tls, latency_us: 0, trouble: None };
    let user = |name: &str, require_tls| {
        let user = User {
            name: name.into(),
            password: "demo".into(),
            additional_password: None,
            require_tls,
            default_hostgroup: id,
            default_schema: None,
            transaction_persistent: true,
            max_connections: 100,
        };
        (name.to_owned(), Arc::new(user))
    };
    let variables = Variables {
        connect_timeout_server_max: Duration::from_secs(10),
        connect_retries_on_failure: 1,
        shun_on_failures: 0,
        ..Variables::default()
    };
    let side = Arc::new(ProtocolConfig {
        users: HashMap::from([user("demo", false), user("secure", true)]),
        hostgroups: HashMap::from([(id, Arc::new(Hostgroup { id, servers: vec![Arc::new(server)] }))]),
        variables: Arc::new(variables),
        client_tls,
        ..ProtocolConfig::default()
    });
    let (mysql, pgsql) = match protocol {
        Protocol::Mysql => (side, Arc::default()),
        Protocol::Pgsql => (Arc::default(), side),
    };
    let plane = DataPlane::start(DataPlaneOptions { threads: 1, slot: 1 }, Arc::new(RuntimeConfig { index: 1, revision: 1, mysql, pgsql }));
    let plane = plane.unwrap();
    let address = plane.listen(protocol, "127.0.0.1:0").unwrap();
    Plane { plane, port: address.rsplit(':').next().unwrap().parse().unwrap() }
}

/// Runs a program; what it printed, or on failure its complaint.
pub(crate) fn program(argv: &[&str]) -> Result<String, String> {
    let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap_or_else(|error| panic!("{}: {error}", argv[0]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Runs Python text with `argv` in the environment of `deploy/test`.
pub(crate) fn python(text: &str, argv: &[&str]) -> Result<String, String> {
    let python = std::env::var("QUORUMSQL_PYTHON").unwrap_or_else(|_| "python3".into());
    program(&[&[&*python, "-c", text], argv].concat())
}

/// Runs a test's dialogue, with a limit.
pub(crate) fn block_on<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("the dialogue ends in time") });
}
