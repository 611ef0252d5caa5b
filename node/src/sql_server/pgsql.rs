//! The PostgreSQL face.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::database::Database;
use super::listener::{Client, ServeOptions};

/// One client from start-up packet to end.
pub(super) async fn converse<D: Database>(socket: TcpStream, client: Client, database: Arc<D>, options: ServeOptions) -> io::Result<()> {
    drop((socket, database, options));
    Err(io::Error::other(format!("the PostgreSQL face cannot serve {} yet", client.peer)))
}
