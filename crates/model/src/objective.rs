//! Latency objectives.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Latency;

/// A quantile strictly between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Quantile(f64);

impl Quantile {
    /// A quantile from its value.
    ///
    /// # Errors
    /// Not strictly between 0 and 1, or NaN.
    pub fn new(value: f64) -> Result<Self, String> {
        if value > 0.0 && value < 1.0 {
            Ok(Self(value))
        } else {
            Err(format!("quantile {value} is not strictly between 0 and 1"))
        }
    }

    /// Its value, strictly between 0 and 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Quantile {
    type Error = String;
    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value)
    }
}

impl From<Quantile> for f64 {
    fn from(value: Quantile) -> f64 {
        value.0
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", (self.0 * 1e6).round() / 1e4)
    }
}

/// "The `quantile` of the latency of `service`/`operation` is at most `bound`."
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// Service of the root span.
    pub service: String,
    /// Operation of the root span.
    pub operation: String,
    /// The quantile that counts.
    pub quantile: Quantile,
    /// Its bound.
    pub bound: Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_bounds_are_refused() {
        for wrong in [f64::NAN, 0.0, 1.0, -0.5, f64::INFINITY] {
            assert!(Quantile::new(wrong).is_err());
        }
        assert_eq!(Quantile::new(0.99).unwrap().to_string(), "p99");
        assert_eq!(Quantile::new(0.999).unwrap().to_string(), "p99.9");
    }
}
