//! What a run stands on: cgroups, receivers, assembly, the application's processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use firm_host::{InstanceGroup, Mounts, RunTree, capability};
use firm_model::{Clock, ExecutionGraph, InstanceId, Interner, Timestamp};
use firm_testbed::Topology;
use firm_tracer::assemble::AssemblyLimits;
use firm_tracer::decode::jaeger_thrift::Protocol;
use firm_tracer::live::Tracer;
use firm_tracer::receive::{Parts, QueueLimits, ReceiverStats, jaeger_udp, otlp_http, span_queue};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;

use super::report::LimitCheck;
use super::setup::{DemoError, Mode, Setup};

/// First part of the name of a run's cgroup.
pub(crate) const PREFIX: &str = "firm";

/// The cgroups of a run, if they can be had.
pub(super) enum Groups {
    /// One per instance, below the run's own.
    Made {
        tree: RunTree,
        of: BTreeMap<InstanceId, InstanceGroup>,
    },
    /// None, and why.
    Unsupported(String),
}

impl Groups {
    /// Makes a group with its quota for every instance of the topology.
    pub(super) fn make(topology: &Topology) -> Result<Self, DemoError> {
        let mounts = match Mounts::read(Path::new("/proc/self/mountinfo")) {
            Ok(mounts) => mounts,
            Err(error) => return Ok(Self::Unsupported(error.to_string())),
        };
        if let Err(unsupported) = capability::can_write_cpu(&mounts) {
            return Ok(Self::Unsupported(unsupported.why().to_owned()));
        }
        // Groups of runs that were killed.
        firm_host::sweep(&mounts, PREFIX)?;
        let mut tree = RunTree::create(&mounts, PREFIX)?;
        let mut of = BTreeMap::new();
        for service in &topology.services {
            for name in service.instances() {
                let group = tree.add_instance(&name, service.cpu)?;
                of.insert(InstanceId::new(name), group);
            }
        }
        Ok(Self::Made { tree, of })
    }

    pub(super) fn of(&self, instance: &InstanceId) -> Option<&InstanceGroup> {
        match self {
            Self::Made { of, .. } => of.get(instance),
            Self::Unsupported(_) => None,
        }
    }

    fn limit_files(&self) -> Vec<PathBuf> {
        match self {
            Self::Made { of, .. } => of.values().flat_map(InstanceGroup::limit_files).collect(),
            Self::Unsupported(_) => Vec::new(),
        }
    }

    /// Why limits are not changed in a run, `None` if they are.
    pub(super) fn why_not_enforced(&self, setup: &Setup, mode: Mode) -> Option<String> {
        match (self, mode) {
            (Self::Unsupported(why), _) => Some(why.clone()),
            (_, Mode::Observe) => Some("asked to change nothing".to_owned()),
            _ if !setup.settings.mitigator.enforce => {
                Some("`mitigator.enforce` is false".to_owned())
            }
            _ => None,
        }
    }

    /// The bytes of every limit file.
    pub(super) fn snapshot(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let read = |path: PathBuf| {
            let bytes = fs_err::read(&path).ok()?;
            Some((path, bytes))
        };
        self.limit_files().into_iter().filter_map(read).collect()
    }

    /// Removes the groups, or leaves them for `firm restore`.
    pub(super) fn end(self, keep: bool) -> Result<(), DemoError> {
        if let Self::Made { mut tree, .. } = self {
            if keep {
                // Dropping it would remove the groups.
                std::mem::forget(tree);
            } else {
                tree.destroy()?;
            }
        }
        Ok(())
    }
}

/// Compares limit files with what they held. Those in `left` are another writer's now, and those
/// that are gone went with their group.
pub(super) fn compare(before: &[(PathBuf, Vec<u8>)], left: &[PathBuf]) -> LimitCheck {
    let mut check = LimitCheck {
        files: before.len(),
        ..LimitCheck::default()
    };
    for (path, bytes) in before {
        if fs_err::read(path).is_ok_and(|now| now == *bytes) {
            check.identical += 1;
        } else if left.contains(path) || !path.exists() {
            check.left.push(path.display().to_string());
        } else {
            check.different.push(path.display().to_string());
        }
    }
    check
}

/// Receivers and assembly of a run.
pub(super) struct Intake {
    pub(super) names: Arc<Interner>,
    pub(super) stats: Arc<ReceiverStats>,
    pub(super) otlp: SocketAddr,
    pub(super) jaeger: SocketAddr,
    pub(super) tracer: Tracer,
    runtime: tokio::runtime::Runtime,
    shutdown: watch::Sender<bool>,
}

impl Intake {
    /// Binds free ports on loopback and begins to receive. `consume` gets every graph with the
    /// time of its arrival.
    pub(super) fn open(
        limits: AssemblyLimits,
        clock: Arc<dyn Clock>,
        mut consume: impl FnMut(ExecutionGraph, Timestamp) -> bool + Send + 'static,
    ) -> Result<Self, DemoError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("receive")
            .enable_all()
            .build()
            .map_err(DemoError::io("start a runtime"))?;
        let names = Arc::new(Interner::new());
        let stats = Arc::new(ReceiverStats::default());
        let (sender, receiver) = span_queue(QueueLimits::default());
        let parts = Parts {
            names: Arc::clone(&names),
            spans: sender,
            stats: Arc::clone(&stats),
        };
        let (shutdown, stopped) = watch::channel(false);
        let until = |mut stopped: watch::Receiver<bool>| async move {
            // The sender is gone only at the end.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let bind = async {
            let http = TcpListener::bind(loopback).await?;
            let udp = UdpSocket::bind(loopback).await?;
            let addresses = (http.local_addr()?, udp.local_addr()?);
            Ok((http, udp, addresses))
        };
        let (http, udp, (otlp, jaeger)) = runtime
            .block_on(bind)
            .map_err(DemoError::io("listen on loopback"))?;
        let limits_http = otlp_http::HttpLimits::default();
        runtime.spawn(otlp_http::run(
            http,
            limits_http,
            parts.clone(),
            until(stopped.clone()),
        ));
        runtime.spawn(jaeger_udp::run(
            udp,
            Protocol::Compact,
            parts,
            until(stopped),
        ));
        let wall = Arc::clone(&clock);
        let tracer = Tracer::start_with(receiver, limits, clock, move |graph| {
            consume(graph, wall.wall())
        })
        .map_err(DemoError::io("start the assembly thread"))?;
        Ok(Self {
            names,
            stats,
            otlp,
            jaeger,
            tracer,
            runtime,
            shutdown,
        })
    }

    /// Stops receiving, assembles what is there, and ends the threads.
    pub(super) fn close(self) -> firm_tracer::live::LiveCounts {
        // Receivers that have ended already do not hear it.
        let _ = self.shutdown.send(true);
        self.runtime
            .shutdown_timeout(std::time::Duration::from_secs(3));
        self.tracer.stop()
    }
}
