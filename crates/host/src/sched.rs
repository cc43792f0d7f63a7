//! Time that a process's threads were runnable and waited for a CPU, for hosts where no group of
//! our own can be made.
//!
//! Source: kernel `Documentation/scheduler/sched-stats.rst` (`/proc/PID/schedstat`).

use std::path::Path;

use firm_model::{MilliCores, Monotonic};

use crate::kernel_file::{self, KernelFileError};

/// Scheduler counters of all threads of a process that live now. A thread that ended takes its
/// counters with it, so a sum can fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedSample {
    /// When it was read.
    pub at: Monotonic,
    /// Time on a CPU, nanoseconds.
    pub run_ns: u64,
    /// Time runnable and waiting for a CPU, nanoseconds. Throttling counts as waiting.
    pub wait_ns: u64,
    /// Threads summed.
    pub threads: u32,
}

/// What a process's threads did between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedRate {
    /// Length of the interval, nanoseconds.
    pub interval_ns: u64,
    /// CPU used.
    pub run: MilliCores,
    /// CPU that they were ready to use and did not get; 1000 is one thread that waited all the
    /// time.
    pub wait: MilliCores,
}

impl SchedSample {
    /// The rate from `earlier` to `self`; `None` when no time passed, or a sum fell because
    /// threads ended.
    #[must_use]
    pub fn rate_since(&self, earlier: &SchedSample) -> Option<SchedRate> {
        let interval_ns = u64::try_from((self.at - earlier.at).as_nanos()).ok()?;
        let over = |now: u64, then: u64| {
            let grown = now.checked_sub(then)?.saturating_mul(1000);
            grown.checked_div(interval_ns).map(MilliCores::new)
        };
        Some(SchedRate {
            interval_ns,
            run: over(self.run_ns, earlier.run_ns)?,
            wait: over(self.wait_ns, earlier.wait_ns)?,
        })
    }
}

/// Sums the counters of a process's threads. `None` if the process is gone or the kernel keeps
/// no such counters.
///
/// # Errors
/// A file is there and cannot be read or has another form.
pub fn sample(
    proc: &Path,
    pid: u32,
    now: Monotonic,
) -> Result<Option<SchedSample>, KernelFileError> {
    let tasks = proc.join(pid.to_string()).join("task");
    let Ok(entries) = fs_err::read_dir(&tasks) else {
        return Ok(None);
    };
    let mut sum = SchedSample {
        at: now,
        run_ns: 0,
        wait_ns: 0,
        threads: 0,
    };
    for entry in entries {
        let Ok(entry) = entry else { break };
        let path = entry.path().join("schedstat");
        // A thread may end between listing and reading.
        let Some(text) = read_of_thread(&path)? else {
            continue;
        };
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(run)), Some(Ok(wait))) = (numbers.next(), numbers.next()) else {
            return Err(KernelFileError::Format {
                path,
                text,
                expected: "three whole numbers",
            });
        };
        sum.run_ns = sum.run_ns.saturating_add(run);
        sum.wait_ns = sum.wait_ns.saturating_add(wait);
        sum.threads = sum.threads.saturating_add(1);
    }
    Ok((sum.threads > 0).then_some(sum))
}

fn read_of_thread(path: &Path) -> Result<Option<String>, KernelFileError> {
    match kernel_file::read_optional(path) {
        Err(KernelFileError::Read { source, .. })
            if source.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) =>
        {
            Ok(None)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_time_and_sums_that_grow() {
        let at = |ms: u64, run: u64, wait: u64| SchedSample {
            at: Monotonic::from_nanos(ms * 1_000_000),
            run_ns: run * 1_000_000,
            wait_ns: wait * 1_000_000,
            threads: 2,
        };
        let rate = at(300, 70, 150).rate_since(&at(100, 50, 50)).unwrap();
        assert_eq!(
            (rate.run, rate.wait),
            (MilliCores::new(100), MilliCores::new(500))
        );
        assert_eq!(at(300, 40, 150).rate_since(&at(100, 50, 50)), None);
        assert_eq!(at(100, 60, 60).rate_since(&at(100, 50, 50)), None);
    }

    #[test]
    fn threads_are_summed_and_a_missing_process_is_none() {
        let dir = tempfile::tempdir().unwrap();
        for (thread, text) in [("7", "100 20 3\n"), ("8", "1 2 1\n")] {
            let folder = dir.path().join("7/task").join(thread);
            fs_err::create_dir_all(&folder).unwrap();
            fs_err::write(folder.join("schedstat"), text).unwrap();
        }
        let now = Monotonic::from_nanos(1);
        let sum = sample(dir.path(), 7, now).unwrap().unwrap();
        assert_eq!((sum.run_ns, sum.wait_ns, sum.threads), (101, 22, 2));
        assert_eq!(sample(dir.path(), 9, now).unwrap(), None);
        fs_err::write(dir.path().join("7/task/8/schedstat"), "x\n").unwrap();
        assert!(sample(dir.path(), 7, now).is_err());
    }
}
