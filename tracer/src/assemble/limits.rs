//! How long assembly waits, how much it holds, and what it counts.

use std::time::Duration;

use firm_model::{Unused, UnusedReason};
use serde::Serialize;

/// Bounds of assembly. Only `max_trace_spans` matters outside [`super::StreamAssembler`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssemblyLimits {
    /// Most spans that a graph holds.
    pub max_trace_spans: usize,
    /// Time without a further span after which a trace whose root is there is complete.
    pub grace: Duration,
    /// Time without a further span after which a trace without root is given up waiting for.
    pub idle: Duration,
    /// Time since its first span after which a trace is handed on in any case.
    pub max_age: Duration,
    /// Most spans held, of open and of remembered traces together.
    pub max_held_spans: usize,
    /// Time after it was handed on in which a late span re-opens a trace.
    pub remember: Duration,
}

impl Default for AssemblyLimits {
    fn default() -> Self {
        Self {
            max_trace_spans: 100_000,
            grace: Duration::from_millis(150),
            idle: Duration::from_secs(5),
            max_age: Duration::from_secs(30),
            max_held_spans: 1_000_000,
            remember: Duration::from_secs(10),
        }
    }
}

/// What became of traces and spans. All counters only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AssemblyCounts {
    /// Spans that came in.
    pub spans: u64,
    /// Traces handed on with their root, the grace having passed.
    pub complete: u64,
    /// Traces handed on without a root, after [`AssemblyLimits::idle`].
    pub idle: u64,
    /// Traces handed on because of [`AssemblyLimits::max_age`].
    pub max_age: u64,
    /// Traces handed on when asked to finish ([`super::StreamAssembler::flush`]).
    pub flushed: u64,
    /// Traces handed on once more because of late spans; also counted by their own reason.
    pub reopened: u64,
    /// Traces dropped because [`AssemblyLimits::max_held_spans`] was reached, oldest first.
    pub shed_traces: u64,
    /// Spans dropped with those traces, or after them.
    pub shed_spans: u64,
    /// Spans left out of graphs as [`UnusedReason::Duplicate`].
    pub duplicate: u64,
    /// Spans left out of graphs as [`UnusedReason::ConflictingId`], per graph handed on.
    pub conflicting_id: u64,
    /// Spans left out of graphs as [`UnusedReason::Cycle`], per graph handed on.
    pub cycle: u64,
    /// Spans left out of graphs as [`UnusedReason::SelfParent`], per graph handed on.
    pub self_parent: u64,
    /// Spans left out of graphs as [`UnusedReason::TraceFull`].
    pub trace_full: u64,
}

impl AssemblyCounts {
    /// Adds what a graph left out.
    pub fn add_unused(&mut self, unused: &[Unused]) {
        for item in unused {
            *match item.reason {
                UnusedReason::Duplicate => &mut self.duplicate,
                UnusedReason::ConflictingId => &mut self.conflicting_id,
                UnusedReason::Cycle => &mut self.cycle,
                UnusedReason::TraceFull => &mut self.trace_full,
                UnusedReason::SelfParent => &mut self.self_parent,
            } += 1;
        }
    }
}
