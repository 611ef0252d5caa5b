//! How a client's character set changes what its text is to a lexer.
//!
//! The lexers read ASCII, and take bytes from 0x80 on for letters. In some character sets that a client may choose, an ASCII
//! byte can be the rest of a character (0x5C, the backslash, above all), or a byte from 0x80 on is a blank. [`Encoding::plain`]
//! gives a text of the same length in which both look as they are. Found by asking MySQL 9 and MariaDB 10.11 for each byte
//! behind SELECT and before a backslash; for PostgreSQL see `wchar.c`, and its list of encodings that only clients may have.

use std::borrow::Cow;

/// What a lexer must know of a client's character set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encoding {
    /// Nothing: UTF-8, most others.
    #[default]
    Plain,
    /// This byte is a blank.
    Blank(u8),
    /// `sjis`, `cp932`, `SHIFT_JIS_2004`.
    Sjis,
    /// `big5`.
    Big5,
    /// `gbk`, `UHC`.
    Gbk,
    /// `gb18030`.
    Gb18030,
    /// `JOHAB`.
    Johab,
}

impl Encoding {
    /// That of MySQL's `character_set_client`, in lower case.
    #[must_use]
    pub fn of_mysql(charset: &str) -> Self {
        match charset {
            "armscii8" | "cp1250" | "dec8" | "geostd8" | "greek" | "hebrew" | "latin1" | "latin2" | "latin5" | "latin7" => {
                Self::Blank(0xa0)
            }
            "cp852" | "cp866" | "keybcs2" => Self::Blank(0xff),
            "sjis" | "cp932" => Self::Sjis,
            "big5" => Self::Big5,
            "gbk" => Self::Gbk,
            "gb18030" => Self::Gb18030,
            _ => Self::Plain,
        }
    }

    /// That of PostgreSQL's `client_encoding`, in any of its spellings.
    #[must_use]
    pub fn of_pgsql(encoding: &str) -> Self {
        let name: String = encoding.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        match name.as_str() {
            "sjis" | "shiftjis" | "mskanji" | "win932" | "windows932" | "shiftjis2004" => Self::Sjis,
            "big5" | "win950" | "windows950" => Self::Big5,
            "gbk" | "win936" | "windows936" | "uhc" | "win949" | "windows949" => Self::Gbk,
            "gb18030" => Self::Gb18030,
            "johab" => Self::Johab,
            _ => Self::Plain,
        }
    }

    /// The text as a lexer may read it: of the same length, and the same where nothing is to be changed. Linear.
    #[must_use]
    pub fn plain(self, text: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::Plain || text.is_ascii() {
            return Cow::Borrowed(text);
        }
        let mut plain = Cow::Borrowed(text);
        let mut at = 0;
        while at < text.len() {
            if text[at] < 0x80 {
                at += 1;
                continue;
            }
            let end = at + self.width(&text[at..]);
            for (index, byte) in text.iter().enumerate().take(end).skip(at) {
                let letter = match self {
                    Self::Blank(blank) if *byte == blank => b' ',
                    _ => byte | 0x80,
                };
                if letter != *byte {
                    plain.to_mut()[index] = letter;
                }
            }
            at = end;
        }
        plain
    }

    /// Bytes of the character at the start of `text`, which begins with one from 0x80 on. What is no character is one byte to MySQL, and
    /// an error to PostgreSQL.
    fn width(self, text: &[u8]) -> usize {
        let is = |index: usize, ranges: &[std::ops::RangeInclusive<u8>]| {
            text.get(index).is_some_and(|byte| ranges.iter().any(|range| range.contains(byte)))
        };
        let is_two = match self {
            Self::Plain | Self::Blank(_) => false,
            Self::Sjis => is(0, &[0x81..=0x9f, 0xe0..=0xfc]) && is(1, &[0x40..=0x7e, 0x80..=0xfc]),
            Self::Big5 => is(0, &[0xa1..=0xf9]) && is(1, &[0x40..=0x7e, 0xa1..=0xfe]),
            Self::Gbk | Self::Gb18030 => is(0, &[0x81..=0xfe]) && is(1, &[0x40..=0x7e, 0x80..=0xfe]),
            Self::Johab => is(1, &[0x31..=0x7e, 0x91..=0xfe]),
        };
        let is_four = || {
            let pair = |index| is(index, &[0x81..=0xfe]) && is(index + 1, &[0x30..=0x39]);
            self == Self::Gb18030 && pair(0) && pair(2)
        };
        if is_two {
            2
        } else if is_four() {
            4
        } else {
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Class, Effects, Scan, ScanOptions, scan_mysql, scan_pgsql};

    #[test]
    fn what_is_part_of_a_character_is_no_symbol() {
        let cases: [(Encoding, &[u8], &[u8]); 14] = [
            (Encoding::Plain, b"'\x95\\'\xa0", b"'\x95\\'\xa0"),
            (Encoding::Sjis, b"plain \\ text", b"plain \\ text"),
            (Encoding::Sjis, b"'\x95\\', '\x83`'", b"'\x95\xdc', '\x83\xe0'"),
            // Half-width katakana are one byte, and no character ends with a quote.
            (Encoding::Sjis, b"\xb1\\\x95'\x95", b"\xb1\\\x95'\x95"),
            (Encoding::Sjis, b"\x95\x95\\", b"\x95\x95\\"),
            (Encoding::Big5, b"\xa1\\\x95\\", b"\xa1\xdc\x95\\"),
            (Encoding::Gbk, b"\xbf\\\\", b"\xbf\xdc\\"),
            (Encoding::Gb18030, b"\x81\x30\x81\x30\\\x81\\", b"\x81\xb0\x81\xb0\\\x81\xdc"),
            (Encoding::Gb18030, b"\x81\x30\\\x81", b"\x81\x30\\\x81"),
            (Encoding::Johab, b"\x8a1\x8a\\", b"\x8a\xb1\x8a\xdc"),
            (Encoding::Blank(0xa0), b"FOR\xa0UPDATE '\xa0\xe9'", b"FOR UPDATE ' \xe9'"),
            (Encoding::Blank(0xff), b"FOR\xffUPDATE", b"FOR UPDATE"),
            (Encoding::Gbk, b"", b""),
            (Encoding::Gbk, b"\x81", b"\x81"),
        ];
        for (encoding, text, plain) in cases {
            assert_eq!(&*encoding.plain(text), plain, "{encoding:?} {}", text.escape_ascii());
        }
    }

    #[test]
    fn names_are_known_in_their_spellings() {
        for (name, expected) in
            [("latin1", Encoding::Blank(0xa0)), ("cp932", Encoding::Sjis), ("utf8mb4", Encoding::Plain), ("", Encoding::Plain)]
        {
            assert_eq!(Encoding::of_mysql(name), expected, "{name}");
        }
        for (name, expected) in
            [("Shift-JIS", Encoding::Sjis), ("'win950'", Encoding::Big5), ("UTF8", Encoding::Plain), ("EUC_JP", Encoding::Plain)]
        {
            assert_eq!(Encoding::of_pgsql(name), expected, "{name}");
        }
    }

    #[test]
    fn statements_in_other_character_sets() {
        let mut scan = Scan::default();
        let cases: [(&str, &[u8], Class, Effects); 5] = [
            ("sjis", b"SELECT * FROM t WHERE b = '\x95\\' FOR UPDATE", Class::LockingRead, Effects::NONE),
            ("sjis", b"SELECT '\x83\\'; INSERT INTO t VALUES (1); -- '", Class::Other, Effects::MULTI),
            ("gbk", b"SELECT '\xbf\\', @x := 5; -- '", Class::Read, Effects::USER_VARIABLE),
            ("latin1", b"SELECT GET_LOCK\xa0('l', 1)", Class::Read, Effects::LOCK),
            ("latin1", b"SELECT a INTO\xa0OUTFILE '/tmp/f' FROM t", Class::Write, Effects::NONE),
        ];
        for (charset, sql, class, effects) in cases {
            scan_mysql(&Encoding::of_mysql(charset).plain(sql), &ScanOptions::MYSQL, &mut scan);
            assert_eq!((scan.class, scan.effects), (class, effects), "{}", sql.escape_ascii());
        }
        scan_pgsql(&Encoding::of_pgsql("SJIS").plain(b"SELECT E'\x83\\'; INSERT INTO w VALUES (1); --'"), &ScanOptions::PGSQL, &mut scan);
        assert_eq!((scan.class, scan.effects), (Class::Other, Effects::MULTI));
    }
}
