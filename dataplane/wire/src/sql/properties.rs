//! Properties of both dialects on any bytes.

use super::{Scan, ScanOptions, parse_mysql_set, parse_mysql_use, parse_pgsql_set, scan_mysql, scan_pgsql};

/// Pieces that lexers care about: random bytes alone seldom make a token.
const PIECES: [&str; 32] = [
    "SELECT ",
    "FOR UPDATE",
    "'",
    "\"",
    "`",
    "/*",
    "*/",
    "/*!50000",
    "--",
    "#",
    "\n",
    "(",
    ")",
    ",",
    "?,",
    "1",
    "0x",
    ".5",
    "NULL",
    "$$",
    "$a$",
    "E'",
    "U&'",
    "::int",
    "ARRAY[",
    "]",
    ";",
    "@",
    "@@",
    "\\",
    "SET a=",
    "...",
];

/// Reads bytes as indices of pieces, and every eighth as itself.
fn compose(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in bytes {
        match PIECES.get(usize::from(*byte)) {
            Some(piece) => text.extend_from_slice(piece.as_bytes()),
            None if byte % 8 == 0 => text.push(*byte),
            None => text.extend_from_slice(PIECES[usize::from(*byte) % PIECES.len()].as_bytes()),
        }
    }
    text
}

fn options(base: ScanOptions, seed: u8) -> ScanOptions {
    let bit = |n: u8| seed & (1 << n) != 0;
    ScanOptions {
        lowercase: bit(0),
        replace_null: bit(1),
        no_digits: bit(2),
        keep_comment: bit(3),
        grouping_limit: usize::from(seed % 4),
        groups_grouping_limit: usize::from(seed % 3),
        max_query_length: if bit(4) { usize::from(seed) / 4 } else { 65_000 },
        max_digest_length: if bit(5) { 16 } else { 2048 },
        backslash_escapes: bit(6) || base.backslash_escapes,
        ansi_quotes: bit(7),
    }
}

fn check(text: &[u8], seed: u8) {
    for (base, scan_text) in [(ScanOptions::MYSQL, scan_mysql as fn(&[u8], &ScanOptions, &mut Scan)), (ScanOptions::PGSQL, scan_pgsql)] {
        let options = options(base, seed);
        let mut scan = Scan::new();
        scan_text(text, &options, &mut scan);
        assert!(scan.digest_text.len() <= options.max_query_length, "{} bytes", scan.digest_text.len());
        let first = scan.clone();
        // A scan that is used again knows nothing of the statement before.
        scan_text(b"BEGIN; SELECT @a, f(1,2,3,4,5,6)", &options, &mut scan);
        scan_text(text, &options, &mut scan);
        assert_eq!(format!("{first:?}"), format!("{scan:?}"));
    }
    let _ = (parse_mysql_set(text, seed & 1 != 0), parse_mysql_use(text), parse_pgsql_set(text, seed & 1 != 0));
}

#[test]
fn any_bytes_are_scanned_within_bounds() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(seed, bytes)| check(bytes, *seed));
}

#[test]
fn any_pieces_are_scanned_within_bounds() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(seed, bytes)| check(&compose(bytes), *seed));
}

/// Adversarial texts are read in linear time: a quadratic lexer would hang here.
#[test]
fn long_repetitions_are_linear() {
    for piece in PIECES.iter().chain(&["(?,?,?,...),", "ARRAY[ARRAY[1,", "'a'::a.", "$a", "1,", "(1,2,3,4,5),", "a$b$"]) {
        let text = piece.repeat(50_000 / piece.len());
        check(text.as_bytes(), 0);
        check(text.as_bytes(), 0b0011_0111);
    }
}
