//! The character sets and the collation that client and server agreed on (mysql-dataplane 4.7).

use std::fmt::Write;

use quorumsql_wire::mysql::charset;
use quorumsql_wire::sql::Encoding;

use crate::backend::mysql::Product;

/// How `character_set_client`, `_connection`, `_results` and `collation_connection` were set last.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Names {
    base: Base,
    /// What was set behind it, one variable at a time.
    single: Option<Box<Single>>,
}

/// What sets all of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Base {
    /// The collation id of the handshake.
    Login(u8),
    /// `SET NAMES`, lower case.
    Set { charset: String, collation: Option<String> },
    /// `SET CHARACTER SET`: the connection's are those of the schema at that time.
    Schema { charset: String, schema: String },
    /// COM_RESET_CONNECTION on a connection with this collation id of the handshake. MariaDB returns to that, MySQL to the
    /// server's own character set.
    Reset(u8),
    /// Not known, as after a reset: never equal to what a session wants.
    Unknown,
}

/// Variables that were set alone; `None` = as the base says.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Single {
    client: Option<String>,
    /// `NULL` or a character set.
    results: Option<String>,
    connection: Option<Connection>,
}

/// `character_set_connection` and `collation_connection` set each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Connection {
    Charset(String),
    Collation(String),
}

/// What a SET changes; names in lower case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NamesChange {
    /// `NAMES charset [COLLATE collation]`.
    Names {
        /// Character set.
        charset: String,
        /// Collation, if it was named.
        collation: Option<String>,
    },
    /// `CHARACTER SET charset`.
    CharacterSet(String),
    /// `character_set_client`.
    Client(String),
    /// `character_set_results`; `None` = NULL.
    Results(Option<String>),
    /// `character_set_connection`.
    Connection(String),
    /// `collation_connection`.
    Collation(String),
}

impl Names {
    /// Not known.
    pub(crate) const UNKNOWN: Self = Self { base: Base::Unknown, single: None };

    /// As a handshake sets them.
    pub(crate) const fn login(id: u8) -> Self {
        Self { base: Base::Login(id), single: None }
    }

    /// As COM_RESET_CONNECTION leaves them behind that handshake.
    pub(crate) const fn reset(id: u8) -> Self {
        Self { base: Base::Reset(id), single: None }
    }

    /// Takes over a change; `schema` is the current one.
    pub(crate) fn apply(&mut self, change: NamesChange, schema: &str) {
        match change {
            NamesChange::Names { charset, collation } => *self = Self { base: Base::Set { charset, collation }, single: None },
            NamesChange::CharacterSet(charset) => {
                *self = Self { base: Base::Schema { charset, schema: schema.to_owned() }, single: None };
            }
            NamesChange::Client(charset) => self.single().client = Some(charset),
            NamesChange::Results(charset) => self.single().results = Some(charset.unwrap_or_else(|| "NULL".to_owned())),
            NamesChange::Connection(charset) => self.single().connection = Some(Connection::Charset(charset)),
            NamesChange::Collation(collation) => self.single().connection = Some(Connection::Collation(collation)),
        }
    }

    fn single(&mut self) -> &mut Single {
        self.single.get_or_insert_default()
    }

    /// `character_set_client`.
    pub(crate) fn client(&self) -> &str {
        let single = self.single.as_ref().and_then(|single| single.client.as_deref());
        single.unwrap_or(match &self.base {
            Base::Login(id) | Base::Reset(id) => charset::collation(u16::from(*id)).map_or("", |(charset, _)| charset),
            Base::Set { charset, .. } | Base::Schema { charset, .. } => charset,
            Base::Unknown => "",
        })
    }

    /// How `sql` is to be read; as most texts, if it is ASCII. Cost: a look at each byte.
    pub(crate) fn encoding(&self, sql: &[u8]) -> Encoding {
        if sql.is_ascii() { Encoding::Plain } else { Encoding::of_mysql(self.client()) }
    }

    /// Collation id of texts in results, as far as it shows here; of NULL, which is each text's own, that of names.
    pub(crate) fn results(&self, product: Product) -> u16 {
        let default = |charset: &str| match (charset, product) {
            ("utf8mb4", Product::Mysql) => charset::collation_id("utf8mb4_0900_ai_ci"),
            ("utf8", _) => Some(u16::from(charset::UTF8_GENERAL_CI)),
            _ => charset::default_collation_id(charset),
        };
        let single = self.single.as_ref().and_then(|single| single.results.as_deref());
        let id = match (single, &self.base) {
            (Some("NULL"), _) => None,
            (Some(charset), _) => default(charset),
            (None, Base::Reset(_)) if product == Product::Mysql => default("utf8mb4"),
            (None, Base::Login(id) | Base::Reset(id)) => Some(u16::from(handshake_id(*id, product))),
            (None, Base::Set { collation: Some(collation), .. }) => charset::collation_id(collation),
            (None, Base::Set { charset, .. } | Base::Schema { charset, .. }) => default(charset),
            (None, Base::Unknown) => None,
        };
        id.unwrap_or(u16::from(charset::UTF8_GENERAL_CI))
    }

    /// The schema in which [`Self::statement`] must run, if it matters.
    pub(crate) fn schema(&self) -> Option<&str> {
        match &self.base {
            Base::Schema { schema, .. } => Some(schema),
            _ => None,
        }
    }

    /// The statement that brings a connection to these names; `collate` = with the collation of a handshake id. Nothing for an
    /// id that no server has.
    pub(crate) fn statement(&self, collate: Collate, product: Product) -> Option<String> {
        let mut sql = match &self.base {
            Base::Reset(_) if product == Product::Mysql => "SET NAMES DEFAULT".to_owned(),
            Base::Login(id) | Base::Reset(id) => {
                let (charset, collation) = charset::collation(u16::from(*id))?;
                match collate {
                    Collate::Exact => format!("SET NAMES {charset} COLLATE {collation}"),
                    Collate::Default => format!("SET NAMES {charset}"),
                }
            }
            Base::Set { charset, collation: Some(collation) } => format!("SET NAMES {charset} COLLATE {collation}"),
            Base::Set { charset, collation: None } => format!("SET NAMES {charset}"),
            Base::Schema { charset, .. } => format!("SET CHARACTER SET {charset}"),
            Base::Unknown => return None,
        };
        if let Some(single) = &self.single {
            let (name, value) = match &single.connection {
                Some(Connection::Charset(charset)) => ("character_set_connection", Some(charset)),
                Some(Connection::Collation(collation)) => ("collation_connection", Some(collation)),
                None => ("", None),
            };
            let parts =
                [("character_set_client", single.client.as_ref()), ("character_set_results", single.results.as_ref()), (name, value)];
            for (name, value) in parts {
                if let Some(value) = value {
                    let _infallible = write!(sql, ", {name}={value}");
                }
            }
        }
        Some(sql)
    }
}

/// Which collation goes with a handshake id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collate {
    /// Its own.
    Exact,
    /// The server's default, where the server does not know its own (MySQL 8's collations on MariaDB).
    Default,
}

/// MariaDB does not know MySQL 8's collations and would fall back to its own default character set: it gets the same
/// character set with a collation that it knows, which is also what an alignment falls back to.
pub(crate) fn handshake_id(id: u8, product: Product) -> u8 {
    let unknown = charset::collation(u16::from(id)).is_some_and(|(_, name)| name.contains("_0900_"));
    if unknown && product == Product::Mariadb { charset::UTF8MB4_GENERAL_CI } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(changes: &[NamesChange]) -> Names {
        let mut names = Names::login(45);
        for change in changes {
            names.apply(change.clone(), "shop");
        }
        names
    }

    #[test]
    fn statements() {
        let set = |collation: Option<&str>| NamesChange::Names { charset: "latin1".into(), collation: collation.map(str::to_owned) };
        let cases = [
            (Names::login(255), Collate::Exact, Some("SET NAMES utf8mb4 COLLATE utf8mb4_0900_ai_ci")),
            (Names::login(255), Collate::Default, Some("SET NAMES utf8mb4")),
            (Names::login(0), Collate::Exact, None),
            (after(&[set(None)]), Collate::Exact, Some("SET NAMES latin1")),
            (after(&[set(Some("latin1_bin"))]), Collate::Exact, Some("SET NAMES latin1 COLLATE latin1_bin")),
            (
                after(&[set(None), NamesChange::Results(None), NamesChange::Client("ascii".into())]),
                Collate::Exact,
                Some("SET NAMES latin1, character_set_client=ascii, character_set_results=NULL"),
            ),
            (
                after(&[NamesChange::Connection("ascii".into()), NamesChange::Collation("latin1_bin".into())]),
                Collate::Default,
                Some("SET NAMES utf8mb4, collation_connection=latin1_bin"),
            ),
            (after(&[NamesChange::Results(None), set(None)]), Collate::Exact, Some("SET NAMES latin1")),
            (after(&[set(None), NamesChange::CharacterSet("ascii".into())]), Collate::Exact, Some("SET CHARACTER SET ascii")),
            (Names::reset(255), Collate::Default, Some("SET NAMES utf8mb4")),
            (Names::UNKNOWN, Collate::Exact, None),
        ];
        for (names, collate, expected) in cases {
            assert_eq!(names.statement(collate, Product::Mariadb).as_deref(), expected);
        }
        assert_eq!(after(&[NamesChange::CharacterSet("ascii".into())]).schema(), Some("shop"));
        assert_eq!(after(&[]).schema(), None);
        assert_eq!(Names::login(255).results(Product::Mysql), 255);
        assert_eq!(Names::login(255).results(Product::Mariadb), 45, "it has no such collation");
        assert_eq!(Names::reset(255).results(Product::Mariadb), 45);
        assert_eq!(Names::reset(45).statement(Collate::Exact, Product::Mysql).as_deref(), Some("SET NAMES DEFAULT"));
    }
}
