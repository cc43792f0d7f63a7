//! The loop without its hands: graphs and measurements in, findings and actions out.
//!
//! Every graph becomes an observation and feeds the trigger of its objective. When a trigger
//! fires, the instances are ranked against what is normal, the first culprit's resource is named
//! from its telemetry, and the policy decides on it. Below that, the rule loop moves the limits
//! of instances under a grant. Nothing here reads a clock or touches a limit.

mod choice;
mod findings;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use firm_extractor::baseline::Baseline;
use firm_extractor::callees::Callees;
use firm_extractor::localise::Classifier;
use firm_extractor::observation::Observer;
use firm_extractor::window::Window;
use firm_mitigator::rule_loop::{Reading, RuleLoop, StepKind};
use firm_mitigator::{decode, state};
use firm_model::{
    Bounds, Culprit, ExecutionGraph, Finding, InstanceBounds, InstanceId, Interner, MilliCores,
    Monotonic, Objective, Policy, Resource, Timestamp, TraceId, ValidAction, Verdict, validate,
};

use crate::settings::Settings;
use crate::telemetry::Telemetry;
use watch::Watch;
pub(crate) use watch::trigger_of;

/// How far a request's end may lie after its arrival, by the clocks of both.
const MOST_AHEAD_NANOS: i64 = 500_000_000;

/// Pause after a finding that led to no action.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What is known of an instance from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// Limit it had before anything was changed; `None` where there is none.
    pub original: Option<MilliCores>,
    /// Threads that can use CPU at once, if known.
    pub threads: Option<u32>,
}

/// What the controller wants done.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The change.
    pub action: ValidAction,
    /// Finding that led to it.
    pub finding: Option<u64>,
    /// Who asked for it, in a word.
    pub by: &'static str,
    /// Whether it goes back toward the original.
    pub undo: bool,
}

/// The trace that made a trigger fire: where its time went on the way here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tipped {
    /// The trace.
    pub trace_id: TraceId,
    /// End of its root span.
    pub ended: Timestamp,
    /// When its graph arrived here.
    pub arrived: Timestamp,
}

/// One turn's results.
#[derive(Debug, Default)]
pub struct Turn {
    /// A finding made in this turn, and the trace that made the trigger fire.
    pub finding: Option<(Finding, Option<Tipped>)>,
    /// Changes to carry out, in order.
    pub decisions: Vec<Decision>,
}

/// The controller's state.
pub struct Controller {
    settings: Settings,
    names: Arc<Interner>,
    observer: Observer,
    /// Who answers which calls, for traces whose spans are not all there yet.
    callees: Callees,
    window: Window,
    baseline: Baseline,
    learned: bool,
    watches: Vec<Watch>,
    managed: BTreeMap<InstanceId, Managed>,
    classifier: Classifier,
    policy: Box<dyn Policy>,
    rule_loop: RuleLoop,
    /// Whether decisions are carried out.
    enforce: bool,
    last_finding: u64,
    /// Requests that ended after they arrived here, by their clocks.
    ahead: u64,
    /// Nothing is decided before this, so that the effect of the last change shows.
    quiet_until: Monotonic,
    /// Requests that began before this say nothing of the last change.
    judged_from: Timestamp,
    /// Requests a second through an instance when it was last decided on.
    previous_arrivals: BTreeMap<InstanceId, f64>,
    /// First culprit of the last finding and what it lacks: the same again is no news.
    last_head: Option<(InstanceId, Verdict)>,
}

impl Controller {
    /// A controller of these instances and objectives, that has not learned anything yet. Without
    /// `enforce` its decisions are recommendations, and the rule loop rests.
    #[must_use]
    pub fn new(
        settings: Settings,
        names: Arc<Interner>,
        objectives: &[Objective],
        managed: BTreeMap<InstanceId, Managed>,
        policy: Box<dyn Policy>,
        enforce: bool,
    ) -> Self {
        let watches = objectives
            .iter()
            .map(|objective| Watch::new(objective, &settings.extractor.trigger, &names))
            .collect();
        Self {
            observer: Observer::new(settings.extractor.rule),
            callees: Callees::default(),
            window: Window::new(settings.extractor.window, settings.extractor.capacity),
            baseline: Baseline::default(),
            learned: false,
            watches,
            managed,
            classifier: Classifier::Threshold(settings.extractor.threshold),
            policy,
            rule_loop: RuleLoop::new(settings.mitigator.rule_loop),
            enforce,
            last_finding: 0,
            ahead: 0,
            quiet_until: Monotonic::from_nanos(0),
            judged_from: Timestamp::EPOCH,
            previous_arrivals: BTreeMap::new(),
            last_head: None,
            settings,
            names,
        }
    }

    /// Requests left out because by their clocks they ended, by more than half a second, after
    /// they had arrived here.
    #[must_use]
    pub const fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Numbers the next finding `next`, so that numbers stay unique in an event log.
    pub const fn number_findings_from(&mut self, next: u64) {
        self.last_finding = next.saturating_sub(1);
    }

    /// Takes a graph that arrived at `arrived`. One that comes again with late spans replaces the
    /// one before in the window; the trigger counts its request once, and the baseline learns
    /// from it once it is complete.
    pub fn take(&mut self, graph: &ExecutionGraph, arrived: Timestamp) {
        self.callees.learn(graph);
        for root in graph.roots() {
            // A root whose parent is elsewhere is part of a request, not one.
            if graph.span(*root).parent_id.is_some() {
                continue;
            }
            let observed = self.observer.observe_with(graph, *root, &self.callees);
            let Some(observation) = observed else {
                continue;
            };
            // A clock that runs ahead must not make what others send look old.
            if observation.end > arrived.saturating_add_nanos(MOST_AHEAD_NANOS) {
                self.ahead += 1;
                continue;
            }
            let window = i64::try_from(self.settings.extractor.trigger.window.as_nanos());
            let oldest = arrived.saturating_add_nanos(-window.unwrap_or(i64::MAX));
            let is_judged = observation.start >= self.judged_from && observation.end >= oldest;
            let tipped = Tipped {
                trace_id: observation.trace_id,
                ended: observation.end,
                arrived,
            };
            let is_new = !self.window.holds(observation.trace_id, observation.root);
            let mut watches = self.watches.iter_mut();
            if let Some(watch) = watches
                .find(|w| w.request == observation.request)
                .filter(|_| is_new)
            {
                watch.push(&observation, is_judged, tipped);
            }
            if !self.learned && observation.parts.iter().all(|part| part.inferred == 0) {
                self.baseline.add(&observation);
            }
            self.window.push(observation);
        }
    }

    /// Forgets what was learned, as after a warm-up, and learns anew.
    pub fn begin_learning(&mut self) {
        self.baseline = Baseline::default();
        self.learned = false;
    }

    /// What was seen since [`Controller::begin_learning`] is normal; from now on objectives
    /// count.
    pub fn end_learning(&mut self) {
        self.learned = true;
        for watch in &mut self.watches {
            watch.clear();
        }
    }

    /// Objectives of request types that did not come while learning: they cannot be judged.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        let is_unseen = |watch: &&Watch| self.baseline.request(watch.request).is_none();
        let unseen = self.watches.iter().filter(is_unseen);
        unseen
            .map(|watch| watch.request.name(&self.names))
            .collect()
    }

    /// Whether everything given has been taken back.
    #[must_use]
    pub fn take_back_complete(&self) -> bool {
        self.rule_loop.take_back_complete()
    }

    /// Whether some objective is violated, as the spans tell.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        self.learned && self.watches.iter().any(Watch::is_violated)
    }

    /// The rule loop's turn: every 100 ms.
    pub fn tick(&mut self, now: Monotonic, telemetry: &Telemetry) -> Vec<Decision> {
        let readings: Vec<Reading> = self
            .rule_loop
            .granted()
            .filter_map(|instance| {
                let (rate, limit) = telemetry.latest(instance)?;
                Some(Reading {
                    instance: instance.clone(),
                    rate,
                    limit,
                })
            })
            .collect();
        let steps = self.rule_loop.tick(now, &readings);
        let mut decisions = Vec::with_capacity(steps.len());
        for step in steps {
            let (by, undo) = match step.kind {
                StepKind::Up => ("rule-loop", false),
                StepKind::UndoCut => ("undo-cut", false),
                StepKind::TakeBack => ("take-back", true),
            };
            let Some(bounds) = self.bounds(&step.action.instance) else {
                continue;
            };
            if let Ok(action) = validate(&step.action, &bounds) {
                decisions.push(Decision {
                    action,
                    finding: None,
                    by,
                    undo,
                });
            }
        }
        decisions
    }

    /// Looks at the objectives, and finds and decides where one is violated.
    pub fn look(&mut self, now: Monotonic, wall: Timestamp, telemetry: &Telemetry) -> Turn {
        let mut turn = Turn::default();
        if !self.learned || now < self.quiet_until {
            return turn;
        }
        if !self.is_violated() {
            self.last_head = None;
            return turn;
        }
        let Some((finding, tipped)) = self.find(wall, telemetry) else {
            return turn;
        };
        // One culprit at a time: whether a second one is still to blame shows when the first has
        // what it lacked.
        let lacks_cpu = |culprit: &&Culprit| culprit.verdict == Verdict::Resource(Resource::Cpu);
        if let Some(culprit) = finding.culprits.iter().find(lacks_cpu)
            && let Some(decision) = self.decide(&culprit.instance, finding.id, telemetry)
        {
            self.open_grant(&culprit.instance, now, telemetry);
            turn.decisions.push(decision);
        }
        let acts = self.enforce && !turn.decisions.is_empty();
        let pause = if acts {
            self.settings.mitigator.cool_down
        } else {
            LOOK_AGAIN
        };
        self.quiet_until = now + pause;
        let head = finding
            .culprits
            .first()
            .map(|first| (first.instance.clone(), first.verdict));
        if acts || head != self.last_head {
            self.last_head = head;
            turn.finding = Some((finding, tipped));
        } else {
            turn.decisions.clear();
        }
        turn
    }

    /// Tells that a decision has taken effect at `at`, so that it is judged by requests that
    /// began after.
    pub fn applied(&mut self, at: Timestamp) {
        self.judged_from = self.judged_from.max(at);
        for watch in &mut self.watches {
            watch.clear();
        }
    }

    /// Tells that a decision on an instance could not be carried out: nothing was given, so there
    /// is nothing to take back.
    pub fn not_applied(&mut self, instance: &InstanceId) {
        self.rule_loop.revoke(instance);
    }

    /// Tells that an instance's limit is somebody else's now.
    pub fn yielded(&mut self, instance: &InstanceId) {
        self.rule_loop.revoke(instance);
        self.managed.remove(instance);
    }

    fn decide(
        &mut self,
        instance: &InstanceId,
        finding: u64,
        telemetry: &Telemetry,
    ) -> Option<Decision> {
        let bounds = self.bounds(instance)?;
        let window = self.settings.extractor.trigger.window;
        let symbol = self.names.get(instance.as_str())?;
        let passes = |watch: &&Watch| {
            let known = self.baseline.request(watch.request);
            known.is_some_and(|known| known.parts().any(|(part, _)| part.key.instance == symbol))
        };
        let requests: Vec<state::RequestLoad> = self
            .watches
            .iter()
            .filter(passes)
            .map(|watch| watch.load(window))
            .collect();
        let arrivals: f64 = requests.iter().map(|load| load.arrivals).sum();
        let seen = state::Observation {
            is_culprit: true,
            requests: &requests,
            previous_arrivals: self.previous_arrivals.insert(instance.clone(), arrivals),
            cpu: telemetry.present(instance),
            limit: telemetry.limit(instance),
            bounds: bounds.cpu,
        };
        let raw = self.policy.decide(&state::observe(&seen));
        let action = validate(&decode(&raw, instance, bounds.cpu), &bounds).ok()?;
        // A decision for the limit that is there already changes nothing.
        (action.cpu() != telemetry.limit(instance)).then(|| Decision {
            action,
            finding: Some(finding),
            by: self.policy.name(),
            undo: false,
        })
    }

    fn open_grant(&mut self, instance: &InstanceId, now: Monotonic, telemetry: &Telemetry) {
        let Some(bounds) = self.bounds(instance).filter(|_| self.enforce) else {
            return;
        };
        self.rule_loop
            .grant(instance.clone(), bounds.cpu, bounds.cpu.lower(), now);
        if let Some(normal) = telemetry.throttled(instance).normal {
            self.rule_loop.tolerate(instance, normal);
        }
    }

    /// From the original limit up to what the settings allow. `None` for an instance without a
    /// limit: there is nothing to raise.
    fn bounds(&self, instance: &InstanceId) -> Option<InstanceBounds> {
        let managed = self.managed.get(instance)?;
        let lower = managed.original?;
        let upper = self.settings.mitigator.cpu_upper.max(lower);
        Some(InstanceBounds {
            instance: instance.clone(),
            cpu: Bounds::new(lower, upper).ok()?,
            threads: managed.threads,
            protected: false,
        })
    }
}

/// Share of a duration that is one second, for rates.
fn per_second(count: usize, window: Duration) -> f64 {
    let seconds = window.as_secs_f64();
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
