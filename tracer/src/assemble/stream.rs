//! A stream of spans: traces are handed on when they are ready, late spans hand them on again,
//! and what is held is bounded.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use firm_model::{ExecutionGraph, Monotonic, Span, TraceId, Unused};

use super::limits::{AssemblyCounts, AssemblyLimits};
use super::trace::{Assembler, normalise};

/// Assembles a stream. Pure: the caller says what time it is, which must not run backwards.
///
/// A graph handed on a second time carries the same trace id and replaces the first.
#[derive(Debug)]
pub struct StreamAssembler {
    limits: AssemblyLimits,
    traces: HashMap<TraceId, Trace, foldhash::fast::RandomState>,
    /// When to look at a trace again. An entry is stale when the trace has another `due`.
    queue: BinaryHeap<Reverse<(Monotonic, TraceId)>>,
    /// Open traces by age, then traces kept after they were handed on, and after they were shed,
    /// until when. Stale when the trace has another generation.
    open: VecDeque<(TraceId, u64)>,
    kept: VecDeque<Until>,
    shed: VecDeque<Until>,
    generation: u64,
    held: usize,
    counts: AssemblyCounts,
    assembler: Assembler,
}

/// A trace, its generation, and the end of a time.
type Until = (TraceId, u64, Monotonic);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Handed on with this many distinct spans.
    Emitted(usize),
    Shed,
}

#[derive(Debug)]
struct Trace {
    spans: Vec<Span>,
    phase: Phase,
    /// Distinct spans when it was last handed on, 0 for never.
    emitted: usize,
    generation: u64,
    opened: Monotonic,
    latest: Monotonic,
    due: Monotonic,
    has_root: bool,
}

/// Why a trace is handed on.
#[derive(Clone, Copy)]
enum Ready {
    Complete,
    Idle,
    MaxAge,
    Flushed,
}

impl Trace {
    fn due(&self, limits: &AssemblyLimits) -> Monotonic {
        let wait = if self.has_root {
            limits.grace
        } else {
            limits.idle
        };
        (self.latest + wait).min(self.opened + limits.max_age)
    }

    fn reason(&self, limits: &AssemblyLimits) -> Ready {
        match (self.has_root, self.due < self.opened + limits.max_age) {
            (_, false) => Ready::MaxAge,
            (true, true) => Ready::Complete,
            (false, true) => Ready::Idle,
        }
    }
}

impl StreamAssembler {
    /// An assembler that holds nothing yet.
    #[must_use]
    pub fn new(limits: AssemblyLimits) -> Self {
        Self {
            limits,
            traces: HashMap::default(),
            queue: BinaryHeap::new(),
            open: VecDeque::new(),
            kept: VecDeque::new(),
            shed: VecDeque::new(),
            generation: 0,
            held: 0,
            counts: AssemblyCounts::default(),
            assembler: Assembler::default(),
        }
    }

    /// Takes a span.
    pub fn push(&mut self, span: Span, now: Monotonic) {
        self.counts.spans += 1;
        self.forget(now);
        let trace = self.traces.entry(span.trace_id).or_insert_with(|| Trace {
            spans: Vec::new(),
            phase: Phase::Emitted(0),
            emitted: 0,
            generation: 0,
            opened: now,
            latest: now,
            due: Monotonic::from_nanos(u64::MAX),
            has_root: false,
        });
        match trace.phase {
            Phase::Shed => {
                self.counts.shed_spans += 1;
                return;
            }
            Phase::Emitted(distinct) => {
                self.generation += 1;
                trace.generation = self.generation;
                trace.emitted = distinct;
                trace.phase = Phase::Open;
                trace.opened = now;
                trace.due = Monotonic::from_nanos(u64::MAX);
                self.open.push_back((span.trace_id, self.generation));
            }
            Phase::Open => {}
        }
        // Twice the bound, so that a full trace delivered twice still is one.
        if trace.spans.len() >= self.limits.max_trace_spans.saturating_mul(2) {
            self.counts.trace_full += 1;
        } else {
            trace.spans.push(span);
            self.held += 1;
        }
        trace.latest = now;
        trace.has_root |= span.parent_id.is_none();
        let due = trace.due(&self.limits);
        if due < trace.due {
            trace.due = due;
            self.queue.push(Reverse((due, span.trace_id)));
        }
        while self.held > self.limits.max_held_spans && self.make_room(now) {}
    }

    /// Adds the graphs that are ready at `now` to `out`. Costs what is ready, not what is held.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<ExecutionGraph>) {
        while let Some(Reverse((due, trace_id))) = self.queue.peek().copied() {
            if due > now {
                break;
            }
            self.queue.pop();
            let Some(trace) = self.traces.get_mut(&trace_id) else {
                continue;
            };
            if trace.phase != Phase::Open || trace.due != due {
                continue;
            }
            trace.due = trace.due(&self.limits);
            if trace.due > now {
                self.queue.push(Reverse((trace.due, trace_id)));
                continue;
            }
            let reason = trace.reason(&self.limits);
            self.emit(trace_id, reason, now, out);
        }
        self.forget(now);
    }

    /// Adds the graphs of all open traces to `out`, oldest first, ready or not.
    pub fn flush(&mut self, now: Monotonic, out: &mut Vec<ExecutionGraph>) {
        while let Some((trace_id, generation)) = self.open.pop_front() {
            if self.is_open(trace_id, generation) {
                self.emit(trace_id, Ready::Flushed, now, out);
            }
        }
    }

    /// When [`Self::poll`] next has something to look at, `None` for an assembler without open
    /// traces.
    #[must_use]
    pub fn next_due(&self) -> Option<Monotonic> {
        self.queue.peek().map(|Reverse((due, _))| *due)
    }

    /// What became of everything so far.
    #[must_use]
    pub const fn counts(&self) -> AssemblyCounts {
        self.counts
    }

    /// Spans held, of open and of remembered traces.
    #[must_use]
    pub const fn held_spans(&self) -> usize {
        self.held
    }

    fn is_open(&self, trace_id: TraceId, generation: u64) -> bool {
        self.traces
            .get(&trace_id)
            .is_some_and(|t| t.phase == Phase::Open && t.generation == generation)
    }

    fn emit(
        &mut self,
        trace_id: TraceId,
        reason: Ready,
        now: Monotonic,
        out: &mut Vec<ExecutionGraph>,
    ) {
        let Some(trace) = self.traces.get_mut(&trace_id) else {
            return;
        };
        let before = trace.spans.len();
        let mut unused: Vec<Unused> = Vec::new();
        normalise(&mut trace.spans, &mut unused);
        let distinct = trace.spans.len();
        self.held -= before - distinct;
        trace.phase = Phase::Emitted(distinct);
        self.generation += 1;
        trace.generation = self.generation;
        self.kept
            .push_back((trace_id, self.generation, now + self.limits.remember));
        if distinct == trace.emitted {
            // Only repetitions came: the graph that was handed on stands.
            self.counts.add_unused(&unused);
            return;
        }
        *match reason {
            Ready::Complete => &mut self.counts.complete,
            Ready::Idle => &mut self.counts.idle,
            Ready::MaxAge => &mut self.counts.max_age,
            Ready::Flushed => &mut self.counts.flushed,
        } += 1;
        self.counts.reopened += u64::from(trace.emitted > 0);
        let spans = trace.spans.clone();
        let graph = self
            .assembler
            .assemble_normalised(trace_id, spans, unused, &self.limits);
        self.counts.add_unused(graph.unused());
        out.push(graph);
    }

    /// Drops what is remembered longest, else the oldest open trace. Returns whether it could.
    fn make_room(&mut self, now: Monotonic) -> bool {
        while let Some((trace_id, generation, _)) = self.kept.pop_front() {
            if self.drop_kept(trace_id, generation) > 0 {
                return true;
            }
        }
        while let Some((trace_id, generation)) = self.open.pop_front() {
            if !self.is_open(trace_id, generation) {
                continue;
            }
            let Some(trace) = self.traces.get_mut(&trace_id) else {
                continue;
            };
            let spans = std::mem::take(&mut trace.spans).len();
            self.generation += 1;
            trace.phase = Phase::Shed;
            trace.generation = self.generation;
            self.held -= spans;
            self.counts.shed_traces += 1;
            self.counts.shed_spans += u64::try_from(spans).unwrap_or(u64::MAX);
            // Its remaining spans shall not come up as a trace of their own.
            self.shed
                .push_back((trace_id, self.generation, now + self.limits.remember));
            return true;
        }
        false
    }

    fn forget(&mut self, now: Monotonic) {
        while let Some((trace_id, generation, _)) = pop_expired(&mut self.kept, now) {
            self.drop_kept(trace_id, generation);
        }
        while let Some((trace_id, generation, _)) = pop_expired(&mut self.shed, now) {
            self.drop_kept(trace_id, generation);
        }
        while let Some((trace_id, generation)) = self.open.front().copied() {
            if self.is_open(trace_id, generation) {
                break;
            }
            self.open.pop_front();
        }
    }

    /// Forgets a trace if it was not re-opened since. Returns the spans this freed.
    fn drop_kept(&mut self, trace_id: TraceId, generation: u64) -> usize {
        let stale = self
            .traces
            .get(&trace_id)
            .is_none_or(|trace| trace.generation != generation);
        if stale {
            return 0;
        }
        let freed = self.traces.remove(&trace_id).map_or(0, |t| t.spans.len());
        self.held -= freed;
        freed
    }
}

fn pop_expired(queue: &mut VecDeque<Until>, now: Monotonic) -> Option<Until> {
    queue.front().filter(|(_, _, until)| *until <= now)?;
    queue.pop_front()
}
