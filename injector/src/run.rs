//! A whole campaign, anomaly by anomaly.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use firm_model::clock::SystemClock;
use firm_model::{Anomaly, Clock as _};

use crate::inject::{InjectError, Injection, Injector, Meter, Place};
use crate::schedule::Planned;

/// How often running anomalies are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Makes all anomalies of a schedule (in the order of start, as [`crate::schedule()`] gives
/// them), each at its time from now, and returns when the last has ended. Overlapping ones run
/// side by side. `done` gets each as it ends. Ends early, and with it what is running, when
/// `stop` gets a message or its sender is dropped.
///
/// # Errors
/// An anomaly could not be made. What was running is ended and told of before that.
pub fn run(
    injector: &Injector,
    planned: &[Planned],
    place: &mut Place<'_>,
    meter: &dyn Fn() -> Meter,
    stop: &Receiver<()>,
    done: &mut dyn FnMut(Anomaly),
) -> Result<(), InjectError> {
    let begin = SystemClock.monotonic();
    let mut coming = planned.iter().peekable();
    let mut running: Vec<Injection> = Vec::new();
    let mut result = Ok(());
    while result.is_ok() && (coming.peek().is_some() || !running.is_empty()) {
        let passed = SystemClock.monotonic() - begin;
        if let Some(due) = coming.next_if(|next| next.start <= passed) {
            result = injector
                .start(due, place, meter())
                .map(|injection| running.push(injection));
            continue;
        }
        let (over, left) = running.drain(..).partition(Injection::is_over);
        running = left;
        result = tell(over, Injection::wait, done);
        let next = coming.peek().map(|next| next.start - passed);
        let wait = match next {
            Some(next) if running.is_empty() => next,
            Some(next) => next.min(LOOK),
            None => LOOK,
        };
        if !matches!(stop.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            break;
        }
    }
    result.and(tell(running, Injection::stop, done))
}

/// Ends all, even where one fails.
fn tell(
    injections: Vec<Injection>,
    end: fn(Injection) -> Result<Anomaly, InjectError>,
    done: &mut dyn FnMut(Anomaly),
) -> Result<(), InjectError> {
    let mut result = Ok(());
    for injection in injections {
        match end(injection) {
            Ok(anomaly) => done(anomaly),
            Err(error) => result = Err(error),
        }
    }
    result
}
