//! Putting original values back: at the end of a run, and after a crash from its journal.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::journal::{self, Entry, Header, Journal, JournalError};
use crate::limit_file::Ground;
use crate::state_dir::{StateDir, StateDirError};

/// What to do with a file that another writer changed since our last write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ForeignPolicy {
    /// Leave it as it is, and report it with the value it had before us.
    #[default]
    LeaveAlone,
    /// Put our original back all the same.
    Overwrite,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// It holds its original bytes again.
    Restored,
    /// It held its original bytes already.
    AlreadyOriginal,
    /// Its group does not exist any more, so there is nothing to restore.
    Vanished,
    /// Another writer changed it, and it was left alone.
    ForeignWriter {
        /// What it holds.
        found: String,
        /// What we had written.
        ours: String,
        /// What it held before us.
        original: String,
    },
    /// It could not be put back.
    Failed {
        /// Why.
        why: String,
    },
}

/// One file and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The file.
    pub path: PathBuf,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of all files that had been touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// One entry a file.
    pub files: Vec<Restored>,
}

impl RestoreReport {
    /// Whether nothing is left to be done: no file failed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self
            .files
            .iter()
            .any(|file| matches!(file.outcome, Outcome::Failed { .. }))
    }
}

/// A journal could not be worked off.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state directory cannot be used, or the journal's writer still lives.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Puts back every limit that a dead process left changed, as its journal says. Files that failed
/// stay in the journal for another try; all others leave it.
///
/// # Errors
/// The state directory is in use by a living process, or the journal cannot be used.
pub fn restore(dir: &StateDir, policy: ForeignPolicy) -> Result<RestoreReport, RestoreError> {
    restore_on(Ground::Cgroup, dir, policy)
}

/// As [`restore`], with limit files where they may lie.
pub(crate) fn restore_on(
    ground: Ground,
    dir: &StateDir,
    policy: ForeignPolicy,
) -> Result<RestoreReport, RestoreError> {
    let _lock = dir.lock()?;
    Ok(work_off(ground, dir, policy)?.0)
}

/// As [`restore`], under a lock that the caller holds; also returns what stays in the journal.
pub(crate) fn work_off(
    ground: Ground,
    dir: &StateDir,
    policy: ForeignPolicy,
) -> Result<(RestoreReport, Vec<Entry>), JournalError> {
    let proc = Path::new("/proc");
    let path = dir.journal();
    let Some(loaded) = journal::load(&path)? else {
        return Ok((RestoreReport::default(), Vec::new()));
    };
    let same_boot =
        loaded.header.boot_id.is_none() || loaded.header.boot_id == journal::boot_id(proc);
    let report = if same_boot {
        put_back(ground, &loaded.entries, policy)
    } else {
        // Groups live in memory: what has these names now was made since.
        RestoreReport {
            files: loaded
                .entries
                .iter()
                .map(|entry| Restored {
                    path: entry.path.clone(),
                    outcome: Outcome::Vanished,
                })
                .collect(),
        }
    };
    let left = failed_entries(loaded.entries, &report);
    let mut journal = Journal::new(path, Header::own(proc));
    if left.is_empty() {
        journal.remove()?;
    } else {
        journal.rewrite(&left)?;
    }
    Ok((report, left))
}

/// The entries that still have to be put back.
pub(crate) fn failed_entries(entries: Vec<Entry>, report: &RestoreReport) -> Vec<Entry> {
    let failed: HashSet<&Path> = report
        .files
        .iter()
        .filter(|file| matches!(file.outcome, Outcome::Failed { .. }))
        .map(|file| file.path.as_path())
        .collect();
    entries
        .into_iter()
        .filter(|entry| failed.contains(entry.path.as_path()))
        .collect()
}

/// Puts originals back, last touched first. A value that the kernel refuses because of a parent
/// or child that is not yet restored is tried again after the others, as long as that helps.
pub(crate) fn put_back(ground: Ground, entries: &[Entry], policy: ForeignPolicy) -> RestoreReport {
    let mut report = RestoreReport::default();
    let mut pending: Vec<(&Entry, Option<String>)> =
        entries.iter().rev().map(|entry| (entry, None)).collect();
    loop {
        let before = pending.len();
        let mut refused = Vec::new();
        for (entry, _) in pending {
            match put_back_one(ground, entry, policy) {
                Step::Done(outcome) => report.files.push(Restored {
                    path: entry.path.clone(),
                    outcome,
                }),
                Step::Refused(why) => refused.push((entry, Some(why))),
            }
        }
        pending = refused;
        if pending.is_empty() || pending.len() == before {
            break;
        }
    }
    for (entry, why) in pending {
        report.files.push(Restored {
            path: entry.path.clone(),
            outcome: Outcome::Failed {
                why: why.unwrap_or_default(),
            },
        });
    }
    report
}

enum Step {
    Done(Outcome),
    Refused(String),
}

fn put_back_one(ground: Ground, entry: &Entry, policy: ForeignPolicy) -> Step {
    let failed = |why: String| Step::Done(Outcome::Failed { why });
    let (found, inode) = match ground.read(&entry.path) {
        Ok(content) => (content.bytes, content.inode),
        Err(error) if error.is_gone() => return Step::Done(Outcome::Vanished),
        Err(error) => return failed(describe(&error)),
    };
    if inode != entry.inode {
        // A group of the same name, made anew.
        return Step::Done(Outcome::Vanished);
    }
    if found == entry.original {
        return Step::Done(Outcome::AlreadyOriginal);
    }
    if policy == ForeignPolicy::LeaveAlone && !is_ours(entry, &found) {
        let ours = entry.effective.as_ref().or(entry.written.as_ref());
        return Step::Done(Outcome::ForeignWriter {
            found: text(&found),
            ours: ours.map(|bytes| text(bytes)).unwrap_or_default(),
            original: text(&entry.original),
        });
    }
    if let Err(error) = ground.write(&entry.path, inode, &entry.original) {
        let why = describe(&error);
        return if error.is_refused_value() {
            Step::Refused(why)
        } else if error.is_gone() {
            Step::Done(Outcome::Vanished)
        } else {
            failed(why)
        };
    }
    match ground.read(&entry.path) {
        Ok(now) if now.bytes == entry.original => Step::Done(Outcome::Restored),
        Ok(now) => failed(format!("reads `{}` after the write", text(&now.bytes))),
        Err(error) => failed(describe(&error)),
    }
}

/// The kernel may add a newline to what was written, so ends are not compared.
fn is_ours(entry: &Entry, found: &[u8]) -> bool {
    [&entry.written, &entry.effective]
        .into_iter()
        .flatten()
        .any(|ours| ours.trim_ascii() == found.trim_ascii())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii()).into_owned()
}

fn describe(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
