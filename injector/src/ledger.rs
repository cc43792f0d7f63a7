//! What was done, as JSON lines that outlive the program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use firm_model::Anomaly;
use fs_err::{File, OpenOptions};

/// Why the ledger could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file.
    #[error("ledger cannot be used")]
    File(#[from] std::io::Error),
    /// A line is no anomaly.
    #[error("{path}:{line} is no anomaly")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// A file that anomalies are added to.
#[derive(Debug)]
pub struct Ledger(File);

impl Ledger {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// [`LedgerError::File`].
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        Ok(Self(
            OpenOptions::new().create(true).append(true).open(path)?,
        ))
    }

    /// Adds one anomaly and waits until it is on the disk.
    ///
    /// # Errors
    /// [`LedgerError::File`].
    pub fn append(&mut self, anomaly: &Anomaly) -> Result<(), LedgerError> {
        let mut line = serde_json::to_vec(anomaly).map_err(std::io::Error::other)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        Ok(self.0.sync_data()?)
    }

    /// Reads all anomalies of a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no anomaly.
    pub fn read(path: &Path) -> Result<Vec<Anomaly>, LedgerError> {
        BufReader::new(File::open(path)?)
            .lines()
            .enumerate()
            .map(|(index, line)| {
                serde_json::from_str(&line?).map_err(|source| LedgerError::Line {
                    path: path.to_owned(),
                    line: index + 1,
                    source,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firm_model::{AnomalyKind, InstanceId, Intensity, Timestamp};

    #[test]
    fn what_is_appended_is_read_and_a_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("anomalies.jsonl");
        let anomaly = Anomaly {
            kind: AnomalyKind::Cpu,
            target: InstanceId::new("cart-0"),
            start: Timestamp::from_nanos(1_700_000_000_123_456_789).unwrap(),
            end: Timestamp::from_nanos(1_700_000_001_123_456_789).unwrap(),
            asked: Intensity::new(0.4).unwrap(),
            achieved: None,
        };
        let mut other = anomaly.clone();
        other.achieved = Some(Intensity::new(0.39).unwrap());
        Ledger::open(&path).unwrap().append(&anomaly).unwrap();
        Ledger::open(&path).unwrap().append(&other).unwrap();
        assert_eq!(Ledger::read(&path).unwrap(), [anomaly, other]);
        fs_err::write(&path, "{}\n").unwrap();
        let error = Ledger::read(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("anomalies.jsonl:1 is no anomaly"),
            "{error}"
        );
    }
}
