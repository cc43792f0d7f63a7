//! The graph of one trace, by the rules of [`super`]. Nothing here recurses, so depth is free.

use std::cmp::Ordering;

use firm_model::{
    EdgeKind, ExecutionGraph, NodeId, ParentRelation, Span, SpanKind, TraceId, Unused, UnusedReason,
};

use super::index::IdIndex;
use super::limits::AssemblyLimits;

/// Assembles the spans of one trace, in any order. `trace_id` names the graph; that of the spans
/// is not looked at.
#[must_use]
pub fn assemble_trace(
    trace_id: TraceId,
    spans: Vec<Span>,
    limits: &AssemblyLimits,
) -> ExecutionGraph {
    Assembler::default().assemble(trace_id, spans, limits)
}

/// The canonical order, total over all fields.
pub(super) fn canonical(a: &Span, b: &Span) -> Ordering {
    a.start
        .cmp(&b.start)
        .then_with(|| a.span_id.cmp(&b.span_id))
        .then_with(|| b.end.cmp(&a.end))
        .then_with(|| rest(a).cmp(&rest(b)))
}

fn rest(span: &Span) -> impl Ord {
    (
        (span.parent_id, span.kind, span.relation),
        (span.error, span.shared),
        (span.service, span.operation, span.instance),
    )
}

/// Puts spans into canonical order and removes exact duplicates, which are added to `unused`.
pub(super) fn normalise(spans: &mut Vec<Span>, unused: &mut Vec<Unused>) {
    if !spans.is_sorted_by(|a, b| canonical(a, b).is_le()) {
        spans.sort_unstable_by(canonical);
    }
    spans.dedup_by(|later, earlier| {
        let same = later.span_id == earlier.span_id && later == earlier;
        if same {
            unused.push(left_out(later, UnusedReason::Duplicate));
        }
        same
    });
}

/// Buffers that are used again from trace to trace.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    index: IdIndex,
    /// Server half of an id whose client half is indexed: (client, server).
    halves: Vec<(u32, u32)>,
    drop: Vec<Option<UnusedReason>>,
    walk: Vec<u32>,
}

impl Assembler {
    /// Assembles spans in any order.
    pub(super) fn assemble(
        &mut self,
        trace_id: TraceId,
        mut spans: Vec<Span>,
        limits: &AssemblyLimits,
    ) -> ExecutionGraph {
        let mut unused = Vec::new();
        normalise(&mut spans, &mut unused);
        self.assemble_normalised(trace_id, spans, unused, limits)
    }

    /// Assembles what [`normalise`] has left, with what it took out.
    pub(super) fn assemble_normalised(
        &mut self,
        trace_id: TraceId,
        mut spans: Vec<Span>,
        mut unused: Vec<Unused>,
        limits: &AssemblyLimits,
    ) -> ExecutionGraph {
        self.halves.clear();
        if self.index.rebuild(spans.iter().map(|s| s.span_id)) {
            self.resolve_conflicts(&mut spans, &mut unused);
        }
        let most = limits.max_trace_spans.min(u32::MAX as usize - 1);
        if spans.len() > most {
            let over = spans.drain(most..);
            unused.extend(over.map(|span| left_out(&span, UnusedReason::TraceFull)));
            self.reindex(&spans);
        }
        let mut parents = self.link(&spans);
        if self.find_drops(&parents) {
            self.remove_dropped(&mut spans, Some(&mut parents), &mut unused);
        }
        let edges = edges(&spans, &parents);
        unused.sort_unstable();
        ExecutionGraph::from_parents(trace_id, spans, parents, edges, unused)
            .unwrap_or_else(|_| ExecutionGraph::empty(trace_id))
    }

    /// Rule 3. Runs only when some id occurs twice.
    fn resolve_conflicts(&mut self, spans: &mut Vec<Span>, unused: &mut Vec<Unused>) {
        let mut places: Vec<u32> = (0_u32..).take(spans.len()).collect();
        // Stable, so that places of one id stay in canonical order.
        places.sort_by_key(|place| spans[*place as usize].span_id);
        self.drop.clear();
        self.drop.resize(spans.len(), None);
        for group in
            places.chunk_by(|a, b| spans[*a as usize].span_id == spans[*b as usize].span_id)
        {
            let find = |wanted: fn(&Span) -> bool| {
                group.iter().copied().find(|p| wanted(&spans[*p as usize]))
            };
            let keep = match (find(is_client_half), find(is_server_half)) {
                (Some(client), Some(server)) => [Some(client), Some(server)],
                _ => [group.first().copied(), None],
            };
            for place in group {
                if !keep.contains(&Some(*place)) {
                    self.drop[*place as usize] = Some(UnusedReason::ConflictingId);
                }
            }
        }
        self.remove_dropped(spans, None, unused);
        self.reindex(spans);
    }

    /// Index and halves for spans of which no id occurs more than twice.
    fn reindex(&mut self, spans: &[Span]) {
        self.halves.clear();
        if !self.index.rebuild(spans.iter().map(|s| s.span_id)) {
            return;
        }
        for (place, span) in (0_u32..).zip(spans) {
            let Some(first) = self.index.get(span.span_id) else {
                continue;
            };
            if first != place {
                let pair = if is_server_half(span) {
                    (first, place)
                } else {
                    (place, first)
                };
                self.halves.push(pair);
            }
        }
        self.halves.sort_unstable();
    }

    /// The parent of each span, by rules 3 and 5; cycles and self parents are still in it.
    fn link(&self, spans: &[Span]) -> Vec<Option<NodeId>> {
        let mut parents: Vec<Option<NodeId>> = spans
            .iter()
            .map(|span| {
                span.parent_id
                    .and_then(|id| self.index.get(id))
                    .map(NodeId::new)
            })
            .collect();
        if self.halves.is_empty() {
            return parents;
        }
        let mut server_of = vec![None; spans.len()];
        for (client, server) in &self.halves {
            // The index may name either half, whichever is first.
            server_of[*client as usize] = Some(NodeId::new(*server));
            server_of[*server as usize] = Some(NodeId::new(*server));
        }
        for parent in &mut parents {
            *parent = parent.map(|p| server_of[p.index()].unwrap_or(p));
        }
        for (client, server) in &self.halves {
            let (client, server) = (*client as usize, *server as usize);
            parents[server] = u32::try_from(client).ok().map(NodeId::new);
            if spans[client].parent_id == Some(spans[client].span_id) {
                parents[client] = u32::try_from(client).ok().map(NodeId::new);
            }
        }
        parents
    }

    /// Rules 6 and 7: marks what has to go. Returns whether parents need mending.
    fn find_drops(&mut self, parents: &[Option<NodeId>]) -> bool {
        let mut both = parents.iter().enumerate();
        if both.all(|(place, parent)| parent.is_none_or(|parent| parent.index() < place)) {
            return false;
        }
        self.drop.clear();
        self.drop.resize(parents.len(), None);
        self.mark_cycles(parents);
        let is_self = |place: usize| parents[place].is_some_and(|p| p.index() == place);
        let mut root_seen = (0..parents.len()).any(|place| {
            self.drop[place].is_none()
                && parents[place].is_none_or(|parent| self.drop[parent.index()].is_some())
        });
        for place in 0..parents.len() {
            if is_self(place) {
                if root_seen {
                    self.drop[place] = Some(UnusedReason::SelfParent);
                }
                root_seen = true;
            }
        }
        true
    }

    /// Marks the last member of each cycle of two and more.
    fn mark_cycles(&mut self, parents: &[Option<NodeId>]) {
        // The number of the walk that first came by a node, 0 for none yet.
        self.walk.clear();
        self.walk.resize(parents.len(), 0);
        let up = |place: usize| parents[place].map_or(place, NodeId::index);
        for (walk, start) in (1_u32..).zip(0..parents.len()) {
            let mut at = start;
            while self.walk[at] == 0 {
                self.walk[at] = walk;
                at = up(at);
            }
            if self.walk[at] != walk || up(at) == at {
                continue;
            }
            let (mut last, mut next) = (at, up(at));
            while next != at {
                last = last.max(next);
                next = up(next);
            }
            self.drop[last] = Some(UnusedReason::Cycle);
        }
    }

    /// Takes the marked spans out; what hung on them, and a self parent that stays, becomes a
    /// root.
    fn remove_dropped(
        &self,
        spans: &mut Vec<Span>,
        parents: Option<&mut Vec<Option<NodeId>>>,
        unused: &mut Vec<Unused>,
    ) {
        if let Some(parents) = parents {
            let mut kept = 0_u32;
            let moved: Vec<Option<NodeId>> = self
                .drop
                .iter()
                .map(|drop| {
                    let here = drop.is_none().then(|| NodeId::new(kept));
                    kept += u32::from(drop.is_none());
                    here
                })
                .collect();
            let mut place = 0;
            parents.retain_mut(|parent| {
                let here = place;
                place += 1;
                *parent = parent
                    .filter(|parent| parent.index() != here)
                    .and_then(|parent| moved[parent.index()]);
                moved[here].is_some()
            });
        }
        let mut place = 0;
        spans.retain(|span| {
            let reason = self.drop[place];
            place += 1;
            unused.extend(reason.map(|reason| left_out(span, reason)));
            reason.is_none()
        });
    }
}

fn edges(spans: &[Span], parents: &[Option<NodeId>]) -> Vec<EdgeKind> {
    let kind = |(span, parent): (&Span, &Option<NodeId>)| {
        let Some(parent) = parent else {
            return EdgeKind::Call;
        };
        let consumed =
            span.kind == SpanKind::Consumer && spans[parent.index()].kind == SpanKind::Producer;
        if consumed || span.relation == ParentRelation::FollowsFrom {
            EdgeKind::Background
        } else {
            EdgeKind::Call
        }
    };
    spans.iter().zip(parents).map(kind).collect()
}

fn is_client_half(span: &Span) -> bool {
    !span.shared && matches!(span.kind, SpanKind::Client | SpanKind::Producer)
}

fn is_server_half(span: &Span) -> bool {
    span.shared || matches!(span.kind, SpanKind::Server | SpanKind::Consumer)
}

fn left_out(span: &Span, reason: UnusedReason) -> Unused {
    Unused {
        span_id: span.span_id,
        reason,
    }
}
