//! Opening files at places where somebody else may have put something: no links, no waiting, and
//! nothing but regular files.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Opens a regular file. A link at the end of `path` is not followed, and a FIFO is refused
/// without waiting for its other end.
pub(crate) fn regular(options: &mut OpenOptions, path: &Path) -> Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = options
        .custom_flags(flags.bits())
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::ELOOP as i32 => {
                Error::new(error.kind(), "it is a symbolic link, which is not followed")
            }
            _ => error,
        })?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

/// All bytes of a file that holds no more than `most`.
pub(crate) fn read_at_most(file: &File, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= most) {
        Ok(bytes)
    } else {
        Err(Error::new(
            ErrorKind::FileTooLarge,
            format!("it is longer than {most} bytes"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn links_fifos_devices_and_folders_are_refused_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        fs_err::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        let open = |path: &Path| regular(OpenOptions::new().read(true), path);
        let why = |path: &Path| open(path).unwrap_err().to_string();
        assert!(why(&path("link")).contains("symbolic link"));
        assert!(why(&path("fifo")).contains("not a regular file"));
        assert!(why(Path::new("/dev/zero")).contains("not a regular file"));
        assert!(why(temp.path()).contains("not a regular file"));
        let both = regular(OpenOptions::new().read(true).write(true), &path("fifo"));
        assert!(both.is_err());
        assert_eq!(
            read_at_most(&open(&path("file")).unwrap(), 4).unwrap(),
            b"text"
        );
    }

    #[test]
    fn a_file_above_the_bound_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        fs_err::write(&path, "text").unwrap();
        let file = regular(OpenOptions::new().read(true), &path).unwrap();
        let error = read_at_most(&file, 3).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 3 bytes");
    }
}
