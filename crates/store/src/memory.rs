//! The latest graphs and events in memory, within bounds; the oldest go first.

use std::collections::{BTreeMap, HashMap, VecDeque};

use firm_model::{Anomaly, Change, CriticalPath, ExecutionGraph, Finding, GraphStore, TraceId};

/// Bounds of a [`MemoryStore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBounds {
    /// Most traces.
    pub traces: usize,
    /// Most spans in all traces together; a span takes about 150 bytes with its edges.
    pub spans: usize,
    /// Most findings, most changes and most anomalies, each.
    pub events: usize,
}

impl Default for MemoryBounds {
    fn default() -> Self {
        Self {
            traces: 10_000,
            spans: 1_000_000,
            events: 10_000,
        }
    }
}

/// A graph was not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// It alone has more spans than all traces together may have.
    #[error("trace {trace} has {spans} spans, the store holds {most} in all")]
    TooLarge {
        /// The trace.
        trace: TraceId,
        /// Its spans.
        spans: usize,
        /// Spans that the store may hold.
        most: usize,
    },
}

#[derive(Debug)]
struct Kept {
    graph: ExecutionGraph,
    path: Option<CriticalPath>,
}

/// Keeps the latest graphs, findings, changes and anomalies.
#[derive(Debug)]
pub struct MemoryStore {
    bounds: MemoryBounds,
    kept: HashMap<TraceId, Kept>,
    /// Traces in the order of their first put.
    order: VecDeque<TraceId>,
    spans: usize,
    findings: BTreeMap<u64, Finding>,
    changes: VecDeque<Change>,
    anomalies: VecDeque<Anomaly>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(bounds: MemoryBounds) -> Self {
        Self {
            bounds,
            kept: HashMap::new(),
            order: VecDeque::new(),
            spans: 0,
            findings: BTreeMap::new(),
            changes: VecDeque::new(),
            anomalies: VecDeque::new(),
        }
    }

    /// Traces kept.
    #[must_use]
    pub fn traces(&self) -> usize {
        self.order.len()
    }

    /// Spans kept.
    #[must_use]
    pub const fn spans(&self) -> usize {
        self.spans
    }

    /// The critical path of a trace, if both are still kept.
    #[must_use]
    pub fn path(&self, trace: TraceId) -> Option<&CriticalPath> {
        self.kept.get(&trace)?.path.as_ref()
    }

    /// Findings kept, by number.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values()
    }

    /// Changes kept, in the order they were put.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }

    /// Anomalies kept, in the order they were first put.
    pub fn anomalies(&self) -> impl Iterator<Item = &Anomaly> {
        self.anomalies.iter()
    }

    fn make_room(&mut self) {
        while self.order.len() > self.bounds.traces || self.spans > self.bounds.spans {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if let Some(kept) = self.kept.remove(&oldest) {
                self.spans -= kept.graph.spans().len();
            }
        }
    }
}

impl GraphStore for MemoryStore {
    type Error = MemoryError;

    fn put_graph(&mut self, graph: &ExecutionGraph) -> Result<(), MemoryError> {
        let (trace, spans) = (graph.trace_id(), graph.spans().len());
        if spans > self.bounds.spans {
            return Err(MemoryError::TooLarge {
                trace,
                spans,
                most: self.bounds.spans,
            });
        }
        match self.kept.get_mut(&trace) {
            // The path on it stays.
            Some(kept) if kept.graph == *graph => return Ok(()),
            Some(kept) => {
                self.spans = self.spans - kept.graph.spans().len() + spans;
                // A path on the graph before names other nodes.
                kept.path = None;
                kept.graph = graph.clone();
                // As young as a new one, so that it is not the first to make room for itself.
                self.order.retain(|known| *known != trace);
            }
            None => {
                self.spans += spans;
                let kept = Kept {
                    graph: graph.clone(),
                    path: None,
                };
                self.kept.insert(trace, kept);
            }
        }
        self.order.push_back(trace);
        self.make_room();
        Ok(())
    }

    /// A trace that is not kept any more is passed over.
    fn annotate(&mut self, path: &CriticalPath) -> Result<(), MemoryError> {
        if let Some(kept) = self.kept.get_mut(&path.trace_id) {
            kept.path = Some(path.clone());
        }
        Ok(())
    }

    fn put_finding(&mut self, finding: &Finding) -> Result<(), MemoryError> {
        self.findings.insert(finding.id, finding.clone());
        while self.findings.len() > self.bounds.events {
            self.findings.pop_first();
        }
        Ok(())
    }

    fn put_change(&mut self, change: &Change) -> Result<(), MemoryError> {
        if !self.changes.contains(change) {
            push(&mut self.changes, change.clone(), self.bounds.events);
        }
        Ok(())
    }

    fn put_anomaly(&mut self, anomaly: &Anomaly) -> Result<(), MemoryError> {
        // The same anomaly again, perhaps with its end or what was achieved known by now.
        let same = self.anomalies.iter_mut().find(|known| {
            known.kind == anomaly.kind
                && known.target == anomaly.target
                && known.start == anomaly.start
        });
        match same {
            Some(known) => *known = anomaly.clone(),
            None => push(&mut self.anomalies, anomaly.clone(), self.bounds.events),
        }
        Ok(())
    }

    fn graph(&self, trace: TraceId) -> Result<Option<ExecutionGraph>, MemoryError> {
        Ok(self.kept.get(&trace).map(|kept| kept.graph.clone()))
    }
}

fn push<T>(list: &mut VecDeque<T>, value: T, most: usize) {
    list.push_back(value);
    while list.len() > most {
        list.pop_front();
    }
}
