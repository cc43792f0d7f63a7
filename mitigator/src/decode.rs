//! From what a policy says to absolute limits: [-1, 1] maps linearly to [lower, upper] of the
//! resource, no steps.

use firm_model::{Action, Bounds, InstanceId, MilliCores, RawAction};

/// The action that a policy's word stands for. Values outside [-1, 1] are held within, `None`
/// and NaN leave the limit as it is. Entry 0 is the CPU quota.
#[must_use]
pub fn decode(raw: &RawAction, instance: &InstanceId, cpu: Bounds) -> Action {
    let value = raw.0.first().copied().flatten().filter(|v| !v.is_nan());
    Action {
        instance: instance.clone(),
        cpu: value.map(|value| limit_at(value, cpu)),
    }
}

/// The word that decodes to `limit`, held within the bounds; -1 where the bounds leave no choice.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "within [-1, 1]")]
pub fn encode(limit: MilliCores, bounds: Bounds) -> f32 {
    let (lower, upper) = (bounds.lower().get(), bounds.upper().get());
    if lower == upper {
        return -1.0;
    }
    let above = bounds.clamp(limit).get() - lower;
    (above as f64 / (upper - lower) as f64).mul_add(2.0, -1.0) as f32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of the span between two u64, not negative"
)]
fn limit_at(value: f32, bounds: Bounds) -> MilliCores {
    let share = (f64::from(value.clamp(-1.0, 1.0)) + 1.0) / 2.0;
    let span = (bounds.upper().get() - bounds.lower().get()) as f64;
    let above = (share * span).round() as u64;
    bounds.clamp(MilliCores::new(bounds.lower().get().saturating_add(above)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds(a: u64, b: u64) -> Bounds {
        Bounds::new(MilliCores::new(a.min(b)), MilliCores::new(a.max(b))).unwrap()
    }

    fn cpu(value: Option<f32>, bounds: Bounds) -> Option<u64> {
        let action = decode(&RawAction(vec![value]), &InstanceId::new("a"), bounds);
        action.cpu.map(MilliCores::get)
    }

    #[test]
    fn ends_and_middle() {
        let bounds = bounds(100, 1100);
        assert_eq!(cpu(Some(-1.0), bounds), Some(100));
        assert_eq!(cpu(Some(0.0), bounds), Some(600));
        assert_eq!(cpu(Some(1.0), bounds), Some(1100));
        assert_eq!(cpu(Some(f32::INFINITY), bounds), Some(1100));
        assert_eq!(cpu(Some(f32::NAN), bounds), None);
        assert_eq!(cpu(None, bounds), None);
        let none = decode(&RawAction(vec![]), &InstanceId::new("a"), bounds);
        assert_eq!(none.cpu, None);
    }

    proptest! {
        #[test]
        fn limits_come_back(a in 0_u64..100_000, b in 0_u64..100_000, limit in 0_u64..120_000) {
            // 32-bit floats tell 2^24 values apart, more than the 10^5 thousandths here.
            let bounds = bounds(a, b);
            let held = bounds.clamp(MilliCores::new(limit));
            prop_assert_eq!(cpu(Some(encode(held, bounds)), bounds), Some(held.get()));
        }

        #[test]
        fn larger_words_never_mean_less(
            x in -1.5_f32..1.5, y in -1.5_f32..1.5, a in any::<u64>(), b in any::<u64>(),
        ) {
            let bounds = bounds(a, b);
            let (low, high) = (cpu(Some(x.min(y)), bounds), cpu(Some(x.max(y)), bounds));
            prop_assert!(low <= high);
        }
    }
}
