//! Sessions of MySQL clients.

use std::rc::Rc;

use crate::worker::WorkerContext;
use crate::worker::link::Link;
use crate::worker::session::SessionGuard;

/// Starts the task of a client.
pub(crate) fn spawn(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
    tokio::task::spawn_local(serve(link, session, ctx));
}

/// Serves one client to its end.
async fn serve(link: Link, session: SessionGuard, ctx: Rc<WorkerContext>) {
    tracing::warn!(session.id = session.id(), worker = ctx.index(), client = %link.peer_addr(), "no MySQL dialogue in this build");
}
