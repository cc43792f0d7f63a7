//! Lenient, borrowing JSON: what has the wrong type becomes a value that the decoder can refuse
//! span by span; only text that is not JSON is an error.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use firm_model::{IdError, SpanId, TraceId};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::origin;
use super::{DecodeError, Decoded, Position, Reject};

/// Any JSON value, of which only scalars are kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Scalar<'a> {
    /// The key is absent, or null.
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
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
            Self::Float(_) => Err(Reject::TimeOutOfRange),
            Self::Bool(_) | Self::Compound => Err(Reject::BadTime),
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

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Scalar::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Scalar::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Scalar::Unsigned(number))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Scalar::Signed(number))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
                Ok(Scalar::Float(number))
            }
            fn visit_bool<E>(self, yes: bool) -> Result<Self::Value, E> {
                Ok(Scalar::Bool(yes))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Scalar::Absent)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Compound)
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Compound)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A key of an object, borrowed unless it has escapes.
#[derive(Debug)]
pub(super) struct Key<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Visitor methods that take everything but an object or array for nothing.
macro_rules! ignore_scalars {
    ($value:expr) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}
pub(super) use ignore_scalars;

/// Visitor method that reads an array for nothing.
macro_rules! ignore_array {
    ($value:expr) => {
        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut seq: A,
        ) -> Result<Self::Value, A::Error> {
            while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            Ok($value)
        }
    };
}
pub(super) use ignore_array;

/// A struct read from an object by its keys. Unknown keys are skipped, the last of a repeated
/// key stands, absent keys and whatever is not an object give the default.
macro_rules! lenient {
    ($(#[$doc:meta])* struct $name:ident<$lt:lifetime> {
        $($field:ident: $type:ty = $key:literal $(| $other:literal)*,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        struct $name<$lt> {
            $($field: $type,)*
        }

        impl<$lt> $name<$lt> {
            /// Reads the value of `key` if it is a known one.
            #[inline]
            fn set<A: serde::de::MapAccess<$lt>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match key {
                    $($key $(| $other)* => self.$field = map.next_value()?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name<'de> {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name<'de>;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut read = $name::default();
                        while let Some(key) = map.next_key::<$crate::decode::json::Key<'de>>()? {
                            if !read.set(&key.0, &mut map)? {
                                map.next_value::<serde::de::IgnoredAny>()?;
                            }
                        }
                        Ok(read)
                    }
                    $crate::decode::json::ignore_array!($name::default());
                    $crate::decode::json::ignore_scalars!($name::default());
                }
                deserializer.deserialize_any(Fields)
            }
        }
    };
}
pub(super) use lenient;

/// An array; whatever else gives an empty one.
#[derive(Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut items = Vec::new();
        Each::new(|item| items.push(item)).deserialize(deserializer)?;
        Ok(Self(items))
    }
}

/// Hands each element of an array to a function, without keeping them.
pub(super) struct Each<T, F> {
    take: F,
    items: PhantomData<T>,
}

impl<T, F: FnMut(T)> Each<T, F> {
    pub(super) fn new(take: F) -> Self {
        Self {
            take,
            items: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> DeserializeSeed<'de> for Each<T, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T)> Visitor<'de> for Each<T, F> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element()? {
            (self.take)(item);
        }
        Ok(())
    }
    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
    ignore_scalars!(());
}

/// A consumer of one JSON document after the other.
pub(super) trait Documents<'de> {
    /// Reads one document.
    fn document<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;
    /// Counts so far.
    fn decoded(&mut self) -> &mut Decoded;
}

/// Reads all documents of a text: one, one a line, or several with white space between.
///
/// In a text of one document a line, a line that is not JSON is counted as malformed and reading
/// goes on with the next. Anywhere else it ends the reading with an error that names the place.
pub(super) fn documents<'de, T: Documents<'de>>(
    bytes: &'de [u8],
    mut target: T,
) -> Result<Decoded, DecodeError> {
    let mut from = 0;
    let mut lines_before = 0;
    loop {
        let rest = bytes.get(from..).unwrap_or_default();
        let mut json = serde_json::Deserializer::from_slice(rest);
        let error = loop {
            if json.end().is_ok() {
                return Ok(std::mem::take(target.decoded()));
            }
            if let Err(error) = target.document(&mut json) {
                break error;
            }
        };
        let at = Position::Line {
            line: lines_before + error.line(),
            column: error.column(),
        };
        match next_line(rest, error.line()) {
            Some(next) => {
                target.decoded().reject_at(at, Reject::Malformed);
                from += next;
                lines_before += error.line();
            }
            None => {
                let decoded = std::mem::take(target.decoded());
                return Err(DecodeError::new(at, reason(&error), decoded));
            }
        }
    }
}

/// serde's text without the place, which the position has already.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(place) => text[..place].to_owned(),
        None => text,
    }
}

/// Start of the line after `line` (from 1) if both begin with an object.
fn next_line(bytes: &[u8], line: usize) -> Option<usize> {
    let mut starts = std::iter::once(0).chain(
        bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1),
    );
    let this = starts.nth(line.checked_sub(1)?)?;
    let next = starts.next()?;
    (bytes.get(this) == Some(&b'{') && bytes.get(next) == Some(&b'{')).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nineteen_digits_stay_exact() {
        for text in ["1661140387563141851", "\"1661140387563141851\""] {
            let scalar: Scalar<'_> = serde_json::from_str(text).unwrap();
            assert_eq!(scalar.signed(), Ok(Some(1_661_140_387_563_141_851)));
        }
        let scalar: Scalar<'_> = serde_json::from_str("18446744073709551615").unwrap();
        assert_eq!(scalar.signed(), Err(Reject::TimeOutOfRange));
        let scalar: Scalar<'_> = serde_json::from_str("1e300").unwrap();
        assert_eq!(scalar.signed(), Err(Reject::TimeOutOfRange));
        let scalar: Scalar<'_> = serde_json::from_str("\"soon\"").unwrap();
        assert_eq!(scalar.signed(), Err(Reject::BadTime));
    }

    #[test]
    fn a_bad_line_is_skipped_only_between_lines_of_objects() {
        assert_eq!(next_line(b"{}\n{oops\n{}\n", 2), Some(9));
        assert_eq!(next_line(b"{}\n{oops\n", 2), None);
        assert_eq!(next_line(b"{\n \"a\": oops\n}\n", 2), None);
    }
}
