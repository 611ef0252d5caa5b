//! The character set that client and server agreed on.

use quorumsql_wire::mysql::charset;

/// How `character_set_client`, `_connection`, `_results` and `collation_connection` were set last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    /// By the collation id of the handshake.
    Login(u8),
    /// By `SET NAMES`, lower case.
    Set {
        /// Character set.
        charset: String,
        /// Collation, if it was named.
        collation: Option<String>,
    },
    /// Not known, as after a reset: never equal to what a session wants.
    Unknown,
}

impl Names {
    /// The statement that brings a connection to these names; `collate` = with the collation of a handshake id. Nothing for an
    /// id that no server has.
    pub(crate) fn statement(&self, collate: Collate) -> Option<String> {
        match self {
            Self::Login(id) => {
                let (charset, collation) = charset::collation(u16::from(*id))?;
                Some(match collate {
                    Collate::Exact => format!("SET NAMES {charset} COLLATE {collation}"),
                    Collate::Default => format!("SET NAMES {charset}"),
                })
            }
            Self::Set { charset, collation: Some(collation) } => Some(format!("SET NAMES {charset} COLLATE {collation}")),
            Self::Set { charset, collation: None } => Some(format!("SET NAMES {charset}")),
            Self::Unknown => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements() {
        let set = |collation: Option<&str>| Names::Set { charset: "latin1".into(), collation: collation.map(str::to_owned) };
        let cases = [
            (Names::Login(255), Collate::Exact, Some("SET NAMES utf8mb4 COLLATE utf8mb4_0900_ai_ci")),
            (Names::Login(255), Collate::Default, Some("SET NAMES utf8mb4")),
            (Names::Login(0), Collate::Exact, None),
            (set(None), Collate::Exact, Some("SET NAMES latin1")),
            (set(Some("latin1_bin")), Collate::Exact, Some("SET NAMES latin1 COLLATE latin1_bin")),
            (Names::Unknown, Collate::Exact, None),
        ];
        for (names, collate, expected) in cases {
            assert_eq!(names.statement(collate).as_deref(), expected);
        }
    }
}
