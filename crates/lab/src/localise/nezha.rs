//! Labelled faults on disk: `labels.json` and the trace files it names.

use std::path::{Path, PathBuf};

use firm_model::{ExecutionGraph, Interner, Timestamp};
use firm_tracer::assemble::{AssemblyLimits, assemble_batch};
use firm_tracer::file::{FileError, read_path};
use serde::Deserialize;

/// Why an evaluation cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// `labels.json` cannot be read.
    #[error("cannot read the labels")]
    Io(#[from] std::io::Error),
    /// `labels.json` is not of the expected form.
    #[error("{path} is not a list of labelled faults")]
    Labels {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A trace file cannot be read.
    #[error("cannot read traces")]
    Traces(#[from] FileError),
    /// A fault without traces after its injection, or nothing to hold them against.
    #[error("fault {fault} has no traces after its injection, or none before")]
    NothingToScore {
        /// The fault's id.
        fault: String,
    },
}

/// `labels.json`; further fields are not needed here.
#[derive(Debug, Deserialize)]
pub struct Labels {
    /// Files of times without faults.
    pub fault_free: Vec<FaultFree>,
    /// The faults.
    pub faults: Vec<Fault>,
}

/// A file of a time without faults.
#[derive(Debug, Deserialize)]
pub struct FaultFree {
    /// Path below the folder of the labels.
    pub file: String,
}

/// A fault.
#[derive(Debug, Deserialize)]
pub struct Fault {
    /// Its id.
    pub id: String,
    /// Its kind.
    #[serde(rename = "fault")]
    pub kind: String,
    /// The instance it hit.
    pub culprit_pod: String,
    /// When it was injected, seconds since 1970.
    pub inject_unix_s: u32,
    /// Its traces.
    pub files: Vec<FaultFile>,
}

/// A trace file of a fault.
#[derive(Debug, Deserialize)]
pub struct FaultFile {
    /// Path below the folder of the labels.
    pub file: String,
    /// Where its traces lie against the injection.
    pub phase: Phase,
}

/// Where traces lie against the injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// All before.
    Before,
    /// Some before, some after.
    Mixed,
    /// All after.
    Fault,
}

impl Fault {
    /// Its files of one phase.
    pub fn files_of(&self, phase: Phase) -> impl Iterator<Item = &str> {
        let files = self.files.iter().filter(move |file| file.phase == phase);
        files.map(|file| file.file.as_str())
    }

    /// When it was injected.
    #[must_use]
    pub fn injected_at(&self) -> Timestamp {
        Timestamp::EPOCH.saturating_add_nanos(i64::from(self.inject_unix_s) * 1_000_000_000)
    }
}

impl Labels {
    /// All files, some of them more than once.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let of_faults = self.faults.iter().flat_map(|fault| &fault.files);
        let of_faults = of_faults.map(|file| file.file.as_str());
        of_faults.chain(self.fault_free.iter().map(|file| file.file.as_str()))
    }

    /// Files in which nothing is wrong: before any fault, and fault-free.
    pub fn normal_files(&self) -> impl Iterator<Item = &str> {
        let before = self.faults.iter().flat_map(|f| f.files_of(Phase::Before));
        before.chain(self.fault_free.iter().map(|file| file.file.as_str()))
    }
}

/// Reads `labels.json` under `dir`.
///
/// # Errors
/// It cannot be read, or is of another form.
pub fn read_labels(dir: &Path) -> Result<Labels, EvaluationError> {
    let path = dir.join("labels.json");
    let text = fs_err::read_to_string(&path)?;
    serde_json::from_str(&text).map_err(|source| EvaluationError::Labels { path, source })
}

/// Reads and assembles the traces of one file under `dir`.
///
/// # Errors
/// It cannot be read.
pub fn read_traces(
    dir: &Path,
    file: &str,
    names: &Interner,
) -> Result<Vec<ExecutionGraph>, EvaluationError> {
    let mut spans = Vec::new();
    read_path(&dir.join(file), names, &mut spans)?;
    Ok(assemble_batch(spans, &AssemblyLimits::default()))
}
