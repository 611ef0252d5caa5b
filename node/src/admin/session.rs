//! One admin connection: carries out [`Command`]s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorumsql_raft::command::{
    Channel, ClientId, Committed, EditConflicts, LayerCopy, Op, Origin, Outcome, ReadLevel, Request, RequestId, Value as RaftValue,
};
use quorumsql_raft::tables as stored;
use rusqlite::types::Value;

use super::context::Context;
use super::error::{engine_error, handler_error, rejection, sql_error, syntax_error};
use super::explain::{self, explain};
use super::parse::{Command, CopyCommand, SetCommand, ShowCommand, parse};
use super::read::{Audience, Query, describe_query, execute};
use super::running::Owner;
use super::show::show;
use super::variables::{decided_by_the_bootstrap_file, milliseconds, value_or_default};
use super::{freshness, masking, rewrite};
use crate::sql_server::functions::ClientFacts;
use crate::sql_server::lexer::{Kind, tokens};
use crate::sql_server::{Answer, Description, Done, Face, Login, Rows, Session, SqlError, Status};

/// Warnings kept of one statement.
const MAX_WARNINGS: usize = 64;

/// An admin connection.
pub(crate) struct AdminSession {
    context: Arc<Context>,
    login: Login,
    audience: Audience,
    client: ClientId,
    sequence: u64,
    /// Per module (in the form of its key) the `memory_index` that this connection has seen.
    seen: BTreeMap<String, u64>,
    read_level: ReadLevel,
    read_after: u64,
    warnings: Vec<String>,
    last_insert_id: i64,
}

impl AdminSession {
    /// A connection of a client that has logged in.
    pub(crate) fn new(context: Arc<Context>, login: Login, audience: Audience, client: ClientId) -> Self {
        Self {
            context,
            login,
            audience,
            client,
            sequence: 0,
            seen: BTreeMap::new(),
            read_level: ReadLevel::Auto,
            read_after: 0,
            warnings: Vec::new(),
            last_insert_id: 0,
        }
    }

    fn warn(&mut self, text: impl Into<String>) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text.into());
        }
    }

    async fn carry_out(&mut self, command: Command, sql: &str, params: &[Value]) -> Result<Answer, SqlError> {
        if self.audience == Audience::Stats {
            refuse_stats_user(&command, sql)?;
        }
        match command {
            Command::Empty => Err(handler_error("Empty query")),
            Command::Ignored | Command::Use => Ok(done(Done::default())),
            Command::Read => self.read(sql, params).await.map(Answer::Rows),
            Command::Write { target } => self.write(sql, params, target.as_ref()).await,
            Command::Copy(copy) => self.copy(copy).await,
            Command::Set(set) => self.set(set).await,
            Command::Show(command) => self.show(command).await.map(Answer::Rows),
            Command::Transaction { tag } => {
                self.warn("transactions over admin tables are not available in this version: each statement is its own transaction");
                Ok(done(Done { tag: tag.into(), ..Done::default() }))
            }
            Command::ExplainRules(command) => {
                let variables = self.context.variables().await?;
                explain(&self.context.dataplane, *command, self.login.face, &variables).map(Answer::Rows).map_err(handler_error)
            }
            Command::ClearDigests(protocol) => {
                self.context.dataplane.digests(protocol, true).await;
                Ok(done(Done { tag: "TRUNCATE".into(), ..Done::default() }))
            }
            Command::Shutdown => {
                tracing::warn!(user = %self.login.user, client = %self.login.peer, "shutdown asked for on the admin port");
                self.context.facts.shut_down();
                Ok(done(Done { close: true, ..Done::default() }))
            }
            Command::ReloadTls => {
                let context = self.context.clone();
                let reloaded = tokio::task::spawn_blocking(move || context.facts.reload_tls()).await;
                match reloaded.unwrap_or_else(|error| Err(error.to_string())) {
                    Ok(()) => Ok(done(Done { tag: "RELOAD".into(), ..Done::default() })),
                    Err(why) => Err(handler_error(format!("RELOAD TLS failed: {why}"))),
                }
            }
            Command::FlushLogs => {
                let context = self.context.clone();
                let flushed = tokio::task::spawn_blocking(move || context.facts.reopen_logs()).await;
                flushed.map_err(|error| handler_error(error.to_string()))?;
                Ok(done(Done { tag: "FLUSH".into(), ..Done::default() }))
            }
            Command::KillQuery(id) => {
                if !self.context.running.interrupt((self.login.face, id)) {
                    return Err(SqlError::new(1094, "HY000", "22023", format!("Unknown thread id: {id}")));
                }
                Ok(done(Done { tag: "KILL".into(), ..Done::default() }))
            }
            Command::DollarProbe => Err(self.dollar_probe().await?),
            Command::Refused(why) => Err(handler_error(why)),
            Command::Syntax { near } => Err(syntax_error(&near)),
        }
    }

    async fn dollar_probe(&self) -> Result<SqlError, SqlError> {
        let values = self.context.variables().await?;
        Ok(if value_or_default(&values, "mysql-server_version").starts_with("8.1") {
            let text = "You have an error in your SQL syntax; check the manual that corresponds to your MySQL server version for the right syntax to use near '$$' at line 1";
            SqlError::new(1064, "28000", "42601", text)
        } else {
            SqlError::new(1054, "28000", "42703", "Unknown column '$$' in 'field list'")
        })
    }

    fn query(&self, sql: &str, params: &[Value]) -> Query {
        let database = match self.audience {
            Audience::Admin => "admin",
            Audience::Stats => "stats",
        };
        let client = ClientFacts {
            database: database.into(),
            user: self.login.user.clone(),
            host: self.login.peer.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            connection_id: self.login.connection_id,
            last_insert_id: self.last_insert_id,
        };
        Query { sql: sql.into(), params: params.to_vec(), audience: self.audience, face: self.login.face, client }
    }

    /// Who can interrupt what this connection runs.
    fn owner(&self) -> Option<Owner> {
        Some((self.login.face, self.login.connection_id))
    }

    /// Waits until this node's tables are as fresh as the connection demands.
    async fn barrier(&mut self, level: ReadLevel) -> Result<(), SqlError> {
        let values = self.context.variables().await?;
        let time = milliseconds(&values, "admin-read_timeout_ms");
        let mark = self.context.consensus.barrier(level, time).await.map_err(rejection)?;
        if mark.applied_index < self.read_after {
            self.wait_for_apply(milliseconds(&values, "admin-write_timeout_ms")).await?;
        }
        if let Some(warning) = mark.warning {
            self.warn(warning);
        }
        Ok(())
    }

    /// Waits for the index of `SET CONNECTION read_after`.
    async fn wait_for_apply(&self, time: Duration) -> Result<(), SqlError> {
        let index = self.read_after;
        let mut watch = self.context.consensus.watch();
        match tokio::time::timeout(time, watch.wait_for(|applied| applied.index >= index)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(handler_error(format!("this node has not applied index {index} within {} ms", time.as_millis()))),
        }
    }

    async fn read(&mut self, sql: &str, params: &[Value]) -> Result<Rows, SqlError> {
        if self.audience == Audience::Admin
            && let Some(level) = freshness::demanded(sql, self.read_level)
        {
            self.barrier(level).await?;
        }
        let query = self.query(sql, params);
        let shown = self.context.read(self.owner(), move |context, connection| execute(context, connection, &query)).await?;
        self.note_seen(shown.seen);
        Ok(shown.rows)
    }

    fn note_seen(&mut self, seen: Vec<(String, u64)>) {
        self.seen.extend(seen.into_iter().map(|(module, index)| (module_key(&module), index)));
    }

    async fn show(&mut self, command: ShowCommand) -> Result<Rows, SqlError> {
        match command {
            ShowCommand::Warnings => {
                let rows = self
                    .warnings
                    .iter()
                    .map(|warning| vec![Value::Text("Warning".into()), Value::Text("1105".into()), Value::Text(warning.clone())]);
                Ok(Rows::text(&["Level", "Code", "Message"], rows.collect()))
            }
            ShowCommand::WarningCount => {
                Ok(Rows::text(&["@@session.warning_count"], vec![vec![Value::Text(self.warnings.len().to_string())]]))
            }
            command => {
                self.barrier(self.read_level).await?;
                let template = self.query("", &[]);
                let rows =
                    self.context.read(self.owner(), move |context, connection| show(context, connection, &command, &template)).await?;
                rows.notices.iter().for_each(|note| self.warn(note.clone()));
                Ok(rows)
            }
        }
    }

    async fn write(&mut self, sql: &str, params: &[Value], target: Option<&(Option<String>, String)>) -> Result<Answer, SqlError> {
        if target.is_some_and(|(_, name)| name == "node_overrides") {
            return Err(handler_error("node_overrides is written by SET NODE n name=value and SET NODE n name=DEFAULT"));
        }
        let client = self.query("", &[]).client;
        let evaluated = rewrite::evaluate_functions(sql, &client).map_err(|error| engine_error(&error))?;
        let text = rewrite::numbered_parameters(&evaluated);
        let params = params.iter().map(to_raft).collect();
        let committed = self.submit(Op::Sql { text, params, masked: masking::masked(sql) }).await?;
        self.last_insert_id = committed.last_insert_id;
        Ok(done(Done {
            affected: committed.affected,
            last_insert_id: u64::try_from(committed.last_insert_id).unwrap_or(0),
            info: String::new(),
            ..Done::default()
        }))
    }

    #[tracing::instrument(name = "admin.load", skip_all, fields(load.modules = ?copy.modules, load.from = ?copy.from, load.to = ?copy.to))]
    async fn copy(&mut self, copy: CopyCommand) -> Result<Answer, SqlError> {
        let values = self.context.variables().await?;
        let conflicts = match value_or_default(&values, "admin-edit_conflicts") {
            "error" => EditConflicts::Error,
            "off" => EditConflicts::Off,
            _ => EditConflicts::Warn,
        };
        let seen = copy.modules.iter().map(|module| self.seen.get(&module_key(module)).copied()).collect();
        let modules = copy.modules.iter().map(|module| (*module).to_owned()).collect();
        let CopyCommand { from, to, if_revision, dry_run, force, comment, .. } = copy;
        let op = Op::LayerCopy(LayerCopy { modules, from, to, if_revision, dry_run, force, comment, seen, conflicts });
        let committed = self.submit(op).await?;
        Ok(done(Done { info: committed.info, ..Done::default() }))
    }

    async fn set(&mut self, set: SetCommand) -> Result<Answer, SqlError> {
        let (name, affected) = match set {
            SetCommand::ReadLevel(level) => {
                self.read_level = match level.as_str() {
                    "auto" => ReadLevel::Auto,
                    "local" => ReadLevel::Local,
                    "linearizable" => ReadLevel::Linearizable,
                    _ => return Err(handler_error("read_level is 'auto', 'local' or 'linearizable'")),
                };
                return Ok(done(Done::default()));
            }
            SetCommand::ReadAfter(index) => {
                self.read_after = index;
                return Ok(done(Done::default()));
            }
            SetCommand::Unknown(name) => (name, 0),
            SetCommand::Node { node_id, name, value } => return self.set_override(node_id, name, value).await,
            SetCommand::Variable { name, value } if name == "admin-version" && value != env!("CARGO_PKG_VERSION") => {
                return Err(handler_error("admin-version is the version of the binary and cannot be set"));
            }
            SetCommand::Variable { name, value } if matches!(name.as_str(), "mysql-interfaces" | "pgsql-interfaces") => {
                let node_id = self.context.consensus.identity().node_id;
                return self.set_override(node_id, name, Some(value)).await;
            }
            SetCommand::Variable { name, value } => {
                // A row that was deleted comes back: the variable is there all the same.
                let text = if stored::variable(&name).is_some() {
                    "INSERT INTO main.global_variables (variable_value, variable_name) VALUES (?1, ?2) \
                     ON CONFLICT (variable_name) DO UPDATE SET variable_value = excluded.variable_value"
                } else {
                    "UPDATE main.global_variables SET variable_value = ?1 WHERE variable_name = ?2"
                };
                let text = text.to_owned();
                let masked = if stored::is_secret_variable(&name) { format!("SET {name}='***'") } else { format!("SET {name}='{value}'") };
                let params = vec![RaftValue::Text(value), RaftValue::Text(name.clone())];
                let affected = self.submit(Op::Sql { text, params, masked }).await?.affected;
                (name, affected)
            }
        };
        if affected > 0 {
            if let Some(note) = decided_by_the_bootstrap_file(&name) {
                self.warn(note);
            }
            return Ok(done(Done { affected, ..Done::default() }));
        }
        let info = format!("ERROR: Unknown global variable: '{name}'.");
        self.warn(info.clone());
        Ok(done(Done { info, ..Done::default() }))
    }

    async fn set_override(&mut self, node_id: u64, name: String, value: Option<String>) -> Result<Answer, SqlError> {
        if !self.context.consensus.status().members.iter().any(|member| member.node_id == node_id) {
            return Err(handler_error(format!("no member of the cluster has node id {node_id}; stats_cluster_nodes lists them")));
        }
        if name == "admin-version" || decided_by_the_bootstrap_file(&name).is_some() {
            return Err(handler_error(format!("{name} is decided by the node itself and cannot be overridden")));
        }
        match &value {
            Some(value) => stored::check_variable(&name, value).map_err(handler_error)?,
            None if stored::variable(&name).is_none() => return Err(handler_error(format!("unknown variable {name}"))),
            None => {}
        }
        let at_start = stored::variable(&name).is_some_and(|variable| variable.restart);
        self.submit(Op::NodeOverride { node_id, name: name.clone(), value }).await?;
        if at_start {
            self.warn(format!("{name} takes effect at the next start of node {node_id}"));
        }
        Ok(done(Done { affected: 1, ..Done::default() }))
    }

    /// One write: through the log, with this connection's identity.
    async fn submit(&mut self, op: Op) -> Result<Committed, SqlError> {
        let values = self.context.variables().await?;
        self.sequence += 1;
        let request = Request {
            id: RequestId { client: self.client, seq: self.sequence },
            origin: Origin {
                actor: self.login.user.clone(),
                channel: match self.login.face {
                    Face::Mysql => Channel::Mysql,
                    Face::Pgsql => Channel::Pgsql,
                },
                node: self.context.consensus.identity().node_id,
                client_addr: self.login.peer.to_string(),
            },
            op,
            timeout: milliseconds(&values, "admin-write_timeout_ms").max(Duration::from_millis(1)),
        };
        match self.context.consensus.submit(request).await {
            Outcome::Committed(committed) => {
                self.note_seen(committed.memory.clone());
                committed.warnings.iter().for_each(|warning| self.warn(warning.clone()));
                let said = committed.warnings.iter().any(|warning| warning.contains("not yet live"));
                if !committed.live && committed.revision.is_some() && !said {
                    self.warn(format!("committed at index {}, not yet live here", committed.index));
                }
                Ok(committed)
            }
            Outcome::Rejected(refused) | Outcome::Unknown(refused) => Err(rejection(refused)),
        }
    }
}

impl Session for AdminSession {
    async fn execute(&mut self, sql: &str, params: &[Value]) -> Result<Answer, SqlError> {
        let command = parse(sql);
        let about_warnings = matches!(command, Command::Show(ShowCommand::Warnings | ShowCommand::WarningCount | ShowCommand::Errors));
        if !about_warnings {
            self.warnings.clear();
        }
        let mut answer = self.carry_out(command, sql, params).await?;
        if !about_warnings {
            match &mut answer {
                Answer::Rows(rows) => rows.notices.clone_from(&self.warnings),
                Answer::Done(done) => done.notices.clone_from(&self.warnings),
            }
        }
        Ok(answer)
    }

    async fn describe(&mut self, sql: &str) -> Result<Description, SqlError> {
        let command = parse(sql);
        if self.audience == Audience::Stats {
            refuse_stats_user(&command, sql)?;
        }
        match command {
            Command::Read => {
                let query = self.query(sql, &[]);
                self.context.read(self.owner(), move |context, connection| describe_query(context, connection, &query)).await
            }
            Command::Show(command) => self.show(command).await.map(|rows| Description { parameters: 0, columns: Some(rows.columns) }),
            Command::ExplainRules(_) => Ok(Description { parameters: 0, columns: Some(Rows::text(&explain::COLUMNS, Vec::new()).columns) }),
            Command::Write { .. } => Ok(Description { parameters: parameter_count(sql), columns: None }),
            Command::Refused(why) => Err(handler_error(why)),
            Command::Syntax { near } => Err(syntax_error(&near)),
            _ => Ok(Description::default()),
        }
    }

    fn use_database(&mut self, _name: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn reset(&mut self) -> Result<(), SqlError> {
        let text = "Received unsupported 'COM_RESET_CONNECTION' for session type 'PROXYSQL_SESSION_ADMIN'";
        Err(SqlError::new(1047, "28000", "0A000", text))
    }

    fn status(&self) -> Status {
        Status { in_transaction: false, failed: false, autocommit: true, warnings: u16::try_from(self.warnings.len()).unwrap_or(u16::MAX) }
    }
}

fn done(done: Done) -> Answer {
    Answer::Done(done)
}

fn module_key(name: &str) -> String {
    name.to_ascii_lowercase().replace(' ', "_")
}

/// What an account of admin-stats_credentials may not do, in the words that such an account gets (admin-commands.md 15).
fn refuse_stats_user(command: &Command, sql: &str) -> Result<(), SqlError> {
    let first = || tokens(sql).first().map_or(String::new(), |token| token.text.to_owned());
    match command {
        Command::Write { .. } => Err(sql_error("attempt to write a readonly database")),
        Command::Set(SetCommand::Variable { .. } | SetCommand::Node { .. }) => Err(sql_error("attempt to write a readonly database")),
        Command::Copy(_)
        | Command::Shutdown
        | Command::ReloadTls
        | Command::FlushLogs
        | Command::KillQuery(_)
        | Command::ClearDigests(_)
        | Command::ExplainRules(_) => Err(syntax_error(&first())),
        Command::Show(ShowCommand::Rows { table, .. }) => Err(sql_error(format!("no such table: {table}"))),
        Command::Read if first().eq_ignore_ascii_case("PRAGMA") => Err(handler_error("Command not allowed")),
        _ => Ok(()),
    }
}

/// A statement without FROM shows nothing of the tables: it needs no leader.
fn parameter_count(sql: &str) -> usize {
    let found = tokens(sql);
    let mut count = 0;
    for token in found.iter().filter(|token| token.kind == Kind::Parameter) {
        count = token.text.get(1..).and_then(|digits| digits.parse().ok()).map_or(count + 1, |number: usize| count.max(number));
    }
    count
}

fn to_raft(value: &Value) -> RaftValue {
    match value {
        Value::Null => RaftValue::Null,
        Value::Integer(number) => RaftValue::Integer(*number),
        Value::Real(number) => RaftValue::Real(*number),
        Value::Text(text) => RaftValue::Text(text.clone()),
        Value::Blob(bytes) => RaftValue::Blob(bytes.clone()),
    }
}
