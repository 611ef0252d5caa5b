//! Tables of figures, and the arithmetic of medians and percentiles.

use std::fmt;

/// A table in Markdown, columns aligned; printed with `{}`.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self { title: title.into(), columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.columns[column].chars().count()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        writeln!(f, "\n{}\n", self.title)?;
        let heads = self.columns.iter().map(|&head| head.to_owned()).collect();
        let line = widths.iter().map(|&width| "-".repeat(width)).collect();
        for row in [&heads, &line].into_iter().chain(&self.rows) {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
        }
        Ok(())
    }
}

/// A number with one digit after the point; empty when it is unknown.
pub(crate) fn figure(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { String::new() }
}

/// Milliseconds or a ratio: two digits after the point; empty when it is unknown.
pub(crate) fn fine(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { String::new() }
}

/// The middle value; NaN without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(values, 0.5)
}

/// The smallest value that at least `share` (0 to 1) of all do not exceed; NaN without values.
pub(crate) fn percentile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// As [`percentile`], of values that are each there `count` times, in ascending order.
pub(crate) fn weighted_percentile(sorted: &[(f64, u64)], share: f64) -> f64 {
    let total: u64 = sorted.iter().map(|(_, count)| count).sum();
    let rank = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = sorted.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    reached.map_or(f64::NAN, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, expected) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)] {
            assert_eq!(percentile(hundred.clone(), share), expected, "{share}");
        }
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([7.0]), 7.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn weighted_percentiles_count_every_value() {
        let buckets = [(0.1, 50), (0.2, 49), (5.0, 1)];
        for (share, expected) in [(0.5, 0.1), (0.51, 0.2), (0.99, 0.2), (1.0, 5.0)] {
            assert_eq!(weighted_percentile(&buckets, share), expected, "{share}");
        }
        assert!(weighted_percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn tables_are_aligned_and_unknown_figures_empty() {
        let mut table = Table::new("T", &["way", "q/s"]);
        table.row(vec!["direct".into(), figure(12.34)]);
        table.row(vec!["node".into(), fine(f64::NAN)]);
        assert_eq!(table.to_string(), "\nT\n\n| way    | q/s  |\n| ------ | ---- |\n| direct | 12.3 |\n| node   |      |\n");
    }
}
