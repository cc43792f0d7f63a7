//! What a run is made of, and why it fails.

use std::path::PathBuf;

use firm_host::{RunTreeError, StateDirError};
use firm_injector::inject::InjectError;
use firm_model::Objective;
use firm_store::EventLogError;
use firm_testbed::Topology;
use firm_testbed::fleet::FleetError;
use firm_testbed::load::LoadError;

use crate::settings::Settings;

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

impl Setup {
    /// The objectives of the settings, else those of the topology.
    pub(super) fn objectives(&self) -> Vec<Objective> {
        if !self.settings.objectives.is_empty() {
            return self.settings.objectives.clone();
        }
        let requests = self.topology.requests.iter();
        requests.map(|request| request.objective.clone()).collect()
    }
}
