//! CPU work: an amount of CPU time, not of wall time, so that contention stretches a request
//! but not what it does.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use firm_child::thread_cpu_time;
use parking_lot::{Condvar, Mutex};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, LogNormal};
use tokio::sync::oneshot;

use crate::topology::{Distribution, Work};

/// CPU time between two looks at the clock: reading it costs a system call of about 0.3 µs.
const CHUNK: Duration = Duration::from_micros(10);
/// A sample is held to this many times the mean, so that one request cannot block a thread.
const MOST_TIMES_MEAN: f64 = 10.0;

/// Burns CPU time on the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Burner {
    rounds: u32,
}

impl Burner {
    /// Measures how many rounds of the loop fit between two looks at the clock.
    #[must_use]
    pub fn calibrate() -> Self {
        // The fastest of a few, because an interrupt can only make one slower.
        let probe = 1 << 14;
        let best = (0..5)
            .map(|_| {
                let before = thread_cpu_time();
                mix(probe);
                thread_cpu_time().saturating_sub(before)
            })
            .min()
            .unwrap_or_default();
        let nanos = best.as_nanos().max(1);
        let rounds = CHUNK.as_nanos() * u128::from(probe) / nanos;
        Self {
            rounds: u32::try_from(rounds).unwrap_or(u32::MAX).max(1),
        }
    }

    /// Burns at least `amount` of CPU time, and at most about 10 µs more.
    pub fn burn(&self, amount: Duration) {
        let end = thread_cpu_time() + amount;
        while thread_cpu_time() < end {
            mix(self.rounds);
        }
    }
}

fn mix(rounds: u32) {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..rounds {
        x = black_box((x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ u64::from(round));
    }
}

/// Draws an amount of work.
#[must_use]
pub fn sample(work: Work, random: &mut ChaCha8Rng) -> Duration {
    let factor: f64 = match work.distribution {
        Distribution::Constant => 1.0,
        Distribution::Exponential => Exp1.sample(random),
        Distribution::Lognormal => {
            // Mean 1 and standard deviation 0.5: sigma^2 = ln(1 + 0.5^2), mu = -sigma^2 / 2.
            let variance = 1.25_f64.ln();
            LogNormal::new(-variance / 2.0, variance.sqrt())
                .map_or(1.0, |distribution| distribution.sample(random))
        }
    };
    Duration::from(work.mean).mul_f64(factor.clamp(0.0, MOST_TIMES_MEAN))
}

struct Job {
    work: Work,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

type Shared = Arc<(Mutex<Queue>, Condvar)>;

/// The threads of one instance. Work that nobody waits for any more is skipped.
pub(crate) struct WorkerPool {
    shared: Shared,
}

impl WorkerPool {
    /// Starts `threads` threads; each draws its amounts from a stream of `seed`.
    pub(crate) fn start(threads: u32, seed: u64) -> std::io::Result<Self> {
        let pool = Self {
            shared: Shared::default(),
        };
        let burner = Burner::calibrate();
        for index in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(u64::from(index));
            std::thread::Builder::new()
                .name(format!("worker {index}"))
                .spawn(move || work_off(&shared, burner, &mut random))?;
        }
        Ok(pool)
    }

    /// Waits until a thread has done the work.
    pub(crate) async fn run(&self, work: Work) {
        let (done, wait) = oneshot::channel();
        self.shared.0.lock().jobs.push_back(Job { work, done });
        self.shared.1.notify_one();
        // The sender is only dropped unused when the pool is closed at the process's end.
        let _ = wait.await;
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.0.lock().closed = true;
        self.shared.1.notify_all();
    }
}

fn work_off(shared: &Shared, burner: Burner, random: &mut ChaCha8Rng) {
    loop {
        let job = {
            let mut queue = shared.0.lock();
            loop {
                if queue.closed {
                    return;
                }
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                shared.1.wait(&mut queue);
            }
        };
        if !job.done.is_closed() {
            burner.burn(sample(job.work, random));
            // Whoever waited may have given up meanwhile.
            let _ = job.done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firm_model::Latency;

    #[test]
    fn the_amount_asked_for_is_burned() {
        let burner = Burner::calibrate();
        let before = thread_cpu_time();
        burner.burn(Duration::from_millis(3));
        assert!(thread_cpu_time() - before >= Duration::from_millis(3));
    }

    #[test]
    fn samples_have_their_mean_and_repeat_with_the_seed() {
        for distribution in [
            Distribution::Constant,
            Distribution::Exponential,
            Distribution::Lognormal,
        ] {
            let work = Work {
                mean: Latency::from_millis(2),
                distribution,
            };
            let draw = |seed| {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                (0..20_000)
                    .map(|_| sample(work, &mut random).as_secs_f64())
                    .sum::<f64>()
                    / 20_000.0
            };
            assert!((draw(1) / 0.002 - 1.0).abs() < 0.03, "{distribution:?}");
            assert_eq!(draw(2).to_bits(), draw(2).to_bits());
        }
    }

    #[tokio::test]
    async fn work_is_done_and_what_nobody_waits_for_is_skipped() {
        let pool = WorkerPool::start(1, 1).unwrap();
        let long = Work {
            mean: Latency::from_millis(3_600_000),
            distribution: Distribution::Constant,
        };
        let short = Work {
            mean: Latency::from_nanos(1_000),
            ..long
        };
        // An hour of work whose waiter is gone before a thread can take it.
        let (done, wait) = oneshot::channel();
        drop(wait);
        pool.shared
            .0
            .lock()
            .jobs
            .push_back(Job { work: long, done });
        pool.run(short).await;
        assert!(pool.shared.0.lock().jobs.is_empty());
    }
}
