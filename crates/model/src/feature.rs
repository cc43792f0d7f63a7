//! What is known of an instance's time on critical paths in one window.

use serde::{Deserialize, Serialize};

use crate::instance::InstanceKey;

/// Which part of an instance's time: its own work, or the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Time in the instance's own spans.
    Server,
    /// Client span less server span: network and queueing before the work begins, charged to
    /// the callee.
    Gap,
}

/// Features of one instance and part over a window (FIRM Algorithm 3.2).
///
/// `None` means undefined (too few samples, or no variance), never zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Features {
    /// The instance.
    pub key: InstanceKey,
    /// Which part of its time.
    pub part: Part,
    /// Requests in which the instance was on the path.
    pub samples: usize,
    /// Relative importance: Pearson correlation of this time with the path's time, -1 to 1.
    pub ri: Option<f64>,
    /// Congestion intensity: p99 over p50 of this time, at least 1.
    pub ci: Option<f64>,
    /// Covariance share cov(T_i, T_CP) / var(T_CP); sums to 1 over all parts of a path.
    pub cov_share: Option<f64>,
    /// Median, nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// Mean over the requests in which it took part, nanoseconds.
    pub mean_ns: f64,
}
