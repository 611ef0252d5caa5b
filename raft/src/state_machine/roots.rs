//! The running hashes as they were at each recent index: what `expect` in entries and reports of peers are compared with
//! (raft-and-storage.md 4.8).

use std::collections::VecDeque;

use super::hash::{HashKey, TableHash, Tables, root_of};

/// Indexes that are remembered.
const KEPT: usize = 4096;

/// Hashes of all tables now, and their root at each of the last [`KEPT`] indexes.
#[derive(Debug)]
pub(crate) struct Roots {
    tables: Tables,
    /// Oldest first, never empty.
    past: VecDeque<Past>,
}

#[derive(Debug)]
struct Past {
    index: u64,
    root: u128,
    /// What this index replaced; the default stands for a part that was not there.
    undo: Vec<(HashKey, TableHash)>,
}

impl Roots {
    /// What is known after a start or an installation: one index.
    pub(crate) fn new(index: u64, tables: Tables) -> Self {
        let root = root_of(&tables);
        Self { tables, past: VecDeque::from([Past { index, root, undo: Vec::new() }]) }
    }

    /// The newest index and its root.
    pub(crate) fn newest(&self) -> (u64, u128) {
        self.past.back().map_or((0, 0), |past| (past.index, past.root))
    }

    /// Hashes at the newest index.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The root at `index`; `None` = too old, or not applied yet.
    pub(crate) fn at(&self, index: u64) -> Option<u128> {
        let position = self.past.binary_search_by_key(&index, |past| past.index).ok()?;
        self.past.get(position).map(|past| past.root)
    }

    /// Hashes of all tables at `index`, as [`Self::at`].
    pub(crate) fn tables_at(&self, index: u64) -> Option<Tables> {
        self.at(index)?;
        let mut tables = self.tables.clone();
        self.past.iter().rev().take_while(|past| past.index > index).for_each(|past| undo(&mut tables, &past.undo));
        Some(tables)
    }

    /// An entry was applied and gave these parts of the tables new hashes.
    pub(crate) fn push(&mut self, index: u64, changed: Vec<(HashKey, TableHash)>) {
        let (_, mut root) = self.newest();
        let mut replaced = Vec::with_capacity(changed.len());
        for (key, hash) in changed {
            let before = self.tables.get(&key).copied().unwrap_or_default();
            set(&mut self.tables, &key, hash);
            replaced.push((key, before));
        }
        if !replaced.is_empty() {
            root = root_of(&self.tables);
        }
        self.past.push_back(Past { index, root, undo: replaced });
        if self.past.len() > KEPT {
            self.past.pop_front();
        }
    }

    /// Forgets what was applied after `index`: its transaction was rolled back.
    pub(crate) fn rewind(&mut self, index: u64) {
        while self.past.len() > 1 && self.past.back().is_some_and(|past| past.index > index) {
            if let Some(past) = self.past.pop_back() {
                undo(&mut self.tables, &past.undo);
            }
        }
    }
}

fn undo(tables: &mut Tables, replaced: &[(HashKey, TableHash)]) {
    replaced.iter().for_each(|(key, before)| set(tables, key, *before));
}

fn set(tables: &mut Tables, key: &HashKey, hash: TableHash) {
    if hash == TableHash::default() {
        tables.remove(key);
    } else {
        tables.insert(key.clone(), hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Layer;
    use crate::state_machine::hash::key;

    fn part(table: &str, rows: i64) -> (HashKey, TableHash) {
        (key(Layer::Memory, "M", table), TableHash { rows, hash: rows.unsigned_abs().into(), autoincrement: 0 })
    }

    #[test]
    fn earlier_indexes_are_remembered_rewound_and_forgotten() {
        let mut roots = Roots::new(7, Tables::from([part("a", 1)]));
        let empty = Roots::new(0, Tables::new()).newest().1;
        roots.push(8, vec![part("a", 2), part("b", 1)]);
        roots.push(9, vec![]);
        roots.push(10, vec![part("a", 0), part("b", 0)]);
        assert_eq!(roots.newest(), (10, empty), "an emptied table and one that never had rows are equal");
        assert_eq!(roots.at(9), roots.at(8));
        assert_ne!(roots.at(8), roots.at(7));
        assert_eq!((roots.at(6), roots.at(11)), (None, None));
        assert_eq!(roots.tables_at(7), Some(Tables::from([part("a", 1)])));
        assert_eq!(roots.tables_at(9), Some(Tables::from([part("a", 2), part("b", 1)])));

        let at_eight = roots.at(8).unwrap();
        roots.rewind(8);
        assert_eq!(roots.newest(), (8, at_eight));
        assert_eq!(roots.tables(), &Tables::from([part("a", 2), part("b", 1)]));
        roots.rewind(0);
        assert_eq!(roots.newest().0, 7, "what was loaded stays");

        for index in 8..8 + KEPT as u64 {
            roots.push(index, vec![part("a", index.cast_signed())]);
        }
        assert_eq!(roots.at(7), None);
        assert_eq!(roots.tables_at(8), Some(Tables::from([part("a", 8)])));
    }
}
