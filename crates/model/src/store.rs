//! Where execution graphs and what followed from them are kept.

use crate::action::Change;
use crate::anomaly::Anomaly;
use crate::culprit::Finding;
use crate::graph::ExecutionGraph;
use crate::id::TraceId;
use crate::path::CriticalPath;

/// A store of execution graphs. All writes are idempotent.
pub trait GraphStore: Send {
    /// Why it failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Keeps a graph; a graph of the same trace is replaced.
    ///
    /// # Errors
    /// The store cannot be written.
    fn put_graph(&mut self, graph: &ExecutionGraph) -> Result<(), Self::Error>;

    /// Marks the critical path on a graph that was put before.
    ///
    /// # Errors
    /// The store cannot be written.
    fn annotate(&mut self, path: &CriticalPath) -> Result<(), Self::Error>;

    /// Keeps a finding, linked to the traces that prove it.
    ///
    /// # Errors
    /// The store cannot be written.
    fn put_finding(&mut self, finding: &Finding) -> Result<(), Self::Error>;

    /// Keeps a change.
    ///
    /// # Errors
    /// The store cannot be written.
    fn put_change(&mut self, change: &Change) -> Result<(), Self::Error>;

    /// Keeps an anomaly.
    ///
    /// # Errors
    /// The store cannot be written.
    fn put_anomaly(&mut self, anomaly: &Anomaly) -> Result<(), Self::Error>;

    /// The graph of a trace, if it is still kept.
    ///
    /// # Errors
    /// The store cannot be read.
    fn graph(&self, trace: TraceId) -> Result<Option<ExecutionGraph>, Self::Error>;
}
