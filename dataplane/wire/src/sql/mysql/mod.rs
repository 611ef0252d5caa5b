//! MySQL and MariaDB statements.

mod classify;
mod digest;
pub(crate) mod lexer;

use super::{Scan, ScanOptions, spooky_hash64};

/// Fills `scan` from the text of a COM_QUERY or COM_STMT_PREPARE.
pub fn scan_mysql(sql: &[u8], options: &ScanOptions, scan: &mut Scan) {
    scan.clear();
    digest::normalize(sql, options, &mut scan.digest_text);
    let hashed = scan.digest_text.len().min(options.max_digest_length);
    scan.digest = spooky_hash64(&scan.digest_text[..hashed]);
    classify::classify(sql, options.backslash_escapes, scan);
}

#[cfg(test)]
mod vectors_test;
