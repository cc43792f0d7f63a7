//! The groups of a run: `RUN/INSTANCE` with the quota on it, and leaves `app` and `stress` below,
//! because v2 allows no processes in inner groups.
//!
//! A run's name holds its process, `PREFIX-PID-START-NAMESPACE`, so that [`sweep`] can tell what a
//! dead run left from what a living one uses. Only groups made here are ever emptied or removed.

mod remove;
mod sweep;

use std::path::{Path, PathBuf};

use firm_model::{CpuSample, MilliCores, Monotonic};

use crate::capability::Unsupported;
use crate::cpu::{CpuGroup, CpuQuota, DEFAULT_PERIOD_US};
use crate::kernel_file::{self, KernelFileError};
use crate::mounts::{CgroupVersion, Mounts};
use crate::process::ProcessIdentity;
use remove::{child_groups, remove_tree};
use sweep::{pid_namespace, run_name};

pub use sweep::{SweepReport, sweep};

const PROC: &str = "/proc";
const PROCS: &str = "cgroup.procs";
const SUBTREE: &str = "cgroup.subtree_control";

/// Groups could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum RunTreeError {
    /// This machine has no hierarchy for CPU.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A kernel file could not be read or written.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// A group could not be made.
    #[error("cannot make group `{path}`")]
    Make {
        /// The group's folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A group could not be removed.
    #[error("cannot remove group `{path}`")]
    Remove {
        /// The group's folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Processes stayed although they were killed.
    #[error("group `{path}` still holds processes {pids:?} after they were killed")]
    NotEmpty {
        /// The group's folder.
        path: PathBuf,
        /// What is left.
        pids: Vec<u32>,
    },
    /// A name that cannot be a group of its own.
    #[error("`{0}` cannot name a group: only letters, digits, `-`, `_` and `.` inside")]
    Name(String),
}

/// The groups of one run. Dropping it destroys them.
#[derive(Debug)]
pub struct RunTree {
    group: CpuGroup,
    /// Top of the v2 hierarchy, if its groups had no cpu controller before us.
    enabled_at: Option<PathBuf>,
    destroyed: bool,
}

/// The groups of one instance.
#[derive(Debug, Clone)]
pub struct InstanceGroup {
    name: String,
    group: CpuGroup,
    app: CpuGroup,
    stress: CpuGroup,
}

impl RunTree {
    /// Makes the group of a run at the top of the hierarchy, named after `prefix` and this process.
    ///
    /// # Errors
    /// No hierarchy for CPU, or the group cannot be made.
    pub fn create(mounts: &Mounts, prefix: &str) -> Result<Self, RunTreeError> {
        let layout = mounts.cpu_layout()?;
        check_name(prefix)?;
        let own = ProcessIdentity::own(Path::new(PROC))?;
        let name = run_name(prefix, own, pid_namespace().unwrap_or(0));
        let point = layout.quota.point.clone();
        let enabled = layout.version == CgroupVersion::V2 && enable_cpu(&point)?;
        let run = Self {
            group: CpuGroup::at(&layout, Path::new(&name)),
            enabled_at: enabled.then_some(point),
            destroyed: false,
        };
        // From here on, dropping `run` removes what was made.
        make(&run.group)?;
        if layout.version == CgroupVersion::V2 {
            enable_cpu(run.group.quota_dir())?;
        }
        prefer(&run.group)?;
        Ok(run)
    }

    /// Folder of the run in the hierarchy of the quota.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.group.quota_dir()
    }

    /// Makes an instance's groups with a quota at the default period.
    ///
    /// # Errors
    /// The name is no group's name or taken, or the groups cannot be made.
    pub fn add_instance(
        &mut self,
        name: &str,
        quota: MilliCores,
    ) -> Result<InstanceGroup, RunTreeError> {
        check_name(name)?;
        let group = self.group.child(name);
        make(&group)?;
        let quota = CpuQuota::from_limit(quota, DEFAULT_PERIOD_US, 0, None);
        // The group is new and ours: this is its original value, not a change.
        kernel_file::write(&group.quota_file(), group.quota_text(&quota).as_bytes())?;
        if group.version() == CgroupVersion::V2 {
            enable_cpu(group.quota_dir())?;
        }
        let instance = InstanceGroup {
            name: name.to_owned(),
            app: group.child("app"),
            stress: group.child("stress"),
            group,
        };
        make(&instance.app)?;
        make(&instance.stress)?;
        Ok(instance)
    }

    /// Kills what is left in the run's groups and removes them.
    ///
    /// # Errors
    /// Processes stay, or a group cannot be removed; call it again to go on.
    pub fn destroy(&mut self) -> Result<(), RunTreeError> {
        for dir in self.group.dirs() {
            remove_tree(dir)?;
        }
        self.destroyed = true;
        match self.enabled_at.take() {
            // Groups that others made since may have come to rely on the controller.
            Some(point) if child_groups(&point)?.is_empty() => {
                Ok(kernel_file::write(&point.join(SUBTREE), b"-cpu")?)
            }
            _ => Ok(()),
        }
    }
}

impl Drop for RunTree {
    fn drop(&mut self) {
        if !self.destroyed {
            // What stays is swept at the next start.
            let _ = self.destroy();
        }
    }
}

impl InstanceGroup {
    /// The instance's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The group that has the quota.
    #[must_use]
    pub const fn cpu(&self) -> &CpuGroup {
        &self.group
    }

    /// Moves a process, with all its threads, to the application's leaf.
    ///
    /// # Errors
    /// No such process, or it may not be moved.
    pub fn app_add_pid(&self, pid: u32) -> Result<(), KernelFileError> {
        add_pid(&self.app, pid)
    }

    /// Moves a process, with all its threads, to the stressors' leaf.
    ///
    /// # Errors
    /// No such process, or it may not be moved.
    pub fn stress_add_pid(&self, pid: u32) -> Result<(), KernelFileError> {
        add_pid(&self.stress, pid)
    }

    /// Counters of application and stressors together, throttling by the instance's quota.
    ///
    /// # Errors
    /// A counter is there and cannot be read.
    pub fn cpu_sample(&self, now: Monotonic) -> Result<CpuSample, KernelFileError> {
        self.group.sample(now)
    }

    /// CPU time that the application alone used, nanoseconds.
    ///
    /// # Errors
    /// The counter is there and cannot be read.
    pub fn app_usage_ns(&self) -> Result<Option<u64>, KernelFileError> {
        usage_ns(&self.app)
    }

    /// CPU time that the stressors alone used, nanoseconds.
    ///
    /// # Errors
    /// The counter is there and cannot be read.
    pub fn stress_usage_ns(&self) -> Result<Option<u64>, KernelFileError> {
        usage_ns(&self.stress)
    }

    /// The files that limit the instance.
    #[must_use]
    pub fn limit_files(&self) -> Vec<PathBuf> {
        self.group.limit_files()
    }
}

fn usage_ns(group: &CpuGroup) -> Result<Option<u64>, KernelFileError> {
    Ok(group.sample(Monotonic::from_nanos(0))?.usage_ns)
}

fn check_name(name: &str) -> Result<(), RunTreeError> {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // Leading dots are `.` and `..`; names with a dot could be the kernel's own files.
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.chars().all(is_inside) && name.len() <= 200 {
        Ok(())
    } else {
        Err(RunTreeError::Name(name.to_owned()))
    }
}

fn make(group: &CpuGroup) -> Result<(), RunTreeError> {
    for dir in group.dirs() {
        fs_err::create_dir(dir).map_err(|source| RunTreeError::Make {
            path: dir.to_owned(),
            source,
        })?;
    }
    Ok(())
}

/// Gives a run twenty times the usual weight against what else the machine does, so that a run
/// is hurt by its own contention and not by a neighbour's build.
fn prefer(group: &CpuGroup) -> Result<(), KernelFileError> {
    let (file, weight) = match group.version() {
        CgroupVersion::V1 => ("cpu.shares", "20480"),
        CgroupVersion::V2 => ("cpu.weight", "2000"),
    };
    kernel_file::write(&group.quota_dir().join(file), weight.as_bytes())
}

/// Gives the groups below the cpu controller; `false` where they have it already.
fn enable_cpu(dir: &Path) -> Result<bool, KernelFileError> {
    let path = dir.join(SUBTREE);
    let enabled = kernel_file::read(&path)?;
    if enabled.split_ascii_whitespace().any(|name| name == "cpu") {
        return Ok(false);
    }
    kernel_file::write(&path, b"+cpu")?;
    Ok(true)
}

fn add_pid(group: &CpuGroup, pid: u32) -> Result<(), KernelFileError> {
    for dir in group.dirs() {
        kernel_file::write(&dir.join(PROCS), pid.to_string().as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_run() {
        for wrong in ["", ".", "..", "../x", "a/b", "a b", "-x", "a\n"] {
            assert!(check_name(wrong).is_err(), "{wrong:?}");
        }
        assert!(check_name("cart-0").is_ok());
    }
}
