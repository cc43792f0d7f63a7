//! Contention for CPU without cgroups: the target's threads give way to everybody, and the
//! stressor to everybody but the target.

use std::path::Path;

use rustix::process::{Pid, setpriority_process};

/// Nice value of the stressor: thirty-five times the weight of the target, half that of the rest.
pub(super) const STRESSOR_NICE: i32 = 3;
/// Intensity of the stressor, 0 to 1. No quota holds the target, so it lives on whatever time is
/// left over; beside a weaker stressor that left the objective kept.
pub(super) const INTENSITY: f64 = 1.0;
/// Nice value of the target while it is starved.
const TARGET_NICE: i32 = 19;

/// Lowers the priority of all threads of a process. An unprivileged user cannot raise it again:
/// it ends with the process.
///
/// # Errors
/// The process is gone, or is somebody else's.
pub(super) fn give_way(pid: u32) -> std::io::Result<()> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    for entry in fs_err::read_dir(tasks)? {
        let name = entry?.file_name();
        let thread = name
            .to_str()
            .and_then(|name| name.parse().ok())
            .and_then(Pid::from_raw);
        if let Some(thread) = thread {
            setpriority_process(Some(thread), TARGET_NICE)?;
        }
    }
    Ok(())
}
