//! All spans of a file at once: grouped by trace with one hash look-up per run of spans of the
//! same trace, then assembled one trace after the other.

use std::collections::HashMap;

use firm_model::{ExecutionGraph, Span, TraceId};

use super::limits::AssemblyLimits;
use super::trace::Assembler;

/// Assembles all traces among `spans`, in the order of their first span.
#[must_use]
pub fn assemble_batch(spans: Vec<Span>, limits: &AssemblyLimits) -> Vec<ExecutionGraph> {
    let mut graphs = Vec::new();
    assemble_each(&spans, limits, |graph| graphs.push(graph));
    graphs
}

/// Hands the graph of each trace among `spans` to `take`, in the order of their first span.
pub fn assemble_each(
    spans: &[Span],
    limits: &AssemblyLimits,
    mut take: impl FnMut(ExecutionGraph),
) {
    let groups = Groups::of(spans);
    let mut assembler = Assembler::default();
    for (trace_id, places) in groups.iter() {
        let own = places.iter().map(|place| spans[*place as usize]).collect();
        take(assembler.assemble(trace_id, own, limits));
    }
    // Past 2^32 spans, which is 300 GB of them, the rest is assembled as a batch of its own.
    if let Some(rest) = spans
        .get(u32::MAX as usize..)
        .filter(|rest| !rest.is_empty())
    {
        assemble_each(rest, limits, take);
    }
}

/// Places of spans, grouped by trace.
struct Groups {
    traces: Vec<TraceId>,
    /// `places[ends[i - 1]..ends[i]]` are the places of trace `i`.
    ends: Vec<u32>,
    places: Vec<u32>,
}

impl Groups {
    fn of(spans: &[Span]) -> Self {
        let mut numbers: HashMap<TraceId, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut traces = Vec::new();
        let mut starts: Vec<u32> = Vec::new();
        let mut group_of: Vec<u32> = Vec::with_capacity(spans.len());
        let mut latest: Option<(TraceId, u32)> = None;
        for span in spans.iter().take(u32::MAX as usize) {
            let group = match latest {
                Some((trace, group)) if trace == span.trace_id => group,
                _ => *numbers.entry(span.trace_id).or_insert_with(|| {
                    traces.push(span.trace_id);
                    starts.push(0);
                    u32::try_from(traces.len() - 1).unwrap_or(u32::MAX)
                }),
            };
            latest = Some((span.trace_id, group));
            starts[group as usize] += 1;
            group_of.push(group);
        }
        let mut before = 0;
        for start in &mut starts {
            before += std::mem::replace(start, before);
        }
        // Each start moves on to its group's end while the places are filled in.
        let mut places = vec![0_u32; group_of.len()];
        for (place, group) in (0_u32..).zip(&group_of) {
            let next = &mut starts[*group as usize];
            places[*next as usize] = place;
            *next += 1;
        }
        Self {
            traces,
            ends: starts,
            places,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (TraceId, &[u32])> {
        self.traces.iter().enumerate().map(|(group, trace)| {
            let from = group.checked_sub(1).map_or(0, |before| self.ends[before]);
            let to = self.ends[group];
            (*trace, &self.places[from as usize..to as usize])
        })
    }
}
