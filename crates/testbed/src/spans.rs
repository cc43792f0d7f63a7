//! Spans from either client library behind one face, so that a mixed fleet makes one trace.
//!
//! The two libraries bring two OpenTelemetry SDKs (0.33, and 0.23 under `opentelemetry-jaeger`)
//! whose types do not mix: what crosses between services is the W3C `traceparent` header, and
//! within this file [`SpanRef`].

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use firm_model::{SpanId, TraceId};
use opentelemetry::trace::{Span as _, TracerProvider as _};
use opentelemetry_023::trace::{Span as _, TracerProvider as _};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use serde::{Deserialize, Serialize};

/// Spans that wait for export; more are lost, and the SDK counts them.
const QUEUE: usize = 65_536;
/// Spans in one export.
const BATCH: usize = 2_048;
/// How long an export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last export may take.
const LAST_EXPORT: Duration = Duration::from_millis(500);
/// Name of the instrumentation, in every span's scope.
const SCOPE: &str = "firm-testbed";

/// Where an instance sends its spans, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Export {
    /// OTLP over HTTP, protobuf, to this URL (with the path `/v1/traces`).
    Otlp(String),
    /// Thrift compact over UDP, to this `ADDRESS:PORT`.
    Jaeger(String),
}

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum SpansError {
    /// The OTLP exporter could not be made.
    #[error("cannot export spans to {url}")]
    Otlp {
        /// Where to.
        url: String,
        /// Why not.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The Jaeger exporter could not be made.
    #[error("cannot export spans to {agent}")]
    Jaeger {
        /// Where to.
        agent: String,
        /// Why not.
        source: opentelemetry_023::trace::TraceError,
    },
}

/// What a span is known by to its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanRef {
    trace: TraceId,
    span: SpanId,
    flags: u8,
}

/// Whose side of a call a span tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// One instance's client library.
pub(crate) enum Spans {
    Otlp(
        opentelemetry_sdk::trace::SdkTracerProvider,
        opentelemetry_sdk::trace::SdkTracer,
    ),
    Jaeger(
        opentelemetry_sdk_023::trace::TracerProvider,
        opentelemetry_sdk_023::trace::Tracer,
    ),
}

/// A span that ends when it is dropped.
pub(crate) enum OpenSpan {
    Otlp(opentelemetry_sdk::trace::Span),
    Jaeger(opentelemetry_sdk_023::trace::Span),
}

// === impl SpanRef ===

impl SpanRef {
    /// Reads a `traceparent` header (W3C Trace Context, section 3.2), version 00 or later.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let exact = version.len() == 2 && trace.len() == 32 && span.len() == 16 && flags.len() == 2;
        if !exact || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        u8::from_str_radix(version, 16).ok()?;
        Some(Self {
            trace: trace.parse().ok()?,
            span: span.parse().ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        })
    }

    /// The `traceparent` header.
    pub(crate) fn header(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

// === impl Spans ===

/// Starts a span with the types of one of the two SDKs.
macro_rules! start {
    ($otel:ident, $tracer:expr, $name:expr, $side:expr, $parent:expr) => {{
        use $otel::Context;
        use $otel::trace::{
            SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState,
            Tracer as _,
        };
        let context = match $parent {
            Some(parent) => Context::new().with_remote_span_context(SpanContext::new(
                TraceId::from_bytes(*parent.trace.as_bytes()),
                SpanId::from_bytes(*parent.span.as_bytes()),
                TraceFlags::new(parent.flags),
                true,
                TraceState::default(),
            )),
            None => Context::new(),
        };
        let kind = match $side {
            Side::Server => SpanKind::Server,
            Side::Client => SpanKind::Client,
        };
        $tracer
            .span_builder($name)
            .with_kind(kind)
            .start_with_context($tracer, &context)
    }};
}

impl Spans {
    /// Starts the client library of an instance. Must be called within the runtime that carries
    /// the exports.
    pub(crate) fn start(
        service: &str,
        instance: &str,
        export: &Export,
        interval: Duration,
    ) -> Result<Self, SpansError> {
        match export {
            Export::Otlp(url) => otlp(service, instance, url, interval),
            Export::Jaeger(agent) => jaeger(service, instance, agent, interval),
        }
    }

    /// Opens a span.
    pub(crate) fn open(
        &self,
        side: Side,
        name: impl Into<Cow<'static, str>>,
        parent: Option<SpanRef>,
    ) -> OpenSpan {
        match self {
            Spans::Otlp(_, tracer) => {
                OpenSpan::Otlp(start!(opentelemetry, tracer, name, side, parent))
            }
            Spans::Jaeger(_, tracer) => {
                OpenSpan::Jaeger(start!(opentelemetry_023, tracer, name, side, parent))
            }
        }
    }

    /// Exports what is left. Blocks, so not for the runtime that carries the exports.
    pub(crate) fn finish(&self) {
        // The process ends next: there is nobody left to tell that the last spans were lost.
        match self {
            Spans::Otlp(provider, _) => {
                let _ = provider.shutdown_with_timeout(LAST_EXPORT);
            }
            Spans::Jaeger(provider, _) => {
                let _ = provider.force_flush();
            }
        }
    }
}

fn otlp(service: &str, instance: &str, url: &str, interval: Duration) -> Result<Spans, SpansError> {
    use opentelemetry::KeyValue;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};

    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(OnRuntime {
            client: HyperClient::with_default_connector(EXPORT_TIMEOUT, None),
            runtime: tokio::runtime::Handle::current(),
        })
        .with_endpoint(url)
        .build()
        .map_err(|source| SpansError::Otlp {
            url: url.to_owned(),
            source,
        })?;
    let batch = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(interval)
        .build();
    let processor = BatchSpanProcessor::builder(exporter)
        .with_batch_config(batch)
        .build();
    let resource = Resource::builder_empty()
        .with_service_name(service.to_owned())
        .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_resource(resource)
        .build();
    let tracer = provider.tracer(SCOPE);
    Ok(Spans::Otlp(provider, tracer))
}

#[expect(
    deprecated,
    reason = "the deprecated exporter is the client that is to be tested against"
)]
fn jaeger(
    service: &str,
    instance: &str,
    agent: &str,
    interval: Duration,
) -> Result<Spans, SpansError> {
    use opentelemetry_023::KeyValue;
    use opentelemetry_sdk_023::Resource;
    use opentelemetry_sdk_023::runtime::TokioCurrentThread;
    use opentelemetry_sdk_023::trace::{
        BatchConfigBuilder, BatchSpanProcessor, Config, TracerProvider,
    };

    // It would print every refused datagram while no tracer listens.
    let _ = opentelemetry_023::global::set_error_handler(|_| {});
    let resource = Resource::new([
        KeyValue::new("service.name", service.to_owned()),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ]);
    // The synchronous exporter on the batch processor's own thread: the asynchronous one hands
    // a blocking socket to tokio, which refuses it.
    let exporter = opentelemetry_jaeger::new_agent_pipeline()
        .with_endpoint(agent)
        .with_service_name(service)
        .with_auto_split_batch(true)
        .with_trace_config(Config::default().with_resource(resource.clone()))
        .build_sync_agent_exporter()
        .map_err(|source| SpansError::Jaeger {
            agent: agent.to_owned(),
            source,
        })?;
    let batch = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(interval)
        .build();
    let processor = BatchSpanProcessor::builder(exporter, TokioCurrentThread)
        .with_batch_config(batch)
        .build();
    let provider = TracerProvider::builder()
        .with_span_processor(processor)
        .with_config(Config::default().with_resource(resource))
        .build();
    let tracer = provider.tracer_builder(SCOPE).build();
    Ok(Spans::Jaeger(provider, tracer))
}

// === impl OpenSpan ===

impl OpenSpan {
    /// What its children need to know.
    pub(crate) fn reference(&self) -> Option<SpanRef> {
        let (trace, span, flags) = match self {
            OpenSpan::Otlp(span) => {
                let context = span.span_context();
                (
                    context.trace_id().to_bytes(),
                    context.span_id().to_bytes(),
                    context.trace_flags().to_u8(),
                )
            }
            OpenSpan::Jaeger(span) => {
                let context = span.span_context();
                (
                    context.trace_id().to_bytes(),
                    context.span_id().to_bytes(),
                    context.trace_flags().to_u8(),
                )
            }
        };
        Some(SpanRef {
            trace: TraceId::new(trace).ok()?,
            span: SpanId::new(span).ok()?,
            flags,
        })
    }

    /// Marks it as failed.
    pub(crate) fn fail(&mut self, why: String) {
        match self {
            OpenSpan::Otlp(span) => span.set_status(opentelemetry::trace::Status::error(why)),
            OpenSpan::Jaeger(span) => {
                span.set_status(opentelemetry_023::trace::Status::error(why));
            }
        }
    }
}

/// Sends exports on the instance's runtime, because the batch thread has none of its own.
#[derive(Debug)]
struct OnRuntime {
    client: HyperClient,
    runtime: tokio::runtime::Handle,
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime
            .spawn(async move { client.send_bytes(request).await })
            .await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_header_of_the_specification_reads_and_writes() {
        assert_eq!(SpanRef::parse(HEADER).unwrap().header(), HEADER);
        // A later version may say more after the flags.
        let later = format!("cc{}-what", &HEADER[2..]);
        assert_eq!(SpanRef::parse(&later), SpanRef::parse(HEADER));
    }

    #[test]
    fn wrong_headers_start_a_new_trace() {
        for wrong in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        ] {
            assert_eq!(SpanRef::parse(wrong), None, "{wrong}");
        }
    }
}
