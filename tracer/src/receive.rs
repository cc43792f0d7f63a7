//! Spans from the network: OTLP over HTTP, Jaeger's datagrams.
//!
//! Receivers decode where they receive and push batches of spans into a bounded queue; what does
//! not fit is refused in the protocol's own way where it has one, and always counted. Sockets are
//! bound by the caller: `run(socket, parts, shutdown)`.

pub mod jaeger_udp;
pub mod otlp_http;
mod otlp_reply;
mod queue;
mod stats;

use std::sync::Arc;

use firm_model::Interner;

pub use queue::{QueueLimits, Refused, SpanReceiver, SpanSender, span_queue};
pub use stats::{ReceiverCounts, ReceiverStats};

/// What every receiver needs.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Where names go.
    pub names: Arc<Interner>,
    /// Where spans go.
    pub spans: SpanSender,
    /// Where counts go; receivers may share it.
    pub stats: Arc<ReceiverStats>,
}
