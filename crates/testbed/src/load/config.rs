//! What is sent, and how.

use std::net::SocketAddr;
use std::time::Duration;

use crate::fleet::Fleet;
use crate::topology::{Arrivals, EntryRequest, Topology};

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

// === impl LoadConfig ===

impl LoadConfig {
    /// The load of a topology on its running fleet: no end, 2 s timeout, at most 2,000 requests
    /// in flight, any CPU.
    ///
    /// # Errors
    /// [`LoadError::NoEntry`].
    pub fn of(topology: &Topology, fleet: &Fleet, seed: u64) -> Result<Self, LoadError> {
        let request = |entry: &EntryRequest| {
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

    pub(super) fn is_right(&self) -> bool {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        positive(self.rate)
            && !self.requests.is_empty()
            && self.requests.iter().all(|request| positive(request.share))
    }
}
