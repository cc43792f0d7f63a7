//! The plain calculation that ours is held against: growth of mean own time and gap per service.
//!
//! Own time of a span is its duration less those of its children, at least 0. A client span's
//! own time is the gap of its callee. Both are summed per request, meant over the requests that
//! have any, and the larger growth of the two ranks the service; its instances follow it. No
//! critical path, no correction.

use std::collections::BTreeMap;

use firm_extractor::observation::callee;
use firm_model::{ExecutionGraph, InstanceKey, Interner, Symbol};

/// Sums of own time and numbers of requests, by service and whether it is the gap.
type Sums = BTreeMap<(Symbol, bool), (i64, u32)>;

/// Ranks the instances in `now` by the growth of their service against `normal`.
pub fn rank<'a>(
    now: impl Iterator<Item = &'a ExecutionGraph>,
    normal: impl Iterator<Item = &'a ExecutionGraph>,
    names: &Interner,
) -> Vec<InstanceKey> {
    let mut instances = Vec::new();
    let now = means(now, &mut instances);
    let normal = means(normal, &mut Vec::new());
    instances.sort_unstable();
    instances.dedup();
    let growth = |service: Symbol| {
        [false, true]
            .iter()
            .filter_map(|gap| {
                let key = (service, *gap);
                Some(now.get(&key)? - normal.get(&key).copied().unwrap_or(0.0))
            })
            .fold(f64::NEG_INFINITY, f64::max)
    };
    let scores = instances
        .into_iter()
        .map(|key| (key, growth(key.service)))
        .collect();
    super::by_score(scores, names)
}

fn means<'a>(
    graphs: impl Iterator<Item = &'a ExecutionGraph>,
    instances: &mut Vec<InstanceKey>,
) -> BTreeMap<(Symbol, bool), f64> {
    let mut sums = Sums::new();
    for graph in graphs {
        let mut request: BTreeMap<(Symbol, bool), i64> = BTreeMap::new();
        for node in graph.nodes() {
            let span = graph.span(node);
            instances.push(span.instance_key());
            let children = graph.children(node).iter();
            let of_children = children.fold(0_i64, |sum, child| {
                sum.saturating_add(graph.span(*child).duration_nanos())
            });
            let own = span.duration_nanos().saturating_sub(of_children).max(0);
            let key = match callee(graph, node) {
                Some(callee) => (callee.service, true),
                None => (span.service, false),
            };
            let nanos = request.entry(key).or_default();
            *nanos = nanos.saturating_add(own);
        }
        for (key, nanos) in request {
            let sum = sums.entry(key).or_default();
            sum.0 = sum.0.saturating_add(nanos);
            sum.1 += 1;
        }
    }
    sums.into_iter()
        .map(|(key, (nanos, requests))| (key, nanos as f64 / f64::from(requests)))
        .collect()
}
