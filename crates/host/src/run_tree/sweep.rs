//! Names of runs, and removing what dead runs left.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::remove::{child_groups, remove_tree};
use super::{PROC, RunTreeError};
use crate::mounts::{CpuLayout, Mounts};
use crate::process::{self, ProcessIdentity};

/// What became of runs that had left groups behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Runs whose groups were removed.
    pub removed: Vec<String>,
    /// Runs that were left alone because their process lives, or cannot be judged from here.
    pub left: Vec<String>,
}

/// Removes the groups of dead runs of this prefix, with the processes in them.
///
/// # Errors
/// No hierarchy for CPU, or a group cannot be emptied or removed.
pub fn sweep(mounts: &Mounts, prefix: &str) -> Result<SweepReport, RunTreeError> {
    let layout = mounts.cpu_layout()?;
    let here = pid_namespace();
    let mut report = SweepReport::default();
    for point in points(&layout) {
        let names = child_groups(point)?;
        for name in names.iter().filter_map(|dir| dir.file_name()?.to_str()) {
            let Some((owner, namespace)) = parse_run_name(prefix, name) else {
                continue;
            };
            let may_live = Some(namespace) != here
                || process::start_time(Path::new(PROC), owner.pid) == Some(owner.start_time);
            let list = if may_live {
                &mut report.left
            } else {
                remove_tree(&point.join(name))?;
                &mut report.removed
            };
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        }
    }
    Ok(report)
}

fn points(layout: &CpuLayout) -> Vec<&Path> {
    let usage = layout.usage.as_ref().map(|mount| mount.point.as_path());
    std::iter::once(layout.quota.point.as_path())
        .chain(usage.filter(|point| *point != layout.quota.point))
        .collect()
}

pub(super) fn run_name(prefix: &str, owner: ProcessIdentity, namespace: u64) -> String {
    format!("{prefix}-{}-{}-{namespace}", owner.pid, owner.start_time)
}

fn parse_run_name(prefix: &str, name: &str) -> Option<(ProcessIdentity, u64)> {
    let mut parts = name.strip_prefix(prefix)?.strip_prefix('-')?.split('-');
    let pid = parts.next()?.parse().ok()?;
    let start_time = parts.next()?.parse().ok()?;
    let namespace = parts.next()?.parse().ok()?;
    let owner = ProcessIdentity { pid, start_time };
    parts.next().is_none().then_some((owner, namespace))
}

/// Process ids mean something only within their namespace, so it is part of a run's name.
pub(super) fn pid_namespace() -> Option<u64> {
    fs_err::metadata(Path::new(PROC).join("self/ns/pid"))
        .ok()
        .map(|meta| meta.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_read_back_and_others_are_not_ours() {
        let owner = ProcessIdentity {
            pid: 17,
            start_time: 400,
        };
        let name = run_name("firm", owner, 9);
        assert_eq!(parse_run_name("firm", &name), Some((owner, 9)));
        for other in [
            "firm",
            "firm-17",
            "firm-17-400",
            "firm-17-400-9-1",
            "firm-probe-17-400-9",
        ] {
            assert_eq!(parse_run_name("firm", other), None, "{other}");
        }
    }
}
