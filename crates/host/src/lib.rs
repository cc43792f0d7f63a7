//! The kernel's surfaces: where cgroups are mounted, how much CPU a group used and was denied,
//! the groups of a run, and the one way to write a limit.
//!
//! What this crate never does: decide. It never touches a group that it did not make or was not
//! given, and never builds an instance's group as a string: that comes from `/proc/PID/cgroup`
//! and the mount table ([`mounts`]).
//!
//! Begin with [`mounts`], then [`limit_writer`]. Roots of kernel trees (`/proc`, the mount table)
//! are parameters, so that parsing is tested on made trees; what the kernel does is tested on
//! the real one in `tests/kernel/main.rs`.
//!
//! ```no_run
//! use std::path::Path;
//! use firm_host::{Mounts, RunTree, capability};
//! use firm_model::MilliCores;
//!
//! let mounts = Mounts::read(Path::new("/proc/self/mountinfo"))?;
//! capability::can_write_cpu(&mounts)?;
//! let mut run = RunTree::create(&mounts, "firm")?;
//! let cart = run.add_instance("cart-0", MilliCores::new(250))?;
//! cart.app_add_pid(4711)?;
//! run.destroy()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod actuator;
pub mod capability;
pub mod cpu;
mod journal;
mod kernel_file;
mod limit_file;
pub mod limit_writer;
pub mod mounts;
pub mod process;
pub mod restore;
pub mod run_tree;
mod safe_open;
pub mod sched;
pub mod state_dir;

pub use actuator::{ActuatorError, CpuActuator};
pub use capability::{Unsupported, can_write_cpu};
pub use cpu::{CpuGroup, CpuQuota, QuotaError};
pub use kernel_file::KernelFileError;
pub use limit_writer::{LimitError, LimitWriter, Written};
pub use mounts::{CgroupVersion, CpuLayout, Mounts, MountsError};
pub use restore::{RestoreError, RestoreReport, Restored, restore};
pub use run_tree::{InstanceGroup, RunTree, RunTreeError, SweepReport, sweep};
pub use state_dir::{StateDir, StateDirError, StateLock};
