//! The one directory that holds what must outlive the program: lock, journal, event log.

use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// It cannot be made, or a file in it not be opened.
    #[error("cannot use state directory `{path}`")]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another program holds it.
    #[error("state directory `{path}` is in use by process {owner}; hint: end that process first")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Id of the process that holds the lock, or `?`.
        owner: String,
    },
    /// Neither of the directories that it could lie in is known.
    #[error("no place for the state directory; hint: give one with `--state-dir`")]
    NoHome,
}

/// A state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Where it lies unless told otherwise: `/var/lib/firm` as root, else `firm` in the XDG state
    /// folder (`XDG_STATE_HOME`, or `.local/state` at home).
    ///
    /// # Errors
    /// [`StateDirError::NoHome`].
    pub fn default_path(
        root: bool,
        xdg_state_home: Option<&Path>,
        home: Option<&Path>,
    ) -> Result<PathBuf, StateDirError> {
        if root {
            return Ok(PathBuf::from("/var/lib/firm"));
        }
        let state = xdg_state_home
            // The XDG specification has relative paths ignored.
            .filter(|path| path.is_absolute())
            .map(Path::to_owned)
            .or_else(|| home.map(|home| home.join(".local/state")));
        state
            .map(|state| state.join("firm"))
            .ok_or(StateDirError::NoHome)
    }

    /// Opens the directory, making it where it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        fs_err::create_dir_all(path).map_err(|source| StateDirError::Io {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal of the limit writer.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.path.join("limits.journal")
    }

    /// The event log.
    #[must_use]
    pub fn event_log(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// Takes the directory for this process until the lock is dropped or the process ends.
    ///
    /// # Errors
    /// [`StateDirError::Locked`] while another process lives that has it.
    pub fn lock(&self) -> Result<StateLock, StateDirError> {
        let io = |source| StateDirError::Io {
            path: self.path.clone(),
            source,
        };
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join("lock"))
            .map_err(io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // The id is for messages only, and a full disk must not stop a restore.
                let _ = lock
                    .set_len(0)
                    .and_then(|()| writeln!(lock, "{}", std::process::id()));
                Ok(StateLock {
                    dir: self.clone(),
                    _lock: lock,
                })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut owner = String::new();
                let read = file.rewind().and_then(|()| file.read_to_string(&mut owner));
                let owner = match read {
                    Ok(_) if !owner.trim().is_empty() => owner.trim().to_owned(),
                    _ => "?".to_owned(),
                };
                Err(StateDirError::Locked {
                    path: self.path.clone(),
                    owner,
                })
            }
            Err((_, errno)) => Err(io(errno.into())),
        }
    }
}

/// Holds a state directory for this process.
#[derive(Debug)]
pub struct StateLock {
    dir: StateDir,
    _lock: Flock<std::fs::File>,
}

impl StateLock {
    /// The directory held.
    #[must_use]
    pub const fn dir(&self) -> &StateDir {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_by_user_and_environment() {
        let path = |root, xdg: Option<&str>, home: Option<&str>| {
            StateDir::default_path(root, xdg.map(Path::new), home.map(Path::new))
        };
        assert_eq!(path(true, None, None).unwrap(), Path::new("/var/lib/firm"));
        assert_eq!(path(false, Some("/s"), None).unwrap(), Path::new("/s/firm"));
        assert_eq!(
            path(false, Some("relative"), Some("/h")).unwrap(),
            Path::new("/h/.local/state/firm")
        );
        assert!(path(false, None, None).is_err());
    }

    #[test]
    fn one_holder_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(&temp.path().join("a/b")).unwrap();
        let first = dir.lock().unwrap();
        let why = dir.lock().unwrap_err().to_string();
        assert!(
            why.contains(&format!("by process {};", std::process::id())),
            "{why}"
        );
        drop(first);
        dir.lock().unwrap();
    }
}
