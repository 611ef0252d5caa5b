//! Statements that need no server (mysql-dataplane 3.2, 3.3).

use quorumsql_wire::mysql::column::Column;
use quorumsql_wire::mysql::error_code::{self, ErrorCode};

use super::facts::Facts;
use super::statement::Plan;
use super::{Client, Flow};
use crate::backend::mysql::Product;
use crate::config::Protocol;
use crate::session::mysql::local::{Local, Question};
use crate::session::mysql::set::SetStatement;

impl Client {
    /// Answers what needs no server; `None` = a server must, and `plan` knows what for.
    pub(super) async fn answer_here(&mut self, local: Local, plan: &mut Plan, sequence: u8) -> Option<Flow> {
        let pins = &self.state.pins;
        // The connection in hand knows of the last statement.
        let on_server = self.held.is_some() && (pins.hard() || pins.warnings || pins.found_rows);
        let flow = match local {
            Local::Use(schema) => {
                plan.schema = Some(schema);
                return None;
            }
            Local::Set(set) => self.set(set, plan, sequence).await?,
            Local::EndTransaction if self.held.is_none() || !pins.hard() => {
                self.state.last.local(None);
                self.send_ok(sequence, "").await
            }
            Local::Ask(Question::Diagnostics(_) | Question::FoundRows(_) | Question::RowCount(_)) if on_server => return None,
            Local::Ask(question) => self.answer(question, sequence).await,
            Local::Dollars if self.shown_product() == Product::Mariadb => return None,
            Local::Dollars => {
                let (code, text) = self.dollars();
                self.send_error(sequence, code, text).await
            }
            Local::ShowWarnings if !on_server => self.show_error(sequence).await,
            Local::Internal(true) => {
                let json = self.internal_session();
                self.send_rows(sequence, &[Column::text("session_info")], &[&[&json]]).await
            }
            Local::Internal(false) => self.send_error(sequence, error_code::PARSE, "Unknown PROXYSQL INTERNAL command").await,
            Local::Kill { id, query_only } => self.kill(id, query_only, sequence).await,
            Local::EndTransaction | Local::ShowWarnings => return None,
        };
        Some(flow)
    }

    async fn set(&mut self, set: SetStatement, plan: &mut Plan, sequence: u8) -> Option<Flow> {
        match set {
            SetStatement::Absorbed(absorbed) => {
                plan.sent.harmless_set = true;
                if self.held.is_some() || absorbed.ask {
                    plan.absorbed = Some(absorbed);
                    return None;
                }
                self.state.absorb(&absorbed);
                self.state.last.local(None);
                Some(self.send_ok(sequence, "").await)
            }
            SetStatement::UnknownCharset(name) => {
                Some(self.send_error(sequence, error_code::UNKNOWN_CHARSET, format!("Unknown character set: '{name}'")).await)
            }
            SetStatement::Global => {
                plan.sent.harmless_set = true;
                None
            }
            SetStatement::Untracked { single } => {
                plan.sent.single_set = single;
                None
            }
        }
    }

    async fn answer(&mut self, question: Question, sequence: u8) -> Flow {
        let (schema, user) = (self.state.origin.schema.to_string(), self.identity.user.name.clone());
        let config = self.ctx.config();
        let variables = &config.side(Protocol::Mysql).variables;
        let last = &self.state.last;
        let counts = matches!(question, Question::Diagnostics(_));
        let facts = Facts::new(&self.state.names, &variables.server_version);
        let variable = |name: String, value: String| (facts.variable(name, &value), value);
        let cells = match question {
            Question::ConnectionId(name) => vec![(facts.connection_id(name), self.session.id().to_string())],
            Question::FoundRows(name) => vec![(facts.number(name), last.found_rows.to_string())],
            Question::RowCount(name) => vec![(facts.number(name), last.row_count.to_string())],
            Question::Diagnostics(names) => {
                let count = i32::from(last.error.is_some()).to_string();
                names.into_iter().map(|name| (facts.counter(name), count.clone())).collect()
            }
            Question::VersionComment => vec![variable("@@version_comment".to_owned(), "(ProxySQL)".to_owned())],
            Question::Version(name) => {
                // The prefix is only for the greeting: by it MariaDB's replication told old clients apart.
                let version = &variables.server_version;
                let version = version.strip_prefix("5.5.5-").unwrap_or(version);
                let is_variable = name.starts_with('@');
                let column = if is_variable { facts.variable(name, version) } else { facts.certain_text(name, version.chars().count()) };
                vec![(column, version.to_owned())]
            }
            Question::User => vec![(facts.user(), user)],
            Question::DatabaseAndUser => vec![(facts.schema(), schema), (facts.user(), user)],
            Question::CharacterSets => {
                let names = ["client", "connection", "server", "database"];
                let charset = self.state.names.client().to_owned();
                names.iter().map(|name| variable(format!("@@character_set_{name}"), charset.clone())).collect()
            }
        };
        if !counts {
            self.state.last.local(Some(1));
        }
        let (columns, values): (Vec<_>, Vec<_>) = cells.into_iter().unzip();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.send_rows(sequence, &columns, &[&values]).await
    }

    /// SHOW WARNINGS when the last statement left nothing but perhaps its error.
    async fn show_error(&mut self, sequence: u8) -> Flow {
        let columns = Facts::new(&self.state.names, &self.ctx.config().side(Protocol::Mysql).variables.server_version).warnings();
        match self.state.last.error.clone() {
            Some(error) => self.send_rows(sequence, &columns, &[&["Error", &error.code.to_string(), &error.message]]).await,
            None => self.send_rows(sequence, &columns, &[]).await,
        }
    }

    /// Whose servers clients are told that they speak with.
    pub(super) fn shown_product(&self) -> Product {
        Product::of(&self.ctx.config().side(Protocol::Mysql).variables.server_version)
    }

    /// What MySQL says to `select $$` (MariaDB's texts change with its releases): from 8.1 on a dollar sign begins a quoted text.
    fn dollars(&self) -> (ErrorCode, &'static str) {
        const SYNTAX: &str = "You have an error in your SQL syntax; check the manual that corresponds to your MySQL server version for \
             the right syntax to use near '$$' at line 1";
        let config = self.ctx.config();
        let version = &config.side(Protocol::Mysql).variables.server_version;
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
        if (parts.next(), parts.next()) >= (Some(8), Some(1)) {
            (error_code::PARSE, SYNTAX)
        } else {
            (error_code::BAD_FIELD, "Unknown column '$$' in 'field list'")
        }
    }
}
