//! The one directory that holds what must outlive the program: lock, journal, event log.

use std::fs::OpenOptions;
use std::io::{Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::safe_open;

/// Permission to write for the group and for others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Of the lock file, which holds one process id.
const LONGEST_LOCK: u64 = 64;

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
    /// Somebody else owns it, and could have put anything there.
    #[error(
        "state directory `{path}` belongs to user {owner}, and this program runs as user {user}; \
         hint: give a directory of your own with `--state-dir`"
    )]
    NotOwned {
        /// The directory.
        path: PathBuf,
        /// Id of the user that it belongs to.
        owner: u32,
        /// Id of the user that this program runs as.
        user: u32,
    },
    /// Somebody else could put anything there.
    #[error(
        "state directory `{path}` can be written by others (mode {mode:04o}); \
         hint: give a directory of your own with `--state-dir`, or take that permission away \
         (`chmod go-w`) if nobody else has used it"
    )]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another program holds it.
    #[error(
        "state directory `{path}` is in use by {}; hint: end that process first",
        process(*.owner)
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Id of the process that holds the lock. Not known for a moment after it was taken, nor
        /// if the process cannot be seen from here.
        owner: Option<u32>,
    },
    /// Neither of the directories that it could lie in is known.
    #[error("no place for the state directory; hint: give one with `--state-dir`")]
    NoHome,
}

fn process(id: Option<u32>) -> String {
    id.map_or_else(
        || "another process".to_owned(),
        |id| format!("process {id}"),
    )
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

    /// Opens the directory, making it where it is missing, for its owner alone.
    ///
    /// # Errors
    /// It cannot be made, belongs to another user, or can be written by others.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        let io = |source| StateDirError::Io {
            path: path.to_owned(),
            source,
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(io)?;
        let found = fs_err::metadata(path).map_err(io)?;
        let user = geteuid().as_raw();
        if found.uid() != user {
            return Err(StateDirError::NotOwned {
                path: path.to_owned(),
                owner: found.uid(),
                user,
            });
        }
        if found.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(StateDirError::Writable {
                path: path.to_owned(),
                mode: found.mode() & 0o7777,
            });
        }
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
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = safe_open::regular(&mut options, &self.path.join("lock")).map_err(io)?;
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
            Err((file, Errno::EWOULDBLOCK)) => Err(StateDirError::Locked {
                path: self.path.clone(),
                owner: owner(file),
            }),
            Err((_, errno)) => Err(io(errno.into())),
        }
    }
}

/// The process that a lock file names, if it lives: one that has just taken the lock has yet to
/// write its id over that of the holder before it.
fn owner(mut file: std::fs::File) -> Option<u32> {
    file.rewind().ok()?;
    let bytes = safe_open::read_at_most(&file, LONGEST_LOCK).ok()?;
    let id = std::str::from_utf8(&bytes).ok()?.trim().parse().ok()?;
    crate::process::start_time(Path::new("/proc"), id).map(|_| id)
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

    fn set_mode(path: &Path, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs_err::set_permissions(path, mode).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_was_used() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("made");
        StateDir::open(&path).unwrap();
        let mode = fs_err::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        for mode in [0o720, 0o702, 0o1777] {
            set_mode(&path, mode);
            let why = StateDir::open(&path).unwrap_err().to_string();
            assert!(why.contains(&format!("(mode {mode:04o}); hint:")), "{why}");
        }
        set_mode(&path, 0o755);
        StateDir::open(&path).unwrap();
    }

    #[test]
    fn a_directory_of_another_user_was_used() {
        let temp = tempfile::tempdir().unwrap();
        let own = geteuid();
        // The superuser can give a directory away; for everyone else, `/` is another's.
        let path = if own.is_root() {
            let other = nix::unistd::Uid::from_raw(65_534);
            nix::unistd::chown(temp.path(), Some(other), None).unwrap();
            temp.path()
        } else {
            Path::new("/")
        };
        let error = StateDir::open(path).unwrap_err();
        assert!(
            matches!(error, StateDirError::NotOwned { user, .. } if user == own.as_raw()),
            "{error}"
        );
    }

    #[test]
    fn a_link_for_a_lock_truncated_what_it_led_to() {
        let temp = tempfile::tempdir().unwrap();
        let victim = temp.path().join("victim");
        fs_err::write(&victim, "hello owner").unwrap();
        let dir = StateDir::open(&temp.path().join("state")).unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("lock")).unwrap();
        assert!(matches!(dir.lock(), Err(StateDirError::Io { .. })));
        assert_eq!(fs_err::read_to_string(&victim).unwrap(), "hello owner");
    }

    #[test]
    fn a_holder_that_has_not_written_its_id_was_called_a_question_mark() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::open(temp.path()).unwrap();
        let _held = dir.lock().unwrap();
        // Empty, left by a dead holder (ids end below 2^22), and no id at all.
        for text in ["", "4194305\n", "no id"] {
            fs_err::write(dir.path().join("lock"), text).unwrap();
            let why = dir.lock().unwrap_err().to_string();
            assert!(why.contains("in use by another process; hint:"), "{why}");
        }
    }
}
