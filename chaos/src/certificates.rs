//! Certificates for servers and clients of a test.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

use crate::process::run;

/// An authority that certifies whatever a test asks for.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Certified {
    /// Certificate, PEM.
    pub certificate: String,
    /// Key, PKCS#8 PEM.
    pub key: String,
    serial: SerialNumber,
}

/// How long a certificate is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// From 2000 to 2100.
    Long,
    /// It ended in 2001.
    Expired,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// Without randomness.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(name, Validity::Long);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).expect("a certificate of its own").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these names and addresses, for servers and clients alike.
    ///
    /// # Panics
    /// When a name is none.
    #[must_use]
    pub fn issue(&self, names: &[&str], validity: Validity) -> Certified {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(names.first().copied().unwrap_or("nobody"), validity);
        let serial = SerialNumber::from_slice(&key.public_key_raw()[1..9]);
        params.serial_number = Some(serial.clone());
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().expect("a name")),
            })
            .collect();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Certified { certificate, key: key.serialize_pem(), serial }
    }

    /// A list that takes `certified` back, PEM.
    ///
    /// # Panics
    /// Never with certificates of [`Authority::issue`].
    #[must_use]
    pub fn revoke(&self, certified: &Certified) -> String {
        let revoked = RevokedCertParams {
            serial_number: certified.serial.clone(),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2001, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).expect("a list").pem().expect("PEM")
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn params(name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = match validity {
        Validity::Long => date_time_ymd(2100, 1, 1),
        Validity::Expired => date_time_ymd(2001, 1, 1),
    };
    params
}

/// Files in a temporary directory that other accounts may enter, for processes that read them.
#[derive(Debug)]
pub struct Files(TempDir);

impl Default for Files {
    fn default() -> Self {
        let dir = TempDir::with_prefix("quorumsql-tls-").expect("a temporary directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("the directory is ours");
        Self(dir)
    }
}

impl Files {
    /// In the temporary directory of a chroot; [`Files::inside`] is what processes in there call it.
    ///
    /// # Panics
    /// When there is no such chroot.
    #[must_use]
    pub fn in_chroot(root: &Path) -> Self {
        Self(TempDir::with_prefix_in("quorumsql-tls-", root.join("tmp")).expect("a directory in the chroot"))
    }

    /// Path of a file as a process in the chroot sees it.
    #[must_use]
    pub fn inside(&self, name: &str) -> String {
        let directory = self.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("/tmp/{directory}/{name}")
    }

    /// Makes a file its reader's own and private, as PostgreSQL demands of a key.
    ///
    /// # Panics
    /// When there is no such account.
    pub fn give(&self, name: &str, account: &str) {
        let path = self.path().join(name);
        let _chown = run(&["chown", account, &path.display().to_string()]);
        fs::set_permissions(path, Permissions::from_mode(0o600)).expect("we are root");
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and returns its path.
    ///
    /// # Panics
    /// When the disk is full.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("the directory is ours");
        path
    }
}
