//! The lines of a journal, and reading them.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{JournalError, VERSION, io};
use crate::process::ProcessIdentity;
use crate::safe_open;

/// Far more than any journal holds, and little enough to be read at once.
const LONGEST: u64 = 64 << 20;

/// Bytes of a kernel file: text where they are text, a list of numbers else.
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
pub(super) enum Record {
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

/// Reads a journal; `None` where there is none. What follows the last newline is torn and passed
/// over: what it announced was not done.
pub(crate) fn load(path: &Path) -> Result<Option<Loaded>, JournalError> {
    let read = || {
        let file = safe_open::regular(OpenOptions::new().read(true), path)?;
        safe_open::read_at_most(&file, LONGEST)
    };
    let bytes = match read() {
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
    let mut entries = Entries::default();
    let lines = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"));
    for (index, line) in lines.enumerate() {
        let record = serde_json::from_slice::<Record>(line)
            .map_err(|error| wrong(index + 1, error.to_string()))?;
        match record {
            Record::Header(found) if found.version == VERSION => header = Some(found),
            Record::Header(found) => {
                return Err(JournalError::Version {
                    path: path.to_owned(),
                    found: found.version,
                });
            }
            _ if header.is_none() => {
                return Err(wrong(index + 1, "no header before it".to_owned()));
            }
            other => entries.apply(other),
        }
    }
    // The header is written and synced before anything else: without one, nothing was touched.
    Ok(header.map(|header| Loaded {
        header,
        entries: entries.in_order(),
    }))
}

/// Entries while they are read. A file touched again takes its place at the end.
#[derive(Default)]
struct Entries {
    slots: Vec<Option<Entry>>,
    by_path: HashMap<PathBuf, usize>,
}

impl Entries {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Header(_) => {}
            Record::Touch {
                path,
                inode,
                original,
            } => {
                self.remove(&path);
                self.by_path.insert(path.clone(), self.slots.len());
                self.slots.push(Some(Entry {
                    path,
                    inode,
                    original: original.0,
                    written: None,
                    effective: None,
                }));
            }
            Record::Write { path, value } => {
                if let Some(entry) = self.get(&path) {
                    entry.written = Some(value.0);
                }
            }
            Record::Effective { path, value } => {
                if let Some(entry) = self.get(&path) {
                    entry.effective = Some(value.0);
                }
            }
            Record::Left { path } => self.remove(&path),
        }
    }

    fn get(&mut self, path: &Path) -> Option<&mut Entry> {
        let slot = *self.by_path.get(path)?;
        self.slots.get_mut(slot)?.as_mut()
    }

    fn remove(&mut self, path: &Path) {
        let slot = self.by_path.remove(path);
        if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(slot)) {
            *slot = None;
        }
    }

    fn in_order(self) -> Vec<Entry> {
        self.slots.into_iter().flatten().collect()
    }
}
