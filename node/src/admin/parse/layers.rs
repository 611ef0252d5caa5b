//! LOAD and SAVE (admin-commands.md 4) with the options of design.md section 3.

use quorumsql_raft::command::Layer;

use super::{Command, Cursor, refused};
use crate::sql_server::lexer::Kind;

/// Modules that are moved between layers, as they are called in commands.
pub(crate) const MODULES: [&str; 9] = [
    "MYSQL SERVERS",
    "MYSQL USERS",
    "MYSQL QUERY RULES",
    "MYSQL VARIABLES",
    "PGSQL SERVERS",
    "PGSQL USERS",
    "PGSQL QUERY RULES",
    "PGSQL VARIABLES",
    "ADMIN VARIABLES",
];

/// Modules of the reference that are not here.
const ABSENT: [&str; 12] = [
    "MYSQL FIREWALL",
    "PGSQL FIREWALL",
    "PROXYSQL SERVERS",
    "SCHEDULER",
    "RESTAPI",
    "SQLITESERVER VARIABLES",
    "CLICKHOUSE VARIABLES",
    "CLICKHOUSE USERS",
    "LDAP VARIABLES",
    "DEBUG",
    "COREDUMP",
    "FAILOVER",
];

/// A LOAD or SAVE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CopyCommand {
    /// Names of [`MODULES`].
    pub(crate) modules: Vec<&'static str>,
    /// Source.
    pub(crate) from: Layer,
    /// Target.
    pub(crate) to: Layer,
    /// `IF REVISION n`.
    pub(crate) if_revision: Option<u64>,
    /// `DRY RUN`.
    pub(crate) dry_run: bool,
    /// `FORCE`.
    pub(crate) force: bool,
    /// `COMMENT '…'`.
    pub(crate) comment: String,
}

/// `cursor` stands on LOAD or SAVE.
pub(super) fn parse(cursor: &mut Cursor<'_>) -> Command {
    let Some(verb) = cursor.next() else { return Command::Empty };
    let syntax = || Command::Syntax { near: verb.text.into() };
    let load = verb.is("LOAD");
    let mut words = Vec::new();
    while let Some(token) = cursor.peek().filter(|token| token.kind == Kind::Word && !token.is("TO") && !token.is("FROM")) {
        words.push(token.text.to_ascii_uppercase());
        cursor.next();
    }
    let name = words.join(" ");
    let towards = if cursor.accept("TO") {
        true
    } else if cursor.accept("FROM") {
        false
    } else {
        return syntax();
    };
    let Some(layer) = cursor.next().filter(|token| token.kind == Kind::Word).map(|token| token.text.to_ascii_uppercase()) else {
        return syntax();
    };
    let modules = match name.as_str() {
        "ALL" => MODULES.to_vec(),
        other => MODULES.iter().copied().filter(|module| *module == other).collect(),
    };
    if modules.is_empty() {
        return unknown_module(&name, &layer).unwrap_or_else(syntax);
    }
    if load && !towards && layer == "CONFIG" {
        return refused(&format!("LOAD {name} FROM CONFIG is not available in this version: configuration files come with import"));
    }
    let Some((from, to)) = direction(load, towards, &layer) else { return syntax() };
    let command = CopyCommand { modules, from, to, if_revision: None, dry_run: false, force: false, comment: String::new() };
    options(cursor, command).unwrap_or_else(|refusal| if refusal.is_empty() { syntax() } else { Command::Refused(refusal) })
}

fn unknown_module(name: &str, layer: &str) -> Option<Command> {
    if ABSENT.contains(&name) {
        return Some(refused(&format!("module {name} is not available in this version")));
    }
    if name.starts_with("MYSQL USER ") {
        return Some(refused("loading a single user is not available in this version: LOAD MYSQL USERS TO RUNTIME loads what differs"));
    }
    let digest = matches!(name, "MYSQL DIGEST" | "PGSQL DIGEST") && layer == "DISK";
    let config = name == "CONFIG" && layer == "FILE";
    (digest || config).then(|| refused(&format!("SAVE {name} TO {layer} is not available in this version")))
}

fn direction(load: bool, towards: bool, layer: &str) -> Option<(Layer, Layer)> {
    use Layer::{Disk, Memory, Runtime};
    match (load, towards, layer) {
        (true, true, "RUNTIME" | "RUN") | (true, false, "MEMORY" | "MEM") => Some((Memory, Runtime)),
        (false, true, "MEMORY" | "MEM") | (false, false, "RUNTIME" | "RUN") | (true, false, "RUNTIME" | "RUN") => Some((Runtime, Memory)),
        (true, true, "MEMORY" | "MEM") | (true, false, "DISK") => Some((Disk, Memory)),
        (false, true, "DISK") | (false, false, "MEMORY" | "MEM") => Some((Memory, Disk)),
        _ => None,
    }
}

/// An empty refusal is a syntax error.
fn options(cursor: &mut Cursor<'_>, mut command: CopyCommand) -> Result<Command, String> {
    while !cursor.at_end() {
        if cursor.accept_all(&["IF", "REVISION"]) {
            let number = cursor.next().and_then(|token| token.text.parse().ok()).ok_or("IF REVISION needs a number")?;
            command.if_revision = Some(number);
        } else if cursor.accept_all(&["DRY", "RUN"]) {
            command.dry_run = true;
        } else if cursor.accept("FORCE") {
            command.force = true;
        } else if cursor.accept("COMMENT") {
            let text = cursor
                .next()
                .filter(|token| matches!(token.kind, Kind::String | Kind::DoubleQuoted))
                .ok_or("COMMENT needs a quoted text")?;
            command.comment = text.unquoted();
        } else if cursor.accept_all(&["WAIT", "ALL"]) {
            return Err("WAIT ALL is not available in this version: stats_cluster_nodes shows what each node has applied".into());
        } else {
            return Err(String::new());
        }
    }
    if command.to != Layer::Runtime && (command.if_revision.is_some() || command.dry_run || command.force) {
        return Err("IF REVISION, DRY RUN and FORCE belong to LOAD … TO RUNTIME".into());
    }
    Ok(Command::Copy(command))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use Layer::{Disk, Memory, Runtime};

    #[test]
    fn every_synonym_of_every_module_is_known() {
        let spellings = [
            ("LOAD {} TO RUNTIME", Memory, Runtime),
            ("LOAD {} TO RUN", Memory, Runtime),
            ("LOAD {} FROM MEMORY", Memory, Runtime),
            ("LOAD {} FROM MEM", Memory, Runtime),
            ("SAVE {} TO MEMORY", Runtime, Memory),
            ("SAVE {} TO MEM", Runtime, Memory),
            ("SAVE {} FROM RUNTIME", Runtime, Memory),
            ("SAVE {} FROM RUN", Runtime, Memory),
            ("LOAD {} TO MEMORY", Disk, Memory),
            ("LOAD {} TO MEM", Disk, Memory),
            ("LOAD {} FROM DISK", Disk, Memory),
            ("SAVE {} TO DISK", Memory, Disk),
            ("SAVE {} FROM MEMORY", Memory, Disk),
            ("SAVE {} FROM MEM", Memory, Disk),
        ];
        for module in MODULES.into_iter().chain(["ALL"]) {
            for (spelling, from, to) in spellings {
                let sql = spelling.replace("{}", module);
                for text in [sql.clone(), sql.to_lowercase(), format!("/* x */\n  {}  ", sql.replace(' ', "\t \n"))] {
                    let Command::Copy(command) = parse(&text) else { panic!("{text}") };
                    assert_eq!(
                        (command.from, command.to, command.modules.len()),
                        (from, to, if module == "ALL" { 9 } else { 1 }),
                        "{text}"
                    );
                    assert!(module == "ALL" || command.modules == [module]);
                }
            }
        }
    }

    #[test]
    fn options_are_read_in_any_order() {
        let Command::Copy(command) = parse("LOAD MYSQL SERVERS TO RUNTIME FORCE COMMENT 'it''s me' IF REVISION 12 dry run") else {
            panic!()
        };
        assert_eq!((command.if_revision, command.dry_run, command.force, command.comment.as_str()), (Some(12), true, true, "it's me"));
    }

    #[test]
    fn what_is_not_here_is_refused_and_what_is_misspelt_is_a_syntax_error() {
        for sql in [
            "LOAD MYSQL SERVERS FROM CONFIG",
            "LOAD SCHEDULER TO RUNTIME",
            "LOAD  SCHEDULER FROM DISK",
            "LOAD MYSQL USER bob TO RUNTIME",
            "SAVE MYSQL DIGEST TO DISK",
            "LOAD MYSQL USERS TO RUNTIME WAIT ALL 500",
            "SAVE MYSQL USERS TO DISK FORCE",
            "LOAD MYSQL USERS TO RUNTIME IF REVISION x",
        ] {
            assert!(matches!(parse(sql), Command::Refused(_)), "{sql}");
        }
        for sql in [
            "LOAD MYSQL SERVER TO RUNTIME",
            "LOAD MYSQL SERVERS",
            "LOAD",
            "SAVE MYSQL USERS TO RUNTIME",
            "LOAD MYSQL USERS TO RUNTIME NOW",
            "LOAD MYSQL USERS TO 'x'",
        ] {
            assert!(matches!(parse(sql), Command::Syntax { near } if near == "LOAD" || near == "SAVE"), "{sql}");
        }
    }
}
