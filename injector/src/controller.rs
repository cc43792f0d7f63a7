//! Which duty cycle makes a stressor achieve what was asked for.

/// Share of the error that one step takes away. The stressor's own budget is exact on a free
/// CPU, so the loop has only small, steady losses to make good.
const GAIN: f64 = 0.5;
/// A stressor that is held back asks for at most this much more than it was told to use, or it
/// would burst above it as soon as whatever held it back (a quota) is raised.
const MOST_EXCESS: f64 = 1.25;

/// An integrating controller from achieved share to duty cycle, both 0 to 1 a CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Controller {
    asked: f64,
    duty: f64,
}

impl Controller {
    /// Starts with the duty cycle that would be right without losses.
    pub(crate) fn new(asked: f64) -> Self {
        Self { asked, duty: asked }
    }

    /// Takes what was achieved since the last step and gives the next duty cycle.
    pub(crate) fn step(&mut self, achieved: f64) -> f64 {
        let most = (self.asked * MOST_EXCESS).min(1.0);
        if achieved.is_finite() {
            self.duty = (self.duty + GAIN * (self.asked - achieved)).clamp(0.0, most);
        }
        self.duty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn losses_are_made_good_up_to_what_is_there(
            asked in 0.0_f64..=1.0, loss in 0.85_f64..=1.0, room in 0.0_f64..=1.0,
        ) {
            let mut controller = Controller::new(asked);
            let achieve = |duty: f64| (duty * loss).min(room);
            for _ in 0..200 {
                controller.step(achieve(controller.duty));
            }
            let reachable = asked.min(room).min(loss);
            let achieved = achieve(controller.duty);
            prop_assert!((achieved - reachable).abs() < 1e-6, "{achieved} for {reachable}");
            prop_assert!(controller.duty <= 1.0 && controller.duty <= asked * MOST_EXCESS);
        }
    }

    #[test]
    fn a_stressor_set_free_does_not_burst() {
        let mut controller = Controller::new(0.4);
        for _ in 0..100 {
            controller.step(0.1);
        }
        assert!(controller.duty <= 0.5);
        assert_eq!(controller.step(f64::NAN), controller.duty);
    }
}
