//! One run from the first process to the last limit put back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_host::{LimitWriter, StateDir};
use firm_injector::Planned;
use firm_injector::inject::{Injection, Injector, InjectorConfig, Meter, process_cpu_time};
use firm_model::clock::SystemClock;
use firm_model::text::chain;
use firm_model::{Anomaly, AnomalyKind, Clock, InstanceId, Intensity, Monotonic, Timestamp};
use firm_store::EventLog;
use firm_testbed::fleet::{Fleet, PlaceError};
use firm_testbed::load::{LoadConfig, LoadGenerator};
use firm_tracer::live::LiveCounts;
use firm_tracer::receive::ReceiverCounts;
use parking_lot::Mutex;

use super::control::{Command, Message, Outcome};
use super::event::{DemoEvent, InstanceLimit, Phase};
use super::plan::Plan;
use super::recorder::Recorder;
use super::report::{RunReport, SpanCounts, Times};
use super::setup::{DemoError, Mode, Setup};
use super::stage::{Groups, Intake, compare};
use super::start::{start_control, start_fleet};
use super::starve;

/// How often the run looks around.
const LOOK: Duration = Duration::from_millis(20);
/// How often the status is told.
const STATUS: Duration = Duration::from_millis(250);
/// How long services may take to end.
const GRACE: Duration = Duration::from_secs(2);
/// Graphs and commands waiting for the loop.
const MESSAGES: usize = 4096;
/// Events waiting to be told.
const EVENTS: usize = 4096;

/// Does one run as planned and reports. `interrupt` ends it early; `tell` hears what happens.
///
/// # Errors
/// See [`DemoError`]. Processes are ended and limits put back in every case.
pub fn run(
    setup: &Setup,
    plan: &Plan,
    mode: Mode,
    interrupt: &AtomicBool,
    tell: &mut dyn FnMut(DemoEvent),
) -> Result<RunReport, DemoError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let state = StateDir::open(&setup.state_dir)?;
    let lock = state.lock()?;
    let log = EventLog::open(&state.event_log())?;
    let (writer, earlier) =
        LimitWriter::open(lock).map_err(|error| DemoError::Journal(chain(&error)))?;
    if !earlier.files.is_empty() {
        let text = format!(
            "put back {} limits of a run that was killed",
            earlier.files.len()
        );
        tell(DemoEvent::Note { text });
    }
    let groups = Groups::make(&setup.topology)?;
    let before = groups.snapshot();
    let (message_sender, messages) = sync_channel(MESSAGES);
    let graphs = message_sender.clone();
    let intake = Intake::open(
        setup.settings.tracer,
        Arc::clone(&clock),
        move |graph, at| {
            let sent = graphs.try_send(Message::Graph(Box::new(graph), at));
            // Once the loop has ended nobody needs what still comes in.
            !matches!(sent, Err(TrySendError::Full(_)))
        },
    )?;
    let fleet = start_fleet(setup, plan, &intake, &groups)?;
    let (event_sender, events) = sync_channel(EVENTS);
    let run = Run {
        setup,
        plan,
        interrupt,
        tell,
        clock: Arc::clone(&clock),
        groups: &groups,
        fleet: &fleet,
        commands: message_sender,
        events,
        recorder: Arc::new(Mutex::new(Recorder::new(&setup.objectives()))),
        begin: clock.monotonic(),
        limits: BTreeMap::new(),
        next_status: clock.monotonic(),
    };
    let control = start_control(
        setup,
        mode,
        writer,
        log,
        &intake,
        &groups,
        &fleet,
        messages,
        event_sender,
    )?;
    let done = run.go(control, mode);
    // Everything below happens whether the run went well or not.
    let stopped = fleet.stop(GRACE);
    let received = intake.stats.counts();
    let live = intake.close();
    let check = done.as_ref().map(|(_, left)| compare(&before, left));
    let check = check.unwrap_or_default();
    let ended = groups.end(setup.keep_groups);
    let (mut report, _) = done?;
    stopped?;
    ended?;
    report.limits = check;
    report.spans = counts(&received, &live, &report.spans);
    if !report.spans.rejected.is_empty() {
        let text = format!("spans refused, by reason: {:?}", report.spans.rejected);
        tell(DemoEvent::Note { text });
    }
    Ok(report)
}

/// What the receivers and the assembly counted, beside what the loop did.
fn counts(received: &ReceiverCounts, live: &LiveCounts, of_loop: &SpanCounts) -> SpanCounts {
    // Refusals for want of room are not misunderstandings: their spans are among the lost.
    let is_malformed = |code: u16| code >= 400 && ![408, 429, 503].contains(&code);
    let requests = received.requests.iter();
    let malformed: u64 = requests
        .filter(|(code, _)| is_malformed(**code))
        .map(|(_, count)| count)
        .sum();
    let rejected: u64 = received.rejected.values().sum();
    SpanCounts {
        received: received.spans,
        rejected: received.rejected.clone(),
        lost: rejected + received.dropped_full + received.dropped_closed,
        malformed: received.datagrams_malformed + malformed,
        graphs: live.graphs,
        dropped_graphs: live.dropped_graphs,
        mixed: of_loop.mixed,
        ahead: of_loop.ahead,
    }
}

fn how(exit: &firm_child::Exit) -> String {
    exit.status
        .map_or_else(|| "nobody saw how".to_owned(), |status| status.to_string())
}

/// A run in progress.
struct Run<'a> {
    setup: &'a Setup,
    plan: &'a Plan,
    interrupt: &'a AtomicBool,
    tell: &'a mut dyn FnMut(DemoEvent),
    clock: Arc<dyn Clock>,
    groups: &'a Groups,
    fleet: &'a Fleet,
    commands: SyncSender<Message>,
    events: Receiver<DemoEvent>,
    recorder: Arc<Mutex<Recorder>>,
    begin: Monotonic,
    /// Limits that were changed and not yet changed back.
    limits: BTreeMap<InstanceId, (InstanceLimit, InstanceLimit)>,
    next_status: Monotonic,
}

impl Run<'_> {
    /// Goes through the phases, then stops the loop, which puts the limits back.
    fn go(
        mut self,
        control: JoinHandle<Outcome>,
        mode: Mode,
    ) -> Result<(RunReport, Vec<PathBuf>), DemoError> {
        let phases = self.phases(&control, mode);
        self.phase(Phase::Restore);
        // The loop stops by itself if nobody hears this.
        let _ = self.commands.send(Message::Command(Command::Stop));
        let outcome = control.join().map_err(|_| DemoError::Loop)?;
        self.hear();
        let (injected, anomaly) = phases?;
        let left = outcome.left.clone();
        Ok((self.report(mode, outcome, injected, anomaly), left))
    }

    fn phases(
        &mut self,
        control: &JoinHandle<Outcome>,
        mode: Mode,
    ) -> Result<(Option<Timestamp>, Option<Anomaly>), DemoError> {
        let mut load = LoadConfig::of(&self.setup.topology, self.fleet, self.plan.seed)?;
        load.cpus = self.setup.own_cpus.clone();
        let recorder = Arc::clone(&self.recorder);
        let generator = LoadGenerator::start(load, move |record| recorder.lock().add(record))?;
        self.begin = self.clock.monotonic();
        self.started(mode);
        let plan = self.plan;
        self.phase(Phase::WarmUp);
        let mut go_on = self.until(plan.learn_at, control)?;
        if go_on {
            self.phase(Phase::Learn);
            self.command(Command::BeginLearning)?;
            go_on = self.until(plan.watch_at, control)?;
        }
        if go_on {
            self.phase(Phase::Watch);
            self.command(Command::EndLearning)?;
            go_on = self.until(plan.inject_at, control)?;
        }
        let mut injected = None;
        let mut anomaly = None;
        if go_on {
            self.phase(Phase::Inject);
            let injection = self.inject()?;
            injected = Some(injection.started);
            go_on = self.until(plan.inject_at + plan.inject_for, control)?;
            let made = injection.stop()?;
            self.command(Command::Anomaly(made.clone()))?;
            (self.tell)(DemoEvent::InjectionEnded(made.clone()));
            anomaly = Some(made);
        }
        if go_on {
            self.phase(Phase::Recover);
            self.until(plan.duration, control)?;
        }
        drop(generator);
        Ok((injected, anomaly))
    }

    /// Waits until `at` after the first request. Whether to go on.
    fn until(&mut self, at: Duration, control: &JoinHandle<Outcome>) -> Result<bool, DemoError> {
        let end = self.begin + at;
        loop {
            self.hear();
            if self.interrupt.load(Ordering::Relaxed) {
                let text =
                    "interrupted: ending processes and putting limits back; a second signal \
                            ends at once, and `firm restore` then does the rest"
                        .to_owned();
                (self.tell)(DemoEvent::Note { text });
                return Ok(false);
            }
            if control.is_finished() {
                return Err(DemoError::Loop);
            }
            if let Some(exit) = self.fleet.take_exits().into_iter().next() {
                return Err(DemoError::Died(exit.name.clone(), how(&exit)));
            }
            let left = end - self.clock.monotonic();
            if left.is_zero() {
                return Ok(true);
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Passes on what the loop told, and the status when it is due.
    fn hear(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            if let DemoEvent::Change(change) = &event {
                let applied = &change.applied;
                let first = InstanceLimit {
                    instance: applied.instance.clone(),
                    cpu: applied.from,
                };
                let entry = self
                    .limits
                    .entry(applied.instance.clone())
                    .or_insert_with(|| (first, InstanceLimit::from(applied)));
                entry.1 = InstanceLimit::from(applied);
            }
            (self.tell)(event);
        }
        let now = self.clock.monotonic();
        if now < self.next_status {
            return;
        }
        self.next_status = now + STATUS;
        let status = self.recorder.lock().status(self.clock.wall());
        if let Some(mut status) = status {
            status.at_s = (now - self.begin).as_secs_f64();
            status.of_s = self.plan.duration.as_secs_f64();
            status.changed = self
                .limits
                .values()
                .filter(|(first, now)| first != now)
                .map(|(_, now)| now.clone())
                .collect();
            (self.tell)(DemoEvent::Status(status));
        }
    }

    fn started(&mut self, mode: Mode) {
        let limit = |instance: &firm_testbed::fleet::Instance| InstanceLimit {
            instance: instance.id.clone(),
            cpu: self
                .groups
                .of(&instance.id)
                .and_then(|group| group.cpu().quota().ok().flatten())
                .and_then(|quota| quota.limit()),
        };
        let only_recommends = self.groups.why_not_enforced(self.setup, mode);
        (self.tell)(DemoEvent::Started {
            instances: self.fleet.instances().iter().map(limit).collect(),
            rate: self.setup.topology.rate,
            only_recommends,
        });
    }

    fn phase(&mut self, phase: Phase) {
        let at_s = (self.clock.monotonic() - self.begin).as_secs_f64();
        (self.tell)(DemoEvent::Phase { phase, at_s });
    }

    fn command(&self, command: Command) -> Result<(), DemoError> {
        self.commands
            .send(Message::Command(command))
            .map_err(|_| DemoError::Loop)
    }

    fn inject(&mut self) -> Result<Injection, DemoError> {
        let target = &self.plan.target;
        let group = self.groups.of(target).cloned();
        let injector = Injector::new(InjectorConfig {
            program: self.setup.program.clone(),
            args: self.setup.stress_args.clone(),
            targets: BTreeSet::from([target.clone()]),
            cpus: self.setup.app_cpus.clone(),
            nice: match group {
                Some(_) => self.setup.app_nice,
                None => Some(starve::STRESSOR_NICE),
            },
        })?;
        let planned_for = self.plan.intensity;
        let intensity = match group {
            Some(_) => planned_for,
            None => Intensity::new(starve::INTENSITY).unwrap_or(planned_for),
        };
        let planned = Planned {
            kind: AnomalyKind::Cpu,
            target: target.clone(),
            start: self.plan.inject_at,
            duration: self.plan.inject_for + GRACE,
            intensity,
        };
        let target_pid = self
            .fleet
            .instances()
            .iter()
            .find(|i| i.id == *target)
            .map(|instance| instance.pid);
        let placed = group.clone();
        let mut place = |_: &InstanceId, pid: u32| -> Result<(), PlaceError> {
            match (&placed, target_pid) {
                (Some(group), _) => group.stress_add_pid(pid)?,
                (None, Some(target)) => starve::give_way(target)?,
                (None, None) => {}
            }
            Ok(())
        };
        let meter: Meter = Box::new(move |pid| match &group {
            Some(group) => group
                .stress_usage_ns()
                .ok()
                .flatten()
                .map(Duration::from_nanos),
            None => process_cpu_time(pid),
        });
        let injection = injector.start(&planned, &mut place, meter)?;
        if self.groups.of(target).is_none() {
            let text = format!(
                "without cgroups, contention is made by priorities: `{target}` gives way to all, and \
                 a busy process beside it only to the others"
            );
            (self.tell)(DemoEvent::Note { text });
        }
        (self.tell)(DemoEvent::Injected {
            target: target.clone(),
            at: injection.started,
            intensity: intensity.get(),
        });
        Ok(injection)
    }

    fn report(
        &self,
        mode: Mode,
        outcome: Outcome,
        injected: Option<Timestamp>,
        anomaly: Option<Anomaly>,
    ) -> RunReport {
        let recorder = self.recorder.lock();
        let since = |at: &Timestamp| injected.is_some_and(|injected| *at >= injected);
        let named = outcome.named.iter().find(|(_, at)| since(at));
        let action = outcome.actions.iter().find(|(_, at)| since(at));
        let effective = action.map(|(_, at)| *at);
        let trigger = &self.setup.settings.extractor.trigger;
        // An interrupted run has contention to its end.
        let contention = |begin| (begin, anomaly.as_ref().map_or(Timestamp::MAX, |a| a.end));
        let seen = injected
            .map(|begin| recorder.outcomes(trigger, contention(begin), effective))
            .unwrap_or_default();
        let culprit = named.map(|(culprit, _)| culprit.instance.clone());
        RunReport {
            seed: self.plan.seed,
            enforced: self.groups.why_not_enforced(self.setup, mode).is_none(),
            mitigated: action.is_some(),
            interrupted: self.interrupt.load(Ordering::Relaxed),
            target: self.plan.target.clone(),
            asked: anomaly
                .as_ref()
                .map_or(self.plan.intensity, |anomaly| anomaly.asked)
                .get(),
            achieved: anomaly
                .as_ref()
                .and_then(|anomaly| anomaly.achieved)
                .map(Intensity::get),
            times: Times {
                injected,
                violated: seen.violated_at,
                named: named.map(|(_, at)| *at),
                effective,
                holding: seen.holding_at,
            },
            culprit_right: culprit.as_ref() == Some(&self.plan.target),
            culprit,
            verdict: named.map(|(culprit, _)| culprit.verdict),
            false_alarms: outcome.named.iter().filter(|(_, at)| !since(at)).count(),
            action: action.map(|(change, _)| change.clone()),
            others_changed: outcome
                .changed
                .into_iter()
                .filter(|instance| *instance != self.plan.target)
                .collect(),
            budget: outcome.budget,
            requests: seen.requests,
            violations: seen.violations,
            violations_after_holding: seen.violations_after,
            total_requests: recorder.count(),
            taken_back_at: outcome.taken_back_at,
            limits: super::report::LimitCheck::default(),
            spans: SpanCounts {
                mixed: outcome.mixed,
                ahead: outcome.ahead,
                ..SpanCounts::default()
            },
        }
    }
}
