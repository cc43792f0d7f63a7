//! The critical path of a request: which spans its latency is made of, and how much of each.
//!
//! Source: FIRM (OSDI'20), Algorithm 3.1, with what it leaves open decided as [`PathRule`] says.
//! One walk serves all rules, without recursion; a rule only says which children of a span are
//! on the path (`rules.rs`).
//!
//! A span is walked within a window, for the root its own times. Its children on the path are
//! walked within windows of their own, and what no such child covers is the span's own time.
//! Background children are never on the path. Under all rules but one exception of `crisp`
//! (a lone server span under its client span) children are cut to the window of their parent,
//! and those wholly outside it are left out with all below them.

mod rules;
#[cfg(test)]
mod tests;

use firm_model::{CriticalPath, ExecutionGraph, NodeId, PathRule, Section, Timestamp};

use rules::{Chooser, Window};

/// The critical path below `root`, which may be any node of the graph.
///
/// For many graphs, [`PathFinder`] uses its buffers again.
#[must_use]
pub fn critical_path(graph: &ExecutionGraph, root: NodeId, rule: PathRule) -> CriticalPath {
    PathFinder::default().find(graph, root, rule)
}

/// Finds critical paths one after the other with the same buffers.
#[derive(Debug, Default)]
pub struct PathFinder {
    chooser: Chooser,
    stack: Vec<Step>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Time that a span owns.
    Own(Section),
    /// A span to be walked within its window.
    Walk(Window),
}

impl PathFinder {
    /// The critical path below `root`; without sections if `root` is not of this graph.
    #[must_use]
    pub fn find(&mut self, graph: &ExecutionGraph, root: NodeId, rule: PathRule) -> CriticalPath {
        let mut path = CriticalPath {
            trace_id: graph.trace_id(),
            root,
            rule,
            root_nanos: 0,
            sections: Vec::new(),
            nodes: Vec::new(),
        };
        self.find_into(graph, root, rule, &mut path);
        path
    }

    /// Like [`Self::find`], into a path whose vectors are used again.
    pub fn find_into(
        &mut self,
        graph: &ExecutionGraph,
        root: NodeId,
        rule: PathRule,
        path: &mut CriticalPath,
    ) {
        path.trace_id = graph.trace_id();
        path.root = root;
        path.rule = rule;
        path.root_nanos = 0;
        path.sections.clear();
        path.nodes.clear();
        let Some(span) = graph.spans().get(root.index()) else {
            return;
        };
        path.root_nanos = span.duration_nanos();
        self.stack.clear();
        self.stack.push(Step::Walk(Window {
            node: root,
            start: span.start,
            end: span.end.max(span.start),
        }));
        while let Some(step) = self.stack.pop() {
            match step {
                Step::Own(section) => path.sections.push(section),
                Step::Walk(window) => {
                    path.nodes.push(window.node);
                    self.walk(graph, rule, window);
                }
            }
        }
        path.sections.reverse();
        if matches!(rule, PathRule::Paper | PathRule::Crisp) {
            // Only here may siblings on the path overlap.
            path.sections
                .sort_by_key(|section| (section.start, section.end, section.node));
        }
    }

    /// Puts a span's own sections and its children on the path on the stack, so that they come
    /// off it backwards in time.
    fn walk(&mut self, graph: &ExecutionGraph, rule: PathRule, window: Window) {
        let bottom = self.stack.len();
        let chosen = self.chooser.choose(graph, rule, window);
        // Under `crisp` overlapping children count in full, so less than the uncovered time may
        // be the span's own; the latest is kept.
        let mut budget = if rule == PathRule::Crisp {
            let children: i64 = chosen
                .iter()
                .fold(0, |sum, child| child.nanos().saturating_add(sum));
            window.nanos().saturating_sub(children).max(0)
        } else {
            i64::MAX
        };
        let mut own = |stack: &mut Vec<Step>, from: Timestamp, to: Timestamp| {
            let nanos = to.nanos_since(from).min(budget);
            if nanos > 0 {
                budget -= nanos;
                stack.push(Step::Own(Section {
                    node: window.node,
                    start: to.saturating_add_nanos(-nanos),
                    end: to,
                }));
            }
        };
        let mut cursor = window.end;
        for child in chosen {
            own(&mut self.stack, child.end.max(window.start), cursor);
            self.stack.push(Step::Walk(*child));
            cursor = cursor.min(child.start);
        }
        own(&mut self.stack, window.start, cursor);
        self.stack[bottom..].reverse();
    }
}
