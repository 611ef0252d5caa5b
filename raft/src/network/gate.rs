//! Who may call what on the peer port, decided before a byte of the body is read.
//!
//! Every method but `Internal.Join` demands a client certificate of the cluster whose name is that of the node in the call's
//! metadata. Ids that are not (yet) in this node's own membership are served: a fresh learner knows nobody.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use tonic::{
    Status,
    body::Body,
    codegen::{BoxFuture, http},
    server::NamedService,
    transport::server::{TcpConnectInfo, TlsConnectInfo},
};
use tower::Service;

use super::{metadata, refusals::Refusals, tls};
use crate::membership::roster::Roster;

/// The node that a call comes from, verified. Absent only in `Join` calls of nodes that are not members yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeerId(pub(crate) u64);

const JOIN: &str = "/quorumsql.peer.v1.Internal/Join";

/// What a caller must name.
pub(crate) struct Admission {
    pub(crate) cluster_id: String,
    pub(crate) node_id: u64,
    pub(crate) roster: Arc<Roster>,
    pub(crate) refusals: Arc<Refusals>,
}

/// A service behind the check. `join` serves the one open method, with a small limit on its message.
#[derive(Clone)]
pub(crate) struct Gate<S> {
    admission: Arc<Admission>,
    members: S,
    join: Option<S>,
}

impl<S> Gate<S> {
    pub(crate) fn members_only(admission: Arc<Admission>, members: S) -> Self {
        Self { admission, members, join: None }
    }

    pub(crate) fn with_join(admission: Arc<Admission>, members: S, join: S) -> Self {
        Self { admission, members, join: Some(join) }
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The services behind are always ready: tonic's generated servers hold no capacity.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        match self.admission.check(&request) {
            Ok(peer) => {
                request.extensions_mut().insert(peer);
                Box::pin(self.members.call(request))
            }
            Err(status) => match &mut self.join {
                Some(join) if request.uri().path() == JOIN => Box::pin(join.call(request)),
                _ => {
                    let connection = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
                    let peer = connection.and_then(|connection| connection.get_ref().remote_addr());
                    self.admission.refusals.log(peer, request.uri().path(), status.message());
                    Box::pin(std::future::ready(Ok(status.into_http())))
                }
            },
        }
    }
}

impl Admission {
    fn check(&self, request: &http::Request<Body>) -> Result<PeerId, Status> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let connection = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
        let certificates = connection.and_then(TlsConnectInfo::peer_certs);
        let certificate = certificates.as_ref().and_then(|chain| chain.first());
        let certificate = certificate.ok_or_else(|| Status::unauthenticated("a client certificate of the cluster is required"))?;
        if header(metadata::CLUSTER) != Some(self.cluster_id.as_str()) {
            return Err(Status::permission_denied("another cluster"));
        }
        if header(metadata::TO).and_then(|to| to.parse().ok()) != Some(self.node_id) {
            return Err(Status::permission_denied(format!("this is node {}", self.node_id)));
        }
        let from = header(metadata::FROM).and_then(|from| from.parse().ok()).ok_or_else(|| Status::permission_denied("no sender"))?;
        if !tls::is_node(certificate, from, &self.cluster_id) {
            return Err(Status::permission_denied(format!("the certificate is not that of node {from}")));
        }
        self.roster.admits(&self.cluster_id, from, header(metadata::INCARNATION))?;
        Ok(PeerId(from))
    }
}
