//! Log lines as JSON objects (observability-and-operations.md section 3): `ts`, `level`, `target`, `msg`, then the fields.

use std::fmt;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// One object a line.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        write!(writer, "{{\"ts\":{},\"level\":{},\"target\":{}", text(&time), text(metadata.level().as_str()), text(metadata.target()))?;
        write!(writer, ",\"msg\":{}", text(&fields.message))?;
        for (name, value) in &fields.others {
            write!(writer, ",{}:{value}", text(name))?;
        }
        writeln!(writer, "}}")
    }
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            "error" => "err",
            name => name,
        };
        self.others.push((name, value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.put(field, Value::String(format!("{value:?}")));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field, text(value));
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_an_object_with_the_documented_keys() {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = tracing_subscriber::fmt().event_format(JsonLines).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!(node = 7, error = %"no \"room\"", "disk {}", "full"));
        let line: Value = serde_json::from_slice(&captured.0.lock()).unwrap();
        assert_eq!(
            (&line["level"], &line["msg"], &line["node"], &line["err"]),
            (&"WARN".into(), &"disk full".into(), &7.into(), &"no \"room\"".into())
        );
        assert!(line["ts"].as_str().unwrap().ends_with('Z'));
    }
}
