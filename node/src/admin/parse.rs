//! Statement text → [`Command`] (admin-commands.md 2 to 9, design.md section 3). Pure.
//!
//! What is recognised here is a command; everything else is SQL, of which only the kind is decided.

mod explain;
mod layers;
mod set;
mod show;

use quorumsql_dataplane::config::Protocol;

use crate::sql_server::lexer::{Token, tokens};

pub(crate) use explain::ExplainCommand;
pub(crate) use layers::CopyCommand;
pub(crate) use set::SetCommand;
pub(crate) use show::{ShowCommand, ShowFilter};

/// One admin statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// Nothing but blanks and comments.
    Empty,
    /// Client chatter without effect: OK.
    Ignored,
    /// SELECT, VALUES, EXPLAIN, PRAGMA table_info.
    Read,
    /// INSERT, UPDATE, DELETE, REPLACE.
    Write {
        /// The table that is changed, as far as the text shows it: schema and name in lower case.
        target: Option<(Option<String>, String)>,
    },
    /// LOAD or SAVE of whole modules.
    Copy(CopyCommand),
    /// SET.
    Set(SetCommand),
    /// SHOW and DESCRIBE.
    Show(ShowCommand),
    /// BEGIN, COMMIT and their like: answered, without effect.
    Transaction {
        /// PostgreSQL's tag.
        tag: &'static str,
    },
    /// EXPLAIN RULES.
    ExplainRules(Box<ExplainCommand>),
    /// USE.
    Use,
    /// `TRUNCATE [TABLE] stats_mysql_query_digest`, its twins.
    ClearDigests(Protocol),
    /// `PROXYSQL RELOAD TLS`.
    ReloadTls,
    /// `KILL QUERY n`: what connection n of this admin port runs.
    KillQuery(u32),
    /// `PROXYSQL FLUSH LOGS`.
    FlushLogs,
    /// `PROXYSQL SHUTDOWN [SLOW]`, `PROXYSQL KILL`.
    Shutdown,
    /// `select $$` of the mysql client.
    DollarProbe,
    /// Known, and not available: why, without the prefix.
    Refused(String),
    /// No command and no SQL: SQLite's text, without the prefix.
    Syntax {
        /// First word.
        near: String,
    },
}

/// Parses one statement (without its semicolon).
pub(crate) fn parse(sql: &str) -> Command {
    let found = tokens(sql);
    let mut cursor = Cursor { sql, tokens: &found, at: 0 };
    let Some(first) = found.first() else {
        return if sql.contains("/*!") { Command::Ignored } else { Command::Empty };
    };
    if found.iter().all(|token| token.is_sign(';')) {
        return Command::Empty;
    }
    let word = if first.kind == crate::sql_server::lexer::Kind::Word { first.text.to_ascii_uppercase() } else { String::new() };
    match word.as_str() {
        "SELECT" if found.len() == 2 && found[1].text.starts_with('$') => Command::DollarProbe,
        "SELECT" if found.get(1).is_some_and(|token| token.is("CONFIG")) => {
            refused("SELECT CONFIG is not available in this version: configuration files come with import")
        }
        "EXPLAIN" => explain::parse(&mut cursor).unwrap_or(Command::Read),
        "SELECT" | "VALUES" => Command::Read,
        "WITH" => with(&found),
        "PRAGMA" => pragma(&found),
        "INSERT" | "UPDATE" | "DELETE" | "REPLACE" => Command::Write { target: write_target(&found) },
        "LOAD" | "SAVE" => layers::parse(&mut cursor),
        "SET" => set::parse(&mut cursor),
        "RESET" | "DISCARD" | "DEALLOCATE" | "LOCK" | "UNLOCK" => Command::Ignored,
        "SHOW" | "DESCRIBE" | "DESC" => show::parse(&mut cursor),
        "BEGIN" => Command::Transaction { tag: "BEGIN" },
        "START" => Command::Transaction { tag: "START TRANSACTION" },
        "COMMIT" | "END" => Command::Transaction { tag: "COMMIT" },
        "ROLLBACK" if found.get(1).is_some_and(|token| token.is("CONFIG")) => refused("ROLLBACK CONFIG is not available in this version"),
        "ROLLBACK" | "ABORT" => Command::Transaction { tag: "ROLLBACK" },
        "SAVEPOINT" => Command::Transaction { tag: "SAVEPOINT" },
        "RELEASE" => Command::Transaction { tag: "RELEASE" },
        "USE" => Command::Use,
        "PROXYSQL" => proxysql(&mut cursor),
        "KILL" => kill(&found),
        "CREATE" | "DROP" | "ALTER" => refused(&format!("{word} is not available: the tables of the admin interface are fixed")),
        "ATTACH" | "DETACH" => refused("Command not allowed"),
        "VACUUM" | "REINDEX" | "ANALYZE" => refused(&format!("{word} is not available: the database is maintained by the server")),
        "TRUNCATE" => truncate(&found),
        "PURGE" | "CHECKSUM" | "PULL" | "DUMP" | "LOGENTRY" | "SIGNAL" | "PROXYSQLTEST" => {
            refused(&format!("{word} is not available in this version"))
        }
        _ => Command::Syntax { near: first.text.into() },
    }
}

/// `TRUNCATE [TABLE] [stats.]stats_mysql_query_digest[_reset]`.
fn truncate(found: &[Token<'_>]) -> Command {
    let mut names = found[1..].iter().skip_while(|token| token.is("TABLE")).filter(|token| !token.is_sign(';')).map(Token::unquoted);
    let name: String = names.by_ref().collect::<Vec<_>>().concat().to_ascii_lowercase();
    match name.strip_prefix("stats.").unwrap_or(&name) {
        "stats_mysql_query_digest" | "stats_mysql_query_digest_reset" => Command::ClearDigests(Protocol::Mysql),
        "stats_pgsql_query_digest" | "stats_pgsql_query_digest_reset" => Command::ClearDigests(Protocol::Pgsql),
        _ => refused("TRUNCATE is available for stats_mysql_query_digest and stats_pgsql_query_digest"),
    }
}

/// `KILL QUERY n` ends what an admin connection runs (clients send it on Ctrl-C).
fn kill(found: &[Token<'_>]) -> Command {
    let id = found.get(2).filter(|_| found[1].is("QUERY")).and_then(|id| id.text.parse().ok());
    id.map_or_else(
        || {
            refused(
                "KILL is not available for sessions of clients: close them at their client; KILL QUERY n ends a statement of an admin connection",
            )
        },
        Command::KillQuery,
    )
}

fn refused(why: &str) -> Command {
    Command::Refused(why.into())
}

/// A CTE in front of a SELECT or of a write: the first such word outside parentheses decides.
fn with(found: &[Token<'_>]) -> Command {
    let mut depth = 0_i32;
    for (at, token) in found.iter().enumerate() {
        if token.is_sign('(') {
            depth += 1;
        } else if token.is_sign(')') {
            depth -= 1;
        } else if depth == 0 && ["INSERT", "UPDATE", "DELETE", "REPLACE"].iter().any(|word| token.is(word)) {
            return Command::Write { target: write_target(&found[at..]) };
        } else if depth == 0 && (token.is("SELECT") || token.is("VALUES")) {
            break;
        }
    }
    Command::Read
}

fn pragma(found: &[Token<'_>]) -> Command {
    match found.get(1) {
        Some(name) if name.is("table_info") || name.is("table_xinfo") => Command::Read,
        Some(name) => refused(&format!("PRAGMA {} is not available", name.text)),
        None => Command::Syntax { near: "PRAGMA".into() },
    }
}

/// `INSERT [OR x] INTO t`, `REPLACE INTO t`, `UPDATE [OR x] t`, `DELETE FROM t`.
fn write_target(found: &[Token<'_>]) -> Option<(Option<String>, String)> {
    let skip_or = if found.get(1)?.is("OR") { 3 } else { 1 };
    let at = match found.get(skip_or)? {
        token if token.is("INTO") || token.is("FROM") => skip_or + 1,
        _ => skip_or,
    };
    let name = |at: usize| found.get(at).filter(|token| token.is_name()).map(|token| token.unquoted().to_ascii_lowercase());
    let first = name(at)?;
    if found.get(at + 1).is_some_and(|token| token.is_sign('.')) { Some((Some(first), name(at + 2)?)) } else { Some((None, first)) }
}

fn proxysql(cursor: &mut Cursor<'_>) -> Command {
    cursor.next();
    let rest = cursor.words();
    match rest.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["SHUTDOWN"] | ["SHUTDOWN", "SLOW"] | ["KILL"] => Command::Shutdown,
        ["RELOAD", "TLS"] => Command::ReloadTls,
        ["FLUSH", "LOGS"] => Command::FlushLogs,
        ["READONLY" | "READWRITE"] => refused("PROXYSQL READONLY is not available in this version: admin accounts decide who may write"),
        [
            "START" | "STOP" | "RESTART" | "PAUSE" | "RESUME" | "COREDUMP" | "COMPRESSEDCOREDUMP" | "MEMPROFILE" | "GCOV" | "RELOAD"
            | "CLUSTER_NODE_UUID",
            ..,
        ]
        | ["FLUSH", ..] => refused(&format!("PROXYSQL {} is not available in this version", rest.join(" "))),
        _ => Command::Syntax { near: "PROXYSQL".into() },
    }
}

/// A place in the tokens of a statement.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    sql: &'a str,
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'a Token<'a>> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    /// Steps over `word` if it comes next.
    fn accept(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is(word));
        self.at += usize::from(found);
        found
    }

    /// Steps over all of `words` if they come next.
    fn accept_all(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(offset, word)| self.tokens.get(self.at + offset).is_some_and(|token| token.is(word)));
        self.at += if found { words.len() } else { 0 };
        found
    }

    fn accept_sign(&mut self, sign: char) -> bool {
        let found = self.peek().is_some_and(|token| token.is_sign(sign));
        self.at += usize::from(found);
        found
    }

    fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// The text from here to the end.
    fn rest(&self) -> &'a str {
        self.peek().map_or("", |token| self.sql.get(token.start..).unwrap_or("").trim_end())
    }

    /// The remaining tokens in upper case.
    fn words(&self) -> Vec<String> {
        self.tokens.get(self.at..).unwrap_or_default().iter().map(|token| token.text.to_ascii_uppercase()).collect()
    }

    /// A possibly qualified name.
    fn qualified(&mut self) -> Option<(Option<String>, String)> {
        let first = self.next().filter(|token| token.is_name() || token.kind == crate::sql_server::lexer::Kind::String)?.unquoted();
        if self.accept_sign('.') {
            let second = self.next().filter(|token| token.is_name())?.unquoted();
            return Some((Some(first.to_ascii_lowercase()), second.to_ascii_lowercase()));
        }
        Some((None, first.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart() {
        for (sql, expected) in [
            ("", Command::Empty),
            ("-- nothing", Command::Empty),
            (" ; ;", Command::Empty),
            ("/*!40101 SET NAMES utf8 */", Command::Ignored),
            ("/* why */ select 1", Command::Read),
            ("WITH a AS (SELECT 1) SELECT * FROM a", Command::Read),
            (
                "WITH a AS (SELECT 1) INSERT INTO main.mysql_users SELECT * FROM a",
                Command::Write { target: Some((Some("main".into()), "mysql_users".into())) },
            ),
            ("INSERT OR REPLACE INTO `T` VALUES (1)", Command::Write { target: Some((None, "t".into())) }),
            ("UPDATE OR IGNORE disk.t SET a=1", Command::Write { target: Some((Some("disk".into()), "t".into())) }),
            ("delete from t", Command::Write { target: Some((None, "t".into())) }),
            ("begin", Command::Transaction { tag: "BEGIN" }),
            ("select $$", Command::DollarProbe),
            ("PROXYSQL SHUTDOWN", Command::Shutdown),
            ("proxysql reload tls", Command::ReloadTls),
            ("PROXYSQL FLUSH LOGS", Command::FlushLogs),
            ("KILL QUERY 7", Command::KillQuery(7)),
            ("PROXYSQL CLUSTER", Command::Syntax { near: "PROXYSQL".into() }),
            ("FOO BAR", Command::Syntax { near: "FOO".into() }),
        ] {
            assert_eq!(parse(sql), expected, "{sql}");
        }
        for sql in
            ["KILL CONNECTION 3", "CREATE TABLE x (y)", "ATTACH 'x' AS y", "PRAGMA journal_mode", "PROXYSQL PAUSE", "SELECT CONFIG FILE"]
        {
            assert!(matches!(parse(sql), Command::Refused(_)), "{sql}");
        }
    }

    #[test]
    fn any_text_is_parsed_without_panic() {
        bolero::check!().with_type::<(u8, String)>().for_each(|(which, tail)| {
            let heads = [
                "",
                "LOAD ",
                "SAVE MYSQL ",
                "SET ",
                "SHOW ",
                "SHOW VARIABLES ",
                "LOAD MYSQL SERVERS TO RUNTIME ",
                "PROXYSQL ",
                "INSERT ",
                "WITH ",
            ];
            let _ = parse(&format!("{}{tail}", heads[usize::from(*which) % heads.len()]));
        });
    }
}
