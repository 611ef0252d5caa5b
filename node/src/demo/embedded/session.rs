//! One connection to an embedded server.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::chatter::{self, Chatter, Facts};
use super::{Server, dialect, errors};
use crate::sql_server::engine::{self, Cancel, ColumnTypes, EngineError};
use crate::sql_server::functions::{self, ClientFacts};
use crate::sql_server::{Answer, Column, ColumnKind, Description, Done, Face, Login, Session, SqlError, Status, Value};

/// Longest run of a statement.
const STATEMENT_TIME: Duration = Duration::from_secs(60);

/// A client's state.
pub(super) struct EmbeddedSession {
    server: Arc<Server>,
    login: Login,
    database: String,
    autocommit: bool,
    /// PostgreSQL: an error inside the open transaction.
    failed: bool,
    in_transaction: bool,
    connection: Arc<Mutex<Connection>>,
}

impl EmbeddedSession {
    pub(super) fn new(server: Arc<Server>, login: Login, connection: Connection) -> Result<Self, SqlError> {
        register(&connection, &server, &login, 0).map_err(|error| SqlError::new(1105, "HY000", "XX000", error.to_string()))?;
        let database = login.database.clone();
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { server, login, database, autocommit: true, failed: false, in_transaction: false, connection })
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            server: &self.server,
            face: self.login.face,
            database: &self.database,
            autocommit: self.autocommit,
            connection_id: self.login.connection_id,
        }
    }

    async fn chat(&mut self, chatter: Chatter) -> Result<Answer, SqlError> {
        let done = |tag: &str| Ok(Answer::Done(Done { tag: tag.into(), ..Done::default() }));
        match chatter {
            Chatter::ReadOnly(read_only) => {
                self.server.set_read_only(read_only);
                tracing::info!(server = self.server.id, read_only, "embedded server");
                done("SET")
            }
            Chatter::Autocommit(autocommit) => {
                self.autocommit = autocommit;
                if autocommit { self.end("COMMIT").await } else { done("SET") }
            }
            Chatter::Ignored => done(""),
            Chatter::Use(name) => self.use_database(&name).and_then(|()| done("")),
            Chatter::Begin => {
                if self.in_transaction && self.login.face == Face::Mysql {
                    self.end("COMMIT").await?;
                }
                if !self.in_transaction {
                    self.run("BEGIN", &[]).await?;
                }
                done("BEGIN")
            }
            Chatter::Commit if self.failed => self.end("ROLLBACK").await,
            Chatter::Commit => self.end("COMMIT").await,
            Chatter::Rollback => self.end("ROLLBACK").await,
            Chatter::Answer(rows) => Ok(Answer::Rows(rows)),
            Chatter::Catalogue(sql) => self.run(sql, &[]).await,
        }
    }

    /// Ends the transaction, if there is one.
    async fn end(&mut self, verb: &str) -> Result<Answer, SqlError> {
        self.failed = false;
        if self.in_transaction
            && let Err(error) = self.run(verb, &[]).await
        {
            // A COMMIT that conflicts leaves the transaction open; both servers end it.
            self.run("ROLLBACK", &[]).await?;
            return Err(error);
        }
        Ok(Answer::Done(Done { tag: verb.into(), ..Done::default() }))
    }

    async fn query(&mut self, sql: &str, params: &[Value]) -> Result<Answer, SqlError> {
        if !self.autocommit && !self.in_transaction {
            self.run("BEGIN", &[]).await?;
        }
        let text = dialect::rewrite(sql, &|name| chatter::variable(name, &self.facts()));
        if let Some(name) = unknown_variable(&text) {
            return Err(SqlError::new(1193, "HY000", "42601", format!("Unknown system variable '{}'", name.trim_start_matches('@'))));
        }
        let answer = self.run(&text, params).await?;
        Ok(match answer {
            Answer::Rows(mut rows) if self.login.face == Face::Pgsql => {
                narrow(&mut rows.columns, &dialect::casts(sql));
                Answer::Rows(rows)
            }
            other => other,
        })
    }

    /// Runs on a blocking thread; interrupted when the client goes away.
    async fn run(&mut self, sql: &str, params: &[Value]) -> Result<Answer, SqlError> {
        let (face, server) = (self.login.face, self.server.clone());
        let (sql, params) = (sql.to_owned(), params.to_vec());
        self.blocking(move |connection| {
            if server.is_read_only() && !connection.prepare(&sql).map_err(|error| errors::from_engine(face, &error.into()))?.readonly() {
                return Err(errors::read_only(face, &dialect::verb(&sql)));
            }
            engine::run(connection, &sql, &params, ColumnTypes::Declared).map_err(|error| errors::from_engine(face, &error))
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, SqlError> {
        let cancel = Cancel::default();
        let (connection, flag, face) = (self.connection.clone(), cancel.flag(), self.login.face);
        let (result, in_transaction) = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock();
            let result = engine::limit(&mut connection, STATEMENT_TIME, flag)
                .map_err(|error| errors::from_engine(face, &error))
                .and_then(|()| work(&connection));
            (result, !connection.is_autocommit())
        })
        .await
        .map_err(|error| SqlError::new(1105, "HY000", "XX000", error.to_string()))?;
        self.in_transaction = in_transaction;
        result
    }
}

impl Session for EmbeddedSession {
    async fn execute(&mut self, sql: &str, params: &[Value]) -> Result<Answer, SqlError> {
        let chatter = chatter::recognise(sql, &self.facts())?;
        let ends = matches!(chatter, Some(Chatter::Commit | Chatter::Rollback));
        if self.failed && !ends {
            return Err(errors::failed_transaction());
        }
        let answer = match chatter {
            Some(chatter) => self.chat(chatter).await,
            None => self.query(sql, params).await,
        };
        if answer.is_err() && self.login.face == Face::Pgsql && self.in_transaction {
            self.failed = true;
        }
        if let Ok(Answer::Done(done)) = &answer
            && done.last_insert_id > 0
        {
            let (server, login, id) = (self.server.clone(), self.login.clone(), i64::try_from(done.last_insert_id).unwrap_or(0));
            self.blocking(move |connection| {
                register(connection, &server, &login, id).map_err(|error| errors::from_engine(login.face, &EngineError::from(error)))
            })
            .await?;
        }
        answer
    }

    async fn describe(&mut self, sql: &str) -> Result<Description, SqlError> {
        match chatter::recognise(sql, &self.facts())? {
            Some(Chatter::Answer(rows)) => return Ok(Description { parameters: 0, columns: Some(rows.columns) }),
            Some(Chatter::Catalogue(_)) | None => {}
            Some(_) => return Ok(Description::default()),
        }
        let face = self.login.face;
        let text = dialect::rewrite(sql, &|name| chatter::variable(name, &self.facts()));
        let casts = dialect::casts(sql);
        let numbers = casts.numbers.clone();
        let sample = move |number: usize| if numbers.contains(&number) { Value::Integer(0) } else { Value::Null };
        let mut description = self
            .blocking(move |connection| {
                engine::describe_by_running(connection, &text, sample).map_err(|error| errors::from_engine(face, &error))
            })
            .await?;
        if let (Face::Pgsql, Some(columns)) = (face, &mut description.columns) {
            narrow(columns, &casts);
        }
        Ok(description)
    }

    fn use_database(&mut self, name: &str) -> Result<(), SqlError> {
        self.database = name.to_owned();
        let (mut login, server) = (self.login.clone(), self.server.clone());
        login.database = name.to_owned();
        register(&self.connection.lock(), &server, &login, 0).map_err(|error| errors::from_engine(login.face, &error.into()))?;
        self.login = login;
        Ok(())
    }

    fn reset(&mut self) -> Result<(), SqlError> {
        let connection = self.connection.lock();
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").map_err(|error| errors::from_engine(self.login.face, &error.into()))?;
        }
        drop(connection);
        (self.autocommit, self.failed, self.in_transaction) = (true, false, false);
        Ok(())
    }

    fn status(&self) -> Status {
        Status { in_transaction: self.in_transaction, failed: self.failed, autocommit: self.autocommit, warnings: 0 }
    }
}

/// Integers of an int4 expression are int4.
fn narrow(columns: &mut [Column], casts: &dialect::Casts) {
    for column in columns.iter_mut().filter(|column| casts.int4 && column.kind == ColumnKind::Integer) {
        column.kind = ColumnKind::Int4;
    }
}

/// What is left of `@@…` after rewriting is a variable that nobody knows.
fn unknown_variable(sql: &str) -> Option<&str> {
    use crate::sql_server::lexer::{Kind, tokens};
    tokens(sql).into_iter().find(|token| token.kind == Kind::SystemVariable).map(|token| token.text)
}

/// Functions that tell of the connection and the server.
fn register(connection: &Connection, server: &Arc<Server>, login: &Login, last_insert_id: i64) -> rusqlite::Result<()> {
    let version = match login.face {
        Face::Mysql => super::MYSQL_VERSION.to_owned(),
        Face::Pgsql => format!("PostgreSQL {} (embedded backend of the quorumsql demo)", super::PGSQL_VERSION),
    };
    let facts = ClientFacts {
        database: login.database.clone(),
        user: login.user.clone(),
        host: login.peer.to_string(),
        version,
        connection_id: login.connection_id,
        last_insert_id,
    };
    functions::register(connection, &facts)?;
    let flags = FunctionFlags::SQLITE_UTF8;
    let recovery = server.clone();
    connection.create_scalar_function("pg_is_in_recovery", 0, flags, move |_| Ok(if recovery.is_read_only() { "t" } else { "f" }))?;
    for arguments in [1, 2] {
        let server = server.clone();
        connection.create_scalar_function("current_setting", arguments, flags, move |context| {
            Ok(chatter::setting(&context.get::<String>(0)?, &server))
        })?;
    }
    connection.create_scalar_function("set_config", 3, flags, |context| context.get::<Option<String>>(1))
}
