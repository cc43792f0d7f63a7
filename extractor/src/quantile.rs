//! Exact quantiles of samples that are held.

/// The `q`-quantile of `values` by nearest rank: the smallest value that at least the share `q`
/// of all values does not exceed. `None` without values. Reorders `values`.
pub fn nearest_rank(values: &mut [i64], q: f64) -> Option<i64> {
    let last = values.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product lies between 0 and the length, and saturates otherwise"
    )]
    let rank = (q * values.len() as f64).ceil() as usize;
    let place = rank.saturating_sub(1).min(last);
    Some(*values.select_nth_unstable(place).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        let mut hundred: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(nearest_rank(&mut hundred, 0.5), Some(50));
        assert_eq!(nearest_rank(&mut hundred, 0.99), Some(99));
        assert_eq!(nearest_rank(&mut [7], 0.01), Some(7));
        assert_eq!(nearest_rank(&mut [], 0.5), None);
    }

    proptest! {
        #[test]
        fn share_at_or_below_is_at_least_q(
            mut values in prop::collection::vec(-50_i64..50, 1..80),
            q in 0.01_f64..0.999,
        ) {
            let found = nearest_rank(&mut values, q).unwrap();
            let n = values.len() as f64;
            let at_most = values.iter().filter(|v| **v <= found).count() as f64;
            let below = values.iter().filter(|v| **v < found).count() as f64;
            prop_assert!(at_most / n >= q - 1e-12);
            prop_assert!(below / n < q + 1e-12);
        }
    }
}
