//! Reading and writing single kernel files. Writing opens without create and truncate, so that a
//! wrong name fails instead of making a file.
//!
//! `std` instead of `fs_err`, which hides the kernel's error number; our errors name the path.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// A kernel file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KernelFileError {
    /// Reading failed.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Writing failed.
    #[error("cannot write `{value}` to `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no file for a limit, so it is neither read nor written.
    #[error("`{path}` is not touched: {why}")]
    NotALimit {
        /// The file.
        path: PathBuf,
        /// What tells.
        why: String,
    },
    /// The content is not what the kernel documents.
    #[error("`{path}` holds `{text}`, expected {expected}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What was found.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl KernelFileError {
    /// Whether the kernel refused the value itself (`EINVAL`).
    #[must_use]
    pub fn is_refused_value(&self) -> bool {
        matches!(self, Self::Write { source, .. }
            if source.raw_os_error() == Some(Errno::EINVAL as i32))
    }

    /// Whether the file or its group does not exist any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => is_gone(source),
            Self::NotALimit { .. } | Self::Format { .. } => false,
        }
    }
}

/// A removed group shows as a missing path, or as `ENODEV` through a handle opened before.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
}

/// The bytes of a file.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, KernelFileError> {
    let read = || {
        let mut bytes = Vec::new();
        OpenOptions::new()
            .read(true)
            .open(path)?
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|source| KernelFileError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The text of a file; bytes that are not UTF-8 are replaced.
pub(crate) fn read(path: &Path) -> Result<String, KernelFileError> {
    Ok(String::from_utf8_lossy(&read_bytes(path)?).into_owned())
}

/// The one rule for absence: a file that this kernel or group does not have is `None`, a file
/// that is there and cannot be read is an error.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, KernelFileError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes `value` in one `write` call to a file that must exist.
pub(crate) fn write(path: &Path, value: &[u8]) -> Result<(), KernelFileError> {
    let put = || {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(value)
    };
    put().map_err(|source| KernelFileError::Write {
        path: path.to_owned(),
        value: String::from_utf8_lossy(value).trim_end().to_owned(),
        source,
    })
}

/// A whole number in a file of its own.
pub(crate) fn parse_u64(path: &Path, text: &str) -> Result<u64, KernelFileError> {
    text.trim().parse().map_err(|_| KernelFileError::Format {
        path: path.to_owned(),
        text: text.trim().to_owned(),
        expected: "a whole number",
    })
}

/// The value of `key` in a file of `key value` lines, `None` where the key is absent.
pub(crate) fn flat_key(path: &Path, text: &str, key: &str) -> Result<Option<u64>, KernelFileError> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
        .map(|value| parse_u64(path, value))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu.maxx");
        let error = write(&path, b"1 2").unwrap_err();
        assert!(error.is_gone());
        assert!(error.to_string().contains("cannot write `1 2` to `"));
        assert!(!path.exists());
    }

    #[test]
    fn absent_is_none_and_unreadable_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_optional(&dir.path().join("none")).unwrap(), None);
        // A folder is there and cannot be read as a file.
        assert!(read_optional(dir.path()).is_err());
    }

    #[test]
    fn keys_are_whole_words() {
        let path = Path::new("cpu.stat");
        let text = "nr_throttled_x 5\nnr_throttled 7\n";
        assert_eq!(flat_key(path, text, "nr_throttled").unwrap(), Some(7));
        assert_eq!(flat_key(path, text, "nr_periods").unwrap(), None);
        assert!(flat_key(path, "nr_periods x\n", "nr_periods").is_err());
    }
}
