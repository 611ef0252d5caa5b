//! Idle connections of one worker, by server and key: bookkeeping without I/O.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::Suits;
use super::key::PoolKey;
use crate::tls::ServerTls;

/// What decides in which list a thing is.
pub(crate) trait Listed {
    fn peer(&self) -> u64;
    fn tls(&self) -> &ServerTls;
    fn key(&self) -> &PoolKey;
}

/// Lists of idle things, last in, first out: few stay hot, the rest ages.
#[derive(Debug)]
pub(crate) struct IdleLists<T> {
    lists: HashMap<u64, Vec<List<T>>, BuildHasherDefault<Ready>>,
}

#[derive(Debug)]
struct List<T> {
    peer: u64,
    tls: ServerTls,
    key: PoolKey,
    /// Oldest first.
    items: Vec<T>,
}

/// A hasher for numbers that are hashes already.
#[derive(Debug, Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

fn place(peer: u64, tls: &ServerTls, key: &PoolKey) -> u64 {
    key.hash() ^ (peer ^ tls.tag()).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<T> Default for IdleLists<T> {
    fn default() -> Self {
        Self { lists: HashMap::default() }
    }
}

impl<T: Listed> IdleLists<T> {
    /// Takes the youngest of a list that suits well, else the youngest that suits fairly.
    pub(crate) fn pop(&mut self, peer: u64, tls: &ServerTls, key: &PoolKey, suits: impl Fn(&T) -> Suits) -> Option<T> {
        let list = self.lists.get_mut(&place(peer, tls, key))?.iter_mut().find(|list| list.is(peer, tls, key))?;
        let youngest = |wanted| list.items.iter().rposition(|item| suits(item) == wanted);
        let at = youngest(Suits::Well).or_else(|| youngest(Suits::Fairly))?;
        Some(list.items.remove(at))
    }

    /// The youngest few of a list, oldest first: a choice among them must not cost more than it saves.
    pub(crate) fn youngest(&mut self, peer: u64, tls: &ServerTls, key: &PoolKey) -> &mut [T] {
        const FEW: usize = 16;
        let list = self.lists.get_mut(&place(peer, tls, key)).and_then(|lists| lists.iter_mut().find(|list| list.is(peer, tls, key)));
        list.map_or_else(Default::default, |list| {
            let older = list.items.len().saturating_sub(FEW);
            &mut list.items[older..]
        })
    }

    /// Adds one as the youngest of its list.
    pub(crate) fn push(&mut self, item: T) {
        let (peer, tls, key) = (item.peer(), item.tls(), item.key());
        let lists = self.lists.entry(place(peer, tls, key)).or_default();
        if let Some(list) = lists.iter_mut().find(|list| list.is(peer, tls, key)) {
            list.items.push(item);
        } else {
            let (tls, key) = (tls.clone(), key.clone());
            lists.push(List { peer, tls, key, items: vec![item] });
        }
    }

    /// Takes the first that `wanted` accepts, older ones of a list before younger ones.
    pub(crate) fn take_first(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<T> {
        for list in self.lists.values_mut().flatten() {
            if let Some(position) = list.items.iter().position(&mut wanted) {
                return Some(list.items.remove(position));
            }
        }
        None
    }

    /// Takes all that `unwanted` names, older ones of a list first, and forgets lists that are empty.
    pub(crate) fn take_all(&mut self, mut unwanted: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        self.lists.retain(|_, lists| {
            for list in lists.iter_mut() {
                taken.extend(list.items.extract_if(.., &mut unwanted));
            }
            lists.retain(|list| !list.items.is_empty());
            !lists.is_empty()
        });
        taken
    }

    /// Number of idle things.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lists.values().flatten().map(|list| list.items.len()).sum()
    }
}

impl<T> List<T> {
    fn is(&self, peer: u64, tls: &ServerTls, key: &PoolKey) -> bool {
        self.peer == peer && self.tls == *tls && self.key == *key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TlsMode;
    use crate::pool::key::KeyParts;
    use crate::tls::Connector;

    fn key(user: &str) -> PoolKey {
        PoolKey::new(KeyParts { user: user.into(), ..KeyParts::default() })
    }

    struct Thing {
        peer: u64,
        tls: ServerTls,
        key: PoolKey,
        number: i32,
    }

    impl Listed for Thing {
        fn peer(&self) -> u64 {
            self.peer
        }

        fn tls(&self) -> &ServerTls {
            &self.tls
        }

        fn key(&self) -> &PoolKey {
            &self.key
        }
    }

    fn thing(peer: u64, tls: &ServerTls, user: &str, number: i32) -> Thing {
        Thing { peer, tls: tls.clone(), key: key(user), number }
    }

    fn numbers(things: impl IntoIterator<Item = Thing>) -> Vec<i32> {
        things.into_iter().map(|thing| thing.number).collect()
    }

    #[test]
    fn the_youngest_of_the_right_list_comes_first() {
        let mut idle = IdleLists::default();
        idle.push(thing(1, &ServerTls::Disable, "a", 1));
        idle.push(thing(1, &ServerTls::Disable, "a", 2));
        idle.push(thing(1, &ServerTls::Disable, "b", 3));
        idle.push(thing(2, &ServerTls::Disable, "a", 4));
        let [tls, other_tls] = [(); 2].map(|()| ServerTls::new(TlsMode::Require, Connector::broken(String::new())));
        idle.push(thing(1, &tls, "a", 5));
        for (peer, tls, expected) in [
            (1, &ServerTls::Disable, vec![2]),
            (1, &ServerTls::Disable, vec![1]),
            (1, &ServerTls::Disable, vec![]),
            (2, &ServerTls::Disable, vec![4]),
            (1, &other_tls, vec![]),
        ] {
            assert_eq!(numbers(idle.pop(peer, tls, &key("a"), |_| Suits::Well)), expected);
        }
        assert_eq!(idle.len(), 2);
    }

    #[test]
    fn one_that_suits_well_comes_before_one_that_suits() {
        let mut idle = IdleLists::default();
        (0..6).for_each(|number| idle.push(thing(1, &ServerTls::Disable, "a", number)));
        let suits = |thing: &Thing| [Suits::Not, Suits::Fairly, Suits::Well][thing.number as usize % 3];
        let taken: Vec<_> = (0..5).map(|_| numbers(idle.pop(1, &ServerTls::Disable, &key("a"), suits))).collect();
        assert_eq!(taken, [vec![5], vec![2], vec![4], vec![1], vec![]]);
        assert_eq!(numbers(idle.pop(1, &ServerTls::Disable, &key("a"), |_| Suits::Fairly)), [3]);
    }

    #[test]
    fn a_choice_is_among_the_youngest_few() {
        let mut idle = IdleLists::default();
        for number in 0..20 {
            idle.push(thing(1, &ServerTls::Disable, "a", number));
        }
        let mut found = |user| idle.youngest(1, &ServerTls::Disable, &key(user)).iter().map(|thing| thing.number).collect::<Vec<_>>();
        assert_eq!(found("a"), (4..20).collect::<Vec<_>>());
        assert_eq!(found("b"), Vec::<i32>::new());
    }

    #[test]
    fn taking_out_goes_from_the_oldest_and_drops_empty_lists() {
        let mut idle = IdleLists::default();
        for number in 0..6 {
            idle.push(thing(1, &ServerTls::Disable, "a", number));
        }
        assert_eq!(numbers(idle.take_first(|thing| thing.number % 2 == 1)), [1]);
        assert_eq!(numbers(idle.take_all(|thing| thing.number < 4)), [0, 2, 3]);
        assert_eq!(numbers(idle.take_all(|_| true)), [4, 5]);
        assert!(idle.lists.is_empty());
    }
}
