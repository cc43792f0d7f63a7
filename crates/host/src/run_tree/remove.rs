//! Emptying and removing groups that were made here.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{PROCS, RunTreeError};
use crate::kernel_file::{self, KernelFileError};

/// Killed processes leave their group within milliseconds, under load within a second.
const EMPTY_RETRIES: u32 = 500;
const EMPTY_PAUSE: Duration = Duration::from_millis(10);

pub(super) fn child_groups(dir: &Path) -> Result<Vec<PathBuf>, RunTreeError> {
    let failed = |source| KernelFileError::Read {
        path: dir.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs_err::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Empties and removes a group made by us and all below, leaves first.
pub(super) fn remove_tree(dir: &Path) -> Result<(), RunTreeError> {
    if !dir.exists() {
        return Ok(());
    }
    for child in child_groups(dir)? {
        remove_tree(&child)?;
    }
    empty(dir)?;
    // The kernel may need a moment to let go of processes that have just died.
    for attempt in 1.. {
        match fs_err::remove_dir(dir) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) if error.kind() == ErrorKind::ResourceBusy && attempt < EMPTY_RETRIES => {
                std::thread::sleep(EMPTY_PAUSE);
            }
            Err(source) => {
                return Err(RunTreeError::Remove {
                    path: dir.to_owned(),
                    source,
                });
            }
        }
    }
    Ok(())
}

fn empty(dir: &Path) -> Result<(), RunTreeError> {
    let mut left = Vec::new();
    for _ in 0..EMPTY_RETRIES {
        left = pids(dir)?;
        if left.is_empty() {
            return Ok(());
        }
        for pid in &left {
            let Ok(raw) = i32::try_from(*pid) else {
                continue;
            };
            // Id 0 is a process of another namespace, and would mean our own process group.
            if raw > 0 && *pid != std::process::id() {
                // Gone by itself, or seen again in the next round.
                let _: Result<(), Errno> = kill(Pid::from_raw(raw), Signal::SIGKILL);
            }
        }
        std::thread::sleep(EMPTY_PAUSE);
    }
    Err(RunTreeError::NotEmpty {
        path: dir.to_owned(),
        pids: left,
    })
}

fn pids(dir: &Path) -> Result<Vec<u32>, RunTreeError> {
    let path = dir.join(PROCS);
    let text = kernel_file::read_optional(&path)?.unwrap_or_default();
    text.lines()
        .map(|line| {
            line.parse().map_err(|_| {
                RunTreeError::File(KernelFileError::Format {
                    path: path.clone(),
                    text: line.to_owned(),
                    expected: "process ids",
                })
            })
        })
        .collect()
}
