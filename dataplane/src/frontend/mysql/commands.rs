//! One command of a client: which is answered here, and which goes to a server (mysql-dataplane 3.1).

use quorumsql_wire::mysql::{Command, error_code};

use super::request::{Incoming, Request, is_silent};
use super::{Client, Flow};
use crate::config::Protocol;
use crate::worker::chunk::Chunk;

impl Client {
    /// Bytes have come: completes the packet that they begin and runs it.
    pub(super) async fn on_bytes(&mut self, chunk: Chunk) -> Flow {
        let limit = self.ctx.config().side(Protocol::Mysql).variables.max_allowed_packet as usize;
        match self.read_request(chunk, limit).await {
            Incoming::Gone => Flow::Close,
            Incoming::TooLarge { answer_sequence, silent } => self.refuse_large(answer_sequence, silent).await,
            Incoming::Request(request) => {
                self.session.forget_kill_query();
                self.ctx.stats(Protocol::Mysql).bytes_recv.add(request.raw.len() as u64);
                self.command(request).await
            }
        }
    }

    async fn command(&mut self, mut request: Request) -> Flow {
        let sequence = request.answer_sequence;
        let Ok(command) = Command::decode(request.payload()) else {
            if request.payload().first().copied().is_some_and(is_silent) {
                return Flow::Continue;
            }
            return self.send_error(sequence, error_code::MALFORMED_PACKET, "Malformed communication packet").await;
        };
        match command {
            Command::Query(_) => self.query(request).await,
            Command::Execute { statement, .. } => self.execute(&mut request, statement).await,
            Command::Prepare(_) => Box::pin(self.prepare(request)).await,
            Command::CloseStatement(id) => Box::pin(self.close_statement(id)).await,
            Command::SendLongData { statement, parameter, data } => self.add_long_data(statement, parameter, data),
            Command::ResetStatement(id) => Box::pin(self.reset_statement(id, sequence)).await,
            Command::Fetch { statement, .. } => Box::pin(self.fetch(&mut request, statement)).await,
            Command::FieldList { .. } => Box::pin(self.field_list(request)).await,
            Command::Quit => Flow::Close,
            Command::Ping => self.send_ok(sequence, "").await,
            Command::InitDb(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                Box::pin(self.init_db(request, name)).await
            }
            Command::SetOption(option) => {
                if option > 1 {
                    return self.send_error(sequence, error_code::UNKNOWN_COMMAND, "Unknown command").await;
                }
                self.state.multi_statements = option == 0;
                self.send_eof(sequence).await
            }
            Command::Statistics => {
                let text = self.statistics();
                self.send_payload(sequence, text.as_bytes()).await
            }
            Command::ResetConnection => Box::pin(self.reset_connection(sequence)).await,
            Command::ChangeUser(body) => {
                let body = body.to_vec();
                Box::pin(self.change_user(&body, sequence)).await
            }
            Command::ProcessKill(id) => Box::pin(self.kill(id, false, sequence)).await,
            Command::Other(_) => self.send_error(sequence, error_code::UNKNOWN_COMMAND, "Unknown command").await,
        }
    }

    /// COM_STATISTICS, of this worker.
    fn statistics(&self) -> String {
        let uptime = self.ctx.ticker().now() / 10;
        let stats = self.ctx.stats(Protocol::Mysql);
        format!("Uptime: {uptime} Threads: {}  Questions: {}  Slow queries: 0", stats.connected.get(), stats.queries.get())
    }
}
