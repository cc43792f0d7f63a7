//! What a run came to.

use std::collections::BTreeMap;

use firm_model::{InstanceId, Latency, MilliCores, Timestamp, Verdict};
use serde::Serialize;

/// The outcome of one run. Times of day are in nanoseconds since 1970.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Seed of the run.
    pub seed: u64,
    /// Whether limits were to be changed, and could be.
    pub enforced: bool,
    /// Whether limits were changed.
    pub mitigated: bool,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// The instance that was hurt.
    pub target: InstanceId,
    /// Intensity asked for, 0 to 1.
    pub asked: f64,
    /// Intensity achieved; lower than asked where the target's limit held it.
    pub achieved: Option<f64>,
    /// The five times of the run.
    pub times: Times,
    /// First culprit named after the injection.
    pub culprit: Option<InstanceId>,
    /// What it was found to lack.
    pub verdict: Option<Verdict>,
    /// Findings before the injection, when nothing was wrong.
    pub false_alarms: usize,
    /// Whether it is the instance that was hurt.
    pub culprit_right: bool,
    /// First change that followed.
    pub action: Option<LimitChange>,
    /// Instances other than the target whose limits were changed.
    pub others_changed: Vec<InstanceId>,
    /// Where the time from violation to effective limit went.
    pub budget: Option<Budget>,
    /// Requests from the injection to the end.
    pub requests: usize,
    /// Those over their bound or not answered.
    pub violations: usize,
    /// Of these, intended after the objective held again; `None` if it never did.
    pub violations_after_holding: Option<usize>,
    /// Requests of the whole run.
    pub total_requests: usize,
    /// When everything given had been taken back, before the end.
    pub taken_back_at: Option<Timestamp>,
    /// Limit files compared byte by byte with what they held before, and how many were equal.
    pub limits: LimitCheck,
    /// Spans received and traces assembled.
    pub spans: SpanCounts,
}

/// When what happened. `None` where it did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Contention began.
    pub injected: Option<Timestamp>,
    /// The objective was violated, by the load generator's clock.
    pub violated: Option<Timestamp>,
    /// The culprit was named.
    pub named: Option<Timestamp>,
    /// The first change was in effect, as read back from the kernel.
    pub effective: Option<Timestamp>,
    /// The objective held again, by the load generator's clock, until contention ended. Without
    /// a change it is looked for from the violation on.
    pub holding: Option<Timestamp>,
}

impl Times {
    /// Seconds from `from` to `to`, `None` where one is missing.
    #[must_use]
    pub fn seconds(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
        Some(to?.nanos_since(from?) as f64 / 1e9)
    }
}

/// A change of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitChange {
    /// Whose.
    pub instance: InstanceId,
    /// Before.
    pub from: Option<MilliCores>,
    /// After, as read back.
    pub to: Option<MilliCores>,
}

/// Where the time from the end of the request that made the trigger fire to the effective limit
/// went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Until its last span was here: the exporter's interval and the way.
    pub export: Latency,
    /// Until its trace counted as complete.
    pub grace: Latency,
    /// Until the loop looked at it.
    pub window: Latency,
    /// Paths, ranking, resource, policy, validation.
    pub decision: Latency,
    /// Journal, write, read back.
    pub write: Latency,
}

/// A comparison of limit files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LimitCheck {
    /// Files.
    pub files: usize,
    /// Of these, byte by byte as before.
    pub identical: usize,
    /// Those that another writer has taken over, or that went with their group.
    pub left: Vec<String>,
    /// The others: not as before, and nobody else's.
    pub different: Vec<String>,
}

/// What came in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SpanCounts {
    /// Spans received.
    pub received: u64,
    /// Spans refused, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Spans refused or dropped.
    pub lost: u64,
    /// Datagrams and requests that were not understood.
    pub malformed: u64,
    /// Requests left out because they ended, by their clocks, after they had arrived.
    pub ahead: u64,
    /// Graphs assembled.
    pub graphs: u64,
    /// Of these, dropped because the loop had no room.
    pub dropped_graphs: u64,
    /// Of these, with spans of services that use different client libraries.
    pub mixed: u64,
}
