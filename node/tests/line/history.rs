//! Checks a history of answers by witness order (raft-and-storage.md 10): every answer carries its place in the one order of
//! changes, so nothing has to be searched for.
//!
//! Rows are only ever inserted, with AUTOINCREMENT keys: the key is the place of a write, the largest key that it saw is the place of
//! a read. A read carries the log index of the state that it saw, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One operation of a client. Times are since the begin of the history, by the clock of the process that all clients are in.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) invoked: Duration,
    pub(crate) returned: Duration,
    pub(crate) answer: Answer,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A write with the key of its row.
    Acknowledged { row: String, key: u64 },
    /// A write that has not happened.
    Refused { row: String },
    /// A write that may have happened, or may still happen: *outcome unknown*, or a broken connection.
    Unknown { row: String },
    /// A linearizable read.
    Read(Seen),
}

/// What a read saw: the applied index, how many rows, and the one with the largest key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) index: u64,
    pub(crate) count: usize,
    pub(crate) last: (u64, String),
}

/// Why a history is none of a linearizable register of rows in which every write happens once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// Acknowledged, and not there.
    Lost(String),
    /// There more often than once.
    Repeated(String),
    /// Refused, and there.
    Refused(String),
    /// There, and nobody wrote it.
    Foreign(String),
    /// The answer names another key than the row has.
    Key { row: String, answered: u64, stored: u64 },
    /// A read that saw no state which the table ever had.
    NoState(Seen),
    /// The first had returned before the second was invoked, and has a later place (the same one, where the second is a write).
    Order { first: String, second: String },
    /// Two reads of one index, or of rising indexes, saw states in another order.
    Index(Seen, Seen),
}

/// An operation that has a place in the order.
struct Placed {
    invoked: Duration,
    /// `None` = it may have happened at any later time.
    returned: Option<Duration>,
    place: u64,
    read: bool,
    name: String,
}

/// Checks `history` against the rows that are there in the end, in the order of their keys.
pub(crate) fn check(history: &[Operation], table: &[(u64, String)]) -> Result<(), Violation> {
    let mut keys = BTreeMap::new();
    for (key, row) in table {
        if keys.insert(row.as_str(), *key).is_some() {
            return Err(Violation::Repeated(row.clone()));
        }
    }
    let mut placed = writes(history, &keys)?;
    let reads: Vec<(&Operation, &Seen)> = history
        .iter()
        .filter_map(|operation| match &operation.answer {
            Answer::Read(seen) => Some((operation, seen)),
            _ => None,
        })
        .collect();
    placed.extend(reads.iter().map(|(operation, seen)| read_at(operation, seen, seen.last.0)));
    real_time(placed)?;
    real_time(reads.iter().map(|(operation, seen)| read_at(operation, seen, seen.index)).collect())?;
    states(reads.into_iter().map(|(_, seen)| seen).collect(), table)
}

/// Every write that happened, once each is there as its answer says.
fn writes(history: &[Operation], keys: &BTreeMap<&str, u64>) -> Result<Vec<Placed>, Violation> {
    let (mut placed, mut asked) = (Vec::new(), BTreeSet::new());
    for Operation { invoked, returned, answer } in history {
        let (row, answered) = match answer {
            Answer::Acknowledged { row, key } => (row, Some(*key)),
            Answer::Unknown { row } => (row, None),
            Answer::Refused { row } if keys.contains_key(row.as_str()) => return Err(Violation::Refused(row.clone())),
            Answer::Refused { .. } | Answer::Read(_) => continue,
        };
        asked.insert(row.as_str());
        let place = match (keys.get(row.as_str()), answered) {
            (Some(stored), Some(answered)) if *stored != answered => {
                return Err(Violation::Key { row: row.clone(), answered, stored: *stored });
            }
            (Some(stored), _) => *stored,
            (None, Some(_)) => return Err(Violation::Lost(row.clone())),
            (None, None) => continue,
        };
        placed.push(Placed { invoked: *invoked, returned: answered.map(|_| *returned), place, read: false, name: row.clone() });
    }
    match keys.keys().find(|row| !asked.contains(*row)) {
        Some(row) => Err(Violation::Foreign((*row).to_owned())),
        None => Ok(placed),
    }
}

fn read_at(operation: &Operation, seen: &Seen, place: u64) -> Placed {
    Placed { invoked: operation.invoked, returned: Some(operation.returned), place, read: true, name: format!("{seen:?}") }
}

/// An operation that returned before another was invoked has a smaller place; before a read, it may have the same.
fn real_time(mut operations: Vec<Placed>) -> Result<(), Violation> {
    operations.sort_by_key(|operation| operation.invoked);
    let mut returned: Vec<&Placed> = operations.iter().filter(|operation| operation.returned.is_some()).collect();
    returned.sort_by_key(|operation| operation.returned);
    let mut returned = returned.into_iter().peekable();
    let mut highest: Option<&Placed> = None;
    for second in &operations {
        while let Some(next) = returned.next_if(|next| next.returned < Some(second.invoked)) {
            highest = highest.filter(|highest| highest.place >= next.place).or(Some(next));
        }
        if let Some(first) = highest
            && (second.place < first.place || (second.place == first.place && !second.read))
        {
            return Err(Violation::Order { first: first.name.clone(), second: second.name.clone() });
        }
    }
    Ok(())
}

/// Every read saw all rows up to its place and no other; the states of rising indexes are those of rising places.
fn states(mut reads: Vec<&Seen>, table: &[(u64, String)]) -> Result<(), Violation> {
    for seen in &reads {
        let there = table.partition_point(|(key, _)| *key <= seen.last.0);
        if there != seen.count || table[..there].last() != Some(&seen.last) {
            return Err(Violation::NoState((*seen).clone()));
        }
    }
    reads.sort_by_key(|seen| (seen.index, seen.last.0));
    for pair in reads.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if second.last.0 < first.last.0 || (second.index == first.index && second.last.0 != first.last.0) {
            return Err(Violation::Index(first.clone(), second.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Table<'a> = &'a [(u64, &'a str)];

    fn at(invoked: u64, returned: u64, answer: Answer) -> Operation {
        Operation { invoked: Duration::from_millis(invoked), returned: Duration::from_millis(returned), answer }
    }

    fn done(invoked: u64, returned: u64, row: &str, key: u64) -> Operation {
        at(invoked, returned, Answer::Acknowledged { row: row.into(), key })
    }

    fn refused(row: &str) -> Operation {
        at(0, 1, Answer::Refused { row: row.into() })
    }

    fn unknown(invoked: u64, row: &str) -> Operation {
        at(invoked, invoked + 1, Answer::Unknown { row: row.into() })
    }

    fn seen(index: u64, count: usize, last: (u64, &str)) -> Seen {
        Seen { index, count, last: (last.0, last.1.into()) }
    }

    fn read(invoked: u64, returned: u64, index: u64, count: usize, last: (u64, &str)) -> Operation {
        at(invoked, returned, Answer::Read(seen(index, count, last)))
    }

    fn verdict(history: &[Operation], table: Table<'_>) -> Result<(), Violation> {
        let table: Vec<_> = table.iter().map(|(key, row)| (*key, (*row).to_owned())).collect();
        check(history, &table)
    }

    #[test]
    fn good_histories_pass() {
        let cases: [(&str, Vec<Operation>, Table); 8] = [
            ("nothing", vec![], &[]),
            ("one after the other", vec![done(0, 1, "a", 4), done(2, 3, "b", 6), read(4, 5, 9, 2, (6, "b"))], &[(4, "a"), (6, "b")]),
            ("together, in either order", vec![done(0, 9, "a", 5), done(1, 8, "b", 4)], &[(4, "b"), (5, "a")]),
            (
                "a read beside a write that it sees",
                vec![done(0, 1, "a", 4), done(2, 9, "b", 5), read(3, 4, 8, 2, (5, "b"))],
                &[(4, "a"), (5, "b")],
            ),
            (
                "a read beside a write that it does not see",
                vec![done(0, 1, "a", 4), done(2, 9, "b", 5), read(3, 8, 7, 1, (4, "a"))],
                &[(4, "a"), (5, "b")],
            ),
            ("refused, and not there", vec![done(0, 1, "a", 4), refused("b")], &[(4, "a")]),
            ("unknown, one there and one not", vec![done(0, 1, "a", 4), unknown(2, "b"), unknown(2, "c")], &[(4, "a"), (5, "b")]),
            (
                "an unknown write that happens after its connection broke",
                vec![done(0, 1, "a", 4), unknown(2, "b"), read(5, 6, 7, 1, (4, "a")), done(7, 8, "c", 5), read(9, 10, 12, 3, (6, "b"))],
                &[(4, "a"), (5, "c"), (6, "b")],
            ),
        ];
        for (what, history, table) in cases {
            assert_eq!(verdict(&history, table), Ok(()), "{what}");
        }
    }

    #[test]
    fn bad_histories_are_named() {
        let order = |first: &str, second: &str| Violation::Order { first: first.into(), second: second.into() };
        let name = |seen: Seen| format!("{seen:?}");
        let (a, b) = ((4, "a"), (5, "b"));
        let cases: [(&str, Vec<Operation>, Table, Violation); 15] = [
            ("lost", vec![done(0, 1, "a", 4), done(2, 3, "b", 5)], &[b], Violation::Lost("a".into())),
            ("there twice", vec![done(0, 1, "a", 4)], &[a, (5, "a")], Violation::Repeated("a".into())),
            ("unknown, and there twice", vec![unknown(0, "a")], &[a, (5, "a")], Violation::Repeated("a".into())),
            ("refused, and there", vec![refused("a")], &[a], Violation::Refused("a".into())),
            ("written by nobody", vec![done(0, 1, "a", 4)], &[a, b], Violation::Foreign("b".into())),
            ("another key", vec![done(0, 1, "a", 5)], &[a], Violation::Key { row: "a".into(), answered: 5, stored: 4 }),
            (
                "two answers with one key",
                vec![done(0, 9, "a", 4), done(0, 9, "b", 4)],
                &[a, b],
                Violation::Key { row: "b".into(), answered: 4, stored: 5 },
            ),
            ("a later write before an earlier one", vec![done(0, 1, "b", 5), done(2, 3, "a", 4)], &[a, b], order("b", "a")),
            ("an unknown write before it was asked for", vec![done(0, 1, "b", 5), unknown(2, "a")], &[a, b], order("b", "a")),
            ("a stale read", vec![done(0, 1, "a", 4), done(2, 3, "b", 5), read(4, 5, 7, 1, a)], &[a, b], order("b", &name(seen(7, 1, a)))),
            (
                "a read that another read overtakes",
                vec![done(0, 1, "a", 4), done(2, 9, "b", 5), read(3, 4, 8, 2, b), read(5, 6, 8, 1, a)],
                &[a, b],
                order(&name(seen(8, 2, b)), &name(seen(8, 1, a))),
            ),
            (
                "a write that was read before it was asked for",
                vec![done(0, 1, "a", 4), read(2, 3, 8, 2, b), done(4, 5, "b", 5)],
                &[a, b],
                order(&name(seen(8, 2, b)), "b"),
            ),
            (
                "a read with a hole",
                vec![done(0, 1, "a", 4), done(0, 1, "b", 5), read(2, 3, 8, 1, b)],
                &[a, b],
                Violation::NoState(seen(8, 1, b)),
            ),
            (
                "a read of what was never there",
                vec![done(0, 1, "a", 4), refused("x"), read(2, 3, 8, 2, (5, "x"))],
                &[a],
                Violation::NoState(seen(8, 2, (5, "x"))),
            ),
            (
                "two states of one index",
                vec![done(0, 1, "a", 4), done(2, 9, "b", 5), read(3, 8, 7, 1, a), read(3, 8, 7, 2, b)],
                &[a, b],
                Violation::Index(seen(7, 1, a), seen(7, 2, b)),
            ),
        ];
        for (what, history, table, violation) in cases {
            assert_eq!(verdict(&history, table), Err(violation), "{what}");
        }
        let sinking = [done(0, 1, "a", 4), read(2, 3, 8, 1, a), read(4, 5, 7, 1, a)];
        assert_eq!(verdict(&sinking, &[a]), Err(order(&name(seen(8, 1, a)), &name(seen(7, 1, a)))), "an index that sinks");
    }
}
