//! Spans on their way to the OTLP endpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

/// Time for one batch.
const EXPORT_TIME: Duration = Duration::from_secs(5);

/// Exports in batches to `endpoint`.
pub(super) fn provider(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let inner = Otlp::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIME).build()?;
    let exporter = Patient { inner, failing: AtomicBool::new(false) };
    let resource = Resource::builder().with_service_name("quorumsql").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// Says once that the endpoint fails and once that it is back; the SDK would log an error for every batch.
#[derive(Debug)]
struct Patient<E> {
    inner: E,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Patient<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        match self.inner.export(batch).await {
            Ok(()) if self.failing.swap(false, Ordering::Relaxed) => tracing::info!("spans are exported again"),
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, "spans cannot be exported and are dropped until the endpoint answers");
            }
            Ok(()) | Err(_) => {}
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::error::OTelSdkError;

    use super::*;

    #[derive(Debug)]
    struct Flaky(AtomicBool);

    impl SpanExporter for Flaky {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err(OTelSdkError::InternalFailure("refused".into())) }
        }
    }

    #[tokio::test]
    async fn a_dead_endpoint_is_no_error_and_is_told_once() {
        let exporter = Patient { inner: Flaky(AtomicBool::new(false)), failing: AtomicBool::new(false) };
        for (answers, failing) in [(false, true), (false, true), (true, false), (false, true)] {
            exporter.inner.0.store(answers, Ordering::Relaxed);
            assert!(exporter.export(Vec::new()).await.is_ok());
            assert_eq!(exporter.failing.load(Ordering::Relaxed), failing);
        }
    }
}
