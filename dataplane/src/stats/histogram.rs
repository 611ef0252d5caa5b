//! Durations in log-linear cells: four per power of two, so that a percentile is off by at most an eighth
//! (observability-and-operations.md 1.4). One writing thread, as for every counter of a worker.

use std::sync::atomic::{AtomicU32, Ordering};

/// Cells: 1 µs to 2^28 µs (four and a half minutes); what is longer counts in the last one.
const CELLS: usize = 112;

/// A histogram that one worker fills. 448 bytes.
#[derive(Debug)]
pub(crate) struct Histogram([AtomicU32; CELLS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; CELLS])
    }
}

impl Histogram {
    /// Counts a duration in microseconds. Only the owning worker may call it.
    pub(crate) fn add(&self, micros: u64) {
        let cell = &self.0[cell_of(micros)];
        cell.store(cell.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// Adds the counts of `other`. Only the owner may call it.
    pub(crate) fn merge(&self, other: &Self) {
        for (mine, theirs) in self.0.iter().zip(&other.0) {
            mine.store(mine.load(Ordering::Relaxed).saturating_add(theirs.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    /// The counts now, summed with others of the same kind.
    pub(crate) fn add_to(&self, sum: &mut Percentiles) {
        for (total, cell) in sum.cells.iter_mut().zip(&self.0) {
            *total += u64::from(cell.load(Ordering::Relaxed));
        }
    }
}

/// Summed histograms, to read percentiles from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Percentiles {
    cells: Box<[u64]>,
}

impl Default for Percentiles {
    fn default() -> Self {
        Self { cells: vec![0; CELLS].into() }
    }
}

impl Percentiles {
    /// The duration in microseconds that `per_mille` of 1000 did not exceed, as the middle of its cell: at most an eighth
    /// off. 0 if nothing was counted.
    #[must_use]
    pub fn get(&self, per_mille: u64) -> u64 {
        let total: u64 = self.cells.iter().sum();
        let wanted = (total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (cell, count) in self.cells.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle_of(cell);
            }
        }
        0
    }
}

fn cell_of(micros: u64) -> usize {
    if micros < 4 {
        return micros as usize;
    }
    let power = micros.ilog2() as usize;
    let quarter = (micros >> (power - 2)) & 3;
    ((power - 1) * 4 + quarter as usize).min(CELLS - 1)
}

fn middle_of(cell: usize) -> u64 {
    if cell < 8 {
        return cell as u64;
    }
    let (power, quarter) = (cell / 4 + 1, (cell % 4) as u64);
    let width = 1_u64 << (power - 2);
    (4 + quarter) * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_at_most_an_eighth_off() {
        for micros in (0..10_000).chain((14..28).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 12_345])) {
            let middle = middle_of(cell_of(micros));
            assert!(middle.abs_diff(micros) * 8 <= micros.max(1), "{micros} is told as {middle}");
        }
        assert_eq!(cell_of(u64::MAX), CELLS - 1);
    }

    #[test]
    fn percentiles_of_a_known_sequence() {
        let histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.add(micros));
        let other = Histogram::default();
        other.merge(&histogram);
        let mut sum = Percentiles::default();
        assert_eq!(sum.get(500), 0);
        other.add_to(&mut sum);
        for (per_mille, exact) in [(1, 1), (500, 500), (950, 950), (990, 990), (1000, 1000)] {
            let told = sum.get(per_mille);
            assert!(told.abs_diff(exact) * 8 <= exact, "p{per_mille}: {told} for {exact}");
        }
    }
}
