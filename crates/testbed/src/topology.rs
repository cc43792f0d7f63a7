//! What an application consists of: services, what their operations do, and the requests that
//! enter it. Read from YAML ([`Topology::parse`]), which checks every rule; the fields are open
//! for reading, and a topology made by hand is checked by nobody.

mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use firm_config::{Document, Problems};
use firm_model::{Latency, MilliCores, Objective};
use serde::{Deserialize, Serialize};

/// The shipped topology: a shop of seven services that needs well under half a core.
pub const DEMO: &str = include_str!("../topologies/demo.yaml");

/// An application and its load.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Its services, in the order of the file.
    pub services: Vec<Service>,
    /// Requests that enter it, in the order of the file.
    pub requests: Vec<EntryRequest>,
    /// Arrivals per second, all request types together.
    pub rate: f64,
    /// How arrivals are spread over time.
    pub arrivals: Arrivals,
}

/// One service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its name, also in spans.
    pub name: String,
    /// Number of instances, at least 1.
    pub replicas: u32,
    /// Threads an instance works with, at least 1.
    pub threads: u32,
    /// CPU quota of an instance.
    pub cpu: MilliCores,
    /// Client library that reports its spans.
    pub tracer: Tracer,
    /// What it can be asked for.
    pub operations: Vec<Operation>,
}

/// Client library that reports a service's spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracer {
    /// The OpenTelemetry SDK, OTLP over HTTP.
    Otlp,
    /// `opentelemetry-jaeger`, thrift over UDP.
    Jaeger,
}

/// One operation of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its name, also in spans.
    pub name: String,
    /// What it does, one after the other.
    pub steps: Vec<Step>,
}

/// One step of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Burns CPU time.
    Cpu(Work),
    /// Makes calls one after the other.
    Sequence(Vec<Call>),
    /// Makes calls at once and waits for all.
    Parallel(Vec<Call>),
    /// Makes calls and does not wait for them.
    Background(Vec<Call>),
}

/// An amount of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Mean CPU time.
    pub mean: Latency,
    /// How it is spread.
    pub distribution: Distribution,
}

/// How an amount of work is spread around its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Always the mean.
    Constant,
    /// Exponential: standard deviation equals the mean.
    Exponential,
    /// Log-normal with a standard deviation of half the mean.
    Lognormal,
}

/// A call of another operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Call {
    /// Service called.
    pub service: String,
    /// Its operation.
    pub operation: String,
}

/// A type of request that enters the application.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRequest {
    /// Where it enters, and what its latency may be.
    pub objective: Objective,
    /// Its share of all requests; the shares of a topology sum to 1.
    pub share: f64,
}

/// How arrivals are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// A Poisson process: exponential gaps.
    Poisson,
    /// Equal gaps.
    Constant,
}

// === impl Topology ===

impl Topology {
    /// Reads and checks a topology; `file` is its name in problems.
    ///
    /// # Errors
    /// All problems together: unknown keys, wrong units, unknown services and operations, calls
    /// in a circle, numbers out of range, quotas that cannot carry the load.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        Document::parse(file, text)?.read(read::topology)
    }

    /// The service of this name.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// CPU time per second that the configured work of each service needs at the topology's
    /// rate, all replicas together, in the order of `services`. What serving and tracing cost
    /// comes on top.
    #[must_use]
    pub fn cpu_need(&self) -> Vec<MilliCores> {
        need(&self.services, &self.requests, self.rate)
    }
}

// === impl Service ===

impl Service {
    /// Names of its instances: `NAME-0`, `NAME-1`, ...
    pub fn instances(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.replicas).map(|replica| format!("{}-{replica}", self.name))
    }
}

// === impl Step ===

impl Step {
    /// Calls that the step makes; none for CPU work.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        match self {
            Step::Cpu(_) => &[],
            Step::Sequence(calls) | Step::Parallel(calls) | Step::Background(calls) => calls,
        }
    }
}

// === impl Call ===

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.service, self.operation)
    }
}

/// CPU need by service. The calls must not form a circle.
fn need(services: &[Service], requests: &[EntryRequest], rate: f64) -> Vec<MilliCores> {
    let mut known = HashMap::new();
    let mut total = vec![0.0; services.len()];
    for request in requests {
        let call = Call {
            service: request.objective.service.clone(),
            operation: request.objective.operation.clone(),
        };
        for (index, seconds) in work_of(services, &call, &mut known) {
            total[index] += seconds * request.share * rate;
        }
    }
    total
        .into_iter()
        .map(|cores| MilliCores::from_cores(cores).unwrap_or(MilliCores::ZERO))
        .collect()
}

/// CPU seconds by service index that one call costs in the whole application.
fn work_of(
    services: &[Service],
    call: &Call,
    known: &mut HashMap<Call, BTreeMap<usize, f64>>,
) -> BTreeMap<usize, f64> {
    if let Some(work) = known.get(call) {
        return work.clone();
    }
    let mut work = BTreeMap::new();
    let found = services
        .iter()
        .enumerate()
        .find(|(_, service)| service.name == call.service)
        .and_then(|(index, service)| {
            let named = |operation: &&Operation| operation.name == call.operation;
            Some((index, service.operations.iter().find(named)?))
        });
    if let Some((index, operation)) = found {
        for step in &operation.steps {
            if let Step::Cpu(amount) = step {
                *work.entry(index).or_default() += Duration::from(amount.mean).as_secs_f64();
            }
            for called in step.calls() {
                for (other, seconds) in work_of(services, called, known) {
                    *work.entry(other).or_default() += seconds;
                }
            }
        }
    }
    known.insert(call.clone(), work.clone());
    work
}
