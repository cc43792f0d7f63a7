//! CPU quota and CPU counters of a group, for both cgroup generations.
//!
//! Sources: kernel `Documentation/scheduler/sched-bwc.rst` (v1), and
//! `Documentation/admin-guide/cgroup-v2.rst` (`cpu.max`, `cpu.stat`).

use std::path::{Path, PathBuf};

use firm_model::{CpuSample, MilliCores, Monotonic};

use crate::kernel_file::{self, KernelFileError};
use crate::mounts::{CgroupMount, CgroupVersion, CpuLayout, MountsError};

const V1_QUOTA: &str = "cpu.cfs_quota_us";
const V1_PERIOD: &str = "cpu.cfs_period_us";
const V1_BURST: &str = "cpu.cfs_burst_us";
const V1_USAGE: &str = "cpuacct.usage";
const V2_MAX: &str = "cpu.max";
const V2_BURST: &str = "cpu.max.burst";
const STAT: &str = "cpu.stat";

/// Names of all files that the limit writer may write and a restore may put back.
pub(crate) const LIMIT_FILES: [&str; 3] = [V1_QUOTA, V1_PERIOD, V2_MAX];

/// The least quota the kernel takes, microseconds (`min_cfs_quota_period`).
pub const MIN_QUOTA_US: u64 = 1_000;
/// The most we ask for, microseconds: a million cores at the longest period, far below the
/// kernel's own bound, so that no multiplication there or here can overflow.
const MAX_QUOTA_US: u64 = 1_000_000_000_000;
/// The period of groups without one of their own, microseconds.
pub const DEFAULT_PERIOD_US: u64 = 100_000;

/// A text is not a quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct QuotaError {
    text: String,
    expected: &'static str,
}

/// CPU time that a group may use in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuQuota {
    /// CPU time, microseconds; `None` is without limit.
    pub quota_us: Option<u64>,
    /// Length of the period, microseconds, never 0.
    pub period_us: u64,
}

impl CpuQuota {
    /// No limit.
    pub const UNLIMITED: CpuQuota = CpuQuota {
        quota_us: None,
        period_us: DEFAULT_PERIOD_US,
    };

    /// The quota nearest to a limit at a period: at least 1 ms and at least `burst_us` (the
    /// kernel refuses a quota below the burst), never above `threads` x 100 % when known, but
    /// for the first two rules.
    #[must_use]
    pub fn from_limit(
        limit: MilliCores,
        period_us: u64,
        burst_us: u64,
        threads: Option<u32>,
    ) -> Self {
        let most = threads.map_or(u64::MAX, |n| 1000 * u64::from(n.max(1)));
        let milli = u128::from(limit.get().min(most));
        let exact = (milli * u128::from(period_us) + 500) / 1000;
        let quota = u64::try_from(exact).unwrap_or(u64::MAX);
        Self {
            quota_us: Some(quota.max(MIN_QUOTA_US).max(burst_us).min(MAX_QUOTA_US)),
            period_us,
        }
    }

    /// The limit in thousandths of a core, rounded; `None` is without limit.
    #[must_use]
    pub fn limit(&self) -> Option<MilliCores> {
        let quota = u128::from(self.quota_us?) * 1000;
        let period = u128::from(self.period_us.max(1));
        let milli = (quota + period / 2) / period;
        Some(MilliCores::new(u64::try_from(milli).unwrap_or(u64::MAX)))
    }

    /// Reads the content of `cpu.max`: `QUOTA|max PERIOD`.
    ///
    /// # Errors
    /// Another form, or a period of 0.
    pub fn parse_v2(text: &str) -> Result<Self, QuotaError> {
        let wrong = || QuotaError {
            text: text.trim_end().to_owned(),
            expected: "`QUOTA PERIOD` in microseconds",
        };
        let mut words = text.split_ascii_whitespace();
        let (Some(quota), Some(period), None) = (words.next(), words.next(), words.next()) else {
            return Err(wrong());
        };
        let quota_us = match quota {
            "max" => None,
            number => Some(number.parse().map_err(|_| wrong())?),
        };
        match period.parse() {
            Ok(period_us) if period_us > 0 => Ok(Self {
                quota_us,
                period_us,
            }),
            _ => Err(wrong()),
        }
    }

    /// The text for `cpu.max`.
    #[must_use]
    pub fn format_v2(&self) -> String {
        match self.quota_us {
            Some(quota) => format!("{quota} {}", self.period_us),
            None => format!("max {}", self.period_us),
        }
    }

    /// Reads the contents of `cpu.cfs_quota_us` (negative is without limit) and
    /// `cpu.cfs_period_us`.
    ///
    /// # Errors
    /// Not whole numbers, or a period of 0.
    pub fn parse_v1(quota: &str, period: &str) -> Result<Self, QuotaError> {
        let wrong = |text: &str| QuotaError {
            text: text.trim_end().to_owned(),
            expected: "a whole number of microseconds",
        };
        let number: i64 = quota.trim().parse().map_err(|_| wrong(quota))?;
        match period.trim().parse() {
            Ok(period_us) if period_us > 0 => Ok(Self {
                quota_us: u64::try_from(number).ok(),
                period_us,
            }),
            _ => Err(wrong(period)),
        }
    }

    /// The text for `cpu.cfs_quota_us`.
    #[must_use]
    pub fn format_v1(&self) -> String {
        self.quota_us
            .map_or_else(|| "-1".to_owned(), |quota| quota.to_string())
    }
}

/// The CPU side of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuGroup {
    version: CgroupVersion,
    quota_dir: PathBuf,
    quota_top: PathBuf,
    usage_dir: Option<PathBuf>,
}

impl CpuGroup {
    /// The group that a process is in, by `PROC/PID/cgroup` and the mount table.
    ///
    /// # Errors
    /// No such process, or its group cannot be seen from here.
    pub fn of_pid(layout: &CpuLayout, proc: &Path, pid: u32) -> Result<Self, MountsError> {
        let find = |mount: &CgroupMount| mount.group_of_pid(proc, pid);
        Ok(Self {
            version: layout.version,
            quota_dir: find(&layout.quota)?,
            quota_top: layout.quota.point.clone(),
            usage_dir: layout.usage.as_ref().map(find).transpose()?,
        })
    }

    /// The group at `below`, a path relative to the top of each hierarchy.
    pub(crate) fn at(layout: &CpuLayout, below: &Path) -> Self {
        Self {
            version: layout.version,
            quota_dir: layout.quota.point.join(below),
            quota_top: layout.quota.point.clone(),
            usage_dir: layout.usage.as_ref().map(|mount| mount.point.join(below)),
        }
    }

    /// The child of that name, which need not exist.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self {
            version: self.version,
            quota_dir: self.quota_dir.join(name),
            quota_top: self.quota_top.clone(),
            usage_dir: self.usage_dir.as_ref().map(|dir| dir.join(name)),
        }
    }

    /// Generation of the interface.
    #[must_use]
    pub const fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Folder that holds the quota.
    #[must_use]
    pub fn quota_dir(&self) -> &Path {
        &self.quota_dir
    }

    /// Its folders, one per hierarchy, without repetition.
    pub(crate) fn dirs(&self) -> Vec<&Path> {
        let usage = self.usage_dir.as_deref();
        std::iter::once(self.quota_dir.as_path())
            .chain(usage.filter(|dir| *dir != self.quota_dir))
            .collect()
    }

    /// The enclosing groups that have a quota, nearest first. Only their quota can be used;
    /// the top of the hierarchy is not among them.
    ///
    /// # Errors
    /// A quota cannot be read.
    pub fn limiting_ancestors(&self) -> Result<Vec<CpuGroup>, KernelFileError> {
        let mut found = Vec::new();
        let mut dir = self.quota_dir.parent();
        while let Some(here) =
            dir.filter(|d| d.starts_with(&self.quota_top) && *d != self.quota_top)
        {
            let group = CpuGroup {
                version: self.version,
                quota_dir: here.to_owned(),
                quota_top: self.quota_top.clone(),
                usage_dir: None,
            };
            if group.quota()?.is_some_and(|quota| quota.quota_us.is_some()) {
                found.push(group);
            }
            dir = here.parent();
        }
        Ok(found)
    }

    /// The file that a quota is written to.
    #[must_use]
    pub fn quota_file(&self) -> PathBuf {
        self.quota_dir.join(match self.version {
            CgroupVersion::V1 => V1_QUOTA,
            CgroupVersion::V2 => V2_MAX,
        })
    }

    /// All files that say how much CPU the group may use.
    #[must_use]
    pub fn limit_files(&self) -> Vec<PathBuf> {
        let names: &[&str] = match self.version {
            CgroupVersion::V1 => &[V1_QUOTA, V1_PERIOD],
            CgroupVersion::V2 => &[V2_MAX],
        };
        names.iter().map(|name| self.quota_dir.join(name)).collect()
    }

    /// The text that sets a quota through [`CpuGroup::quota_file`]. In v1 the period stays as it
    /// is in its own file.
    #[must_use]
    pub fn quota_text(&self, quota: &CpuQuota) -> String {
        match self.version {
            CgroupVersion::V1 => quota.format_v1(),
            CgroupVersion::V2 => quota.format_v2(),
        }
    }

    /// The quota now, `None` for a group that cannot have one (the v2 root) or is gone.
    ///
    /// # Errors
    /// A file cannot be read or has another form.
    pub fn quota(&self) -> Result<Option<CpuQuota>, KernelFileError> {
        let path = self.quota_file();
        let Some(text) = kernel_file::read_optional(&path)? else {
            return Ok(None);
        };
        let parsed = match self.version {
            CgroupVersion::V2 => CpuQuota::parse_v2(&text),
            CgroupVersion::V1 => {
                let period = self.quota_dir.join(V1_PERIOD);
                let Some(period) = kernel_file::read_optional(&period)? else {
                    return Ok(None);
                };
                CpuQuota::parse_v1(&text, &period)
            }
        };
        parsed.map(Some).map_err(|error| KernelFileError::Format {
            path,
            text: error.text,
            expected: error.expected,
        })
    }

    /// CPU time that unused periods may add to a later one, microseconds; 0 where the kernel has
    /// no such file.
    ///
    /// # Errors
    /// The file cannot be read or has another form.
    pub fn burst_us(&self) -> Result<u64, KernelFileError> {
        let path = self.quota_dir.join(match self.version {
            CgroupVersion::V1 => V1_BURST,
            CgroupVersion::V2 => V2_BURST,
        });
        match kernel_file::read_optional(&path)? {
            Some(text) => kernel_file::parse_u64(&path, &text),
            None => Ok(0),
        }
    }

    /// Its counters now, with those of all groups below it. What the kernel or the group does
    /// not have is `None`.
    ///
    /// # Errors
    /// A file is there and cannot be read or has another form.
    pub fn sample(&self, now: Monotonic) -> Result<CpuSample, KernelFileError> {
        let stat_path = self.quota_dir.join(STAT);
        let stat = kernel_file::read_optional(&stat_path)?.unwrap_or_default();
        let value = |key| kernel_file::flat_key(&stat_path, &stat, key);
        let micros = |key| Ok(value(key)?.map(|us| us.saturating_mul(1000)));
        let throttled_ns = match self.version {
            CgroupVersion::V1 => value("throttled_time")?,
            CgroupVersion::V2 => micros("throttled_usec")?,
        };
        let usage_ns = match self.version {
            CgroupVersion::V1 => self.v1_usage_ns()?,
            CgroupVersion::V2 => micros("usage_usec")?,
        };
        Ok(CpuSample {
            at: now,
            usage_ns,
            periods: value("nr_periods")?,
            throttled_periods: value("nr_throttled")?,
            throttled_ns,
        })
    }

    fn v1_usage_ns(&self) -> Result<Option<u64>, KernelFileError> {
        let Some(dir) = &self.usage_dir else {
            return Ok(None);
        };
        let path = dir.join(V1_USAGE);
        kernel_file::read_optional(&path)?
            .map(|text| kernel_file::parse_u64(&path, &text))
            .transpose()
    }
}

#[cfg(test)]
mod tests;
