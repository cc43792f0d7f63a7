//! What an instance can lack.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A resource whose share can be changed (FIRM Table 3.2: RLT and RU, in this order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// CPU time.
    Cpu,
    /// Memory bandwidth.
    MemoryBandwidth,
    /// Last-level cache.
    Cache,
    /// Disk bandwidth.
    Disk,
    /// Network.
    Network,
}

impl Resource {
    /// The five of the paper, in its order.
    pub const ALL: [Resource; 5] = [
        Resource::Cpu,
        Resource::MemoryBandwidth,
        Resource::Cache,
        Resource::Disk,
        Resource::Network,
    ];
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Cpu => "cpu",
            Resource::MemoryBandwidth => "memory-bandwidth",
            Resource::Cache => "cache",
            Resource::Disk => "disk",
            Resource::Network => "network",
        })
    }
}
