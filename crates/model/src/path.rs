//! The critical path of one request.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::graph::NodeId;
use crate::id::TraceId;
use crate::time::Timestamp;

/// Which children are on the path. See `docs/algorithms/critical-path.md`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathRule {
    /// From the last returned child backwards, each child ending before the next begins, with
    /// an overlap of up to 1 % of the parent's duration allowed.
    #[default]
    Firm,
    /// Algorithm 3.1 as printed: the last returned child and every child that ended before it
    /// began; two such children that overlap each other are both on the path.
    Paper,
    /// As Jaeger UI draws it.
    JaegerUi,
    /// As CRISP (USENIX ATC'22) computes it.
    Crisp,
}

impl PathRule {
    /// All rules, in the order of documents.
    pub const ALL: [PathRule; 4] = [
        PathRule::Firm,
        PathRule::Paper,
        PathRule::JaegerUi,
        PathRule::Crisp,
    ];
}

impl fmt::Display for PathRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathRule::Firm => "firm",
            PathRule::Paper => "paper",
            PathRule::JaegerUi => "jaeger-ui",
            PathRule::Crisp => "crisp",
        })
    }
}

impl FromStr for PathRule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        PathRule::ALL
            .into_iter()
            .find(|rule| rule.to_string() == text)
            .ok_or_else(|| {
                format!("`{text}` is not a rule, expected firm, paper, jaeger-ui or crisp")
            })
    }
}

/// A stretch of time that one span owns on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The span that owns it.
    pub node: NodeId,
    /// Begin.
    pub start: Timestamp,
    /// End, after `start`.
    pub end: Timestamp,
}

impl Section {
    /// Length in nanoseconds.
    #[must_use]
    pub const fn nanos(&self) -> i64 {
        self.end.nanos_since(self.start)
    }
}

/// The critical path below one root.
///
/// Under [`PathRule::Firm`] and [`PathRule::JaegerUi`] the lengths of the sections sum to
/// `root_nanos` exactly. Under the other two they sum, per span, to the own time that the rule
/// gives that span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriticalPath {
    /// The trace.
    pub trace_id: TraceId,
    /// The root that the path is of.
    pub root: NodeId,
    /// The rule it was found by.
    pub rule: PathRule,
    /// Duration of the root span in nanoseconds.
    pub root_nanos: i64,
    /// Sections in time order.
    pub sections: Vec<Section>,
    /// Spans on the path, root first, each parent before its children, children from the last
    /// to end to the first. A span may be on the path and own no section.
    pub nodes: Vec<NodeId>,
}
