//! Where log lines and spans go. The only module that names opentelemetry.

mod json;
mod spans;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use parking_lot::Mutex;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use self::json::JsonLines;
use crate::config::{LogFormat, LogSection, OtelSection};

/// What is left to do with the sinks while the process lives, and at its end.
pub(crate) struct Telemetry {
    file: Option<LogFile>,
    spans: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Installs the process's subscriber. Call once, inside a tokio runtime when an OTLP endpoint is set.
    ///
    /// # Errors
    /// The log file cannot be opened, the level is no level, or the endpoint is no address.
    pub(crate) fn start(log: &LogSection, otel: &OtelSection) -> anyhow::Result<Self> {
        let filter = || EnvFilter::try_new(directives(&log.level)).map_err(|error| anyhow::anyhow!("log.level: {error}"));
        let file = if log.file.as_os_str().is_empty() { None } else { Some(LogFile::open(&log.file)?) };
        let writer = match &file {
            Some(file) => {
                let file = file.clone();
                BoxMakeWriter::new(move || file.clone())
            }
            None => BoxMakeWriter::new(io::stderr),
        };
        let lines = match log.format {
            LogFormat::Json => tracing_subscriber::fmt::layer().event_format(JsonLines).with_writer(writer).boxed(),
            LogFormat::Text => tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer).boxed(),
        };
        let spans = if otel.endpoint.is_empty() { None } else { Some(spans::provider(&otel.endpoint)?) };
        let exported = spans.as_ref().map(|provider| {
            // The data plane emits no spans per query; what is exported are the control plane's own crates.
            let control_plane = filter_fn(|metadata| {
                metadata.is_span()
                    && (metadata.target().starts_with("quorumsql_node")
                        || metadata.target().starts_with("quorumsql_raft")
                        || metadata.target() == "quorumsql")
            });
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("quorumsql"))
                .with_filter(control_plane.and(tracing::level_filters::LevelFilter::INFO))
        });
        tracing_subscriber::registry().with(exported).with(lines.with_filter(filter()?)).with(Counted.with_filter(filter()?)).try_init()?;
        Ok(Self { file, spans })
    }

    /// Closes the log file and opens its path again, for log rotation.
    pub(crate) fn reopen(&self) {
        if let Some(Err(error)) = self.file.as_ref().map(LogFile::reopen) {
            tracing::error!(%error, "cannot reopen the log file; the old one stays in use");
        }
    }

    /// Sends what the exporter still holds; waits at most two seconds.
    pub(crate) fn finish(&self) {
        if let Some(spans) = &self.spans
            && let Err(error) = spans.shutdown_with_timeout(Duration::from_secs(2))
        {
            tracing::warn!(%error, "spans may be lost");
        }
    }
}

/// A bare level is meant for our own crates: libraries are heard from `warn` on, openraft from `error` on: it warns ten times
/// a second while a peer is away, which the raft crate says once, and its `debug` is a dozen lines an entry. Its `raft_inner` only repeats, as an error and at
/// every shutdown, what the caller of a stopped Raft is told.
fn directives(level: &str) -> String {
    match level {
        "warn" | "info" | "debug" | "trace" => {
            let own = ["quorumsql", "quorumsql_raft", "quorumsql_dataplane", "quorumsql_wire"].map(|own| format!(",{own}={level}"));
            format!("warn,openraft=error,openraft::raft::raft_inner=off{}", own.concat())
        }
        other => other.into(),
    }
}

/// A log file that can be reopened under its writers.
#[derive(Clone)]
struct LogFile {
    path: Arc<PathBuf>,
    file: Arc<Mutex<File>>,
}

impl LogFile {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let file = Self::append(path).map_err(|error| anyhow::anyhow!("cannot open log file {}: {error}", path.display()))?;
        Ok(Self { path: Arc::new(path.to_owned()), file: Arc::new(Mutex::new(file)) })
    }

    fn append(path: &Path) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(path)
    }

    fn reopen(&self) -> io::Result<()> {
        *self.file.lock() = Self::append(&self.path)?;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().flush()
    }
}

/// Log messages by level, for `quorumsql_log_messages_total`: error, warn, info.
static MESSAGES: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

/// How many messages of each level this process has logged.
pub(crate) fn message_counts() -> [(&'static str, u64); 3] {
    [("error", 0), ("warn", 1), ("info", 2)].map(|(level, at): (&str, usize)| (level, MESSAGES[at].load(Ordering::Relaxed)))
}

struct Counted;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counted {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let at = match *event.metadata().level() {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            _ => return,
        };
        MESSAGES[at].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_level_is_for_our_own_crates() {
        for level in ["debug", "info"] {
            let directives = directives(level);
            assert!(directives.starts_with("warn,openraft=error,"), "{directives}");
            assert!(directives.contains(&format!(",quorumsql_raft={level},")), "{directives}");
        }
        for given in ["error", "off", "openraft=debug", "info,quorumsql_raft=trace"] {
            assert_eq!(directives(given), given);
        }
    }

    #[test]
    fn a_reopened_log_file_goes_on_under_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut file = LogFile::open(&path).unwrap();
        file.write_all(b"before\n").unwrap();
        std::fs::rename(&path, directory.path().join("log.1")).unwrap();
        file.reopen().unwrap();
        file.write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "after\n");
    }
}
