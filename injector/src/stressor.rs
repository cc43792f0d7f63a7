//! The process that makes contention.
//!
//! It waits for one JSON line ([`StressorConfig`]) before it does anything, so that it can be put
//! into a cgroup first; answers [`Started`]; takes [`Duty`] lines from then on. It ends when its
//! time is over, when its stdin ends, on `SIGTERM`, and when its parent dies.

mod cpu;

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use firm_child::{LineError, Placement};
use firm_model::clock::SystemClock;
use firm_model::{Clock as _, Timestamp};
use serde::{Deserialize, Serialize};

/// What a stressor is told at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StressorConfig {
    /// Where it runs, and whose child it is.
    pub placement: Placement,
    /// Threads that burn, one for each CPU of its set.
    pub threads: u32,
    /// Share of a CPU's time that each thread burns at first, 0 to 1.
    pub duty: f64,
    /// When it ends by itself, in milliseconds from its start.
    pub duration_ms: u64,
}

/// What a stressor answers once its threads burn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// When that was.
    pub started: Timestamp,
}

/// A new duty cycle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Duty {
    /// Share of a CPU's time that each thread burns, 0 to 1.
    pub duty: f64,
}

/// Why a stressor cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StressorError {
    /// The injector did not say what was expected.
    #[error("the injector's line cannot be used")]
    Line(#[from] LineError),
    /// The process could not be placed.
    #[error("the process cannot be placed")]
    Enter(#[from] firm_child::EnterError),
    /// The system refused a thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// The duty cycle that all threads share.
#[derive(Debug, Clone)]
struct SharedDuty(Arc<AtomicU64>);

impl SharedDuty {
    fn set(&self, duty: f64) {
        if duty.is_finite() {
            self.0
                .store(duty.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        }
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Runs one stressor to its end, talking with the injector over stdin and stdout.
///
/// # Errors
/// It could not be set up, or was sent a line that is no [`Duty`].
pub fn run_stressor() -> Result<(), StressorError> {
    let mut stdin = BufReader::new(std::io::stdin());
    let config: StressorConfig = firm_child::receive(&mut stdin)?;
    firm_child::enter(&config.placement)?;
    let duty = SharedDuty(Arc::default());
    duty.set(config.duty);
    for index in 0..config.threads {
        let duty = duty.clone();
        std::thread::Builder::new()
            .name(format!("burn {index}"))
            .spawn(move || cpu::burn(|| duty.get(), u64::from(index)))
            .map_err(StressorError::Thread)?;
    }
    let started = Started {
        started: SystemClock.wall(),
    };
    firm_child::send(&mut std::io::stdout().lock(), &started)?;
    let (ended, end) = channel();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let error = loop {
                match firm_child::receive::<Duty>(&mut stdin) {
                    Ok(new) => duty.set(new.duty),
                    Err(error) => break error,
                }
            };
            // The process may be ending already.
            let _ = ended.send(error);
        })
        .map_err(StressorError::Thread)?;
    match end.recv_timeout(Duration::from_millis(config.duration_ms)) {
        Ok(LineError::Closed) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Ok(())
        }
        Ok(error) => Err(error.into()),
    }
}
