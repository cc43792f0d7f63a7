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

use serde::{Deserialize, Serialize};

use crate::process::ProcessIdentity;

const VERSION: u32 = 1;
/// Lines after which the journal is written anew with one entry a file.
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
    /// A line before the last cannot be understood.
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

/// Bytes of a kernel file: text where they are text, hexadecimal digits else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub(crate) struct FileBytes(pub(crate) Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes { bytes: Vec<u8> },
}

impl From<Form> for FileBytes {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => Self(text.into_bytes()),
            Form::Bytes { bytes } => Self(bytes),
        }
    }
}

impl From<FileBytes> for Form {
    fn from(value: FileBytes) -> Self {
        match String::from_utf8(value.0) {
            Ok(text) => Form::Text(text),
            Err(error) => Form::Bytes {
                bytes: error.into_bytes(),
            },
        }
    }
}

/// Who wrote the journal, and since which boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    version: u32,
    pub(crate) owner: Option<ProcessIdentity>,
    pub(crate) boot_id: Option<String>,
}

impl Header {
    pub(crate) fn own(proc: &Path) -> Self {
        Self {
            version: VERSION,
            owner: ProcessIdentity::own(proc).ok(),
            boot_id: boot_id(proc),
        }
    }
}

/// Identifies the machine's present boot.
pub(crate) fn boot_id(proc: &Path) -> Option<String> {
    let path = proc.join("sys/kernel/random/boot_id");
    let text = crate::kernel_file::read(&path).ok()?;
    Some(text.trim().to_owned())
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Header(Header),
    Touch {
        path: PathBuf,
        inode: u64,
        original: FileBytes,
    },
    Write {
        path: PathBuf,
        value: FileBytes,
    },
    Effective {
        path: PathBuf,
        value: FileBytes,
    },
    Left {
        path: PathBuf,
    },
}

/// One file that was touched: what it held, and what we last wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) inode: u64,
    pub(crate) original: Vec<u8>,
    /// The last value written, as given.
    pub(crate) written: Option<Vec<u8>>,
    /// The last value read back, if that came to pass.
    pub(crate) effective: Option<Vec<u8>>,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) header: Header,
    /// In order of first touch.
    pub(crate) entries: Vec<Entry>,
}

/// Reads a journal; `None` where there is none. A last line that is torn is passed over: what it
/// announced was not done.
pub(crate) fn load(path: &Path) -> Result<Option<Loaded>, JournalError> {
    let bytes = match fs_err::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io(path)(source)),
    };
    let wrong = |line: usize, why: String| JournalError::Line {
        path: path.to_owned(),
        line,
        why,
    };
    let mut header = None;
    let mut entries: Vec<Entry> = Vec::new();
    let mut lines = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
        .peekable();
    while let Some((index, line)) = lines.next() {
        let is_last = lines.peek().is_none();
        let record = match serde_json::from_slice::<Record>(line) {
            Ok(record) if line.ends_with(b"\n") => record,
            _ if is_last => break,
            Ok(_) => break,
            Err(error) => return Err(wrong(index + 1, error.to_string())),
        };
        match record {
            Record::Header(found) if found.version == VERSION => header = Some(found),
            Record::Header(found) => {
                return Err(JournalError::Version {
                    path: path.to_owned(),
                    found: found.version,
                });
            }
            other => apply(&mut entries, other),
        }
    }
    match header {
        Some(header) => Ok(Some(Loaded { header, entries })),
        // The header is written and synced before anything else, so nothing was touched.
        None if entries.is_empty() => Ok(None),
        None => Err(wrong(1, "no header".to_owned())),
    }
}

fn apply(entries: &mut Vec<Entry>, record: Record) {
    match record {
        Record::Header(_) => {}
        Record::Touch {
            path,
            inode,
            original,
        } => {
            entries.retain(|entry| entry.path != path);
            entries.push(Entry {
                path,
                inode,
                original: original.0,
                written: None,
                effective: None,
            });
        }
        Record::Write { path, value } => {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.path == path) {
                entry.written = Some(value.0);
            }
        }
        Record::Effective { path, value } => {
            if let Some(entry) = entries.iter_mut().find(|entry| entry.path == path) {
                entry.effective = Some(value.0);
            }
        }
        Record::Left { path } => entries.retain(|entry| entry.path != path),
    }
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
            .is_some_and(|open| open.lines > COMPACT_AFTER)
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
        let put = || -> std::io::Result<fs_err::File> {
            let mut file = fs_err::File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs_err::rename(&new, &self.path)?;
            sync_parent(&self.path)?;
            fs_err::OpenOptions::new().append(true).open(&self.path)
        };
        let file = put().map_err(io(&self.path))?;
        self.damaged = false;
        self.open = Some(Open {
            file,
            length: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            lines: records.len(),
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
