//! One unit of work as a service reported it: small and flat, names interned.

use serde::{Deserialize, Serialize};

use crate::id::{SpanId, TraceId};
use crate::instance::{InstanceKey, RequestType};
use crate::interner::Symbol;
use crate::time::Timestamp;

/// The role of a span, as OpenTelemetry names them (`trace.proto`, `Span.SpanKind`).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum SpanKind {
    /// Not said.
    #[default]
    Unspecified,
    /// Work inside one process.
    Internal,
    /// Handling of a request at the callee.
    Server,
    /// A request as its caller sees it.
    Client,
    /// Sending of a message that nobody waits for.
    Producer,
    /// Handling of such a message.
    Consumer,
}

/// How a span refers to its parent.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ParentRelation {
    /// The parent may wait for it.
    #[default]
    ChildOf,
    /// The parent does not wait for it (OpenTracing's FOLLOWS_FROM).
    FollowsFrom,
}

/// One span. Times are raw: `end` may lie before `start` when a clock ran backwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Trace it belongs to.
    pub trace_id: TraceId,
    /// Its own id; in Zipkin's shared form client and server half have the same.
    pub span_id: SpanId,
    /// The span that caused it, `None` for a root.
    pub parent_id: Option<SpanId>,
    /// Begin of the work.
    pub start: Timestamp,
    /// End of the work.
    pub end: Timestamp,
    /// Service that did it.
    pub service: Symbol,
    /// What it did.
    pub operation: Symbol,
    /// Instance that did it, by [`crate::instance::identity`].
    pub instance: Symbol,
    /// Its role.
    pub kind: SpanKind,
    /// How it refers to its parent.
    pub relation: ParentRelation,
    /// Whether it is marked as failed.
    pub error: bool,
    /// Whether client and server half share the id (Zipkin's `shared`; set on the server half).
    pub shared: bool,
}

impl Span {
    /// `end - start` in nanoseconds; 0 when the clock ran backwards.
    #[must_use]
    pub const fn duration_nanos(&self) -> i64 {
        let nanos = self.end.nanos_since(self.start);
        if nanos < 0 { 0 } else { nanos }
    }

    /// The instance that did the work.
    #[must_use]
    pub const fn instance_key(&self) -> InstanceKey {
        InstanceKey {
            service: self.service,
            instance: self.instance,
        }
    }

    /// The request type that this span stands for if it is a root.
    #[must_use]
    pub const fn request_type(&self) -> RequestType {
        RequestType {
            service: self.service,
            operation: self.operation,
        }
    }
}
