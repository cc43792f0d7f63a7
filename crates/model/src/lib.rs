//! The vocabulary that all parts of `firm` share, and the traits they meet at.
//!
//! Data goes one way through these types, one function an arrow:
//!
//! [`Span`] -assemble-> [`ExecutionGraph`] -critical path-> [`CriticalPath`] -features->
//! [`Features`] -localise-> [`Culprit`] -observe-> [`State`] -policy-> [`RawAction`] -decode->
//! [`Action`] -[`validate`]-> [`ValidAction`] -actuate-> [`Applied`]
//!
//! What this crate never does: read a clock, a file or a socket. Time is an argument
//! ([`Timestamp`], [`Monotonic`]), names come through an [`Interner`] that the caller owns.
//!
//! Begin with [`span`], then [`graph`], then [`action`].

pub mod action;
pub mod anomaly;
pub mod clock;
pub mod culprit;
pub mod event;
pub mod feature;
pub mod graph;
pub mod id;
pub mod instance;
pub mod interner;
pub mod objective;
pub mod path;
pub mod resource;
pub mod span;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod text;
pub mod time;
pub mod unit;

pub use action::{
    Action, Actuator, Applied, Bounds, Change, InstanceBounds, RefusedAction, ValidAction, validate,
};
pub use anomaly::{Anomaly, AnomalyKind, Intensity, LoadControl};
pub use clock::Clock;
pub use culprit::{Culprit, Finding, Verdict};
pub use event::Event;
pub use feature::{Features, Part};
pub use graph::{EdgeKind, ExecutionGraph, NodeId, Unused, UnusedReason};
pub use id::{IdError, SpanId, TraceId};
pub use instance::{InstanceId, InstanceKey, RequestType};
pub use interner::{Interner, Symbol};
pub use objective::{Objective, Quantile};
pub use path::{CriticalPath, PathRule, Section};
pub use resource::Resource;
pub use span::{ParentRelation, Span, SpanKind};
pub use state::{Policy, RawAction, Spec, State};
pub use store::GraphStore;
pub use telemetry::{CpuRate, CpuSample, Unavailable};
pub use time::{Latency, Monotonic, Timestamp};
pub use unit::{Bytes, BytesPerSec, MilliCores, UnitError};
