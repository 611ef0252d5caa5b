//! Whose tables are right: a pure function of who has which root.

use std::collections::{BTreeMap, BTreeSet};

/// What the voters say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// A majority has this node's root.
    Right,
    /// A majority has this root, which is another one.
    Wrong(u128),
    /// No root can get a majority any more.
    NoMajority,
}

/// Counts in every configuration of a joint membership. `roots` holds the voters that have answered, this node included if it votes.
/// `None` = the others decide.
pub(super) fn decide(configurations: &[BTreeSet<u64>], own: u128, roots: &BTreeMap<u64, u128>) -> Option<Verdict> {
    let candidates: BTreeSet<u128> = roots.values().copied().collect();
    let majority = |counts: &dyn Fn(&u64) -> bool| {
        configurations.iter().all(|voters| voters.iter().filter(|voter| counts(voter)).count() > voters.len() / 2)
    };
    if let Some(root) = candidates.iter().find(|root| majority(&|voter| roots.get(voter) == Some(*root))) {
        return Some(if *root == own { Verdict::Right } else { Verdict::Wrong(*root) });
    }
    let silent = |voter: &u64| !roots.contains_key(voter);
    let open = majority(&silent) || candidates.iter().any(|root| majority(&|voter| silent(voter) || roots.get(voter) == Some(root)));
    (!open).then_some(Verdict::NoMajority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_of_every_configuration_decides() {
        type Case<'a> = (&'a str, &'a [&'a [u64]], u128, &'a [(u64, u128)], Option<Verdict>);
        let three: &[&[u64]] = &[&[1, 2, 3]];
        let cases: [Case<'_>; 13] = [
            ("two of three agree with this node", three, 7, &[(1, 7), (2, 7), (3, 8)], Some(Verdict::Right)),
            ("one answer is enough for two of three", three, 7, &[(1, 7), (2, 7)], Some(Verdict::Right)),
            ("two of three contradict", three, 7, &[(1, 7), (2, 8), (3, 8)], Some(Verdict::Wrong(8))),
            ("one against one, the third is silent", three, 7, &[(1, 7), (2, 8)], None),
            ("three roots", three, 7, &[(1, 7), (2, 8), (3, 9)], Some(Verdict::NoMajority)),
            ("one against one", &[&[1, 2]], 7, &[(1, 7), (2, 8)], Some(Verdict::NoMajority)),
            ("a learner against the only voter", &[&[1]], 7, &[(1, 8)], Some(Verdict::Wrong(8))),
            ("a learner, nobody has answered", three, 7, &[], None),
            ("a voter alone", &[&[1]], 7, &[(1, 7)], Some(Verdict::Right)),
            ("two and two of five, the fifth decides", &[&[1, 2, 3, 4, 5]], 7, &[(1, 7), (2, 7), (3, 8), (4, 8)], None),
            ("two, two and one of five", &[&[1, 2, 3, 4, 5]], 7, &[(1, 7), (2, 7), (3, 8), (4, 8), (5, 9)], Some(Verdict::NoMajority)),
            ("a majority of one configuration only", &[&[1, 2, 3], &[3, 4, 5]], 7, &[(1, 8), (2, 8), (3, 8), (4, 7)], None),
            ("majorities of both", &[&[1, 2, 3], &[3, 4, 5]], 7, &[(1, 8), (3, 8), (4, 7), (5, 8)], Some(Verdict::Wrong(8))),
        ];
        for (what, configurations, own, roots, expected) in cases {
            let configurations: Vec<BTreeSet<u64>> = configurations.iter().map(|ids| ids.iter().copied().collect()).collect();
            assert_eq!(decide(&configurations, own, &roots.iter().copied().collect()), expected, "{what}");
        }
    }
}
