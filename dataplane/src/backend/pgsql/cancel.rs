//! Cancelling what a server runs (pgsql-dataplane.md 4.10).

use std::rc::Rc;
use std::time::Duration;

use quorumsql_wire::pgsql::startup;

use super::CancelKey;
use super::tls::encrypt;
use crate::tls::TlsError;
use crate::worker::WorkerContext;
use crate::worker::driver;

/// Time for the whole exchange with the server.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends a cancel request on a connection of its own, in the background. The server answers with nothing but closing.
pub(crate) fn send_cancel(ctx: &Rc<WorkerContext>, key: CancelKey) {
    let worker = Rc::clone(ctx);
    driver::spawn(async move {
        let exchange = async {
            let mut link = worker.connect(&key.address).await?;
            encrypt(&mut link, &key.address, &key.tls).await?;
            let mut request = Vec::with_capacity(16);
            startup::cancel_request(&mut request, key.pid, &key.secret);
            link.send_bytes(&request).await?;
            // Until the server has closed, the signal may still be on its way.
            while !link.recv().await?.is_empty() {}
            Ok::<_, TlsError>(())
        };
        match worker.ticker().guard(LIMIT, Box::pin(exchange)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(server.addr = %key.address, %error, "cancel request was not delivered"),
            Err(error) => tracing::debug!(server.addr = %key.address, %error, "cancel request was not delivered"),
        }
    });
}
