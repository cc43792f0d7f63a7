//! The report of `firm analyze`. Field names are part of the command's interface and stay.

use std::collections::BTreeMap;

use firm_model::{Part, PathRule, UnusedReason};
use serde::Serialize;

/// What traces say. Times are nanoseconds, shares 0 to 1, `null` is undefined.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnalyzeReport {
    /// The rule that critical paths were found by.
    pub rule: PathRule,
    /// Spans analysed.
    pub spans: u64,
    /// Traces analysed.
    pub traces: TraceCounts,
    /// Spans left out of their traces, by reason.
    pub unused_spans: BTreeMap<UnusedReason, u64>,
    /// Traces that the change is against, `null` without a baseline.
    pub baseline_traces: Option<u64>,
    /// Time on critical paths by service and operation, most first.
    pub path_share: Vec<PathShare>,
    /// Each request type, the most frequent first.
    pub requests: Vec<RequestReport>,
}

/// Traces, and what became of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceCounts {
    /// Distinct trace ids.
    pub read: u64,
    /// Traces with at least one critical path.
    pub used: u64,
    /// Traces without, by reason.
    pub unused: BTreeMap<UnusedTrace, u64>,
    /// Spans whose parent is not among the spans; each is a root of its own.
    pub foreign_roots: u64,
}

/// Why a trace has no critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnusedTrace {
    /// All its spans were left out.
    NoSpanLeft,
    /// None of its roots has a duration.
    NoDuration,
}

/// What spans of one service and operation own on critical paths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathShare {
    /// The service.
    pub service: String,
    /// The operation.
    pub operation: String,
    /// Time owned.
    pub path_ns: i64,
    /// Share of all time owned.
    pub share: f64,
    /// Spans on paths.
    pub spans: u64,
}

/// Durations of root spans.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latencies {
    /// Mean.
    pub mean_ns: f64,
    /// Median, by nearest rank.
    pub p50_ns: i64,
    /// 99th percentile, by nearest rank.
    pub p99_ns: i64,
}

/// One request type and the instances on its critical paths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestReport {
    /// Service of the root span.
    pub service: String,
    /// Operation of the root span.
    pub operation: String,
    /// Requests.
    pub requests: u64,
    /// Requests whose root span is marked as failed.
    pub errors: u64,
    /// Their latency.
    pub latency: Latencies,
    /// That of the baseline.
    pub baseline_latency: Option<Latencies>,
    /// Most blamed first.
    pub instances: Vec<InstanceReport>,
}

/// One instance on the critical paths of one request type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceReport {
    /// Its service.
    pub service: String,
    /// The instance.
    pub instance: String,
    /// Whether it is held to be a culprit.
    pub is_culprit: bool,
    /// The part of its time that speaks most against it.
    pub part: Part,
    /// By what it is ranked: growth in nanoseconds a request with a baseline, else the
    /// covariance share.
    pub score: f64,
    /// Growth of its server time a request.
    pub server_growth_ns: Option<f64>,
    /// Growth of the gap to it a request.
    pub gap_growth_ns: Option<f64>,
    /// Growth of the ways to all its callees together, a request.
    pub caller_growth_ns: Option<f64>,
    /// Its own work, `null` where it had none on a path.
    pub server: Option<PartReport>,
    /// The way to it, `null` where it is not seen.
    pub gap: Option<PartReport>,
}

/// One part of an instance's time on critical paths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PartReport {
    /// Requests in which it was on the path.
    pub samples: u64,
    /// Its share of the time of all paths of this request type.
    pub path_share: f64,
    /// Relative importance, -1 to 1.
    pub ri: Option<f64>,
    /// Congestion intensity, p99 over p50.
    pub ci: Option<f64>,
    /// Covariance share; sums to 1 over all parts.
    pub cov_share: Option<f64>,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// What it was in the baseline; `null` without one, or if it was not there.
    pub baseline: Option<Change>,
}

/// The same part in the baseline, and the change since.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// Mean then.
    pub mean_ns: f64,
    /// Median then.
    pub p50_ns: f64,
    /// 99th percentile then.
    pub p99_ns: f64,
    /// Mean now less mean then.
    pub mean_change_ns: f64,
}
