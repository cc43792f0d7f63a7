//! The execution graph of one trace: its spans and who called whom.

use serde::{Deserialize, Serialize};

use crate::id::{SpanId, TraceId};
use crate::span::Span;

/// A span's place in its [`ExecutionGraph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The node at `index`.
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Index into [`ExecutionGraph::spans`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a node hangs on its parent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// A call whose result the parent may wait for.
    #[default]
    Call,
    /// Work that returns nothing to the parent: FOLLOWS_FROM, or a consumer under a producer
    /// (FIRM 3.2.2, background workflows). Never on a critical path.
    Background,
}

/// Why a span is not part of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnusedReason {
    /// The same span was already there.
    Duplicate,
    /// Another span with this id but other content was there first.
    ConflictingId,
    /// Its parent chain leads back to itself.
    Cycle,
    /// It came after the trace held as many spans as allowed.
    TraceFull,
    /// It names itself as parent and the trace has another root.
    SelfParent,
}

/// A span left out of the graph, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unused {
    /// The span.
    pub span_id: SpanId,
    /// The reason.
    pub reason: UnusedReason,
}

/// The spans of one trace in a canonical order that does not depend on their arrival, with
/// parents and children.
///
/// Built by the tracer through [`ExecutionGraph::from_parents`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionGraph {
    trace_id: TraceId,
    spans: Vec<Span>,
    parents: Vec<Option<NodeId>>,
    edges: Vec<EdgeKind>,
    child_offsets: Vec<u32>,
    children: Vec<NodeId>,
    roots: Vec<NodeId>,
    unused: Vec<Unused>,
}

/// Why parts do not make a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// `spans`, `parents` and `edges` differ in length.
    #[error("{spans} spans, {parents} parents, {edges} edges")]
    Lengths {
        /// Spans given.
        spans: usize,
        /// Parents given.
        parents: usize,
        /// Edges given.
        edges: usize,
    },
    /// A parent lies outside, or more spans than 32 bits can number.
    #[error("node {0} is out of range")]
    OutOfRange(usize),
    /// Some node cannot be reached from a root.
    #[error("{0} nodes are not reached from any root")]
    Unreachable(usize),
}

impl ExecutionGraph {
    /// Builds the graph from spans, the parent of each, and how each hangs on it.
    ///
    /// `parents[i]` is the index of the parent of `spans[i]`; nodes without parent are roots.
    /// Children keep the order of `spans`.
    ///
    /// # Errors
    /// Lengths differ, an index is out of range, or parents form a cycle.
    pub fn from_parents(
        trace_id: TraceId,
        spans: Vec<Span>,
        parents: Vec<Option<NodeId>>,
        edges: Vec<EdgeKind>,
        unused: Vec<Unused>,
    ) -> Result<Self, GraphError> {
        let count = spans.len();
        if parents.len() != count || edges.len() != count {
            return Err(GraphError::Lengths {
                spans: count,
                parents: parents.len(),
                edges: edges.len(),
            });
        }
        if u32::try_from(count).is_err() {
            return Err(GraphError::OutOfRange(count));
        }
        let mut child_offsets = vec![0_u32; count + 1];
        let mut roots = Vec::new();
        for (index, parent) in parents.iter().enumerate() {
            match parent {
                None => roots.push(node(index)),
                Some(parent) if parent.index() < count => child_offsets[parent.index() + 1] += 1,
                Some(parent) => return Err(GraphError::OutOfRange(parent.index())),
            }
        }
        for index in 0..count {
            child_offsets[index + 1] += child_offsets[index];
        }
        let mut next = child_offsets.clone();
        let mut children = vec![NodeId(0); count - roots.len()];
        for (index, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                let slot = &mut next[parent.index()];
                children[*slot as usize] = node(index);
                *slot += 1;
            }
        }
        let graph = Self {
            trace_id,
            spans,
            parents,
            edges,
            child_offsets,
            children,
            roots,
            unused,
        };
        match count - graph.reachable() {
            0 => Ok(graph),
            lost => Err(GraphError::Unreachable(lost)),
        }
    }

    /// The graph of a trace of which no span is used.
    #[must_use]
    pub fn empty(trace_id: TraceId) -> Self {
        Self {
            trace_id,
            spans: Vec::new(),
            parents: Vec::new(),
            edges: Vec::new(),
            child_offsets: vec![0],
            children: Vec::new(),
            roots: Vec::new(),
            unused: Vec::new(),
        }
    }

    fn reachable(&self) -> usize {
        let mut seen = 0;
        let mut stack = self.roots.clone();
        while let Some(next) = stack.pop() {
            seen += 1;
            stack.extend_from_slice(self.children(next));
        }
        seen
    }

    /// The trace.
    #[must_use]
    pub const fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// All spans, indexed by [`NodeId::index`].
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The span at a node.
    ///
    /// # Panics
    /// If the node is of another graph.
    #[must_use]
    pub fn span(&self, node: NodeId) -> &Span {
        &self.spans[node.index()]
    }

    /// The caller of a node, `None` for a root.
    #[must_use]
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.parents.get(node.index()).copied().flatten()
    }

    /// How a node hangs on its parent.
    #[must_use]
    pub fn edge(&self, node: NodeId) -> EdgeKind {
        self.edges.get(node.index()).copied().unwrap_or_default()
    }

    /// The nodes called by a node, in canonical order.
    #[must_use]
    pub fn children(&self, node: NodeId) -> &[NodeId] {
        let from = self.child_offsets[node.index()] as usize;
        let to = self.child_offsets[node.index() + 1] as usize;
        &self.children[from..to]
    }

    /// Nodes without a parent in this trace, in canonical order.
    #[must_use]
    pub fn roots(&self) -> &[NodeId] {
        &self.roots
    }

    /// All nodes in canonical order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..u32::try_from(self.spans.len()).unwrap_or(u32::MAX)).map(NodeId)
    }

    /// Spans left out, with reasons.
    #[must_use]
    pub fn unused(&self) -> &[Unused] {
        &self.unused
    }
}

fn node(index: usize) -> NodeId {
    // Callers have checked that the count fits.
    NodeId(u32::try_from(index).unwrap_or(u32::MAX))
}
