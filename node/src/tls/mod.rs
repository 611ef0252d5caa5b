//! Certificates and keys from files: what clients of every port are shown, and with what servers are judged.
//!
//! Files are read at the start, when a variable that names one changes, and on `PROXYSQL RELOAD TLS` or SIGHUP; connections
//! that exist keep what they began with. Files that cannot be used never lead to plain text: a reload keeps the former
//! ones, and connections to servers fail with the reason.

mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use quorumsql_dataplane::config::Protocol;
use quorumsql_dataplane::tls::{ClientTls, Identity};
use rustls::NoKeyLog;
use tokio::sync::watch;

pub(crate) use self::servers::{ServerFiles, ServerSide};

/// What clients are shown.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) mysql: Arc<ClientTls>,
    pub(crate) pgsql: Arc<ClientTls>,
    /// Counts reloads.
    pub(crate) generation: u64,
}

/// The certificate of this node's client ports.
#[derive(Debug)]
pub(crate) struct Certificates {
    chain: PathBuf,
    key: PathBuf,
    shown: watch::Sender<Arc<Shown>>,
}

impl Certificates {
    /// Reads the files.
    pub(crate) fn load(chain: PathBuf, key: PathBuf) -> anyhow::Result<Arc<Self>> {
        let shown = watch::Sender::new(Arc::new(read(&chain, &key, 0)?));
        Ok(Arc::new(Self { chain, key, shown }))
    }

    /// Reads them again; on an error the former ones stay.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let generation = self.shown.borrow().generation + 1;
        let shown = read(&self.chain, &self.key, generation).inspect_err(|error| {
            tracing::error!("TLS files are not reloaded, the former ones stay in use: {error:#}");
        })?;
        self.shown.send_replace(Arc::new(shown));
        tracing::info!(generation, "TLS files are reloaded; new connections use them");
        Ok(())
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

fn read(chain: &Path, key: &Path, generation: u64) -> anyhow::Result<Shown> {
    let file = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let identity = Identity::from_pem(&file(chain)?, &file(key)?);
    let pair = || format!("{} and {}", chain.display(), key.display());
    let identity = identity.with_context(pair)?;
    let tls = |protocol| ClientTls::new(protocol, &identity, Arc::new(NoKeyLog)).map(Arc::new).with_context(pair);
    Ok(Shown { mysql: tls(Protocol::Mysql)?, pgsql: tls(Protocol::Pgsql)?, generation })
}
