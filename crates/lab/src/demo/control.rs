//! The controller's hands: a thread that reads counters, hands graphs to the controller, carries
//! its decisions out, and puts everything back at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use firm_host::restore::Outcome as FileOutcome;
use firm_host::{ActuatorError, CpuActuator, InstanceGroup, LimitError, Restored, sched};
use firm_model::text::chain;
use firm_model::{
    Actuator as _, Anomaly, Applied, Change, Clock, Culprit, Event, ExecutionGraph, Finding,
    GraphStore as _, InstanceId, Latency, MilliCores, Monotonic, Resource, Timestamp, Verdict,
};
use firm_store::{EventLog, MemoryStore};

use super::event::DemoEvent;
use super::report::{Budget, LimitChange};
use crate::controller::{Controller, Decision, Tipped};
use crate::telemetry::{Counters, Telemetry};

/// How often the objectives are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often counters are read and the rule loop turns.
const TICK: Duration = Duration::from_millis(100);
/// How often what was logged is made to outlive the machine.
const SYNC: Duration = Duration::from_secs(1);
/// Where processes are seen.
const PROC: &str = "/proc";

/// One instance as the loop sees it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) instance: InstanceId,
    pub(super) pid: u32,
    pub(super) group: Option<InstanceGroup>,
}

/// What the loop is told.
#[derive(Debug)]
pub(super) enum Command {
    BeginLearning,
    EndLearning,
    Anomaly(Anomaly),
    Stop,
}

/// Messages to the loop: graphs with the time of their arrival, and commands.
#[derive(Debug)]
pub(super) enum Message {
    Graph(Box<ExecutionGraph>, Timestamp),
    Command(Command),
}

/// What the loop remembers for the report.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// First culprit of each finding, and when it was named.
    pub(super) named: Vec<(Culprit, Timestamp)>,
    /// Changes, and when each was in effect.
    pub(super) actions: Vec<(LimitChange, Timestamp)>,
    /// All instances whose limits were changed.
    pub(super) changed: Vec<InstanceId>,
    pub(super) budget: Option<Budget>,
    pub(super) taken_back_at: Option<Timestamp>,
    /// Graphs with spans of both client libraries.
    pub(super) mixed: u64,
    /// Requests left out because their clocks run ahead.
    pub(super) ahead: u64,
    /// Limit files that another writer has taken over.
    pub(super) left: Vec<PathBuf>,
}

/// The loop's thread.
pub(super) struct Control {
    pub(super) controller: Controller,
    pub(super) sources: Vec<Source>,
    /// `None` to recommend only.
    pub(super) actuator: Option<CpuActuator>,
    pub(super) messages: Receiver<Message>,
    pub(super) events: SyncSender<DemoEvent>,
    pub(super) log: EventLog,
    pub(super) store: MemoryStore,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) grace: Duration,
    /// Services whose spans come through the Jaeger client.
    pub(super) jaeger: Vec<firm_model::Symbol>,
    pub(super) telemetry: Telemetry,
    pub(super) outcome: Outcome,
    /// The note told last.
    pub(super) last_note: String,
    /// Whether events were logged since the log was last synced.
    pub(super) unsynced: bool,
}

impl Control {
    /// Runs until told to stop, or until nobody can tell any more; then puts everything back.
    pub(super) fn run(mut self) -> Outcome {
        let mut next_tick = self.clock.monotonic();
        let mut next_sync = next_tick + SYNC;
        loop {
            if self.drain() {
                break;
            }
            let now = self.clock.monotonic();
            if now >= next_tick {
                self.tick(now);
                next_tick = later(next_tick, now);
            }
            if now >= next_sync {
                self.sync();
                next_sync = now + SYNC;
            }
            self.look();
        }
        self.put_back();
        self.outcome
    }

    /// Takes messages until the next look is due. Whether to stop.
    fn drain(&mut self) -> bool {
        let end = self.clock.monotonic() + LOOK;
        loop {
            match self.messages.recv_timeout(end - self.clock.monotonic()) {
                Ok(Message::Graph(graph, arrived)) => self.take(&graph, arrived),
                Ok(Message::Command(Command::Stop)) | Err(RecvTimeoutError::Disconnected) => {
                    return true;
                }
                Ok(Message::Command(Command::BeginLearning)) => {
                    self.controller.begin_learning();
                    self.telemetry.begin_normal();
                }
                Ok(Message::Command(Command::EndLearning)) => {
                    self.telemetry.end_normal();
                    self.controller.end_learning();
                    for request in self.controller.unseen() {
                        let text = format!(
                            "no request of {request} came while learning: its objective is not judged"
                        );
                        self.tell(DemoEvent::Note { text });
                    }
                }
                Ok(Message::Command(Command::Anomaly(anomaly))) => {
                    self.keep(Event::Anomaly(anomaly));
                }
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    fn take(&mut self, graph: &ExecutionGraph, arrived: Timestamp) {
        let spans = || graph.spans().iter();
        let is_jaeger = |span: &firm_model::Span| self.jaeger.contains(&span.service);
        if spans().any(is_jaeger) && !spans().all(is_jaeger) {
            self.outcome.mixed += 1;
        }
        self.controller.take(graph, arrived);
        let ahead = self.controller.ahead();
        if ahead > 0 && self.outcome.ahead == 0 {
            let text = "a request ended after it arrived, by its clock: left out, as all such; \
                        the clock of a service runs ahead";
            self.note(text.to_owned());
        }
        self.outcome.ahead = ahead;
        if let Err(error) = self.store.put_graph(graph) {
            tracing::warn!(%error, "graph not kept");
        }
    }

    fn tick(&mut self, now: Monotonic) {
        for source in &self.sources {
            let counters = counters(source, self.actuator.as_ref(), now);
            self.telemetry.add(&source.instance, now, counters);
        }
        let was_complete = self.controller.take_back_complete();
        let decisions = self.controller.tick(now, &self.telemetry);
        // Looked at before a step can fail: a limit that was lost to another was not taken back.
        if !was_complete && self.controller.take_back_complete() {
            self.outcome.taken_back_at = Some(self.clock.wall());
            self.tell(DemoEvent::TakenBack);
        }
        for decision in decisions {
            self.carry_out(&decision);
        }
    }

    fn look(&mut self) {
        let begin = self.clock.monotonic();
        let seen = self.clock.wall();
        let turn = self.controller.look(begin, seen, &self.telemetry);
        let decided = self.clock.monotonic();
        let Some((finding, tipped)) = turn.finding else {
            return;
        };
        let named_at = self.clock.wall();
        if let Some(culprit) = finding.culprits.first() {
            self.outcome.named.push((culprit.clone(), named_at));
        }
        // First why, then what; the log takes some microseconds.
        self.tell(DemoEvent::Finding(finding.clone()));
        self.keep(Event::Finding(finding.clone()));
        for decision in &turn.decisions {
            let written = self.carry_out(decision);
            if let (Some(tipped), Some(write), None) = (tipped, written, self.outcome.budget) {
                let times = Times {
                    seen,
                    decision: decided - begin,
                    write,
                };
                self.outcome.budget = Some(budget(tipped, self.grace, &times));
            }
        }
        if self.actuator.is_none() && turn.decisions.is_empty() {
            self.recommend_more(&finding);
        }
    }

    /// Without a limit to raise all that can be said is who needs more.
    fn recommend_more(&self, finding: &Finding) {
        let lacks_cpu = |culprit: &&Culprit| culprit.verdict == Verdict::Resource(Resource::Cpu);
        if let Some(culprit) = finding.culprits.iter().find(lacks_cpu) {
            self.tell(DemoEvent::Recommendation {
                instance: culprit.instance.clone(),
                cpu: None,
                finding: Some(finding.id),
            });
        }
    }

    /// Applies or recommends. How long the write took, `None` if nothing was written.
    fn carry_out(&mut self, decision: &Decision) -> Option<Duration> {
        let instance = decision.action.instance();
        let Some(actuator) = &mut self.actuator else {
            self.tell(DemoEvent::Recommendation {
                instance: instance.clone(),
                cpu: decision.action.cpu(),
                finding: decision.finding,
            });
            return None;
        };
        let begin = self.clock.monotonic();
        match actuator.apply(&decision.action) {
            Ok(all) => {
                let took = self.clock.monotonic() - begin;
                for applied in all {
                    if decision.finding.is_some() {
                        self.controller.applied(applied.at);
                    }
                    let change = LimitChange {
                        instance: applied.instance.clone(),
                        from: applied.from,
                        to: applied.to,
                    };
                    self.outcome.actions.push((change, applied.at));
                    if !self.outcome.changed.contains(&applied.instance) {
                        self.outcome.changed.push(applied.instance.clone());
                    }
                    let change = Change {
                        applied,
                        finding: decision.finding,
                        by: decision.by.to_owned(),
                        undo: decision.undo,
                    };
                    self.tell(DemoEvent::Change(change.clone()));
                    self.keep(Event::Change(change));
                }
                Some(took)
            }
            Err(error) => {
                if is_foreign(&error) {
                    self.controller.yielded(instance);
                } else if decision.finding.is_some() {
                    self.controller.not_applied(instance);
                }
                let text = format!("limit of `{instance}` is left alone: {}", chain(&error));
                self.note(text);
                None
            }
        }
    }

    fn put_back(&mut self) {
        let before = self.limits();
        if let Some(actuator) = &mut self.actuator {
            match actuator.writer_mut().undo_all() {
                Ok(report) => report
                    .files
                    .iter()
                    .for_each(|file| self.tell_restored(file)),
                Err(error) => {
                    let text = format!("limits are put back, but {}", chain(&error));
                    self.tell(DemoEvent::Note { text });
                }
            }
        }
        if let Some(actuator) = &mut self.actuator {
            let files = self
                .sources
                .iter()
                .filter_map(|source| source.group.as_ref());
            let files = files.flat_map(InstanceGroup::limit_files);
            let writer = actuator.writer_mut();
            self.outcome.left = files.filter(|file| writer.is_foreign(file)).collect();
        }
        let at = self.clock.wall();
        for (instance, from, to) in before
            .into_iter()
            .zip(self.limits())
            .map(|((instance, from), (_, to))| (instance, from, to))
            .filter(|(_, from, to)| from != to)
        {
            let applied = Applied {
                instance,
                resource: Resource::Cpu,
                from,
                to,
                at,
            };
            let change = Change {
                applied,
                finding: None,
                by: "restore".to_owned(),
                undo: true,
            };
            self.tell(DemoEvent::Change(change.clone()));
            self.keep(Event::Change(change));
        }
        self.sync();
    }

    /// The limits of all instances that were changed.
    fn limits(&self) -> Vec<(InstanceId, Option<MilliCores>)> {
        let Some(actuator) = &self.actuator else {
            return Vec::new();
        };
        let limit =
            |instance: &InstanceId| (instance.clone(), actuator.limit(instance).ok().flatten());
        self.outcome.changed.iter().map(limit).collect()
    }

    /// Says what a person has to know of a file that was to be put back.
    fn tell_restored(&self, file: &Restored) {
        let path = file.path.display();
        let text = match &file.outcome {
            FileOutcome::Restored | FileOutcome::AlreadyOriginal => return,
            FileOutcome::Vanished => format!("{path}: not put back, its group is gone"),
            FileOutcome::ForeignWriter { found, .. } => {
                format!("{path}: left alone, somebody else changed it to `{found}`")
            }
            FileOutcome::Failed { why } => {
                format!("{path}: not put back: {why}; `firm restore` will try again")
            }
        };
        self.tell(DemoEvent::Note { text });
    }

    fn sync(&mut self) {
        if !std::mem::take(&mut self.unsynced) {
            return;
        }
        if let Err(error) = self.log.sync() {
            tracing::warn!(%error, "event log not synced");
        }
    }

    /// A note, unless it is the last one again.
    fn note(&mut self, text: String) {
        if self.last_note != text {
            self.last_note.clone_from(&text);
            self.tell(DemoEvent::Note { text });
        }
    }

    fn tell(&self, event: DemoEvent) {
        // Without a listener, or with a slow one, the loop goes on: limits matter more than words.
        let _ = self.events.try_send(event);
    }

    /// To the event log and the store.
    fn keep(&mut self, event: Event) {
        match self.log.append(&event) {
            Ok(()) => self.unsynced = true,
            Err(error) => tracing::warn!(%error, "event not logged"),
        }
        let kept = match &event {
            Event::Finding(finding) => self.store.put_finding(finding),
            Event::Change(change) => self.store.put_change(change),
            Event::Anomaly(anomaly) => self.store.put_anomaly(anomaly),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "event not kept");
        }
    }
}

fn counters(source: &Source, actuator: Option<&CpuActuator>, now: Monotonic) -> Counters {
    // What cannot be read is absent, and absent means hold.
    let cpu = source
        .group
        .as_ref()
        .and_then(|group| group.cpu_sample(now).ok());
    let sched = sched::sample(Path::new(PROC), source.pid, now)
        .ok()
        .flatten();
    let limit = match actuator {
        Some(actuator) => actuator.limit(&source.instance).ok().flatten(),
        None => source
            .group
            .as_ref()
            .and_then(|group| group.cpu().quota().ok().flatten())
            .and_then(|quota| quota.limit()),
    };
    Counters { cpu, sched, limit }
}

struct Times {
    seen: Timestamp,
    decision: Duration,
    write: Duration,
}

fn budget(tipped: Tipped, grace: Duration, times: &Times) -> Budget {
    let nanos = |nanos: i64| Latency::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let grace_nanos = i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
    Budget {
        export: nanos(
            tipped
                .arrived
                .nanos_since(tipped.ended)
                .saturating_sub(grace_nanos),
        ),
        grace: Latency::from(grace),
        window: nanos(times.seen.nanos_since(tipped.arrived)),
        decision: Latency::from(times.decision),
        write: Latency::from(times.write),
    }
}

/// The next tick: on the grid, and after `now` if ticks were missed.
fn later(tick: Monotonic, now: Monotonic) -> Monotonic {
    let next = tick + TICK;
    if next > now { next } else { now + TICK }
}

fn is_foreign(error: &ActuatorError) -> bool {
    matches!(
        error,
        ActuatorError::Write {
            source: LimitError::ForeignWriter { .. },
            ..
        }
    )
}
