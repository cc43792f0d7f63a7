//! Quantities with their units as types: private field, checked constructor, exact `Display`,
//! deserialisation through the constructor.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text or number is not the quantity asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// Not a finite, non-negative number.
    #[error("`{0}` is not a finite number of at least 0")]
    NotANumber(String),
    /// A unit that this quantity does not have.
    #[error("`{text}` has no unit of {quantity}, expected {expected}")]
    Unit {
        /// The text as given.
        text: String,
        /// What was asked for.
        quantity: &'static str,
        /// Texts that would be right.
        expected: &'static str,
    },
    /// Larger than the type can hold.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// CPU time per wall time, in thousandths of a core. 1000 is one core.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MilliCores(u64);

impl MilliCores {
    /// None.
    pub const ZERO: MilliCores = MilliCores(0);

    /// `milli` thousandths of a core.
    #[must_use]
    pub const fn new(milli: u64) -> Self {
        Self(milli)
    }

    /// From a number of cores, rounded to the nearest thousandth.
    ///
    /// # Errors
    /// [`UnitError::NotANumber`] for NaN, infinity and negative numbers, [`UnitError::TooLarge`]
    /// above 10^9 cores.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "range is checked"
    )]
    pub fn from_cores(cores: f64) -> Result<Self, UnitError> {
        if !(cores.is_finite() && cores >= 0.0) {
            return Err(UnitError::NotANumber(cores.to_string()));
        }
        if cores > 1e9 {
            return Err(UnitError::TooLarge(cores.to_string()));
        }
        Ok(Self((cores * 1000.0).round() as u64))
    }

    /// Thousandths of a core.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Cores.
    #[must_use]
    pub fn as_cores(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl fmt::Display for MilliCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}m", self.0)
    }
}

impl FromStr for MilliCores {
    type Err = UnitError;
    /// `250m` (thousandths) or `0.25` (cores), as Kubernetes writes CPU quantities.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        if let Some(milli) = text.strip_suffix('m') {
            return milli
                .parse()
                .map(Self)
                .map_err(|_| UnitError::NotANumber(text.to_owned()));
        }
        let cores: f64 = text.parse().map_err(|_| UnitError::Unit {
            text: text.to_owned(),
            quantity: "CPU",
            expected: "cores like `0.25` or thousandths like `250m`",
        })?;
        Self::from_cores(cores)
    }
}

macro_rules! byte_unit {
    ($(#[$doc:meta])* $name:ident, $suffix:literal, $quantity:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// A number in the base unit.
            #[must_use]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The number in the base unit.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            /// The largest binary prefix that leaves a whole number, so that it reads back.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (shift, prefix) in [(30, "Gi"), (20, "Mi"), (10, "Ki")] {
                    if self.0 != 0 && self.0 % (1 << shift) == 0 {
                        return write!(f, "{}{prefix}{}", self.0 >> shift, $suffix);
                    }
                }
                write!(f, "{}{}", self.0, $suffix)
            }
        }

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                let wrong = || UnitError::Unit {
                    text: text.to_owned(),
                    quantity: $quantity,
                    expected: $expected,
                };
                let body = text.strip_suffix($suffix).ok_or_else(wrong)?;
                let digits = body.len() - body.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let factor: u64 = match &body[digits..] {
                    "" => 1,
                    "k" => 1_000,
                    "M" => 1_000_000,
                    "G" => 1_000_000_000,
                    "Ki" => 1 << 10,
                    "Mi" => 1 << 20,
                    "Gi" => 1 << 30,
                    _ => return Err(wrong()),
                };
                let number: u64 = body[..digits]
                    .parse()
                    .map_err(|_| UnitError::NotANumber(text.to_owned()))?;
                number
                    .checked_mul(factor)
                    .map(Self)
                    .ok_or_else(|| UnitError::TooLarge(text.to_owned()))
            }
        }
    };
}

byte_unit!(
    /// A size in bytes.
    Bytes,
    "B",
    "size",
    "bytes like `512B`, `64KiB` or `1MB`"
);
byte_unit!(
    /// A rate in bytes per second.
    BytesPerSec,
    "B/s",
    "rate",
    "bytes per second like `500kB/s` or `4MiB/s`"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cores_and_thousandths_mean_the_same() {
        assert_eq!(
            "0.25".parse::<MilliCores>().unwrap(),
            "250m".parse().unwrap()
        );
        assert!("250k".parse::<MilliCores>().is_err());
        assert!("-1".parse::<MilliCores>().is_err());
        assert!("NaN".parse::<MilliCores>().is_err());
        assert!("inf".parse::<MilliCores>().is_err());
    }

    #[test]
    fn a_rate_is_not_a_size() {
        assert!("4MiB".parse::<BytesPerSec>().is_err());
        assert_eq!("4MiB/s".parse::<BytesPerSec>().unwrap().get(), 4 << 20);
        assert!("99999999999GiB".parse::<Bytes>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(value in any::<u64>()) {
            let (bytes, rate, cpu) = (Bytes::new(value), BytesPerSec::new(value), MilliCores::new(value));
            prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
            prop_assert_eq!(rate.to_string().parse::<BytesPerSec>().unwrap(), rate);
            prop_assert_eq!(cpu.to_string().parse::<MilliCores>().unwrap(), cpu);
        }
    }
}
