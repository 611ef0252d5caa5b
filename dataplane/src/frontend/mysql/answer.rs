//! Statements that need no server (mysql-dataplane 3.2, 3.3).

use quorumsql_wire::mysql::column::Column;
use quorumsql_wire::mysql::error_code::{self, ErrorCode};

use super::statement::Plan;
use super::{Client, Flow};
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
            Local::Use(schema) => self.use_schema(schema, sequence).await,
            Local::Set(set) => self.set(set, plan, sequence).await?,
            Local::EndTransaction if self.held.is_none() || !pins.hard() => {
                self.state.last.local(None);
                self.send_ok(sequence, "").await
            }
            Local::Ask(Question::Diagnostics(_) | Question::FoundRows(_) | Question::RowCount(_)) if on_server => return None,
            Local::Ask(question) => self.answer(question, sequence).await,
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
        let (schema, user) = (self.state.schema.clone(), self.identity.user.name.clone());
        let config = self.ctx.config();
        let variables = &config.side(Protocol::Mysql).variables;
        let last = &self.state.last;
        let counts = matches!(question, Question::Diagnostics(_));
        let number = |name: String, value: String| (Column::integer(name), value);
        let cells = match question {
            Question::ConnectionId(name) => vec![number(name, self.session.id().to_string())],
            Question::FoundRows(name) => vec![number(name, last.found_rows.to_string())],
            Question::RowCount(name) => vec![number(name, last.row_count.to_string())],
            Question::Diagnostics(names) => {
                let count = i32::from(last.error.is_some()).to_string();
                names.into_iter().map(|name| number(name, count.clone())).collect()
            }
            Question::VersionComment => vec![(Column::text("@@version_comment"), "(ProxySQL)".to_owned())],
            Question::Version(name) => vec![(Column::text(name), variables.server_version.clone())],
            Question::User => vec![(Column::text("USER()"), user)],
            Question::DatabaseAndUser => vec![(Column::text("DATABASE()"), schema), (Column::text("USER()"), user)],
            Question::CharacterSets => {
                let names = ["client", "connection", "server", "database"];
                let charset = self.state.names.client().to_owned();
                names.iter().map(|name| (Column::text(format!("@@character_set_{name}")), charset.clone())).collect()
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
        let columns = ["Level", "Code", "Message"].map(Column::text);
        match self.state.last.error.clone() {
            Some((code, text)) => self.send_rows(sequence, &columns, &[&["Error", &code.to_string(), &text]]).await,
            None => self.send_rows(sequence, &columns, &[]).await,
        }
    }

    /// What a server says to `select $$`: from 8.1 on a dollar sign begins a quoted text.
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
