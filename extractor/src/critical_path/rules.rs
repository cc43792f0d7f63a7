//! Which children of a span are on the path, rule by rule.

use std::cmp::Reverse;

use firm_model::{EdgeKind, ExecutionGraph, NodeId, PathRule, Span, SpanKind, Timestamp};

/// A span and the time within which it is looked at; `end` is not before `start`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) node: NodeId,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

impl Window {
    pub(super) const fn nanos(&self) -> i64 {
        self.end.nanos_since(self.start)
    }

    /// Whether it ended before `later` began; equal times count.
    fn ended_by_start_of(&self, later: &Window) -> bool {
        self.end <= later.start
    }
}

/// Chooses children; holds the buffers it needs.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    /// Children cut to the parent's window, by start.
    by_start: Vec<Window>,
    /// The same from the last to end to the first.
    by_end: Vec<Window>,
    chosen: Vec<Window>,
}

impl Chooser {
    /// The children on the path, from the last to end to the first.
    pub(super) fn choose(
        &mut self,
        graph: &ExecutionGraph,
        rule: PathRule,
        parent: Window,
    ) -> &[Window] {
        self.chosen.clear();
        let children = graph.children(parent.node);
        if children.is_empty() {
            return &self.chosen;
        }
        if rule == PathRule::Crisp
            && let Some(lone) = lone_server(graph, parent, children)
        {
            self.chosen.push(lone);
            return &self.chosen;
        }
        self.fit(graph, rule, parent, children);
        match rule {
            PathRule::Firm => self.firm(parent.nanos() / 100),
            PathRule::Paper => self.paper(),
            PathRule::JaegerUi => self.jaeger_ui(),
            PathRule::Crisp => self.crisp(parent.nanos()),
        }
        &self.chosen
    }

    /// Cuts children to the parent's window and orders them.
    fn fit(&mut self, graph: &ExecutionGraph, rule: PathRule, parent: Window, children: &[NodeId]) {
        self.by_start.clear();
        for node in children {
            let span = graph.span(*node);
            let (start, end) = (span.start, span.end.max(span.start));
            let outside = end <= parent.start || start >= parent.end;
            let wider = start < parent.start && end > parent.end;
            if outside
                || graph.edge(*node) == EdgeKind::Background
                || (wider && rule == PathRule::Crisp)
            {
                continue;
            }
            self.by_start.push(Window {
                node: *node,
                start: start.max(parent.start),
                end: end.min(parent.end),
            });
        }
        self.by_end.clear();
        self.by_end.extend_from_slice(&self.by_start);
        if self.by_end.len() > 1 {
            // Of several that end together the longest is the last returned.
            self.by_end
                .sort_unstable_by_key(|child| (Reverse(child.end), child.start, child.node));
        }
    }

    /// A chain from the last returned child backwards: the next is the last to end among those
    /// that ended by the start of the one taken before, or overlap it by at most `tolerance`
    /// nanoseconds while beginning and ending earlier. What overlaps belongs to the later.
    fn firm(&mut self, tolerance: i64) {
        let mut later: Option<(Window, Timestamp)> = None;
        for child in &self.by_end {
            let Some((next, next_end)) = later else {
                self.chosen.push(*child);
                later = Some((*child, child.end));
                continue;
            };
            let overlap = child.end.nanos_since(next.start);
            let slightly = overlap <= tolerance && child.start < next.start && child.end < next_end;
            if overlap <= 0 || slightly {
                let cut = Window {
                    end: child.end.min(next.start),
                    ..*child
                };
                self.chosen.push(cut);
                later = Some((cut, child.end));
            }
        }
    }

    /// The last returned child and each that ended before it began, overlapping or not.
    fn paper(&mut self) {
        let Some(last) = self.by_end.first().copied() else {
            return;
        };
        self.chosen.push(last);
        let before = self.by_end.iter().skip(1);
        self.chosen
            .extend(before.filter(|child| child.ended_by_start_of(&last)));
    }

    /// A chain as under `firm`, but the earlier must end strictly before the later begins.
    fn jaeger_ui(&mut self) {
        let mut begun = None;
        for child in &self.by_end {
            if begun.is_none_or(|begun| child.end < begun) {
                self.chosen.push(*child);
                begun = Some(child.start);
            }
        }
    }

    /// A chain: strictly before, or begun and ended earlier with an overlap under 1 % of the
    /// parent's duration in which no other child begins or ends.
    fn crisp(&mut self, parent_nanos: i64) {
        let mut later: Option<Window> = None;
        for child in &self.by_end {
            let joins = later.is_none_or(|next| {
                let overlap = child.end.nanos_since(next.start);
                overlap < 0
                    || (child.start < next.start
                        && child.end < next.end
                        && i128::from(overlap) * 100 < i128::from(parent_nanos)
                        && self.is_quiet(next.start, child.end))
            });
            if joins {
                self.chosen.push(*child);
                later = Some(*child);
            }
        }
    }

    /// Whether no child begins or ends strictly between two instants.
    fn is_quiet(&self, from: Timestamp, to: Timestamp) -> bool {
        let next_start = self.by_start.partition_point(|child| child.start <= from);
        let next_end = self.by_end.partition_point(|child| child.end >= to);
        let begins = self.by_start.get(next_start);
        let ends = self.by_end.get(next_end);
        begins.is_none_or(|child| child.start >= to) && ends.is_none_or(|child| child.end <= from)
    }
}

/// CRISP's exception for clocks that differ: a server span that is the only child of its client
/// span, or of a span of another instance, is left where it is, and only its duration is held to
/// that of the parent.
fn lone_server(graph: &ExecutionGraph, parent: Window, children: &[NodeId]) -> Option<Window> {
    let [node] = children else {
        return None;
    };
    let (caller, callee): (&Span, &Span) = (graph.span(parent.node), graph.span(*node));
    let remote = caller.kind == SpanKind::Client || caller.instance != callee.instance;
    if callee.kind != SpanKind::Server || !remote || graph.edge(*node) == EdgeKind::Background {
        return None;
    }
    let nanos = callee.duration_nanos().min(parent.nanos());
    Some(Window {
        node: *node,
        start: callee.start,
        end: callee.start.saturating_add_nanos(nanos),
    })
}
