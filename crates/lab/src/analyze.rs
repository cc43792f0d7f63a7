//! `firm analyze`: what exported traces say without anything deployed.
//!
//! One pass over the spans assembles each trace, finds the critical path below each of its
//! roots, and adds up what spans own on it; then the instances are ranked per request type.
//! Names are resolved only for the report.

mod per_trace;
mod report;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::thread;

use firm_extractor::baseline::Baseline;
use firm_extractor::features::features;
use firm_extractor::localise::{Classifier, Ranked, localise};
use firm_extractor::observation::{Observation, Observer};
use firm_extractor::quantile::nearest_rank;
use firm_model::{
    ExecutionGraph, Features, InstanceKey, Interner, Part, PathRule, RequestType, Span, Symbol,
    UnusedReason,
};
use firm_tracer::assemble::{AssemblyLimits, assemble_each};

pub use per_trace::{SectionLine, TraceLine, per_trace};
pub use report::{
    AnalyzeReport, Change, InstanceReport, Latencies, PartReport, PathShare, RequestReport,
    TraceCounts, UnusedTrace,
};

/// Analyses spans, in any order, of any number of traces, in the calling thread.
///
/// `baseline` are spans of a time when all was well; with them instances are ranked by growth,
/// else by RI and CI.
#[must_use]
pub fn analyze(
    spans: &[Span],
    baseline: Option<&[Span]>,
    rule: PathRule,
    names: &Interner,
) -> AnalyzeReport {
    analyze_in(NonZeroUsize::MIN, spans, baseline, rule, names)
}

/// Most threads that [`analyze_in`] starts.
pub const MAX_THREADS: usize = 1024;

/// [`analyze`] in as many threads, at most [`MAX_THREADS`]; the report is the same to the last
/// digit. The work of a thread that cannot be started is done in the calling one.
#[must_use]
pub fn analyze_in(
    threads: NonZeroUsize,
    spans: &[Span],
    baseline: Option<&[Span]>,
    rule: PathRule,
    names: &Interner,
) -> AnalyzeReport {
    let now = Pass::over(spans, rule, threads);
    let before = baseline.map(|spans| Pass::over(spans, rule, threads));
    now.report(before.as_ref(), rule, names)
}

/// What one pass over spans gathers.
#[derive(Default)]
struct Pass {
    spans: u64,
    traces: u64,
    used: u64,
    unused_traces: BTreeMap<UnusedTrace, u64>,
    unused_spans: BTreeMap<UnusedReason, u64>,
    foreign_roots: u64,
    /// By service and operation: nanoseconds owned and spans on paths.
    shares: HashMap<(Symbol, Symbol), (i64, u64), foldhash::fast::RandomState>,
    requests: HashMap<RequestType, Vec<Observation>, foldhash::fast::RandomState>,
}

impl Pass {
    fn over(spans: &[Span], rule: PathRule, threads: NonZeroUsize) -> Self {
        let threads = threads.get().min(MAX_THREADS);
        let mut pass = if threads == 1 {
            Self::over_shard(spans, rule)
        } else {
            Self::over_shards(&shards(spans, threads), rule, thread::Builder::new)
        };
        // In a fixed order, because sums of floating-point numbers depend on it.
        for observations in pass.requests.values_mut() {
            observations.sort_unstable_by_key(|o| (o.start, o.trace_id, o.root));
        }
        pass
    }

    fn over_shards(
        shards: &[Vec<Span>],
        rule: PathRule,
        builder: impl Fn() -> thread::Builder,
    ) -> Self {
        thread::scope(|scope| {
            let passes: Vec<_> = shards
                .iter()
                .map(|shard| {
                    let work = || Self::over_shard(shard, rule);
                    (shard, builder().spawn_scoped(scope, work).ok())
                })
                .collect();
            let ended = passes.into_iter().map(|(shard, pass)| match pass {
                Some(pass) => match pass.join() {
                    Ok(pass) => pass,
                    // A defect: it goes on here, nothing is swallowed.
                    Err(panic) => std::panic::resume_unwind(panic),
                },
                None => Self::over_shard(shard, rule),
            });
            ended.fold(Self::default(), Self::merged)
        })
    }

    fn over_shard(spans: &[Span], rule: PathRule) -> Self {
        let mut pass = Self {
            spans: spans.len() as u64,
            ..Self::default()
        };
        let mut observer = Observer::new(rule);
        let limits = AssemblyLimits::default();
        assemble_each(spans, &limits, |graph| pass.add(&graph, &mut observer));
        pass
    }

    fn merged(mut self, other: Self) -> Self {
        self.spans += other.spans;
        self.traces += other.traces;
        self.used += other.used;
        self.foreign_roots += other.foreign_roots;
        for (reason, count) in other.unused_traces {
            *self.unused_traces.entry(reason).or_default() += count;
        }
        for (reason, count) in other.unused_spans {
            *self.unused_spans.entry(reason).or_default() += count;
        }
        for (key, (nanos, count)) in other.shares {
            let share = self.shares.entry(key).or_default();
            *share = (share.0.saturating_add(nanos), share.1 + count);
        }
        for (request, observations) in other.requests {
            self.requests
                .entry(request)
                .or_default()
                .extend(observations);
        }
        self
    }

    fn add(&mut self, graph: &ExecutionGraph, observer: &mut Observer) {
        self.traces += 1;
        for unused in graph.unused() {
            *self.unused_spans.entry(unused.reason).or_default() += 1;
        }
        let mut used = false;
        for root in graph.roots() {
            self.foreign_roots += u64::from(graph.span(*root).parent_id.is_some());
            let Some((observation, (path, own))) = observer.observe_with_path(graph, *root) else {
                continue;
            };
            if observation.root_nanos == 0 {
                continue;
            }
            used = true;
            for node in &path.nodes {
                let span = graph.span(*node);
                let share = self.shares.entry((span.service, span.operation));
                let (nanos, count) = share.or_default();
                *nanos = nanos.saturating_add(own[node.index()]);
                *count += 1;
            }
            let of_type = self.requests.entry(observation.request).or_default();
            of_type.push(observation);
        }
        if used {
            self.used += 1;
        } else {
            let reason = if graph.roots().is_empty() {
                UnusedTrace::NoSpanLeft
            } else {
                UnusedTrace::NoDuration
            };
            *self.unused_traces.entry(reason).or_default() += 1;
        }
    }

    fn report(&self, before: Option<&Pass>, rule: PathRule, names: &Interner) -> AnalyzeReport {
        let learned = before.map(|pass| Baseline::learn(pass.requests.values().flatten()));
        let mut requests: Vec<RequestReport> = self
            .requests
            .iter()
            .map(|(request, observations)| {
                let normal = learned.as_ref().and_then(|b| b.request(*request));
                let ranked = localise(observations, normal, &Classifier::default());
                let earlier = before.and_then(|pass| pass.requests.get(request));
                let earlier = earlier.map(|old| (old.as_slice(), features(old)));
                request_report(*request, observations, &ranked, earlier.as_ref(), names)
            })
            .collect();
        requests.sort_by(|a, b| {
            let name = |r: &RequestReport| (r.service.clone(), r.operation.clone());
            b.requests
                .cmp(&a.requests)
                .then_with(|| name(a).cmp(&name(b)))
        });
        AnalyzeReport {
            rule,
            spans: self.spans,
            traces: TraceCounts {
                read: self.traces,
                used: self.used,
                unused: self.unused_traces.clone(),
                foreign_roots: self.foreign_roots,
            },
            unused_spans: self.unused_spans.clone(),
            baseline_traces: before.map(|pass| pass.used),
            path_share: self.path_share(names),
            requests,
        }
    }

    fn path_share(&self, names: &Interner) -> Vec<PathShare> {
        let total: i128 = self.shares.values().map(|(n, _)| i128::from(*n)).sum();
        let mut shares: Vec<PathShare> = self
            .shares
            .iter()
            .map(|((service, operation), (nanos, spans))| PathShare {
                service: names.resolve(*service).to_string(),
                operation: names.resolve(*operation).to_string(),
                path_ns: *nanos,
                share: if total > 0 {
                    *nanos as f64 / total as f64
                } else {
                    0.0
                },
                spans: *spans,
            })
            .collect();
        shares.sort_by(|a, b| {
            let name = |s: &PathShare| (s.service.clone(), s.operation.clone());
            b.path_ns
                .cmp(&a.path_ns)
                .then_with(|| name(a).cmp(&name(b)))
        });
        shares
    }
}

/// Spans divided by trace.
fn shards(spans: &[Span], number: usize) -> Vec<Vec<Span>> {
    let mut shards = vec![Vec::new(); number];
    for span in spans {
        let id = u128::from_ne_bytes(*span.trace_id.as_bytes());
        // Some senders leave one half of the id 0 or count up in one byte, so all are mixed.
        let mixed = (id ^ (id >> 64)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let shard = usize::try_from(mixed % number as u128).unwrap_or(0);
        shards[shard].push(*span);
    }
    shards
}

fn latencies(observations: &[Observation]) -> Latencies {
    let mut nanos: Vec<i64> = observations.iter().map(|o| o.root_nanos).collect();
    let sum: i128 = nanos.iter().map(|n| i128::from(*n)).sum();
    Latencies {
        mean_ns: sum as f64 / nanos.len().max(1) as f64,
        p50_ns: nearest_rank(&mut nanos, 0.5).unwrap_or_default(),
        p99_ns: nearest_rank(&mut nanos, 0.99).unwrap_or_default(),
    }
}

fn request_report(
    request: RequestType,
    observations: &[Observation],
    ranked: &[Ranked],
    earlier: Option<&(&[Observation], Vec<Features>)>,
    names: &Interner,
) -> RequestReport {
    let path_ns: i128 = observations.iter().map(|o| i128::from(o.root_nanos)).sum();
    let old = |key: InstanceKey, part: Part| {
        let (_, features) = earlier?;
        features.iter().find(|f| f.key == key && f.part == part)
    };
    let mut instances: Vec<InstanceReport> = ranked
        .iter()
        .map(|r| InstanceReport {
            service: names.resolve(r.key.service).to_string(),
            instance: names.resolve(r.key.instance).to_string(),
            is_culprit: r.is_culprit,
            part: r.part,
            score: r.score,
            server_growth_ns: r.server_growth_ns,
            gap_growth_ns: r.gap_growth_ns,
            caller_growth_ns: r.caller_growth_ns,
            server: part_report(r.server, old(r.key, Part::Server), path_ns),
            gap: part_report(r.gap, old(r.key, Part::Gap), path_ns),
        })
        .collect();
    // Equal scores by name, so that the order in which names were met does not show.
    instances.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| (&a.service, &a.instance).cmp(&(&b.service, &b.instance)))
    });
    RequestReport {
        service: names.resolve(request.service).to_string(),
        operation: names.resolve(request.operation).to_string(),
        requests: observations.len() as u64,
        errors: observations.iter().filter(|o| o.error).count() as u64,
        latency: latencies(observations),
        baseline_latency: earlier.map(|(old, _)| latencies(old)),
        instances,
    }
}

fn part_report(now: Option<Features>, old: Option<&Features>, path_ns: i128) -> Option<PartReport> {
    let now = now?;
    let sum = now.mean_ns * now.samples as f64;
    Some(PartReport {
        samples: now.samples as u64,
        path_share: if path_ns > 0 {
            sum / path_ns as f64
        } else {
            0.0
        },
        ri: now.ri,
        ci: now.ci,
        cov_share: now.cov_share,
        mean_ns: now.mean_ns,
        p50_ns: now.p50_ns,
        p99_ns: now.p99_ns,
        baseline: old.map(|old| Change {
            mean_ns: old.mean_ns,
            p50_ns: old.p50_ns,
            p99_ns: old.p99_ns,
            mean_change_ns: now.mean_ns - old.mean_ns,
        }),
    })
}

#[cfg(test)]
mod tests;
