//! A histogram of nanoseconds with buckets in proportion to the value, so that it merges and a
//! quantile is off by at most 1/32 of its value.

/// Bits of a value that tell its bucket within its power of two.
const SUB_BITS: u32 = 4;
const SUB_BUCKETS: usize = 1 << SUB_BITS;

/// Counts per bucket; grows as far as the largest value needs, at most 976 buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Counts a value; a negative one counts as 0.
    pub fn add(&mut self, nanos: i64) {
        let bucket = bucket(u64::try_from(nanos).unwrap_or(0));
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.total += other.total;
    }

    /// Values counted.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The middle of the bucket in which the `q`-quantile by nearest rank lies; `None` if empty.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q * self.total as f64).ceil().max(1.0);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= rank {
                return Some(middle(bucket));
            }
        }
        None
    }
}

fn bucket(value: u64) -> usize {
    let Some(top) = value.checked_ilog2().filter(|top| *top >= SUB_BITS) else {
        return usize::try_from(value).unwrap_or(0);
    };
    let shift = top - SUB_BITS;
    let sub = usize::try_from(value >> shift).unwrap_or(0) - SUB_BUCKETS;
    (shift as usize + 1) * SUB_BUCKETS + sub
}

fn middle(bucket: usize) -> f64 {
    if bucket < 2 * SUB_BUCKETS {
        return bucket as f64;
    }
    let shift = i32::try_from(bucket / SUB_BUCKETS - 1).unwrap_or(i32::MAX);
    let base = (SUB_BUCKETS + bucket % SUB_BUCKETS) as f64;
    (base + 0.5) * 2_f64.powi(shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantile::nearest_rank;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantile_is_within_a_thirty_second_of_the_exact_one(
            mut values in prop::collection::vec(0_i64..i64::MAX, 1..60),
            shift in 0_u32..62,
            q in 0.01_f64..0.999,
        ) {
            let mut histogram = Histogram::default();
            for value in &mut values {
                *value >>= shift;
                histogram.add(*value);
            }
            let exact = nearest_rank(&mut values, q).unwrap() as f64;
            let found = histogram.quantile(q).unwrap();
            prop_assert!((found - exact).abs() <= exact / 32.0 + 1e-9, "{found} {exact}");
        }

        #[test]
        fn merged_parts_are_the_whole(
            values in prop::collection::vec(-5_i64..1_000_000, 0..60),
            cut in any::<prop::sample::Index>(),
        ) {
            let fill = |values: &[i64]| {
                let mut made = Histogram::default();
                values.iter().for_each(|v| made.add(*v));
                made
            };
            let (left, right) = values.split_at(cut.index(values.len() + 1));
            let mut merged = fill(left);
            merged.merge(&fill(right));
            prop_assert_eq!(merged, fill(&values));
        }
    }
}
