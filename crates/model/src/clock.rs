//! Where time comes from. Everything else takes it as an argument.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::time::{Monotonic, Timestamp};

/// A source of time, so that loops can be run on a paused clock.
pub trait Clock: Send + Sync {
    /// The monotonic clock, for control loops.
    fn monotonic(&self) -> Monotonic;
    /// The wall clock, for records that people and spans are compared with.
    fn wall(&self) -> Timestamp;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the clock"
    )]
    fn monotonic(&self) -> Monotonic {
        static START: OnceLock<Instant> = OnceLock::new();
        let elapsed = START.get_or_init(Instant::now).elapsed();
        Monotonic::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the clock"
    )]
    fn wall(&self) -> Timestamp {
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        u64::try_from(nanos)
            .ok()
            .and_then(Timestamp::from_nanos)
            .unwrap_or(Timestamp::EPOCH)
    }
}
