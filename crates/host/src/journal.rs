//! The limit writer's journal: JSON lines, one header, then what was touched and written.
//!
//! ```text
//! {"header":{"version":1,"owner":{"pid":7,"start_time":99},"boot_id":"..."}}
//! {"touch":{"path":"/sys/fs/cgroup/a/cpu.max","inode":12,"original":"max 100000\n"}}
//! {"write":{"path":"/sys/fs/cgroup/a/cpu.max","value":"50000 100000"}}
//! {"effective":{"path":"/sys/fs/cgroup/a/cpu.max","value":"50000 100000\n"}}
//! ```
//!
//! A `touch` is on disk (file and directory synced) before the first write to its file. The other
//! lines need only outlive the process, not the machine: a reboot makes all groups anew.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

mod record;

use crate::safe_open;
use record::Record;
pub(crate) use record::{Entry, FileBytes, Header, boot_id, load};

const VERSION: u32 = 1;
/// Lines after which the journal is written anew with one entry a file, unless that would leave
/// more than half of them.
const COMPACT_AFTER: usize = 4096;

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot use journal `{path}`")]
    Io {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A whole line cannot be understood.
    #[error("journal `{path}`, line {line}: {why}")]
    Line {
        /// The journal.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It was written by a program that writes another form.
    #[error("journal `{path}` has version {found}, this program reads {VERSION}")]
    Version {
        /// The journal.
        path: PathBuf,
        /// Version found.
        found: u32,
    },
    /// An earlier append failed and could not be taken back.
    #[error("journal `{path}` is damaged by a write that failed before")]
    Damaged {
        /// The journal.
        path: PathBuf,
    },
}

/// An open journal. It has no file until the first touch.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    header: Header,
    open: Option<Open>,
    damaged: bool,
}

#[derive(Debug)]
struct Open {
    file: fs_err::File,
    length: u64,
    lines: usize,
    compact_after: usize,
}

impl Journal {
    pub(crate) fn new(path: PathBuf, header: Header) -> Self {
        Self {
            path,
            header,
            open: None,
            damaged: false,
        }
    }

    /// Records a file's original content, on disk when this returns.
    pub(crate) fn touch(&mut self, entry: &Entry) -> Result<(), JournalError> {
        if self.open.is_none() {
            self.rewrite(&[])?;
        }
        self.append(&touch_record(entry), true)
    }

    /// Records what is about to be written.
    pub(crate) fn writing(&mut self, path: &Path, value: &[u8]) -> Result<(), JournalError> {
        let value = FileBytes(value.to_owned());
        let path = path.to_owned();
        self.append(&Record::Write { path, value }, false)
    }

    /// Records what was read back.
    pub(crate) fn effective(&mut self, path: &Path, value: &[u8]) -> Result<(), JournalError> {
        let value = FileBytes(value.to_owned());
        let path = path.to_owned();
        self.append(&Record::Effective { path, value }, false)
    }

    /// Records that a file is another writer's now.
    pub(crate) fn left(&mut self, path: &Path) -> Result<(), JournalError> {
        let path = path.to_owned();
        self.append(&Record::Left { path }, true)
    }

    /// Whether it has grown enough to be written anew.
    pub(crate) fn wants_rewrite(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.lines > open.compact_after)
    }

    /// Replaces the journal by one that holds just these entries; an error leaves the old one.
    pub(crate) fn rewrite(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        let mut records = vec![Record::Header(self.header.clone())];
        for entry in entries {
            records.push(touch_record(entry));
            let path = entry.path.clone();
            if let Some(value) = entry.written.clone().map(FileBytes) {
                let path = path.clone();
                records.push(Record::Write { path, value });
            }
            if let Some(value) = entry.effective.clone().map(FileBytes) {
                records.push(Record::Effective { path, value });
            }
        }
        let mut bytes = Vec::new();
        for record in &records {
            line(&self.path, record, &mut bytes)?;
        }
        let new = self.path.with_extension("new");
        let put = || -> std::io::Result<std::fs::File> {
            // One from a crash, or a link: removed, never written through.
            match fs_err::remove_file(&new) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = std::fs::OpenOptions::new();
            let mut file = safe_open::regular(options.append(true).create_new(true), &new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs_err::rename(&new, &self.path)?;
            sync_parent(&self.path)?;
            Ok(file)
        };
        let file = put().map_err(io(&self.path))?;
        self.damaged = false;
        self.open = Some(Open {
            file: fs_err::File::from_parts(file, &self.path),
            length: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            lines: records.len(),
            compact_after: COMPACT_AFTER.max(2 * records.len()),
        });
        Ok(())
    }

    /// Ends the journal: nothing is left to be put back.
    pub(crate) fn remove(&mut self) -> Result<(), JournalError> {
        self.open = None;
        match fs_err::remove_file(&self.path) {
            Ok(()) => sync_parent(&self.path).map_err(io(&self.path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io(&self.path)(source)),
        }
    }

    fn append(&mut self, record: &Record, sync: bool) -> Result<(), JournalError> {
        let damaged = || JournalError::Damaged {
            path: self.path.clone(),
        };
        if self.damaged {
            return Err(damaged());
        }
        let Some(open) = &mut self.open else {
            return Err(damaged());
        };
        let mut bytes = Vec::new();
        line(&self.path, record, &mut bytes)?;
        let put = open
            .file
            .write_all(&bytes)
            .and_then(|()| if sync { open.file.sync_all() } else { Ok(()) });
        match put {
            Ok(()) => {
                open.length += u64::try_from(bytes.len()).unwrap_or(0);
                open.lines += 1;
                Ok(())
            }
            Err(source) => {
                // A half line in the middle would make the whole journal unreadable.
                self.damaged = open.file.set_len(open.length).is_err();
                Err(io(&self.path)(source))
            }
        }
    }
}

fn touch_record(entry: &Entry) -> Record {
    Record::Touch {
        path: entry.path.clone(),
        inode: entry.inode,
        original: FileBytes(entry.original.clone()),
    }
}

fn line(path: &Path, record: &Record, out: &mut Vec<u8>) -> Result<(), JournalError> {
    serde_json::to_writer(&mut *out, record).map_err(|error| io(path)(error.into()))?;
    out.push(b'\n');
    Ok(())
}

fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) => fs_err::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |source| JournalError::Io {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;
