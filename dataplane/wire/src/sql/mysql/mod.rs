//! MySQL and MariaDB statements.

mod classify;
mod digest;
mod lexer;
mod set;

pub use set::{MysqlSet, SetItem, SetScope, SetValue, parse_mysql_set, parse_mysql_use};

use super::{Scan, ScanOptions};

/// Fills `scan` from the text of a COM_QUERY or COM_STMT_PREPARE.
pub fn scan_mysql(sql: &[u8], options: &ScanOptions, scan: &mut Scan) {
    scan.clear();
    digest::normalize(sql, options, &mut scan.digest_text);
    classify::classify(sql, options, scan);
    scan.finish(options);
}

#[cfg(test)]
mod tests {
    use crate::sql::{ScanOptions, scan_mysql, vectors};

    #[test]
    fn digest_text_and_hash_equal_the_reference() {
        assert_eq!(vectors::check(include_str!("vectors.tsv"), ScanOptions::MYSQL, scan_mysql), 142);
    }

    /// The digest of a list that is cut does not depend on how often its buffer filled up.
    #[test]
    fn long_lists_fold_as_they_come() {
        let list = |count: usize| vec!["12345"; count].join(",");
        let tuples = vec![format!("({})", list(9)); 500].join(",");
        let mut scan = crate::sql::Scan::new();
        let options = ScanOptions { max_query_length: 300, ..ScanOptions::MYSQL };
        scan_mysql(format!("SELECT * FROM t WHERE id IN ({}) LIMIT 1", list(5000)).as_bytes(), &options, &mut scan);
        assert_eq!(scan.digest_text, b"SELECT * FROM t WHERE id IN (?,?,?,...) LIMIT ?");
        scan_mysql(format!("INSERT INTO t VALUES {tuples} ON DUPLICATE KEY UPDATE a=1").as_bytes(), &options, &mut scan);
        let want = format!("INSERT INTO t VALUES {},... ON DUPLICATE KEY UPDATE a=?", ["(?,?,?,...)"; 10].join(","));
        assert_eq!(String::from_utf8_lossy(&scan.digest_text), want);
    }
}
