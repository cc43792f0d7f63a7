//! Anomalies as they are made: a stressor beside its target, held to the asked intensity by what
//! is measured, and a record of what was achieved.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_child::{Keeper, KeeperError, Kept, LineError, Placement};
use firm_model::clock::SystemClock;
use firm_model::{Anomaly, AnomalyKind, Clock as _, InstanceId, Intensity, Timestamp};
use nix::unistd::Pid;

use crate::controller::Controller;
use crate::schedule::Planned;
use crate::stressor::{Duty, Started, StressorConfig};

/// How long a stressor may take until it burns.
const READY: Duration = Duration::from_secs(10);
/// How often the achieved intensity is looked at.
const STEP: Duration = Duration::from_millis(100);
/// How long a stressor lives beyond its time, in case the injector is late to end it.
const OVERTIME: Duration = Duration::from_secs(1);
/// How long a stressor may take to end when asked to.
const GRACE: Duration = Duration::from_millis(200);

/// Why the caller could not place a stressor.
pub type PlaceError = Box<dyn std::error::Error + Send + Sync>;

/// Puts a stressor that has not begun to burn where it belongs, given its target and its process
/// id.
pub type Place<'a> = dyn FnMut(&InstanceId, u32) -> Result<(), PlaceError> + 'a;

/// CPU time that the stressor of a process id has used so far, `None` where it cannot be told.
pub type Meter = Box<dyn FnMut(u32) -> Option<Duration> + Send>;

/// Why an anomaly could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The target was not opted in.
    #[error("instance `{0}` is not among those that may be touched")]
    NotOptedIn(InstanceId),
    /// The kind cannot be made.
    #[error("anomalies of kind {0} cannot be made")]
    Kind(AnomalyKind),
    /// No CPU for the stressor.
    #[error("a stressor needs at least one CPU")]
    NoCpu,
    /// The stressor's process could not be started or ended.
    #[error("the stressor's process cannot be kept")]
    Keeper(#[from] KeeperError),
    /// The stressor did not say what was expected, or ended early.
    #[error("the stressor of `{target}` does not come up")]
    Stressor {
        /// Its target.
        target: InstanceId,
        /// What went wrong.
        source: LineError,
    },
    /// The caller could not place the stressor.
    #[error("the stressor of `{target}` (process {pid}) cannot be placed")]
    Place {
        /// Its target.
        target: InstanceId,
        /// Its process id.
        pid: u32,
        /// What went wrong.
        source: PlaceError,
    },
    /// A thread could not be started, or ended without a result.
    #[error("the thread that holds the intensity failed")]
    Thread(#[source] std::io::Error),
}

/// How stressors are run.
#[derive(Debug, Clone)]
pub struct InjectorConfig {
    /// Program whose arguments `args` make it call [`crate::stressor::run_stressor`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Instances that may be touched.
    pub targets: BTreeSet<InstanceId>,
    /// CPUs that stressors burn on, at least one.
    pub cpus: Vec<usize>,
    /// Nice value of stressors, `None` to inherit.
    pub nice: Option<i32>,
}

/// Makes anomalies. Dropping it ends those that are running.
#[derive(Debug)]
pub struct Injector {
    config: InjectorConfig,
    keeper: Arc<Keeper>,
}

/// A running anomaly. It ends by its time, by [`Injection::stop`], or when dropped.
#[derive(Debug)]
pub struct Injection {
    /// When its stressor began to burn.
    pub started: Timestamp,
    /// The stressor's process.
    pub pid: u32,
    stop: Sender<()>,
    thread: Option<JoinHandle<Anomaly>>,
}

/// CPU time of a whole process by the kernel's clock of it, nanosecond precise.
#[must_use]
pub fn process_cpu_time(pid: u32) -> Option<Duration> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let clock = nix::time::clock_getcpuclockid(pid).ok()?;
    clock.now().ok().map(Duration::from)
}

// === impl Injector ===

impl Injector {
    /// An injector without anomalies.
    ///
    /// # Errors
    /// No CPU is given, or a thread could not be started.
    pub fn new(config: InjectorConfig) -> Result<Self, InjectError> {
        if config.cpus.is_empty() {
            return Err(InjectError::NoCpu);
        }
        Ok(Self {
            config,
            keeper: Arc::new(Keeper::start()?),
        })
    }

    /// Starts an anomaly now, whatever its planned start, and returns once its stressor burns.
    ///
    /// `place` is called before the stressor is told what to do, so that it never burns outside
    /// its group. `meter` tells the stressor's CPU time; [`process_cpu_time`] does where the
    /// caller has nothing better.
    ///
    /// # Errors
    /// See [`InjectError`]; a stressor already started is ended.
    pub fn start(
        &self,
        planned: &Planned,
        place: &mut Place<'_>,
        mut meter: Meter,
    ) -> Result<Injection, InjectError> {
        let target = &planned.target;
        if !self.config.targets.contains(target) {
            return Err(InjectError::NotOptedIn(target.clone()));
        }
        if planned.kind != AnomalyKind::Cpu {
            return Err(InjectError::Kind(planned.kind));
        }
        let name = format!("stressor of {target}");
        let mut kept = self
            .keeper
            .spawn(&name, &self.config.program, &self.config.args)?;
        let pid = kept.pid;
        let ready = self
            .bring_up(planned, &mut kept, place)
            .and_then(|started| {
                let (stop, stopped) = channel();
                let held = Held {
                    planned: planned.clone(),
                    cpus: self.config.cpus.len(),
                    started: started.started,
                    keeper: Arc::clone(&self.keeper),
                    kept,
                };
                let thread = std::thread::Builder::new()
                    .name(name)
                    .spawn(move || held.hold(&mut meter, &stopped))
                    .map_err(InjectError::Thread)?;
                Ok(Injection {
                    started: started.started,
                    pid,
                    stop,
                    thread: Some(thread),
                })
            });
        if ready.is_err() {
            self.keeper.stop(&[pid], Duration::ZERO)?;
        }
        ready
    }

    fn bring_up(
        &self,
        planned: &Planned,
        kept: &mut Kept,
        place: &mut Place<'_>,
    ) -> Result<Started, InjectError> {
        let target = &planned.target;
        place(target, kept.pid).map_err(|source| InjectError::Place {
            target: target.clone(),
            pid: kept.pid,
            source,
        })?;
        let config = StressorConfig {
            placement: Placement {
                parent: std::process::id(),
                cpus: self.config.cpus.clone(),
                nice: self.config.nice,
            },
            threads: u32::try_from(self.config.cpus.len()).unwrap_or(u32::MAX),
            duty: planned.intensity.get(),
            duration_ms: u64::try_from((planned.duration + OVERTIME).as_millis())
                .unwrap_or(u64::MAX),
        };
        let failed = |source| InjectError::Stressor {
            target: target.clone(),
            source,
        };
        kept.send(&config).map_err(failed)?;
        kept.receive(READY).map_err(failed)
    }
}

// === impl Injection ===

impl Injection {
    /// Whether it has ended by its time or because its stressor did.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it now and says what it did.
    ///
    /// # Errors
    /// [`InjectError::Thread`].
    pub fn stop(mut self) -> Result<Anomaly, InjectError> {
        // It may have ended already.
        let _ = self.stop.send(());
        self.join()
    }

    /// Waits for its end and says what it did.
    ///
    /// # Errors
    /// [`InjectError::Thread`].
    pub fn wait(mut self) -> Result<Anomaly, InjectError> {
        self.join()
    }

    fn join(&mut self) -> Result<Anomaly, InjectError> {
        let failed = || InjectError::Thread(std::io::Error::other("it panicked"));
        let thread = self.thread.take().ok_or_else(failed)?;
        thread.join().map_err(|_| failed())
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.stop.send(());
            // Nobody asks what it did.
            let _ = self.join();
        }
    }
}

// === the loop ===

struct Held {
    planned: Planned,
    cpus: usize,
    started: Timestamp,
    keeper: Arc<Keeper>,
    kept: Kept,
}

impl Held {
    /// Holds the intensity until the time is over, then ends the stressor.
    fn hold(mut self, meter: &mut Meter, stopped: &Receiver<()>) -> Anomaly {
        let pid = self.kept.pid;
        let mut controller = Controller::new(self.planned.intensity.get());
        let begin = SystemClock.monotonic();
        let end = begin + self.planned.duration;
        let first = meter(pid);
        let (mut last, mut used) = (begin, first);
        loop {
            let wait = (end - SystemClock.monotonic()).min(STEP);
            let over = !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
            let now = SystemClock.monotonic();
            // What cannot be read leaves the duty cycle and the last reading as they are.
            let achieved = meter(pid).and_then(|reading| {
                let achieved = self.share(used, reading, now - last);
                (last, used) = (now, Some(reading));
                achieved
            });
            if over || now >= end {
                break;
            }
            let duty = Duty {
                duty: controller.step(achieved.unwrap_or(f64::NAN)),
            };
            if self.kept.send(&duty).is_err() {
                // The stressor has ended.
                break;
            }
        }
        // The keeper's thread outlives this one, and a stressor that has ended needs no more.
        let _ = self.keeper.stop(&[pid], GRACE);
        let ended = SystemClock.wall();
        let achieved = used.and_then(|used| self.share(first, used, last - begin));
        Anomaly {
            kind: self.planned.kind,
            target: self.planned.target,
            start: self.started,
            end: ended,
            asked: self.planned.intensity,
            // A thread may be read up to a tick above its share.
            achieved: achieved.and_then(|share| Intensity::new(share.min(1.0)).ok()),
        }
    }

    /// CPU time used per wall time and CPU.
    fn share(&self, from: Option<Duration>, to: Duration, wall: Duration) -> Option<f64> {
        let used = to.checked_sub(from?)?;
        let share = used.as_secs_f64() / (wall.as_secs_f64() * self.cpus as f64);
        share.is_finite().then_some(share)
    }
}
