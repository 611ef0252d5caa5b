//! Certificates and keys from files: what clients of every port are shown, and with what servers are judged.
//!
//! Files are read at the start, when a variable that names one changes, and on `PROXYSQL RELOAD TLS` or SIGHUP; connections
//! that exist keep what they began with. Files that cannot be used never lead to plain text: a reload keeps the former
//! ones, and connections to servers fail with the reason.

mod key_log;
mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::tls::{ClientTls, Identity};
use rustls::ServerConfig;
use tokio::sync::watch;

use self::key_log::KeyLogFile;
pub(crate) use self::servers::{ServerFiles, ServerSide};

/// The ALPN name of gRPC's protocol.
const ALPN_HTTP2: &[u8] = b"h2";

/// What clients are shown.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) mysql: Arc<ClientTls>,
    pub(crate) pgsql: Arc<ClientTls>,
    pub(crate) grpc: Arc<ServerConfig>,
    /// Where secrets of sessions go, those with servers too.
    pub(crate) key_log: Arc<KeyLogFile>,
    /// Counts reloads.
    pub(crate) generation: u64,
}

/// The certificate of this node's client ports.
#[derive(Debug)]
pub(crate) struct Certificates {
    chain: PathBuf,
    key: PathBuf,
    key_log: Arc<KeyLogFile>,
    shown: watch::Sender<Arc<Shown>>,
}

impl Certificates {
    /// Reads the files; `data_dir` is where a relative `admin-ssl_keylog_file` is.
    pub(crate) fn load(chain: PathBuf, key: PathBuf, data_dir: PathBuf) -> anyhow::Result<Arc<Self>> {
        let key_log = Arc::new(KeyLogFile::new(data_dir));
        let shown = watch::Sender::new(Arc::new(read(&chain, &key, &key_log, 0)?));
        Ok(Arc::new(Self { chain, key, key_log, shown }))
    }

    /// Reads them again; on an error the former ones stay.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let generation = self.shown.borrow().generation + 1;
        let shown = read(&self.chain, &self.key, &self.key_log, generation).inspect_err(|error| {
            tracing::error!("TLS files are not reloaded, the former ones stay in use: {error:#}");
        })?;
        self.shown.send_replace(Arc::new(shown));
        tracing::info!(generation, "TLS files are reloaded; new connections use them");
        Ok(())
    }

    /// Where secrets of sessions go.
    pub(crate) fn key_log(&self) -> &KeyLogFile {
        &self.key_log
    }

    /// What clients that come now are shown.
    pub(crate) fn current(&self) -> Arc<Shown> {
        self.shown.borrow().clone()
    }

    /// Follows reloads.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Shown>> {
        self.shown.subscribe()
    }
}

impl Shown {
    /// For clients of `protocol`.
    pub(crate) fn of(&self, protocol: Protocol) -> &Arc<ClientTls> {
        match protocol {
            Protocol::Mysql => &self.mysql,
            Protocol::Pgsql => &self.pgsql,
        }
    }
}

fn read(chain: &Path, key: &Path, key_log: &Arc<KeyLogFile>, generation: u64) -> anyhow::Result<Shown> {
    let file = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let identity = Identity::from_pem(&file(chain)?, &file(key)?);
    let pair = || format!("{} and {}", chain.display(), key.display());
    let identity = identity.with_context(pair)?;
    let tls = |protocol| ClientTls::new(protocol, &identity, key_log.clone()).map(Arc::new).with_context(pair);
    let (mysql, pgsql) = (tls(Protocol::Mysql)?, tls(Protocol::Pgsql)?);
    let mut grpc = ServerConfig::clone(mysql.config());
    grpc.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
    Ok(Shown { mysql, pgsql, grpc: Arc::new(grpc), key_log: key_log.clone(), generation })
}
