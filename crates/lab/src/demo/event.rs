//! What a run tells while it goes on, for a live view or for programs.

use firm_model::{Anomaly, Applied, Change, Finding, InstanceId, Latency, MilliCores, Timestamp};
use serde::Serialize;

/// One thing that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DemoEvent {
    /// The application serves.
    Started {
        /// Its instances and their CPU limits.
        instances: Vec<InstanceLimit>,
        /// Requests per second that will be sent.
        rate: f64,
        /// Why limits will not be changed, `None` if they will.
        only_recommends: Option<String>,
    },
    /// A phase begins.
    Phase {
        /// Which.
        phase: Phase,
        /// Seconds since the first request.
        at_s: f64,
    },
    /// How the application does, several times a second.
    Status(Status),
    /// Contention is there.
    Injected {
        /// Whom it hurts.
        target: InstanceId,
        /// Since when.
        at: Timestamp,
        /// How much was asked for.
        intensity: f64,
    },
    /// Contention is over.
    InjectionEnded(Anomaly),
    /// Somebody is blamed.
    Finding(Finding),
    /// A limit was changed.
    Change(Change),
    /// What would have been changed.
    Recommendation {
        /// Whose limit.
        instance: InstanceId,
        /// Limit recommended, `None` for an instance that has none to raise.
        cpu: Option<MilliCores>,
        /// Finding that leads to it.
        finding: Option<u64>,
    },
    /// Everything given has been taken back.
    TakenBack,
    /// Something that a person should know.
    Note {
        /// What.
        text: String,
    },
}

/// An instance and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceLimit {
    /// The instance.
    pub instance: InstanceId,
    /// Its CPU limit, `None` where there is none.
    pub cpu: Option<MilliCores>,
}

/// Phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Connections are made, caches fill.
    WarmUp,
    /// What is seen is normal.
    Learn,
    /// Objectives count; nothing has been done to anybody yet.
    Watch,
    /// Contention is injected.
    Inject,
    /// Contention is over.
    Recover,
    /// Limits are put back.
    Restore,
}

/// How the application does, by the load generator's clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Seconds since the first request.
    pub at_s: f64,
    /// Seconds that the whole run takes.
    pub of_s: f64,
    /// The request type that is furthest from its objective, over the last two seconds.
    pub request_type: String,
    /// Its median latency; `None` where that request was not answered.
    pub p50: Option<Latency>,
    /// Its 99th percentile; `None` where that request was not answered.
    pub p99: Option<Latency>,
    /// Bound of its objective.
    pub bound: Latency,
    /// Quantile of its objective, 0 to 1.
    pub quantile: f64,
    /// Requests answered in the last second.
    pub per_second: usize,
    /// Limits that are not what they were at the start.
    pub changed: Vec<InstanceLimit>,
}

impl From<&Applied> for InstanceLimit {
    fn from(applied: &Applied) -> Self {
        Self {
            instance: applied.instance.clone(),
            cpu: applied.to,
        }
    }
}
