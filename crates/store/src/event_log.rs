//! The one event log: JSON lines, the first a header, then one [`Event`] a line, appended.
//!
//! ```text
//! {"firm_events":1}
//! {"event":"anomaly","kind":"cpu","target":"cart-0",...}
//! ```
//!
//! Durability: a line is with the kernel when [`EventLog::append`] returns, so it outlives the
//! process however that ends. It is on disk after [`EventLog::sync`], which the caller calls
//! every second or so and at the end; a power cut loses what came since. Originals of limits do
//! not depend on it, they have a journal of their own.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};

use firm_model::Event;
use fs_err::os::unix::fs::OpenOptionsExt;
use nix::fcntl::OFlag;
use serde::Deserialize;

const VERSION: u32 = 1;
const HEADER_LINE: &[u8] = b"{\"firm_events\":1}\n";

/// The event log cannot be used, or a line of it not be read.
#[derive(Debug, thiserror::Error)]
pub enum EventLogError {
    /// It cannot be read or written.
    #[error("cannot use event log `{path}`")]
    Io {
        /// The log.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It does not begin with the header of a log.
    #[error("`{path}` is no event log: its first line is not a header")]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a program that writes another form.
    #[error("event log `{path}` has version {found}, this program reads {VERSION}")]
    Version {
        /// The log.
        path: PathBuf,
        /// Version found.
        found: u32,
    },
    /// One line is no event; those after it can be read.
    #[error("event log `{path}`, line {line}: {why}")]
    Line {
        /// The log.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// An earlier append failed and could not be taken back.
    #[error("event log `{path}` is damaged by a write that failed before")]
    Damaged {
        /// The log.
        path: PathBuf,
    },
}

#[derive(Deserialize)]
struct Header {
    firm_events: u32,
}

/// An open event log. One writer at a time: the state directory's lock sees to that.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: fs_err::File,
    length: u64,
    last_finding: u64,
    damaged: bool,
}

impl EventLog {
    /// Opens a log for appending, making it where it is missing. A last line that a crash has
    /// torn is cut off.
    ///
    /// # Errors
    /// It cannot be read or written, or is no event log of this version.
    pub fn open(path: &Path) -> Result<Self, EventLogError> {
        let io = io(path);
        let mut options = fs_err::OpenOptions::new();
        let file = regular(options.create(true).read(true).append(true), path).map_err(&io)?;
        let mut reader = EventReader::new(path, BufReader::new(file.file()));
        let (length, ids) = match reader.skip_header() {
            Ok(true) => {
                // Lines that are no events stay, for a person to look at.
                let ids: BTreeSet<u64> = reader
                    .by_ref()
                    .filter_map(|event| match event {
                        Ok(Event::Finding(finding)) => Some(finding.id),
                        _ => None,
                    })
                    .collect();
                (reader.whole_bytes, ids)
            }
            Ok(false) => (0, BTreeSet::new()),
            Err(error) => return Err(error),
        };
        file.set_len(length).map_err(&io)?;
        let mut log = Self {
            path: path.to_owned(),
            length,
            last_finding: ids.last().copied().unwrap_or(0),
            damaged: false,
            file,
        };
        if length == 0 {
            log.append_bytes(HEADER_LINE)?;
            log.sync()?;
        }
        Ok(log)
    }

    /// A number for the next finding, larger than any in the log.
    #[must_use]
    pub const fn next_finding(&self) -> u64 {
        self.last_finding + 1
    }

    /// Appends an event.
    ///
    /// # Errors
    /// It cannot be written; the log is as before.
    pub fn append(&mut self, event: &Event) -> Result<(), EventLogError> {
        let mut bytes = serde_json::to_vec(event).map_err(|e| io(&self.path)(e.into()))?;
        bytes.push(b'\n');
        self.append_bytes(&bytes)?;
        if let Event::Finding(finding) = event {
            self.last_finding = self.last_finding.max(finding.id);
        }
        Ok(())
    }

    /// Makes all that was appended outlive the machine.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn sync(&mut self) -> Result<(), EventLogError> {
        self.file.sync_data().map_err(io(&self.path))
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), EventLogError> {
        if self.damaged {
            return Err(EventLogError::Damaged {
                path: self.path.clone(),
            });
        }
        if let Err(source) = self.file.write_all(bytes) {
            // Half a line would spoil the one after it.
            self.damaged = self.file.set_len(self.length).is_err();
            return Err(io(&self.path)(source));
        }
        self.length += u64::try_from(bytes.len()).unwrap_or(0);
        Ok(())
    }
}

/// Reads a log from its beginning, one event at a time. A line that is no event is an error of
/// its own, and reading goes on after it; a torn last line is passed over.
#[derive(Debug)]
pub struct EventReader<R> {
    path: PathBuf,
    input: R,
    line: usize,
    /// Bytes of all whole lines read so far.
    whole_bytes: u64,
    /// What follows the last whole line.
    torn: Vec<u8>,
    failed: bool,
}

impl EventReader<BufReader<fs_err::File>> {
    /// Opens a log for reading; its writer may still append to it.
    ///
    /// # Errors
    /// It cannot be read, or is no event log of this version.
    pub fn open(path: &Path) -> Result<Self, EventLogError> {
        let file = regular(fs_err::OpenOptions::new().read(true), path).map_err(io(path))?;
        let mut reader = Self::new(path, BufReader::new(file));
        reader.skip_header()?;
        Ok(reader)
    }
}

impl<R: BufRead> EventReader<R> {
    fn new(path: &Path, input: R) -> Self {
        Self {
            path: path.to_owned(),
            input,
            line: 0,
            whole_bytes: 0,
            torn: Vec::new(),
            failed: false,
        }
    }

    /// Whether there is a header. A log that a crash has left empty or within its header has none.
    fn skip_header(&mut self) -> Result<bool, EventLogError> {
        let path = self.path.clone();
        let no_header = || EventLogError::NoHeader { path };
        let Some(line) = self.next_line()? else {
            // Nothing but the beginning of a header may be cut off: all else is another's file.
            return if HEADER_LINE.starts_with(&self.torn) {
                Ok(false)
            } else {
                Err(no_header())
            };
        };
        match serde_json::from_slice::<Header>(&line) {
            Ok(header) if header.firm_events == VERSION => Ok(true),
            Ok(header) => Err(EventLogError::Version {
                path: self.path.clone(),
                found: header.firm_events,
            }),
            Err(_) => Err(no_header()),
        }
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, EventLogError> {
        let mut bytes = Vec::new();
        self.input
            .read_until(b'\n', &mut bytes)
            .map_err(io(&self.path))?;
        if !bytes.ends_with(b"\n") {
            self.torn = bytes;
            return Ok(None);
        }
        self.line += 1;
        self.whole_bytes += u64::try_from(bytes.len()).unwrap_or(0);
        Ok(Some(bytes))
    }
}

impl<R: BufRead> Iterator for EventReader<R> {
    type Item = Result<Event, EventLogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        match self.next_line() {
            Ok(line) => line.map(|bytes| {
                serde_json::from_slice(&bytes).map_err(|error| EventLogError::Line {
                    path: self.path.clone(),
                    line: self.line,
                    why: error.to_string(),
                })
            }),
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// Opens a regular file: a link at the end of `path` is not followed, and a FIFO not waited for.
fn regular(options: &mut fs_err::OpenOptions, path: &Path) -> std::io::Result<fs_err::File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = options.custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(std::io::Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> EventLogError + use<> {
    let path = path.to_owned();
    move |source| EventLogError::Io {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firm_model::{Anomaly, AnomalyKind, Finding, InstanceId, Intensity, Timestamp};
    use proptest::prelude::*;

    fn anomaly(target: &str) -> Event {
        Event::Anomaly(Anomaly {
            kind: AnomalyKind::Cpu,
            target: InstanceId::new(target),
            start: Timestamp::from_nanos(1_700_000_000_123_456_789).unwrap(),
            end: Timestamp::MAX,
            asked: Intensity::new(0.5).unwrap(),
            achieved: None,
        })
    }

    fn finding(id: u64) -> Event {
        Event::Finding(Finding {
            id,
            at: Timestamp::EPOCH,
            window_start: Timestamp::EPOCH,
            window_end: Timestamp::EPOCH,
            request_type: "web/GET /".to_owned(),
            culprits: vec![],
            evidence: vec!["4a3b".parse().unwrap()],
        })
    }

    fn events(path: &Path) -> Vec<Event> {
        EventReader::open(path)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn what_was_appended_is_read_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::open(&path).unwrap();
        assert_eq!(log.next_finding(), 1);
        log.append(&finding(1)).unwrap();
        log.append(&anomaly("a")).unwrap();
        assert_eq!(events(&path).len(), 2, "there without a sync");
        drop(log);
        let mut log = EventLog::open(&path).unwrap();
        assert_eq!(log.next_finding(), 2);
        log.append(&finding(7)).unwrap();
        log.sync().unwrap();
        assert_eq!(log.next_finding(), 8);
        assert_eq!(events(&path), [finding(1), anomaly("a"), finding(7)]);
    }

    #[test]
    fn a_log_torn_anywhere_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::open(&path).unwrap();
        log.append(&anomaly("a")).unwrap();
        log.append(&anomaly("b")).unwrap();
        drop(log);
        let whole = fs_err::read(&path).unwrap();
        for end in 0..whole.len() {
            fs_err::write(&path, &whole[..end]).unwrap();
            let before = EventReader::open(&path).unwrap().count();
            let mut log = EventLog::open(&path).unwrap();
            log.append(&anomaly("c")).unwrap();
            let read = events(&path);
            assert_eq!(
                (read.len(), read.last()),
                (before + 1, Some(&anomaly("c"))),
                "{end}"
            );
        }
    }

    #[test]
    fn a_broken_line_is_named_and_its_neighbours_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::open(&path).unwrap();
        log.append(&anomaly("a")).unwrap();
        drop(log);
        let mut file = fs_err::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"event\":\"unheard of\"}\n").unwrap();
        drop(file);
        EventLog::open(&path)
            .unwrap()
            .append(&anomaly("b"))
            .unwrap();
        let read: Vec<_> = EventReader::open(&path).unwrap().collect();
        assert_eq!(read.len(), 3);
        let why = read[1].as_ref().unwrap_err().to_string();
        assert!(why.contains("line 3: unknown variant"), "{why}");
        assert_eq!(read[2].as_ref().unwrap(), &anomaly("b"));
    }

    #[test]
    fn other_files_and_versions_are_refused_and_left_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        for text in ["hello\nworld", "hello"] {
            fs_err::write(&path, text).unwrap();
            let error = EventLog::open(&path).unwrap_err();
            assert!(matches!(error, EventLogError::NoHeader { .. }));
            assert_eq!(fs_err::read_to_string(&path).unwrap(), text);
        }
        fs_err::write(&path, "{\"firm_events\":2}\n").unwrap();
        let error = EventLog::open(&path).unwrap_err();
        assert!(matches!(error, EventLogError::Version { found: 2, .. }));
    }

    #[test]
    fn links_and_fifos_for_logs_were_followed_and_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs_err::write(&victim, "").unwrap();
        let path = dir.path().join("events.jsonl");
        let refused = || {
            let wrong = |error| matches!(error, EventLogError::Io { .. });
            EventLog::open(&path).is_err_and(wrong) && EventReader::open(&path).is_err_and(wrong)
        };
        for target in [victim.as_path(), Path::new("/dev/zero")] {
            fs_err::os::unix::fs::symlink(target, &path).unwrap();
            assert!(refused());
            fs_err::remove_file(&path).unwrap();
        }
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refused());
        assert_eq!(fs_err::read(&victim).unwrap(), b"");
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("e");
            fs_err::write(&path, &bytes).unwrap();
            if let Ok(reader) = EventReader::open(&path) {
                let _ = reader.count();
            }
        }
    }
}
