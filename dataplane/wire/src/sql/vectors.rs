//! Reads the vector files of both dialects.

use super::{Scan, ScanOptions};

/// One line of a vector file.
pub(super) struct Vector<'a> {
    pub(super) number: &'a str,
    pub(super) options: ScanOptions,
    pub(super) input: String,
    pub(super) text: &'a str,
    pub(super) digest: Option<&'a str>,
}

/// The vectors of `file`; `base` has the dialect's defaults.
pub(super) fn read(file: &str, base: ScanOptions) -> impl Iterator<Item = Vector<'_>> {
    file.lines().filter(|line| !line.starts_with('#')).map(move |line| {
        let fields: Vec<_> = line.split('\t').collect();
        Vector {
            number: fields[0],
            options: options(fields[1], base),
            input: unescape(fields[2]),
            text: fields[3],
            digest: fields.get(4).copied(),
        }
    })
}

/// Runs all vectors of `file`: how many there were, after saying which failed.
pub(super) fn check(file: &str, base: ScanOptions, scan_text: fn(&[u8], &ScanOptions, &mut Scan)) -> usize {
    let mut scan = Scan::new();
    let mut wrong = Vec::new();
    let mut count = 0;
    for vector in read(file, base) {
        scan_text(vector.input.as_bytes(), &vector.options, &mut scan);
        let text = String::from_utf8_lossy(&scan.digest_text).into_owned();
        let digest = format!("0x{:016X}", scan.digest);
        if text != vector.text || vector.digest.is_some_and(|want| want != digest) {
            wrong.push(format!("{}: {}\n  want {}\n  got  {text} {digest}", vector.number, vector.input, vector.text));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    count
}

fn unescape(text: &str) -> String {
    text.replace('\u{2420}', " ").replace('\u{21e5}', "\t").replace('\u{23ce}', "\n").replace('\u{240d}', "\r")
}

fn options(text: &str, base: ScanOptions) -> ScanOptions {
    let mut options = base;
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
