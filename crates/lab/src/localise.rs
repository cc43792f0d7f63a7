//! How well culprits are found on labelled faults: `firm eval localise`.
//!
//! The data is in the form of Nezha's (FSE'23 artifact): a folder with `labels.json` and CSV
//! traces. For each fault the instances are ranked from the traces of its fault phase against
//! what was normal, and the place of the true culprit counts.
//!
//! - *Normal* are the fault's own `before` files; where it has none, all `before` files of all
//!   faults and the fault-free files together.
//! - A fault whose only files reach over the injection (`mixed`) is scored on the traces in them
//!   that began at or after the injection.
//! - Beside ours stands a plain calculation on the same traces ([`plain`]).

pub mod nezha;
pub mod plain;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use firm_extractor::baseline::Baseline;
use firm_extractor::localise::{Classifier, localise};
use firm_extractor::observation::{Observation, Observer};
use firm_model::text::shown;
use firm_model::{ExecutionGraph, InstanceKey, Interner, PathRule, RequestType};
use serde::Serialize;

use nezha::{EvaluationError, Fault, Phase};

/// Deepest place that Avg@k counts.
const DEEPEST: usize = 5;

/// Place of the true culprit, from 1, in each ranking; `None` where it is not ranked at all.
#[derive(Debug, Clone, Serialize)]
pub struct FaultResult {
    /// The fault's id in `labels.json`.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// The instance it hit.
    pub culprit: String,
    /// Requests it was scored on.
    pub requests: usize,
    /// Whether these were cut by time out of files that reach over the injection.
    pub cut_from_mixed: bool,
    /// Ours.
    pub place: Option<usize>,
    /// Of the plain calculation.
    pub plain_place: Option<usize>,
    /// The instance ranked first by ours.
    pub first: Option<String>,
}

/// Accuracy over a set of faults. AC@k is the share of faults whose culprit is among the first
/// k; Avg@5 is the mean of AC@1 to AC@5.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Culprits ranked first.
    pub top1: usize,
    /// Culprits among the first three.
    pub top3: usize,
    /// Avg@5, 0 to 1.
    pub avg5: f64,
}

/// Accuracy of both rankings on one kind of fault, or on all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Row {
    /// Faults.
    pub faults: usize,
    /// Ours.
    pub firm: Accuracy,
    /// The plain calculation.
    pub plain: Accuracy,
}

/// What `firm eval localise` prints: the table by `Display`, the figures as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct LocaliseReport {
    /// Over all faults.
    pub all: Row,
    /// By kind of fault.
    pub by_kind: BTreeMap<String, Row>,
    /// Faults scored on traces cut by time out of files that reach over the injection.
    pub cut_from_mixed: usize,
    /// Each fault, in the order of `labels.json`.
    pub faults: Vec<FaultResult>,
}

/// Evaluates localisation on the labelled faults under `dir`.
///
/// # Errors
/// `labels.json` or a file that it names cannot be read, or a fault has no traces to score.
pub fn evaluate_nezha(dir: &Path) -> Result<LocaliseReport, EvaluationError> {
    let names = Interner::new();
    let labels = nezha::read_labels(dir)?;
    let mut traces = BTreeMap::new();
    for file in labels.files() {
        if !traces.contains_key(file) {
            traces.insert(file, read(dir, file, &names)?);
        }
    }
    let of = |files: &mut dyn Iterator<Item = &str>| -> Vec<&Case> {
        files.filter_map(|f| traces.get(f)).flatten().collect()
    };
    let pooled = of(&mut labels.normal_files());
    let mut faults = Vec::new();
    for fault in &labels.faults {
        let own = of(&mut fault.files_of(Phase::Before));
        let normal = if own.is_empty() { &pooled } else { &own };
        let mut now = of(&mut fault.files_of(Phase::Fault));
        let cut_from_mixed = now.is_empty();
        if cut_from_mixed {
            now = of(&mut fault.files_of(Phase::Mixed));
            now.retain(|case| case.observation.start >= fault.injected_at());
        }
        if now.is_empty() || normal.is_empty() {
            return Err(EvaluationError::NothingToScore {
                fault: fault.id.clone(),
            });
        }
        faults.push(score(fault, &now, normal, cut_from_mixed, &names));
    }
    Ok(LocaliseReport::of(faults))
}

/// One request of the data.
struct Case {
    graph: ExecutionGraph,
    observation: Observation,
}

fn read(dir: &Path, file: &str, names: &Interner) -> Result<Vec<Case>, EvaluationError> {
    let graphs = nezha::read_traces(dir, file, names)?;
    let mut observer = Observer::new(PathRule::Firm);
    let case = |graph: ExecutionGraph| {
        let root = *graph.roots().first()?;
        let observation = observer.observe(&graph, root)?;
        Some(Case { graph, observation })
    };
    Ok(graphs.into_iter().filter_map(case).collect())
}

fn score(
    fault: &Fault,
    now: &[&Case],
    normal: &[&Case],
    cut_from_mixed: bool,
    names: &Interner,
) -> FaultResult {
    let name = |key: &InstanceKey| names.resolve(key.instance);
    let ranked = rank(now, normal, names);
    let plain = plain::rank(
        now.iter().map(|case| &case.graph),
        normal.iter().map(|case| &case.graph),
        names,
    );
    let place = |ranked: &[InstanceKey]| {
        let found = ranked
            .iter()
            .position(|key| *name(key) == *fault.culprit_pod);
        found.map(|place| place + 1)
    };
    FaultResult {
        id: fault.id.clone(),
        kind: fault.kind.clone(),
        culprit: fault.culprit_pod.clone(),
        requests: now.len(),
        cut_from_mixed,
        place: place(&ranked),
        plain_place: place(&plain),
        first: ranked.first().map(|key| name(key).to_string()),
    }
}

/// Our ranking. With several request types the scores are weighted by their requests.
fn rank(now: &[&Case], normal: &[&Case], names: &Interner) -> Vec<InstanceKey> {
    let baseline = Baseline::learn(normal.iter().map(|case| &case.observation));
    let mut by_request: BTreeMap<RequestType, Vec<&Observation>> = BTreeMap::new();
    for case in now {
        let observations = by_request.entry(case.observation.request).or_default();
        observations.push(&case.observation);
    }
    let mut scores: BTreeMap<InstanceKey, f64> = BTreeMap::new();
    for (request, observations) in &by_request {
        let Some(normal) = baseline.request(*request) else {
            continue;
        };
        let all = observations.iter().copied();
        for ranked in localise(all, Some(normal), &Classifier::default()) {
            *scores.entry(ranked.key).or_default() += ranked.score * observations.len() as f64;
        }
    }
    by_score(scores, names)
}

/// Highest first; equal ones by name, so that the order of reading does not matter.
fn by_score(scores: BTreeMap<InstanceKey, f64>, names: &Interner) -> Vec<InstanceKey> {
    let mut ranked: Vec<(InstanceKey, f64)> = scores.into_iter().collect();
    ranked.sort_by(|(a, x), (b, y)| {
        let name = |key: &InstanceKey| names.resolve(key.instance);
        y.total_cmp(x).then_with(|| name(a).cmp(&name(b)))
    });
    ranked.into_iter().map(|(key, _)| key).collect()
}

impl LocaliseReport {
    fn of(faults: Vec<FaultResult>) -> Self {
        let mut by_kind: BTreeMap<String, Vec<&FaultResult>> = BTreeMap::new();
        for fault in &faults {
            by_kind.entry(fault.kind.clone()).or_default().push(fault);
        }
        Self {
            all: Row::of(&faults.iter().collect::<Vec<_>>()),
            by_kind: by_kind
                .into_iter()
                .map(|(kind, faults)| (kind, Row::of(&faults)))
                .collect(),
            cut_from_mixed: faults.iter().filter(|f| f.cut_from_mixed).count(),
            faults,
        }
    }
}

impl Row {
    fn of(faults: &[&FaultResult]) -> Self {
        Self {
            faults: faults.len(),
            firm: Accuracy::of(faults.iter().map(|f| f.place)),
            plain: Accuracy::of(faults.iter().map(|f| f.plain_place)),
        }
    }
}

impl Accuracy {
    fn of(places: impl ExactSizeIterator<Item = Option<usize>> + Clone) -> Self {
        let within = |k: usize| {
            let found = places.clone().flatten();
            found.filter(|place| *place <= k).count()
        };
        let hits: usize = (1..=DEEPEST).map(within).sum();
        let chances = places.len() * DEEPEST;
        Self {
            top1: within(1),
            top3: within(3),
            avg5: hits as f64 / chances.max(1) as f64,
        }
    }
}

impl fmt::Display for LocaliseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>6}   {:>7} {:>7} {:>6}   {:>7} {:>7} {:>6}",
            "", "faults", "top-1", "top-3", "Avg@5", "top-1", "top-3", "Avg@5"
        )?;
        writeln!(
            f,
            "{:<16} {:>6}   {:<22}   plain calculation",
            "", "", "firm"
        )?;
        let rows = self.by_kind.iter().map(|(kind, row)| (shown(kind), row));
        for (kind, row) in rows.chain([("all".into(), &self.all)]) {
            write!(f, "{kind:<16} {:>6}", row.faults)?;
            for accuracy in [row.firm, row.plain] {
                let of = |hits: usize| format!("{hits}/{}", row.faults);
                write!(
                    f,
                    "   {:>7} {:>7} {:>6.3}",
                    of(accuracy.top1),
                    of(accuracy.top3),
                    accuracy.avg5
                )?;
            }
            writeln!(f)?;
        }
        for fault in self.faults.iter().filter(|f| f.place != Some(1)) {
            let place = fault.place.map_or("none".to_owned(), |p| p.to_string());
            let first = fault.first.as_deref().unwrap_or("nobody");
            writeln!(
                f,
                "not first: {} at place {place}, first is {first}",
                fault.id
            )?;
        }
        write!(
            f,
            "{} faults have no file of their own after the injection: scored on the traces of \
             their mixed files that began after it",
            self.cut_from_mixed
        )
    }
}

#[cfg(test)]
mod tests;
