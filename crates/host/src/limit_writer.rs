//! The one way to change a limit.
//!
//! Every change goes through [`LimitWriter::write`]: the original content is journalled on disk
//! once per file before the first write, the file is opened without create, the value is read
//! back. Originals are put back by [`LimitWriter::undo_all`], when the writer is dropped, when
//! the next one is opened after a crash, and by [`restore`](crate::restore::restore).
//!
//! Another writer of the same file is noticed before our next write, because the file does not
//! hold what we left in it. From then on the file is theirs: it is not written any more, and not
//! put back.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::journal::{Entry, Header, Journal, JournalError};
use crate::kernel_file::KernelFileError;
use crate::limit_file::{Content, Ground};
use crate::restore::{self, ForeignPolicy, Outcome, RestoreReport};
use crate::state_dir::StateLock;

/// A limit was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The original could not be journalled, so nothing was written.
    #[error("limit is not written because it cannot be journalled")]
    Journal(#[from] JournalError),
    /// The kernel file could not be read or written.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// Another writer changed the file, which is theirs from now on.
    #[error("another writer set `{path}` to `{found}`, we had left `{ours}`; leaving it alone")]
    ForeignWriter {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// What we had left in it.
        ours: String,
    },
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Content before.
    pub before: String,
    /// Content read back.
    pub effective: String,
}

#[derive(Debug)]
struct Touched {
    entry: Entry,
    /// What another writer put there, once noticed.
    foreign: Option<String>,
}

/// Writes limits and puts them back. One at a time per state directory.
#[derive(Debug)]
pub struct LimitWriter {
    // Declared before the lock, which must be released last.
    journal: Journal,
    touched: Vec<Touched>,
    ground: Ground,
    _lock: StateLock,
}

impl LimitWriter {
    /// Opens the writer, first putting back what an earlier process left changed.
    ///
    /// # Errors
    /// The journal there cannot be read or replaced.
    pub fn open(lock: StateLock) -> Result<(Self, RestoreReport), JournalError> {
        Self::open_on(Ground::Cgroup, lock)
    }

    /// As [`LimitWriter::open`], with limit files where they may lie.
    pub(crate) fn open_on(
        ground: Ground,
        lock: StateLock,
    ) -> Result<(Self, RestoreReport), JournalError> {
        let (report, left) = restore::work_off(ground, lock.dir(), ForeignPolicy::LeaveAlone)?;
        let mut journal = Journal::new(lock.dir().journal(), Header::own(Path::new("/proc")));
        if !left.is_empty() {
            journal.rewrite(&left)?;
        }
        let touched = left
            .into_iter()
            .map(|entry| Touched {
                entry,
                foreign: None,
            })
            .collect();
        let writer = Self {
            journal,
            touched,
            ground,
            _lock: lock,
        };
        Ok((writer, report))
    }

    /// Writes a value to a limit file, and returns what the file held and what it holds then.
    ///
    /// # Errors
    /// See [`LimitError`]; a file that is no limit file of a cgroup is refused. Nothing was written but for a [`LimitError::File`] of the read-back.
    pub fn write(&mut self, path: &Path, value: &str) -> Result<Written, LimitError> {
        let path = resolve(path)?;
        let found = self.ground.read(&path)?;
        let index = self.touch(&path, &found)?;
        if self.journal.wants_rewrite() {
            let entries: Vec<Entry> = self.active().cloned().collect();
            self.journal.rewrite(&entries)?;
        }
        self.journal.writing(&path, value.as_bytes())?;
        self.ground.write(&path, found.inode, value.as_bytes())?;
        let effective = self.ground.read(&path)?.bytes;
        // The line before says enough if this one cannot be written.
        let _ = self.journal.effective(&path, &effective);
        let written = Written {
            before: restore::text(&found.bytes),
            effective: restore::text(&effective),
        };
        let entry = &mut self.touched[index].entry;
        entry.written = Some(value.as_bytes().to_owned());
        entry.effective = Some(effective);
        Ok(written)
    }

    /// Index of the file's entry, journalled if it is the first touch.
    fn touch(&mut self, path: &Path, found: &Content) -> Result<usize, LimitError> {
        let inode = found.inode;
        let known = self.touched.iter().position(|t| t.entry.path == path);
        if let Some(index) = known.filter(|index| self.touched[*index].entry.inode == inode) {
            self.check_owner(index, &found.bytes)?;
            return Ok(index);
        }
        let touched = Touched {
            entry: Entry {
                path: path.to_owned(),
                inode,
                original: found.bytes.clone(),
                written: None,
                effective: None,
            },
            foreign: None,
        };
        self.journal.touch(&touched.entry)?;
        if let Some(index) = known {
            // The group was removed and made anew: the old original is of no use.
            self.touched[index] = touched;
            Ok(index)
        } else {
            self.touched.push(touched);
            Ok(self.touched.len() - 1)
        }
    }

    fn check_owner(&mut self, index: usize, found: &[u8]) -> Result<(), LimitError> {
        let Touched { entry, foreign } = &mut self.touched[index];
        // Nothing read back yet: the first write failed, and the file is as it was.
        let ours = entry.effective.as_ref().unwrap_or(&entry.original);
        if foreign.is_none() {
            if ours == found {
                return Ok(());
            }
            *foreign = Some(restore::text(found));
            let path = entry.path.clone();
            self.journal.left(&path)?;
        }
        let Touched { entry, foreign } = &self.touched[index];
        let ours = entry.effective.as_ref().unwrap_or(&entry.original);
        Err(LimitError::ForeignWriter {
            path: entry.path.clone(),
            found: foreign.clone().unwrap_or_default(),
            ours: restore::text(ours),
        })
    }

    /// Whether the file was given up to another writer.
    #[must_use]
    pub fn is_foreign(&self, path: &Path) -> bool {
        resolve(path).is_ok_and(|path| {
            self.touched
                .iter()
                .any(|touched| touched.entry.path == path && touched.foreign.is_some())
        })
    }

    fn active(&self) -> impl Iterator<Item = &Entry> {
        self.touched
            .iter()
            .filter(|touched| touched.foreign.is_none())
            .map(|touched| &touched.entry)
    }

    /// Puts every original back, byte by byte, and ends the journal. What failed stays journalled
    /// and is tried again by the next call, the next start or `firm restore`.
    ///
    /// # Errors
    /// The journal cannot be removed; the limits are put back all the same.
    pub fn undo_all(&mut self) -> Result<RestoreReport, JournalError> {
        let entries: Vec<Entry> = self.active().cloned().collect();
        let report = restore::put_back(self.ground, &entries, ForeignPolicy::LeaveAlone);
        let left = restore::failed_entries(entries, &report);
        let foreign: HashMap<&Path, &String> = report
            .files
            .iter()
            .filter_map(|file| match &file.outcome {
                Outcome::ForeignWriter { found, .. } => Some((file.path.as_path(), found)),
                _ => None,
            })
            .collect();
        let failed: HashSet<&Path> = left.iter().map(|entry| entry.path.as_path()).collect();
        self.touched.retain_mut(|touched| {
            let path = touched.entry.path.as_path();
            if let Some(found) = foreign.get(path) {
                touched.foreign = Some((*found).clone());
            }
            touched.foreign.is_some() || failed.contains(path)
        });
        if left.is_empty() {
            self.journal.remove()?;
        } else {
            self.journal.rewrite(&left)?;
        }
        Ok(report)
    }
}

impl Drop for LimitWriter {
    fn drop(&mut self) {
        if self.active().next().is_some() {
            // What fails here stays in the journal.
            let _ = self.undo_all();
        }
    }
}

/// One name per file, whatever links lead there.
fn resolve(path: &Path) -> Result<PathBuf, KernelFileError> {
    fs_err::canonicalize(path).map_err(|source| KernelFileError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
