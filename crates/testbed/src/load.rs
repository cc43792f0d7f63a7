//! Open-loop load: requests leave when the schedule says, whether earlier ones were answered or
//! not, and latency counts from the *intended* time of sending. A generator that waits for
//! answers would send less while the application stalls, and so leave out what it is to measure
//! (coordinated omission).

mod schedule;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_model::clock::SystemClock;
use firm_model::{Clock as _, Latency, LoadControl, Monotonic, Quantile, Timestamp};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::fleet::Fleet;
use crate::http::Peer;
use crate::topology::{Arrivals, Topology};
use schedule::Pacer;
pub use schedule::{Arrival, Schedule};

/// Longest wait between two looks at the rate factor and the stop flag.
const LOOK: Duration = Duration::from_millis(5);
/// The kernel wakes a sleeper up to about 60 µs late; the rest is spun.
const SPIN: Duration = Duration::from_micros(120);
/// Largest latency that the histograms tell apart, nanoseconds.
const MOST: u64 = 100_000_000_000;

/// One type of request to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadRequest {
    /// Service of the root span.
    pub service: String,
    /// Its operation.
    pub operation: String,
    /// Where the service listens.
    pub address: SocketAddr,
    /// Its share of all requests, relative to the other types'.
    pub share: f64,
}

/// What is sent, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadConfig {
    /// Types of request, at least one.
    pub requests: Vec<LoadRequest>,
    /// Arrivals per second at rate factor 1.
    pub rate: f64,
    /// How they are spread over time.
    pub arrivals: Arrivals,
    /// Seed of the schedule.
    pub seed: u64,
    /// When to stop sending, `None` for never.
    pub duration: Option<Duration>,
    /// Time from the intended sending after which a request is given up.
    pub timeout: Duration,
    /// Requests in flight; one that is due above it is dropped and counted.
    pub max_in_flight: u32,
    /// CPUs for the generator's two threads, empty for all.
    pub cpus: Vec<usize>,
}

/// Why the load could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The configuration names nothing to send or no rate.
    #[error("load needs at least one request type, positive shares and a positive, finite rate")]
    Nothing,
    /// No instance of an entry service runs.
    #[error("no instance of entry service `{0}` runs")]
    NoEntry(String),
    /// The system refused a thread or a runtime.
    #[error("cannot set up {what}")]
    System {
        /// What was to be set up.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Ok,
    /// Refused, answered with an error, or the connection broke.
    Error,
    /// Given up.
    Timeout,
    /// Never sent, because too many were in flight.
    Dropped,
}

/// One request that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// `SERVICE/OPERATION`.
    pub request_type: Arc<str>,
    /// When it was to be sent, on the wall clock.
    pub intended: Timestamp,
    /// From then until it ended.
    pub latency: Latency,
    /// How it ended.
    pub outcome: Outcome,
}

/// Figures of one request type. `ok + errors + timeouts + dropped` is what was due and ended.
#[derive(Debug, Clone)]
pub struct TypeReport {
    /// `SERVICE/OPERATION`.
    pub request_type: Arc<str>,
    /// Answered.
    pub ok: u64,
    /// Failed.
    pub errors: u64,
    /// Given up.
    pub timeouts: u64,
    /// Never sent.
    pub dropped: u64,
    /// Latencies of answered and of given-up requests, nanoseconds. Those given up took longer
    /// than it says, and leaving them out would flatter; errors and drops have no latency.
    pub latency: Histogram<u64>,
}

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

// === impl LoadConfig ===

impl LoadConfig {
    /// The load of a topology on its running fleet: no end, 2 s timeout, at most 2,000 requests
    /// in flight, any CPU.
    ///
    /// # Errors
    /// [`LoadError::NoEntry`].
    pub fn of(topology: &Topology, fleet: &Fleet, seed: u64) -> Result<Self, LoadError> {
        let request = |entry: &crate::topology::EntryRequest| {
            let service = entry.objective.service.clone();
            Ok(LoadRequest {
                address: fleet
                    .address(&service)
                    .ok_or_else(|| LoadError::NoEntry(service.clone()))?,
                service,
                operation: entry.objective.operation.clone(),
                share: entry.share,
            })
        };
        Ok(Self {
            requests: topology
                .requests
                .iter()
                .map(request)
                .collect::<Result<_, _>>()?,
            rate: topology.rate,
            arrivals: topology.arrivals,
            seed,
            duration: None,
            timeout: Duration::from_secs(2),
            max_in_flight: 2_000,
            cpus: Vec::new(),
        })
    }

    fn is_right(&self) -> bool {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        positive(self.rate)
            && !self.requests.is_empty()
            && self.requests.iter().all(|request| positive(request.share))
    }
}

// === impl TypeReport ===

impl TypeReport {
    fn new(request: &LoadRequest) -> Result<Self, LoadError> {
        Ok(Self {
            request_type: format!("{}/{}", request.service, request.operation).into(),
            ok: 0,
            errors: 0,
            timeouts: 0,
            dropped: 0,
            latency: Histogram::new_with_bounds(1_000, MOST, 3).map_err(|error| {
                LoadError::System {
                    what: "a histogram",
                    source: std::io::Error::other(error),
                }
            })?,
        })
    }

    fn count(&mut self, record: &RequestRecord) {
        match record.outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Error => self.errors += 1,
            Outcome::Timeout => self.timeouts += 1,
            Outcome::Dropped => self.dropped += 1,
        }
        if matches!(record.outcome, Outcome::Ok | Outcome::Timeout) {
            self.latency.saturating_record(record.latency.as_nanos());
        }
    }

    /// Requests that were due and have ended.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ok + self.errors + self.timeouts + self.dropped
    }

    /// The latency at a quantile; zero before the first.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Latency {
        Latency::from_nanos(self.latency.value_at_quantile(quantile.get()))
    }
}

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
