//! CPU contention (FIRM 3.2.6): integer, floating-point, bit-manipulation and control-flow
//! operations, on a duty cycle of CPU time.

use std::hint::black_box;
use std::time::Duration;

use firm_child::thread_cpu_time;
use firm_model::clock::SystemClock;
use firm_model::{Clock as _, Monotonic};

/// Length of a duty cycle: well below the kernel's quota period of 100 ms, and long against what
/// waking up costs.
const CYCLE: Duration = Duration::from_millis(5);
/// Rounds between two looks at the clock, about 20 µs.
const ROUNDS: u32 = 2_000;

/// Burns the given share of each cycle, for ever. What a cycle could not get is not made up for
/// later: the stressor is as strong as it is asked to be, not stronger.
pub(super) fn burn(duty: impl Fn() -> f64, seed: u64) -> ! {
    let mut state = State::new(seed);
    let mut next = SystemClock.monotonic();
    loop {
        let now = SystemClock.monotonic();
        // After a long wait the cycles that were missed are skipped.
        next = following(next, now);
        let budget = thread_cpu_time() + CYCLE.mul_f64(duty());
        while thread_cpu_time() < budget {
            state.work(ROUNDS);
        }
        let left = next - SystemClock.monotonic();
        if left > Duration::ZERO {
            std::thread::sleep(left);
        }
    }
}

/// The end of the cycle that begins at `now`, on the grid of `last` as far as that is kept.
fn following(last: Monotonic, now: Monotonic) -> Monotonic {
    let next = last + CYCLE;
    if next > now { next } else { now + CYCLE }
}

/// What the operations work on, so that they cannot be optimised away.
struct State {
    integer: u64,
    float: f64,
    bits: u64,
    branches: u64,
}

impl State {
    fn new(seed: u64) -> Self {
        Self {
            integer: seed | 1,
            float: 1.0,
            bits: seed ^ 0x5555_5555_5555_5555,
            branches: 0,
        }
    }

    fn work(&mut self, rounds: u32) {
        for round in 0..rounds {
            // Integer: multiply, add, divide.
            self.integer = self
                .integer
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.integer ^= self.integer / (u64::from(round) + 3);
            // Floating point: multiply-add and square root, held near 1.
            self.float = (self.float.mul_add(0.999_9, 0.000_2)).sqrt();
            // Bits: rotate, count, mask.
            self.bits = self.bits.rotate_left(7) ^ (self.bits & self.integer);
            self.bits = self.bits.wrapping_add(u64::from(self.bits.count_ones()));
            // Control flow: branches that depend on data.
            match self.integer >> 61 {
                0 | 1 => self.branches += 1,
                2..=4 => self.branches ^= self.bits,
                _ if self.float < 1.0 => self.branches = self.branches.rotate_right(3),
                _ => self.branches = self.branches.wrapping_sub(self.integer),
            }
        }
        black_box((self.integer, self.float, self.bits, self.branches));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_cycles_are_skipped_not_made_up_for() {
        let at = |ms: u64| Monotonic::from_nanos(ms * 1_000_000);
        assert_eq!(following(at(100), at(100)), at(105));
        assert_eq!(following(at(100), at(104)), at(105));
        assert_eq!(following(at(100), at(230)), at(235));
    }

    #[test]
    fn the_work_stays_in_range_and_depends_on_its_seed() {
        let (mut one, mut two) = (State::new(1), State::new(2));
        one.work(100_000);
        two.work(100_000);
        assert!(one.float.is_finite() && (0.5..2.0).contains(&one.float));
        assert_ne!((one.integer, one.bits), (two.integer, two.bits));
    }
}
