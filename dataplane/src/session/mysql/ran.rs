//! What the executions of a prepared statement leave behind in it.
//!
//! MySQL, since 8.0.22, resolves the types of parameters when it prepares, and anew, by the values at hand, when an execution
//! brings a kind of value that does not fit; what it has come to by then holds for the executions that follow. `SELECT ? + 1`
//! is an integer for 1, a float for 0.5, and a float for 1 behind 0.5. So a statement on a server may serve two clients only
//! as long as both would have brought their own to the same point.

use std::sync::Arc;

use quorumsql_wire::mysql::params::ParameterKind;

/// The executions of a statement so far: of a client's on all its servers, or of a server's for all its clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ran {
    /// None that the statement remembers.
    #[default]
    Never,
    /// The first had values of these kinds, and those after it none that do not fit what the first had come to.
    Alike(Arc<[ParameterKind]>),
    /// In ways that are not told apart.
    Mixed,
}

impl Ran {
    /// Whether a server's statement that is `self` is where the own statement of a client that is `client` would be, when it is
    /// executed with `kinds`.
    pub(crate) fn serves(&self, client: &Self, kinds: &[ParameterKind]) -> bool {
        match (self, client) {
            (Self::Alike(server), Self::Never) => **server == *kinds,
            (Self::Alike(server), Self::Alike(client)) => server == client,
            _ => false,
        }
    }

    /// Whether an execution with `kinds` leaves a new statement where it leaves one that is `self`.
    pub(crate) fn begins_with(&self, kinds: &[ParameterKind]) -> bool {
        match self {
            Self::Never => true,
            Self::Alike(first) => **first == *kinds,
            Self::Mixed => false,
        }
    }

    /// One more execution.
    pub(crate) fn run(&mut self, kinds: &[ParameterKind]) {
        match self {
            Self::Never => *self = Self::Alike(kinds.into()),
            Self::Alike(first) if !fit(first, kinds) => *self = Self::Mixed,
            Self::Alike(_) | Self::Mixed => {}
        }
    }
}

/// Whether a statement that has been brought to `first` stays there.
pub(super) fn fit(first: &[ParameterKind], kinds: &[ParameterKind]) -> bool {
    first == kinds || first.len() == kinds.len() && first.iter().zip(kinds).all(|(first, kind)| fits(*first, *kind))
}

/// Whether every type that takes values of kind `first` takes `kind` as well. Every type takes NULL and text; what takes a float
/// takes any number, and what takes a decimal takes integers.
fn fits(first: ParameterKind, kind: ParameterKind) -> bool {
    use ParameterKind::{BigNumber, Binary, Decimal, Double, Int, Null, Text, UInt};
    match kind {
        Null | Text | Binary => true,
        Int | UInt | Decimal | BigNumber => first == kind || matches!(first, Decimal | Double),
        _ => first == kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ParameterKind::{Date, Decimal, Double, Int, Null, Text};

    type Executions = &'static [&'static [ParameterKind]];

    fn after(executions: Executions) -> Ran {
        let mut ran = Ran::Never;
        executions.iter().for_each(|kinds| ran.run(kinds));
        ran
    }

    #[test]
    fn executions_are_alike_while_they_leave_the_statement_where_it_is() {
        let alike = |kinds: &[ParameterKind]| Ran::Alike(kinds.into());
        let cases: [(Executions, Ran); 11] = [
            (&[], Ran::Never),
            (&[&[Int, Text]], alike(&[Int, Text])),
            (&[&[Int, Text], &[Int, Text]], alike(&[Int, Text])),
            (&[&[Int, Text], &[Null, Text], &[Int, Null]], alike(&[Int, Text])),
            (&[&[Int, Text], &[Double, Text]], Ran::Mixed),
            (&[&[Int, Null], &[Int, Text], &[Text, Text]], alike(&[Int, Null])),
            (&[&[Double], &[Int], &[Decimal], &[Double]], alike(&[Double])),
            (&[&[Decimal], &[Int], &[Double]], Ran::Mixed),
            (&[&[Int, Null], &[Int, Int]], Ran::Mixed),
            (&[&[Double], &[Date]], Ran::Mixed),
            (&[&[Int], &[Double], &[Int]], Ran::Mixed),
        ];
        for (executions, expected) in cases {
            assert_eq!(after(executions), expected, "{executions:?}");
        }
    }

    #[test]
    fn a_statement_serves_those_who_are_where_it_is() {
        let cases: [(Executions, Executions, &[ParameterKind], bool); 9] = [
            (&[&[Double]], &[], &[Double], true),
            (&[&[Double]], &[], &[Int], false),
            (&[&[Double]], &[], &[Null], false),
            (&[&[Double]], &[&[Double]], &[Double], true),
            (&[&[Double]], &[&[Double]], &[Null], true),
            // It goes where the client's own would go.
            (&[&[Double]], &[&[Double]], &[Int], true),
            (&[&[Double]], &[&[Int]], &[Double], false),
            (&[&[Double]], &[&[Int], &[Double]], &[Double], false),
            (&[&[Int], &[Double]], &[&[Int], &[Double]], &[Int], false),
        ];
        for (server, client, kinds, serves) in cases {
            assert_eq!(after(server).serves(&after(client), kinds), serves, "{server:?} {client:?} {kinds:?}");
        }
    }
}
