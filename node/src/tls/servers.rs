//! `mysql-ssl_p2s_*`, `pgsql-ssl_p2s_*`: from file names to what connections to servers are made with.

use std::fmt;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use quorumsql_dataplane::config::TlsMode;
use quorumsql_dataplane::tls::{Connector, Identity, ServerTls, Trust};
use rustls::KeyLog;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

/// Where systems keep the authorities that they trust: Debian, Red Hat, SUSE, Alpine.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Longest file and most files of a directory that are read.
const FILE_LIMIT: u64 = 16 << 20;
const DIRECTORY_LIMIT: usize = 4096;

/// Values of the variables; empty = not given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerFiles {
    pub(crate) mode: TlsMode,
    pub(crate) ca: PathBuf,
    pub(crate) capath: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) crl: PathBuf,
    pub(crate) crlpath: PathBuf,
}

/// All that connections to the servers of one protocol need. Equal only to itself.
#[derive(Clone)]
pub(crate) struct ServerSide(Arc<Loaded>);

struct Loaded {
    mode: TlsMode,
    tls: ServerTls,
    roots: Vec<u8>,
    identity: Option<(PathBuf, PathBuf)>,
}

impl ServerFiles {
    /// Reads the files; what cannot be used makes every connection fail with the reason.
    pub(crate) fn load(&self, key_log: Arc<dyn KeyLog>) -> ServerSide {
        let mut roots = Vec::new();
        let connector = self.connector(&mut roots, key_log).unwrap_or_else(|error| {
            tracing::error!("TLS towards servers fails until this is put right: {error:#}");
            Connector::broken(format!("{error:#}"))
        });
        let identity = (!self.cert.as_os_str().is_empty()).then(|| (self.cert.clone(), self.key.clone()));
        ServerSide(Arc::new(Loaded { mode: self.mode, tls: ServerTls::new(self.mode, connector), roots, identity }))
    }

    fn connector(&self, roots: &mut Vec<u8>, key_log: Arc<dyn KeyLog>) -> anyhow::Result<Connector> {
        let mut trust = Trust::default();
        if matches!(self.mode, TlsMode::VerifyCa | TlsMode::VerifyFull) {
            *roots = self.roots()?;
            trust.roots = CertificateDer::pem_slice_iter(roots).collect::<Result<_, _>>().context("ssl_p2s_ca")?;
            let lists = pem_of(&self.crl, &self.crlpath).context("ssl_p2s_crl")?;
            trust.revoked = CertificateRevocationListDer::pem_slice_iter(&lists).collect::<Result<_, _>>().context("ssl_p2s_crl")?;
        }
        let identity = match (self.cert.as_os_str().is_empty(), self.key.as_os_str().is_empty()) {
            (true, true) => None,
            (false, false) => Some(Identity::from_pem(&read(&self.cert)?, &read(&self.key)?).context("ssl_p2s_cert, ssl_p2s_key")?),
            _ => anyhow::bail!("ssl_p2s_cert and ssl_p2s_key need each other"),
        };
        Ok(Connector::new(self.mode, &trust, identity, key_log)?)
    }

    /// The given authorities, or else the system's.
    fn roots(&self) -> anyhow::Result<Vec<u8>> {
        if !self.ca.as_os_str().is_empty() || !self.capath.as_os_str().is_empty() {
            return pem_of(&self.ca, &self.capath).context("ssl_p2s_ca");
        }
        let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let known = named.into_iter().chain(SYSTEM_ROOTS.map(PathBuf::from)).find(|path| path.is_file());
        read(&known.context("ssl_p2s_ca is empty and the system has no authorities either")?)
    }
}

/// A file's text and that of the files of a directory, those without PEM left out.
fn pem_of(file: &Path, directory: &Path) -> anyhow::Result<Vec<u8>> {
    let mut all = if file.as_os_str().is_empty() { Vec::new() } else { read(file)? };
    if !directory.as_os_str().is_empty() {
        let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries.take(DIRECTORY_LIMIT) {
            let path = entry?.path();
            let text = if path.is_file() { read(&path)? } else { Vec::new() };
            if text.windows(10).any(|part| part == b"-----BEGIN") {
                all.push(b'\n');
                all.extend(text);
            }
        }
    }
    Ok(all)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let name = || format!("cannot read {}", path.display());
    let length = fs::metadata(path).with_context(name)?.len();
    anyhow::ensure!(length <= FILE_LIMIT, "{} has {length} bytes, which no certificates need", path.display());
    fs::read(path).with_context(name)
}

impl ServerSide {
    /// For servers without `use_ssl`.
    pub(crate) fn plain() -> Self {
        Self(Arc::new(Loaded { mode: TlsMode::Disable, tls: ServerTls::Disable, roots: Vec::new(), identity: None }))
    }

    /// The mode.
    pub(crate) fn mode(&self) -> TlsMode {
        self.0.mode
    }

    /// For the data plane.
    pub(crate) fn tls(&self) -> &ServerTls {
        &self.0.tls
    }

    /// Authorities, PEM; empty in the modes that do not verify.
    pub(crate) fn roots(&self) -> &[u8] {
        &self.0.roots
    }

    /// Files of the certificate to show and of its key.
    pub(crate) fn identity(&self) -> Option<&(PathBuf, PathBuf)> {
        self.0.identity.as_ref()
    }
}

impl Default for ServerSide {
    fn default() -> Self {
        Self::plain()
    }
}

impl PartialEq for ServerSide {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ServerSide {}

impl Hash for ServerSide {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for ServerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSide").field("mode", &self.0.mode).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use quorumsql_chaos::certificates::{Authority, Files, Validity};

    use super::*;

    fn files(mode: TlsMode) -> ServerFiles {
        let none = PathBuf::new();
        let [ca, capath, cert, key, crl, crlpath] = [(); 6].map(|()| none.clone());
        ServerFiles { mode, ca, capath, cert, key, crl, crlpath }
    }

    #[test]
    fn what_can_be_used_and_what_fails_with_its_reason() {
        let (dir, authority) = (Files::default(), Authority::new("ca"));
        let client = authority.issue(&["client"], Validity::Long);
        let other = authority.issue(&["other"], Validity::Long);
        let ca = dir.write("ca.pem", &authority.pem);
        let empty = dir.write("empty.pem", "");
        let (cert, key) = (dir.write("cert.pem", &client.certificate), dir.write("key.pem", &client.key));
        let other_key = dir.write("other.pem", &other.key);
        let crl = dir.write("crl.pem", &authority.revoke(&other));
        let mut authorities = dir.path().to_owned();
        authorities.push("authorities");
        fs::create_dir(&authorities).unwrap();
        fs::write(authorities.join("README"), "no PEM").unwrap();
        fs::write(authorities.join("one"), &authority.pem).unwrap();
        let verify = files(TlsMode::VerifyFull);
        let missing = PathBuf::from("/nonexistent/ca.pem");
        for (files, expected) in [
            (files(TlsMode::Require), None),
            (ServerFiles { ca: ca.clone(), ..verify.clone() }, None),
            (ServerFiles { capath: authorities, ..verify.clone() }, None),
            (ServerFiles { ca: ca.clone(), crl, ..verify.clone() }, None),
            (ServerFiles { cert: cert.clone(), key, ..files(TlsMode::Require) }, None),
            (ServerFiles { ca: missing.clone(), ..verify.clone() }, Some("ssl_p2s_ca: cannot read /nonexistent/ca.pem")),
            (ServerFiles { ca: empty, ..verify.clone() }, Some("no root trust anchors")),
            (ServerFiles { ca, crl: missing, ..verify }, Some("ssl_p2s_crl: cannot read")),
            (ServerFiles { cert: cert.clone(), ..files(TlsMode::Prefer) }, Some("need each other")),
            (ServerFiles { cert, key: other_key, ..files(TlsMode::Require) }, Some("keys may not be consistent")),
        ] {
            let side = files.load(Arc::new(rustls::NoKeyLog));
            let error = side.tls().connector().unwrap().config().err().map(|error| error.to_string().to_lowercase());
            match (error, expected) {
                (None, None) => {}
                (Some(error), Some(expected)) if error.contains(&expected.to_lowercase()) => {}
                (error, expected) => panic!("{files:?}: {error:?} instead of {expected:?}"),
            }
        }
    }
}
