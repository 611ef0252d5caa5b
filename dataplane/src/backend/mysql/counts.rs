//! `FOUND_ROWS()` and `ROW_COUNT()` of a connection: those of the statement that ran on it last, whoever sent it.

use std::iter::repeat_n;

use quorumsql_wire::mysql::command::byte;
use quorumsql_wire::mysql::scanner::Question;

use super::Backend;
use super::align::AlignError;
use crate::session::mysql::state::Last;

/// A statement of a session, as a name for its counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CountsOf {
    /// Connection id.
    pub(crate) session: u32,
    /// [`Last::number`].
    pub(crate) statement: u64,
}

impl CountsOf {
    /// Of no session's statement: no session has this id.
    pub(crate) const NOBODY: Self = Self { session: 0, statement: 0 };
}

/// Most rows that are selected to be counted.
pub(crate) const MAX_FOUND: u64 = 10_000;

/// A statement that finds so many rows, at most [`MAX_FOUND`].
fn selecting(rows: u64) -> String {
    let ten = format!("(SELECT 0{})", " UNION ALL SELECT 0".repeat(9));
    let factors = rows.checked_ilog10().unwrap_or(0) + 1;
    let tables: Vec<_> = repeat_n(ten, factors as usize).enumerate().map(|(at, ten)| format!("{ten} AS t{at}")).collect();
    format!("SELECT 0 FROM {} LIMIT {rows}", tables.join(", "))
}

impl Backend {
    /// Makes the counts those of the session's last statement, as far as that can be.
    pub(super) async fn make_counts(&mut self, last: &Last) -> Result<(), AlignError> {
        let select = [&[byte::QUERY], selecting(last.found_rows.min(MAX_FOUND)).as_bytes()].concat();
        self.call(Question::Results, &select).await?.map_err(AlignError::Refused)?;
        // The SELECT has left -1; a ping leaves 0 and the rows as they were.
        if last.row_count >= 0 {
            self.call(Question::Simple, &[byte::PING]).await?.map_err(AlignError::Refused)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_rows_are_found() {
        for (rows, tables) in [(0, 1), (1, 1), (9, 1), (10, 2), (99, 2), (1000, 4), (MAX_FOUND, 5)] {
            let sql = selecting(rows);
            assert!(sql.ends_with(&format!(" LIMIT {rows}")), "{sql}");
            assert_eq!(sql.matches(" AS t").count(), tables, "{sql}");
        }
    }
}
