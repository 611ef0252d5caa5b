//! One `match_digest` or `match_pattern`: the linear-time engine, or a backtracking one with a step limit where the
//! pattern has look-around or back-references, which the linear one cannot express.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use regex::bytes::{Regex, RegexBuilder};
use tracing::warn;

/// Steps after which a backtracking match is given up; such a rule does not match.
const BACKTRACK_LIMIT: usize = 100_000;
/// Memory that one compiled pattern may take, bytes.
const SIZE_LIMIT: usize = 4 << 20;
/// Longest pattern, bytes.
const MAX_PATTERN: usize = 16 << 10;

/// A compiled pattern.
#[derive(Debug)]
pub(super) enum Pattern {
    /// Linear in the text.
    Linear(Regex),
    /// With look-around; boxed because it is rare and big.
    Backtracking(Box<Backtracking>),
}

/// A pattern of the backtracking engine.
#[derive(Debug)]
pub(super) struct Backtracking {
    regex: fancy_regex::Regex,
    /// The step limit was hit once and said so.
    warned: AtomicBool,
}

impl Pattern {
    /// Compiles `text`; the error says what is wrong with it.
    pub(super) fn compile(text: &str, caseless: bool, backtracking: bool) -> Result<Self, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("pattern is longer than {MAX_PATTERN} bytes"));
        }
        let linear =
            RegexBuilder::new(&translate(text, Engine::Linear)).unicode(false).case_insensitive(caseless).size_limit(SIZE_LIMIT).build();
        let refused = match linear {
            Ok(regex) => return Ok(Self::Linear(regex)),
            Err(error) => last_line(&error.to_string()),
        };
        let fancy = fancy_regex::RegexBuilder::new(&translate(&latin1(text.as_bytes()), Engine::Backtracking))
            .case_insensitive(caseless)
            .backtrack_limit(BACKTRACK_LIMIT)
            .delegate_size_limit(SIZE_LIMIT)
            .build();
        match fancy {
            Ok(regex) if backtracking => Ok(Self::Backtracking(Box::new(Backtracking { regex, warned: AtomicBool::new(false) }))),
            Ok(_) => Err(format!("{refused} (the pattern needs query_processor_regex = 1)")),
            Err(_) => Err(refused),
        }
    }

    /// True if the pattern occurs in `text`; `None` if that could not be found out within the step limit.
    pub(super) fn is_match(&self, text: &[u8]) -> Option<bool> {
        match self {
            Self::Linear(regex) => Some(regex.is_match(text)),
            Self::Backtracking(pattern) => {
                let found = pattern.regex.is_match(&latin1(text)).ok();
                if found.is_none() && !pattern.warned.swap(true, Ordering::Relaxed) {
                    warn!(
                        pattern = pattern.regex.as_str(),
                        limit = BACKTRACK_LIMIT,
                        "pattern gave up at its step limit: its rule does not match"
                    );
                }
                found
            }
        }
    }

    /// The text for a set of linear patterns.
    pub(super) fn for_set(text: &str, caseless: bool) -> String {
        let flags = if caseless { "(?i)" } else { "" };
        format!("{flags}{}", translate(text, Engine::Linear))
    }
}

/// The backtracking engine takes text only: every byte becomes the character of its number, in pattern and text alike.
fn latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// The message itself, without the picture of the pattern.
fn last_line(message: &str) -> String {
    let line = message.lines().next_back().unwrap_or(message);
    line.strip_prefix("error: ").unwrap_or(line).trim().to_owned()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    Linear,
    Backtracking,
}

/// PCRE escapes that the engines read differently: `\<` and `\>` are plain characters, `\h` is a blank or tab, `\Z` the
/// end, and classes are ASCII also in the engine that has no switch for it.
fn translate(text: &str, engine: Engine) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_class = false;
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                let Some(escaped) = chars.next() else {
                    out.push('\\');
                    break;
                };
                match ascii_class(escaped, engine) {
                    Some(class) if in_class => out.push_str(class),
                    Some(class) => {
                        out.push('[');
                        out.push_str(class);
                        out.push(']');
                    }
                    None => match escaped {
                        '<' | '>' => out.push(escaped),
                        'Z' if !in_class => out.push_str("\\z"),
                        'W' | 'D' | 'S' if engine == Engine::Backtracking && !in_class => {
                            let class = ascii_class(escaped.to_ascii_lowercase(), engine).unwrap_or_default();
                            out.push_str("[^");
                            out.push_str(class);
                            out.push(']');
                        }
                        _ => {
                            out.push('\\');
                            out.push(escaped);
                        }
                    },
                }
            }
            _ => {
                match char {
                    '[' if !in_class => in_class = true,
                    ']' if in_class && !out.ends_with('[') && !out.ends_with("[^") => in_class = false,
                    _ => {}
                }
                out.push(char);
            }
        }
    }
    Cow::Owned(out)
}

/// Inside of the bracket class for a class escape that must be written out.
fn ascii_class(escaped: char, engine: Engine) -> Option<&'static str> {
    match (escaped, engine) {
        ('h', _) => Some(r" \t"),
        ('w', Engine::Backtracking) => Some("A-Za-z0-9_"),
        ('d', Engine::Backtracking) => Some("0-9"),
        ('s', Engine::Backtracking) => Some(r" \t\n\x0B\x0C\r"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_pcre_does() {
        let table: &[(&str, bool, &[u8], bool)] = &[
            ("^SELECT.*FOR UPDATE", true, b"select a from t for update", true),
            ("^SELECT.*FOR UPDATE", true, b"select a from t\nfor update", false),
            ("^select", false, b"SELECT ?", false),
            ("^SELECT(?!.*FOR UPDATE)", true, b"SELECT ? FROM t", true),
            ("^SELECT(?!.*FOR UPDATE)", true, b"SELECT ? FROM t FOR UPDATE", false),
            (r"\d+\s\w", true, b"x 12 a", true),
            (r"\d(?=\sa)", true, b"x 12 a", true),
            (r"a\<b\>c", true, b"a<b>c", true),
            (r"(a)\1", true, b"xaay", true),
            (r"[\w.]+@(?=x)", true, b"me.you@x", true),
            (r"^a\hb\Z", true, b"a\tb", true),
            ("caf\u{e9}", true, "un caf\u{e9}".as_bytes(), true),
            ("caf\u{e9}(?!s)", true, "un caf\u{e9}".as_bytes(), true),
            ("^.{3}$", true, &[0xff, 0xfe, 0xfd], true),
            ("^(?!x).{3}$", true, &[0xff, 0xfe, 0xfd], true),
        ];
        for (pattern, caseless, text, want) in table {
            let compiled = Pattern::compile(pattern, *caseless, true).unwrap();
            assert_eq!(compiled.is_match(text), Some(*want), "{pattern} on {}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_bad_pattern_says_what_is_wrong() {
        assert!(Pattern::compile("a(b", true, true).unwrap_err().contains("unclosed group"));
        assert!(Pattern::compile("a(?=b)", true, false).unwrap_err().contains("query_processor_regex"));
        assert!(Pattern::compile(&"a".repeat(MAX_PATTERN + 1), true, true).is_err());
        assert!(Pattern::compile("((a{1000}){1000}){1000}", true, true).is_err());
    }

    #[test]
    fn a_pattern_that_explodes_gives_up() {
        let pattern = Pattern::compile("(?=a)(a+)+\\1$b", true, true).unwrap();
        assert_eq!(pattern.is_match(&[b'a'; 60]), None);
    }
}
