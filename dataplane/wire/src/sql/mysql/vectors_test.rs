//! The reference's verified digests (mysql-dataplane.md 7.2).

use crate::sql::{Scan, ScanOptions, scan_mysql};

const VECTORS: &str = include_str!("vectors.tsv");

fn unescape(text: &str) -> String {
    text.replace('\u{2420}', " ").replace('\u{21e5}', "\t").replace('\u{23ce}', "\n").replace('\u{240d}', "\r")
}

fn options(text: &str) -> ScanOptions {
    let mut options = ScanOptions::MYSQL;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut number = 0;
        while let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(10)) {
            number = number * 10 + digit as usize;
            letters.next();
        }
        match letter {
            'l' => options.lowercase = true,
            'n' => options.replace_null = true,
            'd' => options.no_digits = true,
            'k' => options.keep_comment = true,
            'g' => options.grouping_limit = number,
            'G' => options.groups_grouping_limit = number,
            'm' => options.max_query_length = number,
            _ => panic!("option {letter}"),
        }
    }
    options
}

#[test]
fn digest_text_and_hash_equal_the_reference() {
    let mut scan = Scan::new();
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        let [number, letters, input, text, digest] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        scan_mysql(unescape(input).as_bytes(), &options(letters), &mut scan);
        let got = (String::from_utf8_lossy(&scan.digest_text).into_owned(), format!("0x{:016X}", scan.digest));
        if got != (text.to_owned(), digest.to_owned()) {
            wrong.push(format!("{number}: {input}\n  want {text} {digest}\n  got  {} {}", got.0, got.1));
        }
        rows += 1;
    }
    assert_eq!(rows, 142);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
