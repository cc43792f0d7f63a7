//! One run from the first process to the last limit put back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_host::{CpuActuator, LimitWriter, RunTreeError, StateDir, StateDirError};
use firm_injector::Planned;
use firm_injector::inject::{
    InjectError, Injection, Injector, InjectorConfig, Meter, process_cpu_time,
};
use firm_mitigator::RulePolicy;
use firm_model::clock::SystemClock;
use firm_model::{Anomaly, AnomalyKind, Clock, InstanceId, Intensity, Monotonic, Objective};
use firm_store::{EventLog, EventLogError, MemoryBounds, MemoryStore};
use firm_testbed::Topology;
use firm_testbed::fleet::{Fleet, FleetConfig, FleetError, PlaceError};
use firm_testbed::load::{LoadConfig, LoadError, LoadGenerator};
use parking_lot::Mutex;

use super::control::{Command, Control, Message, Outcome, Source, chain};
use super::event::{DemoEvent, InstanceLimit, Phase};
use super::plan::Plan;
use super::recorder::Recorder;
use super::report::{RunReport, SpanCounts, Times};
use super::stage::{Groups, Intake, compare};
use super::starve;
use crate::controller::{Controller, Managed};
use crate::settings::Settings;
use crate::telemetry::Telemetry;

/// How often services export their spans.
const EXPORT_INTERVAL: Duration = Duration::from_millis(100);
/// How often the run looks around.
const LOOK: Duration = Duration::from_millis(20);
/// How often the status is told.
const STATUS: Duration = Duration::from_millis(250);
/// How long services may take to end.
const GRACE: Duration = Duration::from_secs(2);
/// Graphs and commands waiting for the loop.
const MESSAGES: usize = 4096;

/// Whether limits are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Change limits where that is possible.
    Enforce,
    /// Find and recommend, change nothing.
    Observe,
}

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// This program; started again for instances and stressors.
    pub program: PathBuf,
    /// Arguments that make it an instance of the testbed.
    pub service_args: Vec<String>,
    /// Arguments that make it a stressor.
    pub stress_args: Vec<String>,
    /// The application.
    pub topology: Topology,
    /// How it is watched.
    pub settings: Settings,
    /// Journal, lock and event log.
    pub state_dir: PathBuf,
    /// CPUs of the application and its stressors, at least one.
    pub app_cpus: Vec<usize>,
    /// CPUs of the program and the load, empty for all.
    pub own_cpus: Vec<usize>,
    /// Nice value of the application and its stressors, `None` to inherit the program's.
    pub app_nice: Option<i32>,
    /// Leave the cgroups in place.
    pub keep_groups: bool,
}

/// Why a run failed. Limits are put back all the same.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The journal of limits cannot be used.
    #[error("the journal of limits cannot be used: {0}")]
    Journal(String),
    /// The event log cannot be used.
    #[error(transparent)]
    EventLog(#[from] EventLogError),
    /// Cgroups cannot be made or removed.
    #[error(transparent)]
    Groups(#[from] RunTreeError),
    /// The application does not come up.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The load does not start.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Contention cannot be made.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// An instance ended during the run.
    #[error("instance `{0}` ended during the run: {1}")]
    Died(String, String),
    /// The loop's thread ended before it was told to.
    #[error("the control loop ended early")]
    Loop,
    /// The system refused something.
    #[error("cannot {what}")]
    Io {
        /// What.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

impl DemoError {
    pub(super) fn io(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

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
            !matches!(
                graphs.try_send(Message::Graph(Box::new(graph), at)),
                Err(TrySendError::Full(_))
            )
        },
    )?;
    let fleet = start_fleet(setup, plan, &intake, &groups)?;
    let (event_sender, events) = channel();
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
        recorder: Arc::new(Mutex::new(Recorder::new(&objectives(setup)))),
        begin: clock.monotonic(),
        limits: BTreeMap::new(),
        next_status: clock.monotonic(),
    };
    let control = control(
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
    let check = compare(&before);
    let stopped = fleet.stop(GRACE);
    let received = intake.stats.counts();
    let live = intake.close();
    let ended = groups.end(setup.keep_groups);
    let mut report = done?;
    stopped?;
    ended?;
    report.limits = check;
    report.spans = SpanCounts {
        received: received.spans,
        lost: received.rejected.values().sum::<u64>()
            + received.dropped_full
            + received.dropped_closed,
        malformed: received.datagrams_malformed
            + received
                .requests
                .iter()
                .filter(|(code, _)| **code >= 400)
                .map(|(_, n)| n)
                .sum::<u64>(),
        graphs: live.graphs,
        ..report.spans
    };
    Ok(report)
}

/// Services whose spans come through the Jaeger client.
fn jaeger_services(setup: &Setup, intake: &Intake) -> Vec<firm_model::Symbol> {
    let services = setup.topology.services.iter();
    services
        .filter(|service| service.tracer == firm_testbed::topology::Tracer::Jaeger)
        .map(|service| intake.names.intern(&service.name))
        .collect()
}

fn how(exit: &firm_child::Exit) -> String {
    exit.status
        .map_or_else(|| "nobody saw how".to_owned(), |status| status.to_string())
}

fn objectives(setup: &Setup) -> Vec<Objective> {
    if setup.settings.objectives.is_empty() {
        setup
            .topology
            .requests
            .iter()
            .map(|request| request.objective.clone())
            .collect()
    } else {
        setup.settings.objectives.clone()
    }
}

fn start_fleet(
    setup: &Setup,
    plan: &Plan,
    intake: &Intake,
    groups: &Groups,
) -> Result<Fleet, DemoError> {
    let config = FleetConfig {
        program: setup.program.clone(),
        args: setup.service_args.clone(),
        otlp: format!("http://{}", intake.otlp),
        jaeger: intake.jaeger,
        export_interval: EXPORT_INTERVAL,
        cpus: setup.app_cpus.clone(),
        nice: setup.app_nice,
        seed: plan.seed,
    };
    let mut place = |instance: &InstanceId, pid: u32| -> Result<(), PlaceError> {
        match groups.of(instance) {
            Some(group) => Ok(group.app_add_pid(pid)?),
            None => Ok(()),
        }
    };
    Ok(Fleet::start(&setup.topology, &config, &mut place)?)
}

#[expect(
    clippy::too_many_arguments,
    reason = "the one place where the parts meet"
)]
fn control(
    setup: &Setup,
    mode: Mode,
    writer: LimitWriter,
    log: EventLog,
    intake: &Intake,
    groups: &Groups,
    fleet: &Fleet,
    messages: Receiver<Message>,
    events: Sender<DemoEvent>,
) -> Result<JoinHandle<Outcome>, DemoError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let threads = |name: &str| setup.topology.service(name).map(|service| service.threads);
    let mut actuator = CpuActuator::new(writer, Arc::clone(&clock));
    let mut managed = BTreeMap::new();
    let mut sources = Vec::new();
    for instance in fleet.instances() {
        let group = groups.of(&instance.id).cloned();
        let threads = threads(&instance.service);
        if let Some(group) = &group {
            let added = actuator.add(instance.id.clone(), group.cpu().clone(), threads);
            added.map_err(|error| DemoError::Journal(chain(&error)))?;
        }
        let original = actuator.limit(&instance.id).ok().flatten();
        managed.insert(instance.id.clone(), Managed { original, threads });
        sources.push(Source {
            instance: instance.id.clone(),
            pid: instance.pid,
            group,
        });
    }
    let enforce = mode == Mode::Enforce
        && setup.settings.mitigator.enforce
        && matches!(groups, Groups::Made { .. });
    let mut controller = Controller::new(
        setup.settings.clone(),
        Arc::clone(&intake.names),
        &objectives(setup),
        managed,
        Box::new(RulePolicy::default()),
        enforce,
    );
    controller.number_findings_from(log.next_finding());
    let control = Control {
        controller,
        sources,
        actuator: enforce.then_some(actuator),
        messages,
        events,
        log,
        store: MemoryStore::new(MemoryBounds::default()),
        clock,
        grace: setup.settings.tracer.grace,
        jaeger: jaeger_services(setup, intake),
        telemetry: Telemetry::default(),
        outcome: Outcome::default(),
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || control.run())
        .map_err(DemoError::io("start the control thread"))
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
    fn go(mut self, control: JoinHandle<Outcome>, mode: Mode) -> Result<RunReport, DemoError> {
        let phases = self.phases(&control, mode);
        self.phase(Phase::Restore);
        // The loop stops by itself if nobody hears this.
        let _ = self.commands.send(Message::Command(Command::Stop));
        let outcome = control.join().map_err(|_| DemoError::Loop)?;
        self.hear();
        let (injected, anomaly) = phases?;
        Ok(self.report(mode, outcome, injected, anomaly))
    }

    fn phases(
        &mut self,
        control: &JoinHandle<Outcome>,
        mode: Mode,
    ) -> Result<(Option<firm_model::Timestamp>, Option<Anomaly>), DemoError> {
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
            go_on = self.until(plan.inject_at, control)?;
        }
        let mut injected = None;
        let mut anomaly = None;
        if go_on {
            self.command(Command::EndLearning)?;
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
        let only_recommends = match (self.groups, mode) {
            (Groups::Unsupported(why), _) => Some(why.clone()),
            (_, Mode::Observe) => Some("asked to change nothing".to_owned()),
            _ if !self.setup.settings.mitigator.enforce => {
                Some("`mitigator.enforce` is false".to_owned())
            }
            _ => None,
        };
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
        injected: Option<firm_model::Timestamp>,
        anomaly: Option<Anomaly>,
    ) -> RunReport {
        let recorder = self.recorder.lock();
        let effective = outcome.action.as_ref().map(|(_, at)| *at);
        let trigger = &self.setup.settings.extractor.trigger;
        let seen = injected.map(|at| recorder.outcomes(trigger, at, effective));
        let seen = seen.unwrap_or_default();
        let culprit = outcome
            .first
            .as_ref()
            .map(|(culprit, _)| culprit.instance.clone());
        RunReport {
            seed: self.plan.seed,
            mitigated: mode == Mode::Enforce && outcome.action.is_some(),
            interrupted: self.interrupt.load(Ordering::Relaxed),
            target: self.plan.target.clone(),
            asked: anomaly
                .as_ref()
                .map_or(self.plan.intensity, |anomaly| anomaly.asked)
                .get(),
            achieved: anomaly
                .and_then(|anomaly| anomaly.achieved)
                .map(firm_model::Intensity::get),
            times: Times {
                injected,
                violated: seen.violated_at,
                named: outcome.first.as_ref().map(|(_, at)| *at),
                effective,
                holding: seen.holding_at,
            },
            culprit_right: culprit.as_ref() == Some(&self.plan.target),
            culprit,
            verdict: outcome.first.as_ref().map(|(culprit, _)| culprit.verdict),
            action: outcome.action.map(|(change, _)| change),
            others_changed: outcome
                .changed
                .into_iter()
                .filter(|instance| *instance != self.plan.target)
                .collect(),
            budget: outcome.budget,
            requests: seen.requests,
            violations: seen.violations,
            total_requests: recorder.count(),
            taken_back_at: outcome.taken_back_at,
            limits: super::report::LimitCheck::default(),
            spans: SpanCounts {
                mixed: outcome.mixed,
                ..SpanCounts::default()
            },
        }
    }
}
