//! TLS with a server, before anything else is said (PostgreSQL manual, "SSL Session Encryption").

use std::io;

use quorumsql_wire::pgsql::startup::{self, ACCEPT_TLS, REFUSE_ENCRYPTION};

use crate::config::ServerAddress;
use crate::tls::{ServerTls, TlsError};
use crate::worker::link::Link;

/// Asks for TLS as the server's row says. A Unix socket needs none, and PostgreSQL offers none there.
pub(super) async fn encrypt(link: &mut Link, address: &ServerAddress, tls: &ServerTls) -> Result<(), TlsError> {
    let Some(connector) = tls.connector().filter(|_| address.port != 0) else { return Ok(()) };
    let mut request = Vec::with_capacity(8);
    startup::ssl_request(&mut request);
    link.send_bytes(&request).await?;
    let answer = link.recv().await?;
    match answer[..] {
        [ACCEPT_TLS] => link.connect_tls(connector, &address.host).await,
        [REFUSE_ENCRYPTION] => tls.not_offered(),
        [ACCEPT_TLS, ..] => Err(TlsError::PlainBytes),
        [] => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed when it was asked for it").into()),
        // An error message of a server that is too old or too busy: plain text that anyone could have put there is not shown.
        _ => Err(TlsError::Setup("the server answered neither yes nor no when it was asked for it".into())),
    }
}
