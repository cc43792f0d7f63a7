//! Open-loop load: requests leave when the schedule says, whether earlier ones were answered or
//! not, and latency counts from the *intended* time of sending. A generator that waits for
//! answers would send less while the application stalls, and so leave out what it is to measure
//! (coordinated omission).

mod config;
mod report;
mod schedule;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_model::clock::SystemClock;
use firm_model::{Clock as _, LoadControl, Monotonic, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::http::Peer;
pub use config::{LoadConfig, LoadError, LoadRequest};
pub use report::{Outcome, RequestRecord, TypeReport};
use schedule::Pacer;
pub use schedule::{Arrival, Schedule};

/// Longest wait between two looks at the rate factor and the stop flag.
const LOOK: Duration = Duration::from_millis(5);
/// The kernel wakes a sleeper up to about 60 µs late; the rest is spun.
const SPIN: Duration = Duration::from_micros(120);

/// A running load generator. It stops when dropped.
#[derive(Debug)]
pub struct LoadGenerator {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Changes the rate of a running generator; may outlive it.
#[derive(Debug, Clone)]
pub struct RateControl(Arc<AtomicU64>);

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    factor: RateControl,
    types: Vec<Mutex<TypeReport>>,
}

type OnRecord = dyn Fn(&RequestRecord) + Send + Sync;

// === impl LoadGenerator ===

impl LoadGenerator {
    /// Starts sending on two threads of its own. `on_record` is called with every request that
    /// has ended, on those threads, so it must not block.
    ///
    /// # Errors
    /// The configuration names nothing to send, or the system refused a thread.
    pub fn start(
        config: LoadConfig,
        on_record: impl Fn(&RequestRecord) + Send + Sync + 'static,
    ) -> Result<Self, LoadError> {
        if !config.is_right() {
            return Err(LoadError::Nothing);
        }
        let system = |what| move |source| LoadError::System { what, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("a runtime"))?;
        let types = config
            .requests
            .iter()
            .map(|request| TypeReport::new(request).map(Mutex::new))
            .collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            factor: RateControl(Arc::new(AtomicU64::new(1.0_f64.to_bits()))),
            types,
        });
        let sender = Arc::new(Sender {
            shared: Arc::clone(&shared),
            peers: config
                .requests
                .iter()
                .map(|request| (Peer::new(request.address), request.operation.clone()))
                .collect(),
            permits: Arc::new(Semaphore::new(
                usize::try_from(config.max_in_flight).unwrap_or(Semaphore::MAX_PERMITS),
            )),
            max_in_flight: config.max_in_flight,
            timeout: config.timeout,
            on_record: Box::new(on_record),
        });
        let handle = runtime.handle().clone();
        let (all_sent, when_sent) = tokio::sync::oneshot::channel::<()>();
        let cpus = config.cpus.clone();
        let waiting = Arc::clone(&sender);
        let io = std::thread::Builder::new()
            .name("load io".to_owned())
            .spawn(move || {
                // Without the CPUs asked for the load still runs; it only measures worse.
                let _ = firm_child::take_cpus(&cpus);
                runtime.block_on(async {
                    // The other thread drops the sender at its end.
                    let _ = when_sent.await;
                    // Each request ends by its timeout at the latest.
                    let _ = waiting.permits.acquire_many(waiting.max_in_flight).await;
                });
            })
            .map_err(system("a thread"))?;
        let pace = std::thread::Builder::new()
            .name("load".to_owned())
            .spawn(move || {
                let _ = firm_child::take_cpus(&config.cpus);
                sender.send_all(&config, &handle);
                drop(all_sent);
            })
            .map_err(system("a thread"))?;
        Ok(Self {
            shared,
            threads: vec![pace, io],
        })
    }

    /// Figures so far, by request type in the order of the configuration.
    #[must_use]
    pub fn report(&self) -> Vec<TypeReport> {
        self.shared.types.iter().map(|t| t.lock().clone()).collect()
    }

    /// A handle that changes the rate.
    #[must_use]
    pub fn control(&self) -> RateControl {
        self.shared.factor.clone()
    }

    /// Stops sending, waits for what is in flight, and gives the figures.
    #[must_use]
    pub fn stop(mut self) -> Vec<TypeReport> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join();
        self.report()
    }

    /// Waits until the configured duration is over and nothing is in flight.
    #[must_use]
    pub fn wait(mut self) -> Vec<TypeReport> {
        self.join();
        self.report()
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // It panics only in `on_record`, which has been printed then.
            let _ = thread.join();
        }
    }
}

impl Drop for LoadGenerator {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join();
    }
}

impl LoadControl for LoadGenerator {
    fn set_rate_factor(&self, factor: f64) -> Result<(), String> {
        self.shared.factor.set_rate_factor(factor)
    }
}

// === impl RateControl ===

impl RateControl {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl LoadControl for RateControl {
    fn set_rate_factor(&self, factor: f64) -> Result<(), String> {
        if !(factor.is_finite() && factor >= 0.0) {
            return Err(format!(
                "rate factor {factor} is not a finite number of at least 0"
            ));
        }
        self.0.store(factor.to_bits(), Ordering::Relaxed);
        Ok(())
    }
}

// === sending ===

struct Sender {
    shared: Arc<Shared>,
    peers: Vec<(Peer, String)>,
    permits: Arc<Semaphore>,
    max_in_flight: u32,
    timeout: Duration,
    on_record: Box<OnRecord>,
}

impl Sender {
    fn send_all(self: &Arc<Self>, config: &LoadConfig, io: &tokio::runtime::Handle) {
        let shares: Vec<f64> = config
            .requests
            .iter()
            .map(|request| request.share)
            .collect();
        let start = SystemClock.monotonic();
        let start_wall = SystemClock.wall();
        let end = config.duration.map(|duration| start + duration);
        let mut pacer = Pacer::new(start);
        for arrival in Schedule::new(&shares, config.rate, config.arrivals, config.seed) {
            let Some(due) = self.wait_for(arrival, &mut pacer, end) else {
                return;
            };
            let since = i64::try_from((due - start).as_nanos()).unwrap_or(i64::MAX);
            let wall = start_wall.saturating_add_nanos(since);
            match Arc::clone(&self.permits).try_acquire_owned() {
                Err(_) => self.end(arrival.request, due, wall, Outcome::Dropped),
                Ok(permit) => {
                    let sender = Arc::clone(self);
                    io.spawn(async move {
                        let outcome = sender.exchange(arrival.request, due).await;
                        sender.end(arrival.request, due, wall, outcome);
                        drop(permit);
                    });
                }
            }
        }
    }

    /// Waits until an arrival is due and says when that was; `None` once it is to stop.
    fn wait_for(
        &self,
        arrival: Arrival,
        pacer: &mut Pacer,
        end: Option<Monotonic>,
    ) -> Option<Monotonic> {
        loop {
            let now = SystemClock.monotonic();
            pacer.set_factor(self.shared.factor.get(), now);
            let due = pacer.due(arrival.at);
            let over = |at: Monotonic| end.is_some_and(|end| at >= end);
            if self.shared.stop.load(Ordering::Relaxed) || due.map_or_else(|| over(now), over) {
                return None;
            }
            let wait = due.map_or(LOOK, |due| due - now);
            if wait == Duration::ZERO {
                return due;
            }
            match wait.checked_sub(SPIN) {
                Some(sleep) => std::thread::sleep(sleep.min(LOOK)),
                None => std::hint::spin_loop(),
            }
        }
    }

    async fn exchange(&self, request: usize, due: Monotonic) -> Outcome {
        let Some((peer, operation)) = self.peers.get(request) else {
            return Outcome::Error;
        };
        let left = (due + self.timeout) - SystemClock.monotonic();
        match tokio::time::timeout(left, peer.call(operation, None)).await {
            Ok(Ok(())) => Outcome::Ok,
            Ok(Err(_)) => Outcome::Error,
            Err(_) => Outcome::Timeout,
        }
    }

    fn end(&self, request: usize, due: Monotonic, intended: Timestamp, outcome: Outcome) {
        let Some(of_type) = self.shared.types.get(request) else {
            return;
        };
        let record = {
            let mut of_type = of_type.lock();
            let record = RequestRecord {
                request_type: Arc::clone(&of_type.request_type),
                intended,
                latency: (SystemClock.monotonic() - due).into(),
                outcome,
            };
            of_type.count(&record);
            record
        };
        (self.on_record)(&record);
    }
}
