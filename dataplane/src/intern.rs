//! Values that many sessions have alike, kept once.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Unused values are not looked for below this number.
const FEW: usize = 64;

/// Holds at most twice as many values as are in use, or [`FEW`].
#[derive(Debug)]
pub(crate) struct Interner<T> {
    known: HashSet<Arc<T>>,
    /// Number from which on unused ones are looked for.
    full: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), full: FEW }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The one value that equals `value`.
    pub(crate) fn intern(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.full {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.full = FEW.max(2 * self.known.len());
        }
        let value = Arc::new(value);
        self.known.insert(Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_one() {
        let mut interner = Interner::default();
        let one = interner.intern(1);
        assert!(Arc::ptr_eq(&one, &interner.intern(1)));
        assert!(!Arc::ptr_eq(&one, &interner.intern(2)));
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let mut interner = Interner::default();
        let kept = interner.intern(u32::MAX);
        for number in 0..1000 {
            interner.intern(number);
        }
        assert!(interner.known.len() <= FEW, "{}", interner.known.len());
        assert!(Arc::ptr_eq(&kept, &interner.intern(u32::MAX)));
        let many: Vec<_> = (0..1000).map(|number| interner.intern(number)).collect();
        drop(many);
        for number in 1000..4000 {
            interner.intern(number);
        }
        assert!(interner.known.len() <= 2 * 1001, "{}", interner.known.len());
    }
}
