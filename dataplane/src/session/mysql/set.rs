//! Which SET statements are absorbed: those of which the session knows for sure what they mean (mysql-dataplane 4).
//!
//! Absorbed are `autocommit`, `NAMES` and the variables of [`super::tracked`], in one list or alone. Everything else is sent to
//! a server and pins its connection.

use quorumsql_wire::mysql::charset;

use super::names::Names;
use super::tracked::{self, Assigned};

/// What an absorbed SET does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Absorbed {
    /// New value of `autocommit`.
    pub(crate) autocommit: Option<bool>,
    /// New names.
    pub(crate) names: Option<Names>,
    /// Other variables; `None` = the default.
    pub(crate) variables: Vec<(&'static str, Option<String>)>,
}

/// What becomes of a SET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetStatement {
    /// The session remembers it; connections are aligned before the next statement.
    Absorbed(Absorbed),
    /// A character set that no server has: 1115 at once.
    UnknownCharset(String),
    /// It sets only global or persisted variables: sent, pins nothing.
    Global,
    /// Sent, and pins the connection.
    Untracked,
}

/// Reads one SET statement.
pub(crate) fn parse(sql: &[u8]) -> SetStatement {
    let Ok(text) = std::str::from_utf8(sql) else { return SetStatement::Untracked };
    let mut words = Words { rest: text };
    if !words.take_word("SET") {
        return SetStatement::Untracked;
    }
    let mut absorbed = Absorbed::default();
    let mut globals = 0;
    loop {
        match assignment(&mut words, &mut absorbed) {
            Some(Assignment::Done) => {}
            Some(Assignment::Global) => globals += 1,
            Some(Assignment::UnknownCharset(name)) => return SetStatement::UnknownCharset(name),
            None => return SetStatement::Untracked,
        }
        if !words.take_symbol(",") {
            break;
        }
    }
    words.take_symbol(";");
    match (words.is_at_end(), globals) {
        (false, _) => SetStatement::Untracked,
        (true, 0) => SetStatement::Absorbed(absorbed),
        (true, _) if absorbed == Absorbed::default() => SetStatement::Global,
        (true, _) => SetStatement::Untracked,
    }
}

enum Assignment {
    Done,
    Global,
    UnknownCharset(String),
}

/// One assignment; `None` = not one that is absorbed.
fn assignment(words: &mut Words<'_>, absorbed: &mut Absorbed) -> Option<Assignment> {
    if words.take_word("NAMES") {
        return names(words, absorbed);
    }
    if words.take_word("GLOBAL") || words.take_word("PERSIST") || words.take_word("PERSIST_ONLY") || words.take_symbol("@@global.") {
        words.name()?;
        return (words.take_symbol(":=") || words.take_symbol("=")).then(|| words.value()).flatten().map(|_| Assignment::Global);
    }
    let _scope = words.take_symbol("@@session.") || words.take_symbol("@@local.") || words.take_symbol("@@");
    let session = words.take_word("SESSION") || words.take_word("LOCAL");
    if session && words.take_word("TRANSACTION") {
        return isolation(words, absorbed);
    }
    let name = words.name()?;
    if !(words.take_symbol(":=") || words.take_symbol("=")) {
        return None;
    }
    words.skip_blanks();
    let quoted = words.rest.starts_with(['\'', '"']);
    let value = words.literal()?;
    if name.eq_ignore_ascii_case("autocommit") {
        absorbed.autocommit = Some(boolean(value)?);
        return Some(Assignment::Done);
    }
    if let Assigned::Tracked(name, literal) = tracked::assign(name, value, quoted)? {
        absorbed.variables.push((name, literal));
    }
    Some(Assignment::Done)
}

/// `ISOLATION LEVEL …` and nothing else.
fn isolation(words: &mut Words<'_>, absorbed: &mut Absorbed) -> Option<Assignment> {
    if !(words.take_word("ISOLATION") && words.take_word("LEVEL")) {
        return None;
    }
    let level = if words.take_word("SERIALIZABLE") {
        "SERIALIZABLE"
    } else if words.take_word("REPEATABLE") {
        words.take_word("READ").then_some("REPEATABLE READ")?
    } else if !words.take_word("READ") {
        return None;
    } else if words.take_word("COMMITTED") {
        "READ COMMITTED"
    } else {
        words.take_word("UNCOMMITTED").then_some("READ UNCOMMITTED")?
    };
    absorbed.variables.push((tracked::ISOLATION, Some(level.to_owned())));
    Some(Assignment::Done)
}

fn names(words: &mut Words<'_>, absorbed: &mut Absorbed) -> Option<Assignment> {
    let charset = words.value()?.to_ascii_lowercase();
    if charset == "default" {
        return None;
    }
    if !charset::is_charset(&charset) {
        return Some(Assignment::UnknownCharset(charset));
    }
    let collation = if words.take_word("COLLATE") { Some(words.value()?.to_ascii_lowercase()) } else { None };
    if collation.as_deref().is_some_and(|collation| charset::collation_id(collation).is_none()) {
        // A collation that this build does not know may exist on the server.
        return None;
    }
    absorbed.names = Some(Names::Set { charset, collation });
    Some(Assignment::Done)
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ if text.eq_ignore_ascii_case("on") || text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("off") || text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The few token kinds that matter here. Comments are none of them, so that text with comments is never absorbed.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty()
    }

    /// Takes `word` if it is next and ends there.
    fn take_word(&mut self, word: &str) -> bool {
        self.skip_blanks();
        let Some(head) = self.rest.get(..word.len()) else { return false };
        let tail = &self.rest[word.len()..];
        if !head.eq_ignore_ascii_case(word) || tail.starts_with(is_name_char) {
            return false;
        }
        self.rest = tail;
        true
    }

    /// Takes `symbol` if it is next, any case.
    fn take_symbol(&mut self, symbol: &str) -> bool {
        self.skip_blanks();
        match self.rest.get(..symbol.len()) {
            Some(head) if head.eq_ignore_ascii_case(symbol) => {
                self.rest = &self.rest[symbol.len()..];
                true
            }
            _ => false,
        }
    }

    /// A plain or backquoted name.
    fn name(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        if let Some(quoted) = self.rest.strip_prefix('`') {
            return self.until_quote(quoted, '`');
        }
        let end = self.rest.find(|c: char| !is_name_char(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    /// A name, a number, or a quoted text without escapes.
    fn value(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        for quote in ['\'', '"'] {
            if let Some(quoted) = self.rest.strip_prefix(quote) {
                return self.until_quote(quoted, quote);
            }
        }
        self.name()
    }

    /// As [`Self::value`], but numbers may have decimals and quotes may be empty.
    fn literal(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        if let Some(rest) = self.rest.strip_prefix("''").or_else(|| self.rest.strip_prefix("\"\""))
            && !rest.starts_with(['\'', '"'])
        {
            self.rest = rest;
            return Some("");
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let end = self.rest.find(|c: char| !is_name_char(c) && c != '.').unwrap_or(self.rest.len());
            let (number, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Some(number);
        }
        self.value()
    }

    fn until_quote(&mut self, quoted: &'a str, quote: char) -> Option<&'a str> {
        let (text, rest) = quoted.split_once(quote)?;
        if text.contains('\\') || rest.starts_with(quote) {
            return None;
        }
        self.rest = rest;
        (!text.is_empty()).then_some(text)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autocommit(on: bool) -> SetStatement {
        SetStatement::Absorbed(Absorbed { autocommit: Some(on), ..Absorbed::default() })
    }

    fn named(charset: &str, collation: Option<&str>) -> Names {
        Names::Set { charset: charset.into(), collation: collation.map(str::to_owned) }
    }

    #[test]
    fn autocommit_in_all_its_spellings() {
        for (text, on) in [
            ("SET autocommit=0", false),
            ("set AUTOCOMMIT = 1;", true),
            ("SET @@autocommit := ON", true),
            ("SET @@session.autocommit='off'", false),
            ("SET SESSION autocommit=true", true),
            ("SET LOCAL `autocommit`=FALSE", false),
        ] {
            assert_eq!(parse(text.as_bytes()), autocommit(on), "{text}");
        }
    }

    #[test]
    fn names_and_lists() {
        let both = |names| SetStatement::Absorbed(Absorbed { names: Some(names), ..Absorbed::default() });
        assert_eq!(parse(b"SET NAMES utf8mb4"), both(named("utf8mb4", None)));
        assert_eq!(parse(b"SET NAMES 'latin1' COLLATE 'latin1_bin'"), both(named("latin1", Some("latin1_bin"))));
        let list = SetStatement::Absorbed(Absorbed { autocommit: Some(false), names: Some(named("utf8", None)), ..Absorbed::default() });
        assert_eq!(parse(b"SET NAMES utf8, autocommit=0"), list);
        assert_eq!(parse(b"SET NAMES klingon"), SetStatement::UnknownCharset("klingon".into()));
    }

    #[test]
    fn tracked_variables() {
        let variables = |list: &[(&'static str, Option<&str>)]| {
            let variables = list.iter().map(|(name, literal)| (*name, literal.map(str::to_owned))).collect();
            SetStatement::Absorbed(Absorbed { variables, ..Absorbed::default() })
        };
        assert_eq!(parse(b"SET sql_mode=''"), variables(&[("sql_mode", Some("''"))]));
        assert_eq!(
            parse(b"SET @@SESSION.time_zone = 'UTC', long_query_time=0.5, wait_timeout=100, sql_mode = DEFAULT;"),
            variables(&[("time_zone", Some("'UTC'")), ("long_query_time", Some("0.5")), ("sql_mode", None)])
        );
        for (level, words) in
            [("READ COMMITTED", "read committed"), ("REPEATABLE READ", "REPEATABLE READ"), ("SERIALIZABLE", "SERIALIZABLE")]
        {
            let sql = format!("SET SESSION TRANSACTION ISOLATION LEVEL {words}");
            assert_eq!(parse(sql.as_bytes()), variables(&[(tracked::ISOLATION, Some(level))]));
        }
    }

    #[test]
    fn all_else_is_not_absorbed() {
        for text in [
            "SET sql_mode='ANSI'",
            "SET @a=1",
            "SET autocommit=0, sql_mode=@@global.sql_mode",
            "SET sql_mode=CONCAT(@@sql_mode, 'x')",
            "SET long_query_time=1+1",
            "SET unheard_of=1",
            "SET autocommit=2",
            "SET autocommit=@a",
            "SET autocommit",
            "SET autocommit=0 /* x */",
            "/* x */ SET autocommit=0",
            "SET autocommit=0; SELECT 1",
            "SET NAMES DEFAULT",
            "SET NAMES utf8 COLLATE unheard_of_ci",
            "SET TRANSACTION READ ONLY",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET SESSION TRANSACTION READ ONLY",
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
            "SET CHARACTER SET utf8",
            "SET GLOBAL max_connections=10, autocommit=0",
            "SET",
            "SETautocommit=0",
        ] {
            assert_eq!(parse(text.as_bytes()), SetStatement::Untracked, "{text}");
        }
        assert_eq!(parse(b"SET GLOBAL max_connections = 10"), SetStatement::Global);
        assert_eq!(parse(b"SET @@global.read_only=ON"), SetStatement::Global);
        assert_eq!(parse(b"\xff"), SetStatement::Untracked);
    }

    #[test]
    fn any_text_is_read_without_panic() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let mut text = b"SET ".to_vec();
            text.extend_from_slice(bytes);
            let _ = parse(&text);
        });
    }
}
