//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

/// Collects families in order.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// What a family counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// Adds samples to one family.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Begins a family.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { text: &mut self.text, name }
    }

    /// A family of one sample without labels.
    pub(super) fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("writing to a String does not fail");
    }
}

impl Family<'_> {
    /// One line.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (position, (label, value)) in labels.iter().enumerate() {
            self.text.push(if position == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        writeln!(self.text, " {value}").expect("writing to a String does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut exposition = Exposition::default();
        exposition.single("up", Kind::Gauge, "whether it runs", 1);
        exposition.family("rows_total", Kind::Counter, "rows").sample(&[("a", "x\"y\\z\n"), ("b", "c")], 2);
        assert_eq!(
            exposition.finish(),
            "# HELP up whether it runs\n# TYPE up gauge\nup 1\n# HELP rows_total rows\n# TYPE rows_total counter\nrows_total{a=\"x\\\"y\\\\z\\n\",b=\"c\"} 2\n"
        );
    }
}
