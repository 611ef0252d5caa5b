//! PostgreSQL statements.

mod body;
mod classify;
mod digest;
mod functions;
mod lexer;
mod literal;
mod prepared;
mod session;
mod set;

pub use prepared::{PreparedName, PreparedUse, pgsql_prepared_names};
pub use session::{PgsqlConfig, PgsqlConfigValue, PgsqlSession, parse_pgsql_session, sets_only_plain_names};
pub use set::{PgsqlSet, TransactionModes, parse_pgsql_set};

use super::{Scan, ScanOptions};

/// Fills `scan` from the text of a Query or Parse message.
pub fn scan_pgsql(sql: &[u8], options: &ScanOptions, scan: &mut Scan) {
    scan.clear();
    digest::normalize(sql, options, &mut scan.digest_text);
    classify::classify(sql, options.backslash_escapes, scan);
    scan.finish(options);
}

#[cfg(test)]
mod tests {
    use crate::sql::{ScanOptions, scan_pgsql, vectors};

    #[test]
    fn digest_texts_equal_the_specification() {
        assert_eq!(vectors::check(include_str!("vectors.tsv"), ScanOptions::PGSQL, scan_pgsql), 72);
    }
}
