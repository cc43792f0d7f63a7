//! Where execution graphs are kept, and the one log of what happened.
//!
//! [`memory::MemoryStore`] keeps the latest graphs within stated bounds; [`event_log::EventLog`]
//! appends findings, changes and anomalies as JSON lines. Every store passes the same suite,
//! `tests/behaviour/main.rs`.
//!
//! What this crate never does: decide what is worth keeping. It is told.

pub mod event_log;
pub mod memory;

pub use event_log::{EventLog, EventLogError, EventReader};
pub use memory::{MemoryBounds, MemoryError, MemoryStore};
