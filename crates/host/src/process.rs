//! Who a process is: its id alone is used again after it died, its start time tells.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kernel_file::{self, KernelFileError};

/// A process by id and start time (`/proc/PID/stat`, field 22, clock ticks since boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its id.
    pub pid: u32,
    /// Its start time.
    pub start_time: u64,
}

impl ProcessIdentity {
    /// This process.
    ///
    /// # Errors
    /// `/proc` is not mounted at `proc` or has another form.
    pub fn own(proc: &Path) -> Result<Self, KernelFileError> {
        let pid = std::process::id();
        let path = proc.join(pid.to_string()).join("stat");
        let text = kernel_file::read(&path)?;
        let start_time = parse_start_time(&text).ok_or(KernelFileError::Format {
            path,
            text,
            expected: "at least 22 fields",
        })?;
        Ok(Self { pid, start_time })
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn is_alive(&self, proc: &Path) -> bool {
        start_time(proc, self.pid) == Some(self.start_time)
    }
}

/// Start time of a process, `None` if there is none of that id.
#[must_use]
pub fn start_time(proc: &Path, pid: u32) -> Option<u64> {
    let text = kernel_file::read(&proc.join(pid.to_string()).join("stat")).ok()?;
    parse_start_time(&text)
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The second field is the name in brackets and may hold anything, brackets included.
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_and_spaces_do_not_shift_fields() {
        let stat = "42 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse_start_time(stat), Some(777));
        assert_eq!(parse_start_time("42 (short) R 1"), None);
        assert_eq!(parse_start_time(""), None);
    }

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not() {
        let proc = Path::new("/proc");
        let own = ProcessIdentity::own(proc).unwrap();
        assert!(own.is_alive(proc));
        let other = ProcessIdentity {
            start_time: own.start_time + 1,
            ..own
        };
        assert!(!other.is_alive(proc));
    }
}
