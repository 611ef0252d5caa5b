//! Which SET statements are absorbed: those of which the session knows for sure what they mean (mysql-dataplane 4).
//!
//! Absorbed are `autocommit` and `NAMES`, alone or in one list. Everything else is sent to a server and pins its connection.

use quorumsql_wire::mysql::charset;

use super::names::Names;

/// What an absorbed SET does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Absorbed {
    /// New value of `autocommit`.
    pub(crate) autocommit: Option<bool>,
    /// New names.
    pub(crate) names: Option<Names>,
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
    let _scope = words.take_word("SESSION") || words.take_word("LOCAL");
    if !words.name()?.eq_ignore_ascii_case("autocommit") || !(words.take_symbol(":=") || words.take_symbol("=")) {
        return None;
    }
    absorbed.autocommit = Some(boolean(words.value()?)?);
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
        SetStatement::Absorbed(Absorbed { autocommit: Some(on), names: None })
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
        let both = |names| SetStatement::Absorbed(Absorbed { autocommit: None, names: Some(names) });
        assert_eq!(parse(b"SET NAMES utf8mb4"), both(named("utf8mb4", None)));
        assert_eq!(parse(b"SET NAMES 'latin1' COLLATE 'latin1_bin'"), both(named("latin1", Some("latin1_bin"))));
        let list = SetStatement::Absorbed(Absorbed { autocommit: Some(false), names: Some(named("utf8", None)) });
        assert_eq!(parse(b"SET NAMES utf8, autocommit=0"), list);
        assert_eq!(parse(b"SET NAMES klingon"), SetStatement::UnknownCharset("klingon".into()));
    }

    #[test]
    fn all_else_is_not_absorbed() {
        for text in [
            "SET sql_mode=''",
            "SET @a=1",
            "SET autocommit=0, sql_mode=''",
            "SET autocommit=2",
            "SET autocommit=@a",
            "SET autocommit",
            "SET autocommit=0 /* x */",
            "/* x */ SET autocommit=0",
            "SET autocommit=0; SELECT 1",
            "SET NAMES DEFAULT",
            "SET NAMES utf8 COLLATE unheard_of_ci",
            "SET TRANSACTION READ ONLY",
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
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
