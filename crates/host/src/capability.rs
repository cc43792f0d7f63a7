//! What this machine lets us do, with the reason where it does not.

use firm_model::text::chain;
use nix::unistd::{AccessFlags, access, geteuid};

use crate::mounts::{CgroupVersion, Mounts};
use crate::run_tree::{RunTree, sweep};

const PROBE: &str = "firm-probe";

/// Something this machine does not allow, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unsupported {
    why: String,
}

impl Unsupported {
    /// With a reason that completes "not supported: ".
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// The reason, one line.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// Whether CPU quotas can be written here: a group of our own is made, given a quota, and removed.
///
/// # Errors
/// The reason, for a dry run's one line.
pub fn can_write_cpu(mounts: &Mounts) -> Result<CgroupVersion, Unsupported> {
    let layout = mounts.cpu_layout()?;
    let point = &layout.quota.point;
    if layout.quota.read_only {
        return Err(Unsupported::new(format!(
            "cgroup {} at `{}` is mounted read-only",
            layout.version,
            point.display()
        )));
    }
    if access(point, AccessFlags::W_OK).is_err() {
        return Err(Unsupported::new(format!(
            "cgroup {} at `{}` is not writable by user {}, run as root",
            layout.version,
            point.display(),
            geteuid()
        )));
    }
    let tried = || {
        // One that was killed here before.
        sweep(mounts, PROBE)?;
        let mut run = RunTree::create(mounts, PROBE)?;
        run.add_instance("probe", firm_model::MilliCores::new(100))?;
        run.destroy()
    };
    match tried() {
        Ok(()) => Ok(layout.version),
        Err(error) => Err(Unsupported::new(chain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told() {
        let why = can_write_cpu(&Mounts::parse("")).unwrap_err();
        assert_eq!(why.why(), "no cgroup hierarchy is mounted");
        let table = "32 31 0:29 / /sys/fs/cgroup/cpu ro,relatime - cgroup cgroup rw,cpu";
        let why = can_write_cpu(&Mounts::parse(table)).unwrap_err();
        assert!(why.why().ends_with("is mounted read-only"), "{why}");
    }

    #[test]
    fn a_folder_that_is_no_cgroup_tree_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let table = format!(
            "1 2 0:1 / {} rw - cgroup cgroup rw,cpu",
            dir.path().display()
        );
        let why = can_write_cpu(&Mounts::parse(&table)).unwrap_err();
        assert!(why.why().contains("cpu.shares"), "{why}");
        let left = fs_err::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "the probe leaves nothing behind");
    }
}
