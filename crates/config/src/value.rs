//! Scalars as typed values.

use std::time::Duration;

use firm_model::{Bytes, BytesPerSec, Intensity, Latency, MilliCores, Quantile};

use crate::document::Scalar;

mod sealed {
    pub trait Sealed {}
}

/// A type that can be read from a YAML scalar.
pub trait FromScalar: Sized + sealed::Sealed {
    /// What a right value looks like.
    const EXPECTED: &'static str;

    /// Reads the value.
    ///
    /// # Errors
    /// The rule that the scalar breaks.
    fn from_scalar(atom: &Scalar) -> Result<Self, String>;
}

fn expected<T: FromScalar>() -> String {
    format!("expected {}", T::EXPECTED)
}

macro_rules! from_scalar {
    ($type:ty, $expected:literal, |$atom:ident| $read:expr) => {
        impl sealed::Sealed for $type {}
        impl FromScalar for $type {
            const EXPECTED: &'static str = $expected;
            fn from_scalar($atom: &Scalar) -> Result<Self, String> {
                $read
            }
        }
    };
}

from_scalar!(bool, "true or false", |atom| match atom {
    Scalar::Bool(value) => Ok(*value),
    _ => Err(expected::<bool>()),
});
from_scalar!(String, "a text", |atom| match atom {
    Scalar::Text(value) => Ok(value.clone()),
    other => Err(format!(
        "{}; put quotes around {other}",
        expected::<String>()
    )),
});
from_scalar!(u64, "a whole number of at least 0", |atom| match atom {
    Scalar::Int(value) => u64::try_from(*value).map_err(|_| expected::<u64>()),
    _ => Err(expected::<u64>()),
});
from_scalar!(
    u32,
    "a whole number from 0 to 4294967295",
    |atom| match atom {
        Scalar::Int(value) => u32::try_from(*value).map_err(|_| expected::<u32>()),
        _ => Err(expected::<u32>()),
    }
);
from_scalar!(f64, "a finite number", |atom| match number(atom) {
    Some(value) if value.is_finite() => Ok(value),
    _ => Err(expected::<f64>()),
});
from_scalar!(MilliCores, "CPU like `250m` or `0.25`", |atom| match atom {
    Scalar::Text(text) => text.parse().map_err(|error| format!("{error}")),
    _ => number(atom)
        .ok_or_else(expected::<MilliCores>)
        .and_then(|cores| MilliCores::from_cores(cores).map_err(|error| error.to_string())),
});
from_scalar!(
    Bytes,
    "a size with a unit like `64MiB`",
    |atom| match atom {
        Scalar::Text(text) => text.parse().map_err(|error| format!("{error}")),
        _ => Err(expected::<Bytes>()),
    }
);
from_scalar!(
    BytesPerSec,
    "a rate with a unit like `4MiB/s`",
    |atom| match atom {
        Scalar::Text(text) => text.parse().map_err(|error| format!("{error}")),
        _ => Err(expected::<BytesPerSec>()),
    }
);
from_scalar!(
    Latency,
    "a time with a unit like `250us`, `20ms` or `1.5s`",
    |atom| match atom {
        Scalar::Text(text) => parse_time(text).ok_or_else(expected::<Latency>),
        _ => Err(expected::<Latency>()),
    }
);
from_scalar!(
    Duration,
    "a time with a unit like `250us`, `20ms` or `1.5s`",
    |atom| Latency::from_scalar(atom).map(Duration::from)
);
from_scalar!(
    Quantile,
    "a quantile like `0.99` or `p99`",
    |atom| match atom {
        Scalar::Text(text) => text
            .strip_prefix('p')
            .and_then(|percent| percent.parse::<f64>().ok())
            .ok_or_else(expected::<Quantile>)
            .and_then(|percent| Quantile::new(percent / 100.0)),
        _ => number(atom)
            .ok_or_else(expected::<Quantile>)
            .and_then(Quantile::new),
    }
);
from_scalar!(Intensity, "a number from 0 to 1", |atom| {
    number(atom)
        .ok_or_else(expected::<Intensity>)
        .and_then(Intensity::new)
});

fn number(atom: &Scalar) -> Option<f64> {
    match atom {
        Scalar::Int(value) => Some(*value as f64),
        Scalar::Float(value) => Some(*value),
        _ => None,
    }
}

/// `NUMBER UNIT` with unit ns, us, µs, ms, s, min or h, without space; at most 100 years.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "range is checked"
)]
fn parse_time(text: &str) -> Option<Latency> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let number: f64 = text[..split].parse().ok()?;
    let factor = match &text[split..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let nanos = (number * factor).round();
    (nanos < 3.2e18).then(|| Latency::from_nanos(nanos as u64))
}
