//! All instances of a topology, one process each.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use firm_child::{Exit, Keeper, KeeperError, Kept, LineError, Placement};
use firm_model::InstanceId;

use crate::service::{AddressBook, Ready, ServiceConfig};
use crate::spans::Export;
use crate::topology::{Topology, Tracer};

/// How long an instance may take until its port is bound.
const READY: Duration = Duration::from_secs(10);

/// Why the caller could not place a process.
pub type PlaceError = Box<dyn std::error::Error + Send + Sync>;

/// Places a process that has not begun to work, given the instance's name and its process id.
pub type Place<'a> = dyn FnMut(&InstanceId, u32) -> Result<(), PlaceError> + 'a;

/// How instances are started.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    /// Program whose arguments `args` make it call [`crate::service::run_service`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// OTLP/HTTP endpoint for spans, such as `http://127.0.0.1:4318`.
    pub otlp: String,
    /// Agent address (thrift compact over UDP) for services that use the Jaeger client.
    pub jaeger: SocketAddr,
    /// How often spans are exported.
    pub export_interval: Duration,
    /// CPUs the instances may run on, empty for all.
    pub cpus: Vec<usize>,
    /// Nice value of the instances, `None` to inherit.
    pub nice: Option<i32>,
    /// Seed of the amounts of work.
    pub seed: u64,
}

/// Why a fleet could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A process could not be started or ended.
    #[error("processes cannot be kept")]
    Keeper(#[from] KeeperError),
    /// An instance did not say what was expected.
    #[error("instance `{instance}` does not come up")]
    Instance {
        /// Which.
        instance: InstanceId,
        /// What went wrong.
        source: LineError,
    },
    /// The caller could not place an instance.
    #[error("instance `{instance}` (process {pid}) cannot be placed")]
    Place {
        /// Which.
        instance: InstanceId,
        /// Its process id.
        pid: u32,
        /// What went wrong.
        source: PlaceError,
    },
}

/// One running instance.
#[derive(Debug)]
pub struct Instance {
    /// Its name, `SERVICE-REPLICA`.
    pub id: InstanceId,
    /// Its service.
    pub service: String,
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub address: SocketAddr,
    kept: Kept,
}

/// The running instances. They end with it, and with its process even on `kill -9`.
#[derive(Debug)]
pub struct Fleet {
    instances: Vec<Instance>,
    keeper: Keeper,
}

impl Fleet {
    /// Starts all instances and waits until each can serve.
    ///
    /// `place` is called with each instance's name and process id before the instance has its
    /// configuration: it has started no thread and done no work by then, so putting the process
    /// into a cgroup puts all of it there.
    ///
    /// # Errors
    /// An instance did not come up, or `place` failed; those already started are ended.
    pub fn start(
        topology: &Topology,
        config: &FleetConfig,
        place: &mut Place<'_>,
    ) -> Result<Self, FleetError> {
        let keeper = Keeper::start()?;
        let mut started = Vec::new();
        for service in &topology.services {
            for name in service.instances() {
                let id = InstanceId::new(name.clone());
                let mut kept = keeper.spawn(&name, &config.program, &config.args)?;
                place(&id, kept.pid).map_err(|source| FleetError::Place {
                    instance: id.clone(),
                    pid: kept.pid,
                    source,
                })?;
                let first = ServiceConfig {
                    placement: Placement {
                        parent: std::process::id(),
                        cpus: config.cpus.clone(),
                        nice: config.nice,
                    },
                    service: service.name.clone(),
                    instance: name,
                    threads: service.threads,
                    seed: config.seed.wrapping_add(started.len() as u64),
                    export: match service.tracer {
                        Tracer::Otlp => {
                            Export::Otlp(format!("{}/v1/traces", config.otlp.trim_end_matches('/')))
                        }
                        Tracer::Jaeger => Export::Jaeger(config.jaeger.to_string()),
                    },
                    export_interval_ms: u64::try_from(config.export_interval.as_millis())
                        .unwrap_or(u64::MAX),
                    operations: service.operations.clone(),
                };
                kept.send(&first).map_err(not_up(&id))?;
                started.push((id, service.name.clone(), kept));
            }
        }
        let mut instances = Vec::with_capacity(started.len());
        let mut book = AddressBook::default();
        for (id, service, mut kept) in started {
            let ready: Ready = kept.receive(READY).map_err(not_up(&id))?;
            book.0.entry(service.clone()).or_default().push(ready.ready);
            instances.push(Instance {
                id,
                service,
                pid: kept.pid,
                address: ready.ready,
                kept,
            });
        }
        for instance in &mut instances {
            instance.kept.send(&book).map_err(not_up(&instance.id))?;
        }
        Ok(Self { instances, keeper })
    }

    /// The instances, in the order of the topology.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Where the first instance of a service listens.
    #[must_use]
    pub fn address(&self, service: &str) -> Option<SocketAddr> {
        let of = |instance: &&Instance| instance.service == service;
        self.instances
            .iter()
            .find(of)
            .map(|instance| instance.address)
    }

    /// Instances that ended without being asked to, since the last call.
    #[must_use]
    pub fn take_exits(&self) -> Vec<Exit> {
        self.keeper.take_exits()
    }

    /// Ends all instances: `SIGTERM`, after `grace` `SIGKILL`. Returns when all are gone.
    ///
    /// # Errors
    /// The thread that keeps them has ended.
    pub fn stop(self, grace: Duration) -> Result<Vec<Exit>, FleetError> {
        let pids: Vec<u32> = self.instances.iter().map(|instance| instance.pid).collect();
        Ok(self.keeper.stop(&pids, grace)?)
    }
}

fn not_up(id: &InstanceId) -> impl Fn(LineError) -> FleetError + '_ {
    |source| FleetError::Instance {
        instance: id.clone(),
        source,
    }
}
