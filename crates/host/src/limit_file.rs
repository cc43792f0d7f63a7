//! Limit files, and nothing else: what the limit writer and a restore may touch.
//!
//! A journal may be forged, and a restore often runs as root. So each file is judged by what was
//! opened, not by its path: one of the known names, on a cgroup file system, and the same file
//! for the write as for the read before it.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};

use crate::cpu::LIMIT_FILES;
use crate::kernel_file::KernelFileError;
use crate::safe_open;

/// The kernel shows a limit in one page.
const LONGEST: u64 = 4096;

/// Where limit files may lie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ground {
    /// On cgroup file systems.
    Cgroup,
    /// Anywhere, for made trees.
    #[cfg(test)]
    Any,
}

/// What a limit file held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) inode: u64,
}

impl Ground {
    /// Reads a limit file.
    pub(crate) fn read(self, path: &Path) -> Result<Content, KernelFileError> {
        let wrong = |source| KernelFileError::Read {
            path: path.to_owned(),
            source,
        };
        let file = self.open(path, OpenOptions::new().read(true), wrong)?;
        let content = || -> std::io::Result<Content> {
            Ok(Content {
                inode: file.metadata()?.ino(),
                bytes: safe_open::read_at_most(&file, LONGEST)?,
            })
        };
        content().map_err(wrong)
    }

    /// Writes `value` in one `write` call to the limit file that has that inode.
    pub(crate) fn write(
        self,
        path: &Path,
        inode: u64,
        value: &[u8],
    ) -> Result<(), KernelFileError> {
        let wrong = |source| KernelFileError::Write {
            path: path.to_owned(),
            value: String::from_utf8_lossy(value).trim_end().to_owned(),
            source,
        };
        let mut file = self.open(path, OpenOptions::new().write(true), wrong)?;
        let mut put = || {
            if file.metadata()?.ino() != inode {
                let why = "its group was removed and made anew";
                return Err(Error::new(ErrorKind::NotFound, why));
            }
            file.write_all(value)
        };
        put().map_err(wrong)
    }

    fn open(
        self,
        path: &Path,
        options: &mut OpenOptions,
        wrong: impl Fn(Error) -> KernelFileError,
    ) -> Result<File, KernelFileError> {
        let refused = |why: String| KernelFileError::NotALimit {
            path: path.to_owned(),
            why,
        };
        let is_known = |name: &std::ffi::OsStr| LIMIT_FILES.iter().any(|known| name == *known);
        if !path.file_name().is_some_and(is_known) {
            return Err(refused(format!(
                "its name is none of {}",
                LIMIT_FILES.join(", ")
            )));
        }
        let file = safe_open::regular(options, path).map_err(&wrong)?;
        let lies_right = match self {
            Self::Cgroup => {
                let found = fstatfs(&file).map_err(|errno| wrong(errno.into()))?;
                [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC].contains(&found.filesystem_type())
            }
            #[cfg(test)]
            Self::Any => true,
        };
        if lies_right {
            Ok(file)
        } else {
            Err(refused("it is not on a cgroup file system".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_file_is_known_by_name_and_ground() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        for name in LIMIT_FILES.iter().chain(&["cpu.maxx", "passwd"]) {
            fs_err::write(path(name), "max 100000\n").unwrap();
        }
        for name in LIMIT_FILES {
            let why = Ground::Cgroup.read(&path(name)).unwrap_err().to_string();
            assert!(why.ends_with("not on a cgroup file system"), "{why}");
            assert_eq!(
                Ground::Any.read(&path(name)).unwrap().bytes,
                b"max 100000\n"
            );
        }
        for name in ["cpu.maxx", "passwd"] {
            let why = Ground::Any.read(&path(name)).unwrap_err().to_string();
            assert!(
                why.contains("its name is none of cpu.cfs_quota_us"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_file_made_anew_between_read_and_write_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("cpu.max");
        fs_err::write(&path, "1 1").unwrap();
        let inode = Ground::Any.read(&path).unwrap().inode;
        let error = Ground::Any.write(&path, inode + 1, b"2 2").unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert_eq!(fs_err::read(&path).unwrap(), b"1 1");
        Ground::Any.write(&path, inode, b"2 2").unwrap();
        assert_eq!(fs_err::read(&path).unwrap(), b"2 2");
    }

    #[test]
    fn an_endless_limit_file_is_not_read_to_its_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("cpu.max");
        fs_err::write(&path, [b'1'; 4097]).unwrap();
        assert!(Ground::Any.read(&path).is_err());
        fs_err::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(Ground::Any.read(&path).is_err());
    }
}
