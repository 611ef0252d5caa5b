//! What a statement does to the session's parameters once it has succeeded (pgsql-dataplane.md 3.8).

use super::custom;
use quorumsql_wire::pgsql::frontend::Bind;
use quorumsql_wire::sql::{
    Class, Effects, PgsqlConfig, PgsqlConfigValue, PgsqlSession, PgsqlSet, Transaction, TransactionModes, parse_pgsql_session,
    sets_only_plain_names,
};

/// Parameters that are more than a value, or whose value the lexer here depends on: setting one keeps the connection.
const UNFOLLOWED: [&str; 7] = [
    "backslash_quote",
    "local_preload_libraries",
    "role",
    "seed",
    "session_authorization",
    "session_preload_libraries",
    "standard_conforming_strings",
];
/// Longest value that is followed.
const VALUE_LIMIT: usize = 1024;
/// Statements of one text that are followed.
const STATEMENTS: usize = 1000;

/// One parameter, in lower case, and its value as `set_config` takes it; `None` = for the transaction only, which is told of an application's
/// own parameters alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// What one statement does when it has succeeded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Change {
    /// Nothing that is followed.
    #[default]
    Nothing,
    /// It sets these.
    Set(Vec<Setting>),
    /// It sets these, by values of which some come with Bind.
    Bound(Vec<PgsqlConfig>),
    /// It resets this one.
    Reset(String),
    /// It resets all.
    ResetAll,
    /// It changes what cannot be followed.
    Unfollowed,
    /// The same, and it may be an application's own parameter whose name nobody knows.
    Unnamed,
    /// It sets the role; `true` = back to none.
    Role(bool),
    /// It sets the session's user; `true` = back to the one that logged in.
    Authorization(bool),
    /// It begins a savepoint.
    Savepoint(String),
    /// It goes back to a savepoint.
    RollbackTo(String),
    /// It ends all LISTENs.
    UnlistenAll,
    /// It prepares a statement of this name as text.
    Prepare(String),
    /// It forgets the statement of this name.
    Deallocate(String),
    /// It forgets all statements.
    DeallocateAll,
}

/// Reads the statements of a text of this class and these effects. `None` = none of them does anything that is followed; pins are to be made of its
/// effects alone.
pub(crate) fn changes(sql: &[u8], class: Class, effects: Effects) -> Option<Vec<Change>> {
    let sets = Effects::SESSION_SETTING | Effects::SET_CONFIG;
    let asked = sets
        | Effects::TRANSACTION_SETTING
        | Effects::DISCARD_ALL
        | Effects::UNLISTEN
        | Effects::PREPARE_TEXT
        | Effects::MAY_UNPIN
        | Effects::MULTI;
    if !effects.intersects(asked) && class != Class::Transaction(Transaction::Savepoint) {
        return None;
    }
    let Some(read) = parse_pgsql_session(sql, false, STATEMENTS) else { return Some(vec![Change::Unnamed]) };
    let mut changes: Vec<Change> = read.into_iter().map(Change::of).collect();
    if !is_followed(effects, &changes) && !sets_only_plain_names(sql) {
        changes.push(Change::Unnamed);
    }
    (effects.intersects(sets) || changes.iter().any(|change| *change != Change::Nothing)).then_some(changes)
}

/// Whether the SETs in a text, and its calls of `set_config`, are all among `changes`.
pub(crate) fn is_followed(effects: Effects, changes: &[Change]) -> bool {
    !effects.intersects(Effects::SET_CONFIG) || matches!(changes, [Change::Set(_) | Change::Bound(_) | Change::Role(_)])
}

/// Whether nobody knows what a text sets that is not followed.
pub(crate) fn is_unnamed(changes: Option<&[Change]>) -> bool {
    changes.is_none_or(|all| matches!(all.last(), None | Some(Change::Unnamed)))
}

fn is_unfollowed(name: &str) -> bool {
    UNFOLLOWED.contains(&name)
}

/// `standard_conforming_strings = on` only says how the lexer here reads strings anyway.
fn is_as_read(name: &str, values: &[impl AsRef<str>]) -> bool {
    let is_on = |value: &str| ["on", "true", "yes", "1"].iter().any(|on| on.eq_ignore_ascii_case(value));
    name == "standard_conforming_strings" && matches!(values, [value] if is_on(value.as_ref()))
}

impl Change {
    /// Whether what is made from now on may be temporary though no statement says so.
    pub(crate) fn leads_to_temporary_objects(&self) -> bool {
        let Self::Set(settings) = self else { return false };
        let is_temporary = |value: &String| value.to_ascii_lowercase().contains("pg_temp");
        settings.iter().any(|setting| setting.name == "search_path" && setting.value.as_ref().is_some_and(is_temporary))
    }

    /// What it does with the values of a Bind.
    pub(crate) fn bind(&self, bind: &Bind<'_>) -> Self {
        match (self, bind.arguments()) {
            // A text is the same in both formats.
            (Self::Bound(calls), Ok(arguments)) => Self::of_calls(calls, &arguments.values).unwrap_or(Self::Unnamed),
            (Self::Bound(_), Err(_)) => Self::Unnamed,
            (other, _) => other.clone(),
        }
    }

    fn of(read: PgsqlSession) -> Self {
        match read {
            PgsqlSession::Nothing => Self::Nothing,
            PgsqlSession::Set(set) => Self::of_set(set),
            PgsqlSession::SetConfig(calls) => Self::of_calls(&calls, &[]).unwrap_or(Self::Bound(calls)),
            PgsqlSession::Savepoint(name) => Self::Savepoint(name),
            PgsqlSession::RollbackTo(name) => Self::RollbackTo(name),
            PgsqlSession::UnlistenAll => Self::UnlistenAll,
            PgsqlSession::Prepare(name) => Self::Prepare(name),
            PgsqlSession::Deallocate(name) => Self::Deallocate(name),
            PgsqlSession::DeallocateAll => Self::DeallocateAll,
            PgsqlSession::Unread => Self::Unnamed,
        }
    }

    /// The application's own parameters whose names make no difference to it: it only sets them.
    pub(crate) fn foreseen(&self) -> impl Iterator<Item = &str> {
        let calls: &[PgsqlConfig] = if let Self::Bound(calls) = self { calls } else { &[] };
        let bound = calls.iter().filter_map(|call| match &call.name {
            PgsqlConfigValue::Literal(name) if custom::is_custom(name) && !name.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Some(&**name)
            }
            _ => None,
        });
        self.custom_names().chain(bound)
    }

    /// The application's own parameters of which it sets any, or takes the value away.
    pub(crate) fn custom_names(&self) -> impl Iterator<Item = &str> {
        let (set, reset): (&[Setting], _) = match self {
            Self::Set(settings) => (settings, None),
            Self::Reset(name) => (&[], Some(name)),
            _ => (&[], None),
        };
        set.iter().map(|setting| &setting.name).chain(reset).map(String::as_str).filter(|name| custom::is_custom(name))
    }

    fn of_set(set: PgsqlSet) -> Self {
        match set {
            PgsqlSet::Parameter { local: true, name, .. } => Self::local(name),
            // For the transaction only; and the seed has a pin of its own.
            PgsqlSet::Transaction(_) | PgsqlSet::Seed => Self::Nothing,
            PgsqlSet::Parameter { name, values: None, .. } | PgsqlSet::Reset(name) => Self::reset(name),
            PgsqlSet::Parameter { name, values: Some(values), .. } => Self::set(name, &values),
            PgsqlSet::ResetAll => Self::ResetAll,
            PgsqlSet::Role(is_none) => Self::Role(is_none),
            PgsqlSet::SessionAuthorization(is_default) => Self::Authorization(is_default),
            PgsqlSet::Characteristics(modes) => Self::Set(characteristics(modes)),
        }
    }

    fn reset(name: String) -> Self {
        match name.to_ascii_lowercase() {
            name if name.starts_with("transaction_") => Self::Nothing,
            name if name == "session_authorization" => Self::Authorization(true),
            name if name == "role" => Self::Role(true),
            name if custom::is_custom(&name) && !custom::is_plain(&name) => Self::Unnamed,
            name => Self::Reset(name),
        }
    }

    /// SET LOCAL: what stays of it is the name of an application's own parameter.
    fn local(name: String) -> Self {
        let name = name.to_ascii_lowercase();
        match (custom::is_custom(&name), custom::is_plain(&name)) {
            (false, _) => Self::Nothing,
            (true, true) => Self::Set(vec![Setting { name, value: None }]),
            (true, false) => Self::Unnamed,
        }
    }

    fn set(name: String, values: &[String]) -> Self {
        let name = name.to_ascii_lowercase();
        if name.starts_with("transaction_") {
            return Self::Nothing;
        }
        if !custom::is_plain(&name) {
            return Self::Unnamed;
        }
        if is_unfollowed(&name) && !is_as_read(&name, values) {
            return Self::Unfollowed;
        }
        let value = match (name.as_str(), values) {
            ("search_path" | "temp_tablespaces", _) => values.iter().map(|value| identifier(value)).collect::<Vec<_>>().join(", "),
            ("datestyle", _) => values.join(", "),
            // A number is an offset whose sign and fraction SET reads in its own way.
            ("timezone", [value]) if !value.starts_with(|first: char| first.is_ascii_alphabetic()) => return Self::Unfollowed,
            (_, [value]) if value.len() <= VALUE_LIMIT => value.clone(),
            _ if custom::is_custom(&name) => return Self::Unnamed,
            _ => return Self::Unfollowed,
        };
        if value.len() > VALUE_LIMIT { Self::Unfollowed } else { Self::Set(vec![Setting { name, value: Some(value) }]) }
    }

    /// `None` = a name or value is not among those given. NULL, which means the default, is not followed.
    fn of_calls(calls: &[PgsqlConfig], values: &[Option<&[u8]>]) -> Option<Self> {
        let mut settings = Vec::with_capacity(calls.len());
        let (mut is_followed, mut is_named) = (true, true);
        for PgsqlConfig { name, value, local } in calls {
            let name = given(name, values)?.unwrap_or_default().to_ascii_lowercase();
            let is_custom = custom::is_custom(&name);
            is_named &= custom::is_plain(&name);
            let value = match given(value, values)? {
                _ if *local => None,
                Some(value) if value.len() <= VALUE_LIMIT && (!is_unfollowed(&name) || is_as_read(&name, &[value])) => {
                    Some(value.to_owned())
                }
                _ => {
                    is_followed = false;
                    None
                }
            };
            if (is_custom || !local) && !name.starts_with("transaction_") {
                settings.push(Setting { name, value });
            }
        }
        Some(match is_followed {
            true if is_named => Self::Set(settings),
            false if is_named && !settings.iter().any(|setting| custom::is_custom(&setting.name)) => Self::Unfollowed,
            _ => Self::Unnamed,
        })
    }
}

/// A name or value of a call, of the values that come with Bind. Outer `None`: it is not among them; inner `None`: NULL, or no text.
fn given<'v>(what: &'v PgsqlConfigValue, values: &[Option<&'v [u8]>]) -> Option<Option<&'v str>> {
    match what {
        PgsqlConfigValue::Literal(text) => Some(Some(text)),
        PgsqlConfigValue::Bound(number) => {
            let index = usize::from(*number).checked_sub(1)?;
            values.get(index).map(|value| value.and_then(|bytes| std::str::from_utf8(bytes).ok()))
        }
    }
}

/// `SET SESSION CHARACTERISTICS` by the parameters that it sets.
fn characteristics(modes: TransactionModes) -> Vec<Setting> {
    let switch = |on: bool| if on { "on" } else { "off" };
    let all = [
        ("default_transaction_isolation", modes.isolation),
        ("default_transaction_read_only", modes.read_only.map(switch)),
        ("default_transaction_deferrable", modes.deferrable.map(switch)),
    ];
    all.into_iter().filter_map(|(name, value)| Some(Setting { name: name.into(), value: Some(value?.into()) })).collect()
}

/// As PostgreSQL writes a name into a list, only that a keyword needs no quotes here.
fn identifier(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
#[path = "changes_test.rs"]
mod tests;
