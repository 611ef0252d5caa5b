//! Tokens that both lexers produce.

use super::keyword::Keyword;

/// One token of a statement. Literals carry nothing: their values never matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token<'a> {
    /// An unquoted word, with the keyword it spells.
    Word(Keyword, &'a [u8]),
    /// A quoted identifier, without its quotes, with doubled quotes left as they are.
    Quoted(&'a [u8]),
    /// A string constant, without its quotes, unescaped by nobody.
    String(&'a [u8]),
    /// A numeric constant.
    Number(&'a [u8]),
    /// MySQL's `@name`.
    UserVariable,
    /// MySQL's `@@name`: scope (empty if none) and last part of the name.
    SystemVariable(&'a [u8], &'a [u8]),
    /// Any other byte.
    Symbol(u8),
    /// End of the text.
    End,
}
