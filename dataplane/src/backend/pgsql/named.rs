//! Which parameters of an application's own a connection knows behind a function whose effects nobody saw: the server is asked, for of each name
//! it says whether it knows it, and it has the texts in which names can stand.

use super::{BackendError, PgBackend};
use crate::session::pgsql::custom::LIMIT;
use crate::session::pgsql::settings::literal;
use crate::worker::ticker::micros;

/// How long a connection goes by the texts that it has looked at, in microseconds: to look at 5000 functions takes a server a tenth of a second.
const TEXTS_AGE_US: u64 = 60_000_000;
/// Names in the texts that are asked about.
const NAMES: usize = 1000;

/// Names that functions of the database's own give to `set_config` or SET, or that are set for a function, a role or a database.
const NAMES_IN_TEXTS: &str = r#"SELECT DISTINCT pg_catalog.lower(name) FROM (
    SELECT pg_catalog.concat_ws(' ', prosrc, proconfig::pg_catalog.text) FROM pg_catalog.pg_proc
    WHERE oid OPERATOR(pg_catalog.>=) 16384 AND (pg_catalog.strpos(pg_catalog.lower(prosrc), 'set_config') OPERATOR(pg_catalog.>) 0
        OR prosrc OPERATOR(pg_catalog.~*) '\mset\s+(?:local\s+|session\s+)?"?[[:alpha:]_]\w*"?\s*\.' OR proconfig IS NOT NULL)
    UNION ALL SELECT setconfig::pg_catalog.text FROM pg_catalog.pg_db_role_setting) AS texts (text),
    LATERAL (SELECT (pg_catalog.regexp_matches(text,
        '(?:[''"{,]|\mset\s+(?:local\s+|session\s+)?)([[:alpha:]_]\w*(?:\.\w+)+)(?:''|\s*=|\s+to\M)', 'gi'))[1]) AS names (name)
    LIMIT 1001"#;

/// The question which of the names in the texts a server knows, and when the texts were looked at.
#[derive(Debug, Default)]
pub(crate) struct Question {
    /// Empty = there are no names.
    sql: String,
    /// Of [`micros`]; 0 = never.
    asked: u64,
}

impl PgBackend {
    /// Adds the names that the server knows of those in the texts. Run behind DISCARD ALL, which restores every value but theirs: they are empty.
    ///
    /// # Errors
    /// They cannot be had, or are too many: the connection must be closed.
    pub(super) async fn note_names_of_functions(&mut self) -> Result<(), BackendError> {
        let unknown = |error| match error {
            BackendError::Server(_) => BackendError::Unsuitable,
            other => other,
        };
        let now = micros();
        if self.question.asked == 0 || now > self.question.asked + TEXTS_AGE_US {
            let names = self.column(NAMES_IN_TEXTS, NAMES + 1).await.map_err(unknown)?;
            if names.len() > NAMES {
                return Err(BackendError::Unsuitable);
            }
            self.question = Question { sql: question(&names), asked: now };
        }
        if !self.question.sql.is_empty() {
            let sql = std::mem::take(&mut self.question.sql);
            let known = self.column(&sql, LIMIT + 1).await.map_err(unknown)?;
            self.question.sql = sql;
            for name in known {
                self.names.add(&name).map_err(|_| BackendError::Unsuitable)?;
            }
        }
        Ok(())
    }
}

/// Which of these names a server knows with an empty value.
fn question(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<_> = names.iter().map(|name| literal(name)).collect();
    let names = names.join(", ");
    format!(
        "SELECT name FROM pg_catalog.unnest(ARRAY[{names}]::pg_catalog.text[]) AS names (name) \
         WHERE pg_catalog.current_setting(name, true) OPERATOR(pg_catalog.=) ''"
    )
}
