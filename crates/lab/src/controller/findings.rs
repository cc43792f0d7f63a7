//! From a violated objective to a finding: who, what it lacks, and which traces prove it.

use firm_extractor::localise::{Ranked, localise};
use firm_extractor::observation::Observation;
use firm_extractor::resource::{Evidence, Share};
use firm_model::{Culprit, Finding, InstanceId, InstanceKey, Timestamp, TraceId, Verdict};

use super::choice::{Chosen, choose};
use super::{Controller, Tipped};
use crate::telemetry::Telemetry;

/// Traces that a finding names as evidence.
const EVIDENCE: usize = 5;
/// Fewest requests that are ranked.
const LEAST_REQUESTS: usize = 5;

impl Controller {
    /// The finding of the most violated objective, and the trace that made its trigger fire. `None` where no objective is violated or nobody stands out.
    pub(super) fn find(
        &mut self,
        wall: Timestamp,
        telemetry: &Telemetry,
    ) -> Option<(Finding, Option<Tipped>)> {
        let violated = self.watches.iter().filter(|watch| watch.is_violated());
        let watch = violated.max_by_key(|watch| watch.over())?;
        let requests: Vec<&Observation> = self
            .window
            .of(watch.request, self.judged_from)
            .filter(|request| request.start >= self.judged_from)
            .collect();
        if requests.len() < LEAST_REQUESTS {
            return None;
        }
        let normal = self.baseline.request(watch.request);
        let ranked = localise(requests.iter().copied(), normal, &self.classifier);
        let chosen = choose(&ranked, |one| self.evidence(one, &requests, telemetry));
        let culprits: Vec<Culprit> = chosen
            .iter()
            .map(|chosen| self.culprit(chosen, &requests))
            .collect();
        if culprits.is_empty() {
            return None;
        }
        let tipped = watch.tipped();
        let request_type = watch.request.name(&self.names);
        self.last_finding += 1;
        let finding = Finding {
            id: self.last_finding,
            at: wall,
            window_start: requests.first()?.start,
            window_end: requests.last()?.end,
            request_type,
            culprits,
            evidence: slowest(&requests),
        };
        Some((finding, tipped))
    }

    fn instance(&self, ranked: &Ranked) -> InstanceId {
        InstanceId::new(&*self.names.resolve(ranked.key.instance))
    }

    fn evidence(
        &self,
        ranked: &Ranked,
        requests: &[&Observation],
        telemetry: &Telemetry,
    ) -> Evidence {
        let instance = self.instance(ranked);
        let failed = requests.iter().filter(|request| request.error).count();
        Evidence {
            throttled: telemetry.throttled(&instance),
            waiting: telemetry.waiting(&instance),
            errors: Share {
                now: Some(failed as f64 / requests.len() as f64),
                normal: None,
            },
        }
    }

    fn culprit(&self, chosen: &Chosen<'_>, requests: &[&Observation]) -> Culprit {
        let ranked = chosen.ranked;
        let features = ranked.features();
        Culprit {
            service: self.names.resolve(ranked.key.service).to_string(),
            why: why(chosen, inferred(requests, ranked.key)),
            instance: self.instance(ranked),
            part: ranked.part,
            verdict: chosen.verdict,
            score: ranked.score,
            ri: features.and_then(|features| features.ri),
            ci: features.and_then(|features| features.ci),
        }
    }
}

/// Calls to an instance whose answer was not seen.
fn inferred(requests: &[&Observation], key: InstanceKey) -> u32 {
    let parts = requests.iter().flat_map(|request| &request.parts);
    let calls = parts
        .filter(|part| part.key == key)
        .map(|part| part.inferred);
    calls.fold(0, u32::saturating_add)
}

/// The figures that speak against an instance, in words.
fn why(chosen: &Chosen<'_>, inferred: u32) -> String {
    let Chosen {
        ranked,
        evidence,
        verdict,
    } = chosen;
    let mut parts = Vec::new();
    if let Some(ratio) = ranked.growth_ratio {
        let millis = ranked.score / 1e6;
        parts.push(format!(
            "{millis:.1} ms a request more than normal ({:.1} times)",
            1.0 + ratio
        ));
    }
    // Waiting includes throttling, so it says something only where throttling cannot be seen.
    let starved = [
        ("periods throttled", evidence.throttled),
        ("runnable time spent waiting", evidence.waiting),
    ];
    let measured = |(name, share): (&'static str, Share)| Some((name, share.now?, share.normal));
    if let Some((name, now, normal)) = starved.into_iter().find_map(measured) {
        let normal = normal.map_or(String::new(), |n| format!(", normally {:.0} %", n * 100.0));
        parts.push(format!("{:.0} % of its {name}{normal}", now * 100.0));
    }
    if inferred > 0 {
        parts.push(format!(
            "{inferred} calls to it whose answer its spans do not show yet"
        ));
    }
    if evidence.is_unmeasured() {
        parts.push("neither throttling nor waiting could be measured".to_owned());
    }
    if *verdict == Verdict::NotAResource {
        parts.push("most of its requests fail".to_owned());
    }
    parts.join("; ")
}

fn slowest(requests: &[&Observation]) -> Vec<TraceId> {
    let mut by_latency: Vec<&&Observation> = requests.iter().collect();
    by_latency.sort_by_key(|request| std::cmp::Reverse(request.root_nanos));
    by_latency
        .iter()
        .take(EVIDENCE)
        .map(|request| request.trace_id)
        .collect()
}
