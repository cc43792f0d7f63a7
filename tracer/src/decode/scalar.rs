//! JSON values as they stand: what has the wrong type is still a value, which the decoder refuses
//! span by span.

use std::borrow::Cow;

use firm_model::{IdError, Interner, SpanId, Symbol, TraceId};

use super::scan::unescape;
use super::{Note, Reject, Tally, origin};

/// Any JSON value, of which only scalars are kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Scalar<'a> {
    /// The key is absent, or null.
    #[default]
    Absent,
    Text(Cow<'a, str>),
    /// The inside of a string that is not UTF-8 or has a wrong escape, as it stands.
    Unfit(&'a [u8]),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// A number past what 64 bits of any kind hold.
    TooLarge,
    /// What JSON does not have, such as `NaN` or `01`.
    Word,
    Bool(bool),
    /// An array or object.
    Compound,
}

/// Largest magnitude below which every whole number has its own f64.
const EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

impl<'a> Scalar<'a> {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Makes text of unfit text, with U+FFFD in the place of what is wrong.
    pub(super) fn mended(self) -> Self {
        match self {
            Self::Unfit(raw) => {
                let text = String::from_utf8_lossy(&unescape(raw)).into_owned();
                Self::Text(Cow::Owned(text))
            }
            other => other,
        }
    }

    /// Interns it as the name of a span.
    pub(super) fn name(&self, names: &Interner, notes: &mut Tally<Note>) -> Symbol {
        if let Self::Unfit(raw) = self {
            notes.add(Note::NameNotUtf8, 1);
            return names.intern(&String::from_utf8_lossy(&unescape(raw)));
        }
        names.intern(self.text().unwrap_or_default())
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// A whole number, written as a number or as text; text and integers never pass through f64.
    pub(super) fn signed(&self) -> Result<Option<i64>, Reject> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(text) => match text.parse::<i128>() {
                Ok(number) => narrow(number),
                Err(_) => Err(Reject::BadTime),
            },
            Self::Unsigned(number) => narrow((*number).into()),
            Self::Signed(number) => Ok(Some(*number)),
            Self::Float(number) if number.abs() < EXACT_FLOAT => Ok(Some(rounded(*number))),
            Self::Float(_) | Self::TooLarge => Err(Reject::TimeOutOfRange),
            Self::Unfit(_) | Self::Word | Self::Bool(_) | Self::Compound => Err(Reject::BadTime),
        }
    }

    pub(super) fn truth(&self) -> bool {
        match self {
            Self::Bool(yes) => *yes,
            Self::Text(text) => text.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// Hexadecimal digits, at most 32.
    pub(super) fn trace_id(&self) -> Result<TraceId, Reject> {
        match self {
            Self::Absent => Err(Reject::MissingTraceId),
            Self::Text(text) if text.is_empty() => Err(Reject::MissingTraceId),
            Self::Text(text) => TraceId::from_hex(text.as_bytes()).map_err(origin::trace_error),
            _ => Err(Reject::BadTraceId),
        }
    }

    /// Hexadecimal digits, at most 16.
    pub(super) fn span_id(&self) -> Result<SpanId, Reject> {
        match self {
            Self::Absent => Err(Reject::MissingSpanId),
            Self::Text(text) if text.is_empty() => Err(Reject::MissingSpanId),
            Self::Text(text) => SpanId::from_hex(text.as_bytes()).map_err(origin::span_error),
            _ => Err(Reject::BadSpanId),
        }
    }

    /// The id of a parent; absent, empty and all zeros mean none.
    pub(super) fn parent_id(&self) -> Result<Option<SpanId>, Reject> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(text) if text.is_empty() => Ok(None),
            Self::Text(text) => origin::parent(SpanId::from_hex(text.as_bytes())),
            _ => Err(Reject::BadParentId),
        }
    }

    /// Text of exactly `digits` digits, as OTLP has ids; anything else is an error to match on.
    pub(super) fn digits(&self, digits: usize) -> Result<&[u8], IdError> {
        match self {
            Self::Absent => Err(IdError::Length {
                got: 0,
                expected: digits / 2,
            }),
            Self::Text(text) if text.len() == digits => Ok(text.as_bytes()),
            Self::Text(text) => Err(IdError::Length {
                got: text.len().div_ceil(2),
                expected: digits / 2,
            }),
            _ => Err(IdError::Hex { digits }),
        }
    }
}

fn narrow(number: i128) -> Result<Option<i64>, Reject> {
    i64::try_from(number)
        .map(Some)
        .map_err(|_| Reject::TimeOutOfRange)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "only called below the range in which whole numbers are exact"
)]
fn rounded(number: f64) -> i64 {
    number.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::scan::Scan;

    #[test]
    fn nineteen_digits_stay_exact() {
        let signed = |text: &str| {
            Scan::within(text.as_bytes(), 0..text.len())
                .scalar()
                .unwrap()
                .signed()
        };
        for text in ["1661140387563141851", "\"1661140387563141851\""] {
            assert_eq!(signed(text), Ok(Some(1_661_140_387_563_141_851)));
        }
        assert_eq!(signed("-5"), Ok(Some(-5)));
        assert_eq!(signed("18446744073709551615"), Err(Reject::TimeOutOfRange));
        assert_eq!(signed("1e300"), Err(Reject::TimeOutOfRange));
        assert_eq!(signed("\"soon\""), Err(Reject::BadTime));
        assert_eq!(signed("[1]"), Err(Reject::BadTime));
        assert_eq!(signed("1e999"), Err(Reject::TimeOutOfRange));
        assert_eq!(signed("NaN "), Err(Reject::BadTime));
        assert_eq!(signed("null"), Ok(None));
    }
}
