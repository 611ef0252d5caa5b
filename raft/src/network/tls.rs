//! Certificates of the cluster: its authority, what it issues, and how a peer is recognised.
//!
//! A peer is who its certificate says: SAN `n<id>.<cluster>.quorumsql.internal`, checked by both sides of a connection. All peer
//! certificates also carry `peer.<cluster>.quorumsql.internal`, which a joining node expects: it does not know ids yet.

use std::{
    fs, io,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{
    DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{ParsedCertificate, ServerConfig, WebPkiClientVerifier},
};
use sha2::{Digest, Sha256};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::{error::StartError, identity::Layout};

/// SAN of the node `id`.
pub(crate) fn peer_name(id: u64, cluster_id: &str) -> String {
    format!("n{id}.{cluster_id}.quorumsql.internal")
}

fn any_peer_name(cluster_id: &str) -> String {
    format!("peer.{cluster_id}.quorumsql.internal")
}

/// A key that was just made, and the request that lets the authority certify it.
pub(crate) struct KeyRequest {
    pub(crate) key_pem: String,
    pub(crate) request_pem: String,
}

impl KeyRequest {
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let request_pem = CertificateParams::default().serialize_request(&key)?.pem()?;
        Ok(Self { key_pem: key.serialize_pem(), request_pem })
    }
}

/// The cluster's certificate authority; on voters only.
pub(crate) struct Authority {
    cert_pem: String,
    key_pem: String,
}

impl Authority {
    pub(crate) fn create(cluster_id: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("quorumsql cluster {cluster_id}"));
        let cert_pem = params.self_signed(&key)?.pem();
        Ok(Self { cert_pem, key_pem: key.serialize_pem() })
    }

    pub(crate) fn load(layout: &Layout) -> io::Result<Self> {
        let files = Files::new(layout);
        Ok(Self { cert_pem: fs::read_to_string(files.ca)?, key_pem: fs::read_to_string(files.ca_key)? })
    }

    pub(crate) fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    pub(crate) fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// A certificate with which its holder is node `id`; the authority's own follows it, for joining nodes.
    pub(crate) fn issue_peer(&self, request_pem: &str, id: u64, cluster_id: &str) -> Result<String, rcgen::Error> {
        let names = vec![SanType::DnsName(peer_name(id, cluster_id).try_into()?), SanType::DnsName(any_peer_name(cluster_id).try_into()?)];
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok(self.issue(request_pem, &format!("node {id}"), names, usages)? + &self.cert_pem)
    }

    /// A certificate for the ports that clients and operators use: it can't play a peer.
    pub(crate) fn issue_server(&self, request_pem: &str, name: &str, raft_addr: &str) -> Result<String, rcgen::Error> {
        let host = raft_addr.rsplit_once(':').map_or(raft_addr, |(host, _)| host).trim_matches(['[', ']']);
        let names = ["localhost", "127.0.0.1", "::1", name, host];
        let names =
            names.into_iter().filter(|name| !name.ends_with(".quorumsql.internal")).filter_map(|name| match name.parse::<IpAddr>() {
                Ok(address) => Some(SanType::IpAddress(address)),
                Err(_) => name.to_owned().try_into().ok().filter(|_| is_host_name(name)).map(SanType::DnsName),
            });
        self.issue(request_pem, name, names.collect(), vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    fn issue(
        &self,
        request_pem: &str,
        subject: &str,
        names: Vec<SanType>,
        usages: Vec<ExtendedKeyUsagePurpose>,
    ) -> Result<String, rcgen::Error> {
        let issuer = Issuer::from_ca_cert_pem(&self.cert_pem, KeyPair::from_pem(&self.key_pem)?)?;
        let public_key = CertificateSigningRequestParams::from_pem(request_pem)?.public_key;
        // Nothing of the request but its key is taken over.
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.subject_alt_names = names;
        params.extended_key_usages = usages;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Clients that are strict about RFC 5280 (Python from 3.13 on) take no certificate without it.
        params.use_authority_key_identifier_extension = true;
        Ok(CertificateSigningRequestParams { params, public_key }.signed_by(&issuer)?.pem())
    }
}

fn is_host_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 253 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
}

/// SHA-256 of a certificate: what a join token pins.
pub(crate) fn fingerprint(cert_pem: &str) -> Result<[u8; 32], StartError> {
    let der = CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_err(|e| StartError::Tls(e.to_string()))?;
    Ok(Sha256::digest(&der).into())
}

/// The files under `tls/`.
pub(crate) struct Files {
    ca: PathBuf,
    ca_key: PathBuf,
    peer_cert: PathBuf,
    peer_key: PathBuf,
    server_cert: PathBuf,
    server_key: PathBuf,
}

impl Files {
    fn new(layout: &Layout) -> Self {
        let file = |name: &str| layout.tls().join(name);
        Self {
            ca: file("ca.pem"),
            ca_key: file("ca-key.pem"),
            peer_cert: file("peer-cert.pem"),
            peer_key: file("peer-key.pem"),
            server_cert: file("server-cert.pem"),
            server_key: file("server-key.pem"),
        }
    }
}

/// All that `init` or `join` writes under `tls/`.
pub(crate) struct Bundle {
    pub(crate) ca_pem: String,
    /// Voters only.
    pub(crate) ca_key_pem: Option<String>,
    pub(crate) peer_cert_pem: String,
    pub(crate) peer_key_pem: String,
    pub(crate) server_cert_pem: String,
    pub(crate) server_key_pem: String,
}

impl Bundle {
    pub(crate) fn write(&self, layout: &Layout) -> io::Result<()> {
        let files = Files::new(layout);
        write_file(&files.ca, &self.ca_pem, 0o644)?;
        if let Some(key) = &self.ca_key_pem {
            write_file(&files.ca_key, key, 0o600)?;
        }
        write_file(&files.peer_cert, &self.peer_cert_pem, 0o644)?;
        write_file(&files.peer_key, &self.peer_key_pem, 0o600)?;
        write_file(&files.server_cert, &self.server_cert_pem, 0o644)?;
        write_file(&files.server_key, &self.server_key_pem, 0o600)?;
        // Their names too: the identity file, which comes after them, would bind the directory to a node without a key.
        fs::File::open(layout.tls())?.sync_all()
    }
}

fn write_file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()
}

/// This node's side of mutual TLS.
#[derive(Clone)]
pub(crate) struct PeerTls {
    cluster_id: Arc<str>,
    ca_pem: Arc<str>,
    cert_pem: Arc<str>,
    key_pem: Arc<str>,
}

impl PeerTls {
    pub(crate) fn load(layout: &Layout, cluster_id: &str) -> Result<Self, StartError> {
        let files = Files::new(layout);
        let read = |path: &Path| fs::read_to_string(path).map(Arc::from).map_err(|e| StartError::Tls(format!("{}: {e}", path.display())));
        Ok(Self {
            cluster_id: cluster_id.into(),
            ca_pem: read(&files.ca)?,
            cert_pem: read(&files.peer_cert)?,
            key_pem: read(&files.peer_key)?,
        })
    }

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// For connections to node `id`.
    pub(crate) fn client(&self, id: u64) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.ca_pem.as_bytes()))
            .identity(Identity::from_pem(self.cert_pem.as_bytes(), self.key_pem.as_bytes()))
            .domain_name(peer_name(id, &self.cluster_id))
    }

    /// For the peer port: a client certificate is optional here, and demanded per method.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, StartError> {
        let failed = |e: &dyn std::fmt::Display| StartError::Tls(e.to_string());
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.ca_pem.as_bytes()) {
            roots.add(authority.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
        }
        let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated().build().map_err(|e| failed(&e))?;
        let chain = CertificateDer::pem_slice_iter(self.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(|e| failed(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|e| failed(&e))?;
        let config = ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key);
        let mut config = config.map_err(|e| failed(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Whether a certificate (whose chain TLS has verified) is that of node `id`.
pub(crate) fn is_node(certificate: &CertificateDer<'_>, id: u64, cluster_id: &str) -> bool {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else { return false };
    let Ok(name) = ServerName::try_from(peer_name(id, cluster_id)) else { return false };
    rustls::client::verify_server_name(&parsed, &name).is_ok()
}

/// Trusts the authority whose hash the join token carries, and nobody else.
#[derive(Debug)]
pub(crate) struct PinnedAuthority {
    sha256: [u8; 32],
    name: ServerName<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedAuthority {
    pub(crate) fn new(sha256: [u8; 32], cluster_id: &str) -> Result<Self, StartError> {
        let name = ServerName::try_from(any_peer_name(cluster_id)).map_err(|e| StartError::Tls(e.to_string()))?;
        Ok(Self { sha256, name, algorithms: rustls::crypto::ring::default_provider().signature_verification_algorithms })
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = intermediates.iter().find(|certificate| <[u8; 32]>::from(Sha256::digest(certificate)) == self.sha256);
        let authority = pinned.ok_or_else(|| rustls::Error::General("the peer's authority is not the token's".into()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, self.algorithms.all)?;
        rustls::client::verify_server_name(&parsed, &self.name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "0b0e7a52-0000-4000-8000-000000000001";

    fn issued(authority: &Authority, id: u64) -> Vec<CertificateDer<'static>> {
        let pem = authority.issue_peer(&KeyRequest::new().unwrap().request_pem, id, CLUSTER).unwrap();
        CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
    }

    #[test]
    fn a_certificate_names_one_node_of_one_cluster() {
        let authority = Authority::create(CLUSTER).unwrap();
        let certificate = &issued(&authority, 17)[0];
        assert!(is_node(certificate, 17, CLUSTER));
        assert!(!is_node(certificate, 1, CLUSTER));
        assert!(!is_node(certificate, 17, "0b0e7a52-0000-4000-8000-000000000002"));
    }

    #[test]
    fn a_server_certificate_is_no_peer_even_if_its_node_is_named_like_one() {
        let authority = Authority::create(CLUSTER).unwrap();
        let request = KeyRequest::new().unwrap().request_pem;
        let pem = authority.issue_server(&request, &peer_name(1, CLUSTER), "10.0.0.7:6035").unwrap();
        assert!(!is_node(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap(), 1, CLUSTER));
    }

    #[test]
    fn a_joiner_trusts_only_the_authority_that_its_token_names() {
        let (authority, other) = (Authority::create(CLUSTER).unwrap(), Authority::create(CLUSTER).unwrap());
        let pinned = PinnedAuthority::new(fingerprint(authority.cert_pem()).unwrap(), CLUSTER).unwrap();
        let host = ServerName::try_from("10.0.0.7").unwrap();
        let verify = |chain: &[CertificateDer<'_>]| pinned.verify_server_cert(&chain[0], &chain[1..], &host, &[], UnixTime::now());
        let (right, wrong) = (issued(&authority, 1), issued(&other, 1));
        assert!(verify(&right).is_ok());
        assert!(verify(&wrong).is_err());
        assert!(verify(&[wrong[0].clone(), right[1].clone()]).is_err());
    }
}
