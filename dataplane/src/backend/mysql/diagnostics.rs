//! The diagnostics area of a connection: what SHOW WARNINGS, `@@error_count` and GET DIAGNOSTICS show of the last statement.
//!
//! An answer tells that there are warnings or an error. Most later statements forget them again, but on MariaDB only those that
//! name a table, which does not show here: so what once was there is taken to be there still, until this side has put it right.

use std::fmt::Write;

use quorumsql_wire::mysql::ErrPacket;

use super::Product;
use crate::session::mysql::state::Last;

/// Whose warnings and errors a connection would show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Diagnostics {
    /// Nobody's.
    #[default]
    Empty,
    /// Those of the session that holds it.
    Own,
    /// Perhaps those of another session, or of a statement of this side's own.
    Foreign,
}

impl Diagnostics {
    /// The session would see another's warnings, or not its own error.
    pub(crate) fn are_foreign_to(self, last: &Last) -> bool {
        match self {
            Self::Own => false,
            Self::Empty => last.error.is_some(),
            Self::Foreign => true,
        }
    }
}

/// Most characters of MESSAGE_TEXT; MariaDB takes more.
const MAX_MESSAGE: usize = 128;
const MAX_MESSAGE_MARIADB: usize = 512;
/// `ER_UNKNOWN_ERROR`, in the place of a number that SIGNAL does not take.
const UNKNOWN: u16 = 1105;

/// A statement after which this is the only error, or after which there is nothing. Tables make MariaDB forget.
pub(super) fn statement(error: Option<&ErrPacket>, product: Product) -> String {
    let Some(error) = error else { return "DO (SELECT 1 FROM (SELECT 1) AS t)".to_owned() };
    let state = std::str::from_utf8(&error.sqlstate).unwrap_or_default();
    let known = state.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) && !state.starts_with("00");
    let state = if known && !state.is_empty() { state } else { "HY000" };
    let number = if error.code == 0 { UNKNOWN } else { error.code };
    // In hexadecimal it means the same in every character set and mode.
    let mut sql = format!("SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = _utf8mb4 X'");
    let limit = if product == Product::Mariadb { MAX_MESSAGE_MARIADB } else { MAX_MESSAGE };
    let end = error.message.char_indices().nth(limit).map_or(error.message.len(), |(at, _)| at);
    for byte in error.message[..end].bytes() {
        let _ = write!(sql, "{byte:02X}");
    }
    sql.push('\'');
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_made_again_as_they_were() {
        let error = |code, sqlstate: &[u8; 5], message: &str| ErrPacket { code, sqlstate: *sqlstate, message: message.into() };
        let cases = [
            (error(1054, b"42S22", "no 'ü'"), "SIGNAL SQLSTATE '42S22' SET MYSQL_ERRNO = 1054, MESSAGE_TEXT = _utf8mb4 X'6E6F2027C3BC27'"),
            (error(0, b"00000", ""), "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1105, MESSAGE_TEXT = _utf8mb4 X''"),
            (error(7, b"4'; x", "a"), "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 7, MESSAGE_TEXT = _utf8mb4 X'61'"),
        ];
        for (error, sql) in cases {
            assert_eq!(statement(Some(&error), Product::Mysql), sql);
        }
        let long = error(1, b"HY000", &"é".repeat(600));
        for (product, characters) in [(Product::Mysql, 128), (Product::Mariadb, 512)] {
            assert!(statement(Some(&long), product).ends_with(&format!("X'{}'", "C3A9".repeat(characters))));
        }
    }

    #[test]
    fn what_must_be_put_right() {
        let (clean, failed) =
            (Last::NOTHING, Last { error: Some(ErrPacket { code: 1, sqlstate: *b"HY000", message: String::new() }), ..Last::NOTHING });
        for (diagnostics, last, foreign) in [
            (Diagnostics::Empty, &clean, false),
            (Diagnostics::Empty, &failed, true),
            (Diagnostics::Own, &failed, false),
            (Diagnostics::Foreign, &clean, true),
        ] {
            assert_eq!(diagnostics.are_foreign_to(last), foreign, "{diagnostics:?}");
        }
    }
}
