//! Where the cgroup hierarchies are mounted, and which group a process is in.
//!
//! Sources: `proc_pid_mountinfo(5)`, `cgroups(7)` (`/proc/PID/cgroup`), kernel
//! `Documentation/admin-guide/cgroup-v2.rst`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::capability::Unsupported;
use crate::kernel_file::{self, KernelFileError};

/// Generation of the cgroup interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CgroupVersion::V1 => "v1",
            CgroupVersion::V2 => "v2",
        })
    }
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// The group that the mount point shows, as `/proc/PID/cgroup` names it; `/` but for bind
    /// mounts into containers.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Mounted read-only.
    pub read_only: bool,
    /// Controllers of a v1 hierarchy, empty for v2.
    pub controllers: Vec<String>,
    /// Its generation.
    pub version: CgroupVersion,
}

/// The hierarchies to use for CPU: quota and throttling in one, use in another or the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuLayout {
    /// Generation of both.
    pub version: CgroupVersion,
    /// Hierarchy of the quota (`cpu`).
    pub quota: CgroupMount,
    /// Hierarchy of the use (`cpuacct` in v1), `None` where it is not mounted.
    pub usage: Option<CgroupMount>,
}

/// The mount table could not be read, or a process's group not be found.
#[derive(Debug, thiserror::Error)]
pub enum MountsError {
    /// A file of `/proc` could not be read.
    #[error(transparent)]
    File(#[from] KernelFileError),
    /// The process is in no group of the hierarchy.
    #[error("process {pid} is in no group of the hierarchy at `{point}`")]
    NoGroup {
        /// The process.
        pid: u32,
        /// Mount point of the hierarchy.
        point: PathBuf,
    },
    /// The group lies outside of what the mount point shows.
    #[error("group `{group}` of process {pid} is not visible below `{point}`")]
    Invisible {
        /// The process.
        pid: u32,
        /// Its group, as `/proc/PID/cgroup` names it.
        group: PathBuf,
        /// Mount point of the hierarchy.
        point: PathBuf,
    },
}

/// All mounted cgroup hierarchies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    mounts: Vec<CgroupMount>,
}

impl Mounts {
    /// Reads the mount table, usually `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// The file cannot be read. Lines of other form are passed over.
    pub fn read(mountinfo: &Path) -> Result<Self, MountsError> {
        Ok(Self::parse(&kernel_file::read(mountinfo)?))
    }

    /// The cgroup mounts in the text of a mount table.
    #[must_use]
    pub fn parse(mountinfo: &str) -> Self {
        Self {
            mounts: mountinfo.lines().filter_map(parse_line).collect(),
        }
    }

    /// The v1 hierarchy of a controller; of several mounts the one that shows most.
    #[must_use]
    pub fn v1(&self, controller: &str) -> Option<&CgroupMount> {
        self.widest(|mount| mount.controllers.iter().any(|name| name == controller))
    }

    /// The v2 hierarchy.
    #[must_use]
    pub fn v2(&self) -> Option<&CgroupMount> {
        self.widest(|mount| mount.version == CgroupVersion::V2)
    }

    fn widest(&self, wanted: impl Fn(&CgroupMount) -> bool) -> Option<&CgroupMount> {
        self.mounts
            .iter()
            .filter(|mount| wanted(mount))
            .min_by_key(|mount| (mount.read_only, mount.root.components().count()))
    }

    /// The hierarchies to use for CPU. The `cpu` controller is in one generation at a time.
    ///
    /// # Errors
    /// No hierarchy has the `cpu` controller.
    pub fn cpu_layout(&self) -> Result<CpuLayout, Unsupported> {
        if let Some(quota) = self.v1("cpu") {
            return Ok(CpuLayout {
                version: CgroupVersion::V1,
                quota: quota.clone(),
                usage: self.v1("cpuacct").cloned(),
            });
        }
        let Some(unified) = self.v2() else {
            return Err(Unsupported::new("no cgroup hierarchy is mounted"));
        };
        let path = unified.point.join("cgroup.controllers");
        let controllers = kernel_file::read(&path)
            .map_err(|error| Unsupported::new(format!("{error}: is it a cgroup v2 mount?")))?;
        if controllers.split_ascii_whitespace().any(|c| c == "cpu") {
            Ok(CpuLayout {
                version: CgroupVersion::V2,
                quota: unified.clone(),
                usage: Some(unified.clone()),
            })
        } else {
            Err(Unsupported::new(format!(
                "`{}` does not list the cpu controller",
                path.display()
            )))
        }
    }
}

impl CgroupMount {
    /// Folder of the group that a process is in.
    ///
    /// # Errors
    /// No such process, or its group cannot be seen from here.
    pub fn group_of_pid(&self, proc: &Path, pid: u32) -> Result<PathBuf, MountsError> {
        let text = kernel_file::read(&proc.join(pid.to_string()).join("cgroup"))?;
        let group = text
            .lines()
            .find_map(|line| self.group_in_line(line))
            .ok_or_else(|| MountsError::NoGroup {
                pid,
                point: self.point.clone(),
            })?;
        let below = group
            .strip_prefix(&self.root)
            .ok()
            // A group outside the cgroup namespace begins with `/..`.
            .filter(|below| {
                below
                    .components()
                    .all(|c| matches!(c, Component::Normal(_)))
            });
        match below {
            Some(below) => Ok(self.point.join(below)),
            None => Err(MountsError::Invisible {
                pid,
                group: group.to_owned(),
                point: self.point.clone(),
            }),
        }
    }

    fn group_in_line<'a>(&self, line: &'a str) -> Option<&'a Path> {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match self.version {
            CgroupVersion::V2 => controllers.is_empty(),
            CgroupVersion::V1 => controllers
                .split(',')
                .any(|name| self.controllers.iter().any(|own| own == name)),
        };
        // The kernel marks the group of a process whose group was removed.
        ours.then(|| Path::new(group.strip_suffix(" (deleted)").unwrap_or(group)))
    }
}

fn parse_line(line: &str) -> Option<CgroupMount> {
    // id parent major:minor root point options [optional...] - type source super-options
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point, options) = (fields.next()?, fields.next()?, fields.next()?);
    let mut fields = file_system.split(' ');
    let (kind, super_options) = (fields.next()?, fields.nth(1)?);
    let version = match kind {
        "cgroup" => CgroupVersion::V1,
        "cgroup2" => CgroupVersion::V2,
        _ => return None,
    };
    let controllers = match version {
        CgroupVersion::V2 => Vec::new(),
        CgroupVersion::V1 => super_options
            .split(',')
            .filter(|option| {
                !matches!(
                    *option,
                    "rw" | "ro" | "xattr" | "noprefix" | "clone_children"
                )
            })
            .map(str::to_owned)
            .collect(),
    };
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro");
    Some(CgroupMount {
        root: unescape(root),
        point: unescape(point),
        read_only: is_read_only(options) || is_read_only(super_options),
        controllers,
        version,
    })
}

/// Undoes the octal escapes of space, tab, newline and backslash in a mount table.
fn unescape(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escaped = bytes.get(index..index + 4).and_then(|four| {
            let digits = std::str::from_utf8(four).ok()?.strip_prefix('\\')?;
            u8::from_str_radix(digits, 8).ok()
        });
        match escaped {
            Some(byte) => {
                out.push(byte);
                index += 4;
            }
            None => {
                out.push(bytes[index]);
                index += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests;
