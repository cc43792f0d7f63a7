//! What a child does before anything else, and its own CPU time.

use std::time::Duration;

use nix::errno::Errno;
use nix::sched::CpuSet;
use nix::sys::signal::Signal;
use nix::time::ClockId;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Where and how eagerly a child runs, and whose child it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Process that must be alive; the child ends when it is not.
    pub parent: u32,
    /// CPUs the child may run on, empty for those it inherits.
    pub cpus: Vec<usize>,
    /// Nice value from -20 (most eager) to 19, `None` to inherit.
    pub nice: Option<i32>,
}

/// Why a child cannot start its work.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The parent ended before the parent-death signal was armed.
    #[error("parent {0} has already ended")]
    Orphan(u32),
    /// The kernel refused.
    #[error("cannot set {what} to {value}")]
    Refused {
        /// What was to be set.
        what: &'static str,
        /// To what.
        value: String,
        /// Why not.
        source: Errno,
    },
}

/// Arms the parent-death signal (`SIGKILL`), then takes the CPUs and the nice value. To be
/// called before other threads are started: they inherit both.
///
/// # Errors
/// See [`EnterError`].
pub fn enter(placement: &Placement) -> Result<(), EnterError> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|source| EnterError::Refused {
        what: "parent-death signal",
        value: Signal::SIGKILL.to_string(),
        source,
    })?;
    if parent_is_gone(placement.parent) {
        return Err(EnterError::Orphan(placement.parent));
    }
    take_cpus(&placement.cpus)?;
    placement.nice.map_or(Ok(()), take_nice)
}

/// Gives the calling thread, and threads and processes it starts later, a nice value from -20
/// (most eager) to 19. Lower than the present one needs privilege.
///
/// # Errors
/// [`EnterError::Refused`].
pub fn take_nice(nice: i32) -> Result<(), EnterError> {
    rustix::process::setpriority_process(None, nice).map_err(|error| EnterError::Refused {
        what: "nice value",
        value: nice.to_string(),
        source: Errno::from_raw(error.raw_os_error()),
    })
}

/// Lets the calling thread, and threads it starts later, run on `cpus` alone; empty changes
/// nothing.
///
/// # Errors
/// [`EnterError::Refused`], such as for CPUs that are not there.
pub fn take_cpus(cpus: &[usize]) -> Result<(), EnterError> {
    if cpus.is_empty() {
        return Ok(());
    }
    let refused = |source| EnterError::Refused {
        what: "CPU affinity",
        value: format!("{cpus:?}"),
        source,
    };
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu).map_err(refused)?;
    }
    nix::sched::sched_setaffinity(Pid::from_raw(0), &set).map_err(refused)
}

/// Whether `parent` is no longer the parent of this process.
#[must_use]
pub fn parent_is_gone(parent: u32) -> bool {
    u32::try_from(nix::unistd::getppid().as_raw()) != Ok(parent)
}

/// CPU time that the calling thread has used: it stands still while the thread waits for a CPU.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    // The clock always exists on Linux (`clock_gettime(2)`), so there is no error to report.
    ClockId::CLOCK_THREAD_CPUTIME_ID
        .now()
        .map(Duration::from)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_cpu_time_grows_with_work_alone() {
        let before = thread_cpu_time();
        let mut x = 1_u64;
        while thread_cpu_time() < before + Duration::from_millis(2) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(thread_cpu_time() - before >= Duration::from_millis(2));
        let worked = thread_cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        // What the sleep itself costs is far below what it lasts.
        assert!(thread_cpu_time() - worked < Duration::from_millis(50));
    }

    #[test]
    fn cpus_that_are_not_there_are_refused_by_name() {
        let error = take_cpus(&[1000]).unwrap_err();
        assert!(error.to_string().contains("CPU affinity to [1000]"));
        assert!(take_cpus(&[1 << 40]).is_err());
    }

    #[test]
    fn a_stranger_is_not_the_parent() {
        assert!(parent_is_gone(std::process::id()));
    }
}
