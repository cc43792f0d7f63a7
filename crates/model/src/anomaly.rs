//! Contention that the injector made: ground truth for labels and reports, never for the state.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::instance::InstanceId;
use crate::time::Timestamp;

/// The seven types of FIRM Table 3.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalyKind {
    /// Change of rate or mix of the requests.
    Workload,
    /// Delay on the instance's network.
    NetworkDelay,
    /// CPU use beside the instance.
    Cpu,
    /// Last-level cache, bandwidth and capacity.
    Llc,
    /// Memory bandwidth.
    MemoryBandwidth,
    /// Disk bandwidth.
    Disk,
    /// Network bandwidth.
    NetworkBandwidth,
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AnomalyKind::Workload => "workload",
            AnomalyKind::NetworkDelay => "network-delay",
            AnomalyKind::Cpu => "cpu",
            AnomalyKind::Llc => "llc",
            AnomalyKind::MemoryBandwidth => "memory-bandwidth",
            AnomalyKind::Disk => "disk",
            AnomalyKind::NetworkBandwidth => "network-bandwidth",
        })
    }
}

/// How strong, from 0 (nothing) to 1; what both mean physically is a table per type.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Intensity(f64);

impl Intensity {
    /// An intensity from its value.
    ///
    /// # Errors
    /// Outside 0..=1, or NaN.
    pub fn new(value: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(format!("intensity {value} is not within 0..=1"))
        }
    }

    /// Its value, 0 to 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Intensity {
    type Error = String;
    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value)
    }
}

impl From<Intensity> for f64 {
    fn from(value: Intensity) -> f64 {
        value.0
    }
}

/// What the injector really did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Anomaly {
    /// Its type.
    pub kind: AnomalyKind,
    /// The instance it was done to.
    pub target: InstanceId,
    /// When it took effect.
    pub start: Timestamp,
    /// When its effect ended.
    pub end: Timestamp,
    /// What was asked for.
    pub asked: Intensity,
    /// What was measured, `None` if it could not be.
    pub achieved: Option<Intensity>,
}

/// Lets the injector change the load (anomaly type 1); the load generator implements it.
pub trait LoadControl: Send + Sync {
    /// Multiplies the scheduled arrival rate; 1 is as configured.
    ///
    /// # Errors
    /// Not finite or negative.
    fn set_rate_factor(&self, factor: f64) -> Result<(), String>;
}
