//! Who is to blame, and for want of what.

use serde::{Deserialize, Serialize};

use crate::feature::Part;
use crate::id::TraceId;
use crate::instance::InstanceId;
use crate::resource::Resource;
use crate::time::Timestamp;

/// What an instance lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "resource")]
pub enum Verdict {
    /// A resource that can be re-provisioned.
    Resource(Resource),
    /// Errors, bugs, an upstream outside: an event, never an action (paper L691).
    NotAResource,
    /// Evidence does not tell, so nothing is done.
    Unknown,
}

/// One instance that is held to be the cause of slow requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its service.
    pub service: String,
    /// The instance.
    pub instance: InstanceId,
    /// Part of its time that shows it.
    pub part: Part,
    /// What it lacks.
    pub verdict: Verdict,
    /// How sure, larger is surer; only comparable within one finding.
    pub score: f64,
    /// Relative importance in the window, `None` where undefined.
    pub ri: Option<f64>,
    /// Congestion intensity in the window, `None` where undefined.
    pub ci: Option<f64>,
    /// Why, in words with figures.
    pub why: String,
}

/// What one window of violated objective led to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Number of the finding, from 1, unique in its event log.
    pub id: u64,
    /// When it was made.
    pub at: Timestamp,
    /// Span time that the window covers: begin.
    pub window_start: Timestamp,
    /// Span time that the window covers: end.
    pub window_end: Timestamp,
    /// `service/operation` of the violated objective.
    pub request_type: String,
    /// Ranked, most blamed first.
    pub culprits: Vec<Culprit>,
    /// Traces that prove it, slowest first.
    pub evidence: Vec<TraceId>,
}
