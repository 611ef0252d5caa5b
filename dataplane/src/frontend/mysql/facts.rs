//! Column definitions of answers that no server gave, as a server of the version that clients see would write them.

use quorumsql_wire::mysql::charset;
use quorumsql_wire::mysql::column::{Column, flag, kind};

use crate::backend::mysql::Product;
use crate::session::mysql::names::Names;

/// What all texts of one answer have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    product: Product,
    /// Collation id.
    collation: u16,
    /// Most bytes of a character.
    width: u32,
}

impl Facts {
    /// Of a session with these names, on servers of this version.
    pub(super) fn new(names: &Names, server_version: &str) -> Self {
        let product = Product::of(server_version);
        let collation = names.results(product);
        let width = charset::collation(collation).map_or(1, |(charset, _)| charset::width(charset));
        Self { product, collation, width }
    }

    /// A text of so many characters at most.
    fn text(self, name: impl Into<String>, characters: usize) -> Column {
        let decimals = if self.product == Product::Mariadb { 39 } else { 31 };
        let length = u32::try_from(characters).unwrap_or(u32::MAX).saturating_mul(self.width);
        Column { charset: self.collation, length, decimals, ..Column::text(name) }
    }

    /// A text that is never NULL.
    pub(super) fn certain_text(self, name: impl Into<String>, characters: usize) -> Column {
        Column { flags: flag::NOT_NULL, ..self.text(name, characters) }
    }

    /// A system variable with this value.
    pub(super) fn variable(self, name: impl Into<String>, value: &str) -> Column {
        match self.product {
            Product::Mariadb => self.text(name, value.chars().count()),
            Product::Mysql => self.text(name, 21_845),
        }
    }

    /// `USER()`.
    pub(super) fn user(self) -> Column {
        self.text("USER()", if self.product == Product::Mariadb { 384 } else { 288 })
    }

    /// `DATABASE()`.
    pub(super) fn schema(self) -> Column {
        self.text("DATABASE()", 64)
    }

    /// What a function returns.
    pub(super) fn number(self, name: impl Into<String>) -> Column {
        Column { flags: flag::NOT_NULL | flag::BINARY, ..Column::integer(name) }
    }

    /// A variable that counts.
    pub(super) fn counter(self, name: impl Into<String>) -> Column {
        Column { flags: flag::UNSIGNED | flag::BINARY, ..Column::integer(name) }
    }

    /// `CONNECTION_ID()`.
    pub(super) fn connection_id(self, name: impl Into<String>) -> Column {
        let flags = flag::NOT_NULL | flag::UNSIGNED | flag::BINARY;
        match self.product {
            Product::Mariadb => Column { kind: kind::LONG, length: 10, flags, ..Column::integer(name) },
            Product::Mysql => Column { flags, ..Column::integer(name) },
        }
    }

    /// Of SHOW WARNINGS and SHOW ERRORS.
    pub(super) fn warnings(self) -> [Column; 3] {
        let flags = flag::NOT_NULL | flag::UNSIGNED | flag::BINARY;
        let length = if self.product == Product::Mariadb { 4 } else { 5 };
        let code = Column { kind: kind::LONG, length, flags, ..Column::integer("Code") };
        [self.certain_text("Level", 7), code, self.certain_text("Message", 512)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::mysql::names::NamesChange;

    #[test]
    fn texts_are_as_wide_as_their_character_set() {
        let mut names = Names::login(45);
        let level = |names: &Names, version| {
            let [level, ..] = Facts::new(names, version).warnings();
            (level.charset, level.length, level.decimals)
        };
        assert_eq!(level(&names, "5.5.5-10.11.6-MariaDB"), (45, 28, 39));
        assert_eq!(level(&names, "9.7.0"), (45, 28, 31));
        names.apply(NamesChange::Names { charset: "utf8mb4".into(), collation: None }, "");
        assert_eq!(level(&names, "9.7.0"), (255, 28, 31));
        assert_eq!(level(&names, "11.4-MariaDB"), (45, 28, 39));
        names.apply(NamesChange::Results(Some("latin1".into())), "");
        assert_eq!(level(&names, "9.7.0"), (8, 7, 31));
        names.apply(NamesChange::Results(None), "");
        assert_eq!(level(&names, "9.7.0"), (33, 21, 31));
    }
}
