//! The entries of the one event log.

use serde::{Deserialize, Serialize};

use crate::action::Change;
use crate::anomaly::Anomaly;
use crate::culprit::Finding;

/// One entry, as a JSON line `{"event": "...", ...}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Somebody was blamed.
    Finding(Finding),
    /// A limit was changed.
    Change(Change),
    /// Contention was made.
    Anomaly(Anomaly),
}
