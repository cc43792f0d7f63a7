//! Trace and span identifiers: bytes inside, hexadecimal only for people.
//!
//! Sources: W3C Trace Context, section 3.2.2 (16 and 8 bytes, all-zero is invalid).

use std::fmt;
use std::str::FromStr;

/// Why a text or a byte string is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Wrong number of bytes on the wire.
    #[error("identifier has {got} bytes, expected {expected}")]
    Length {
        /// Bytes found.
        got: usize,
        /// Bytes the identifier has.
        expected: usize,
    },
    /// Not 1 to `digits` hexadecimal digits.
    #[error("identifier is not 1 to {digits} hexadecimal digits")]
    Hex {
        /// Most digits allowed.
        digits: usize,
    },
    /// All bytes zero, which the specification calls invalid.
    #[error("identifier is all zero")]
    Zero,
}

/// Marks bytes that are no hexadecimal digit.
const NO_DIGIT: u8 = 0x80;

/// The value of each byte as a hexadecimal digit.
const DIGITS: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value as usize];
        values[digit as usize] = value;
        values[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    values
};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; $len]);

        impl $name {
            /// Takes the bytes as they are; the all-zero identifier is refused.
            ///
            /// # Errors
            /// [`IdError::Zero`].
            pub const fn new(bytes: [u8; $len]) -> Result<Self, IdError> {
                let mut index = 0;
                while index < $len {
                    if bytes[index] != 0 {
                        return Ok(Self(bytes));
                    }
                    index += 1;
                }
                Err(IdError::Zero)
            }

            /// Reads an identifier from a wire field.
            ///
            /// # Errors
            /// [`IdError::Length`], [`IdError::Zero`].
            pub fn from_slice(bytes: &[u8]) -> Result<Self, IdError> {
                let array: [u8; $len] = bytes
                    .try_into()
                    .map_err(|_| IdError::Length { got: bytes.len(), expected: $len })?;
                Self::new(array)
            }

            /// Reads hexadecimal digits; shorter texts are padded with zeros on the left, as
            /// Jaeger and Zipkin print 64-bit trace ids.
            ///
            /// # Errors
            /// [`IdError::Hex`], [`IdError::Zero`].
            pub fn from_hex(text: &[u8]) -> Result<Self, IdError> {
                let digits = 2 * $len;
                if text.is_empty() || text.len() > digits {
                    return Err(IdError::Hex { digits });
                }
                let mut bytes = [0_u8; $len];
                // Whole bytes from the right, then the digit that may be left over.
                let mut odd = 0;
                for (byte, pair) in bytes.iter_mut().rev().zip(text.rchunks(2)) {
                    let (high, low) = match pair {
                        [high, low] => (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]),
                        [low] => (0, DIGITS[usize::from(*low)]),
                        _ => (0, 0),
                    };
                    odd |= high | low;
                    *byte = high << 4 | low;
                }
                if odd & NO_DIGIT != 0 {
                    return Err(IdError::Hex { digits });
                }
                Self::new(bytes)
            }

            /// The bytes, most significant first.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for byte in self.0 {
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::from_hex(text.as_bytes())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

identifier!(
    /// Identifies one trace: 16 bytes, never all zero.
    TraceId,
    16
);
identifier!(
    /// Identifies one span within its trace: 8 bytes, never all zero.
    SpanId,
    8
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_and_odd_lengths_are_refused() {
        assert_eq!(TraceId::from_slice(&[0; 16]), Err(IdError::Zero));
        assert_eq!(
            SpanId::from_slice(&[1; 7]),
            Err(IdError::Length {
                got: 7,
                expected: 8
            })
        );
        assert!("".parse::<SpanId>().is_err());
        assert!("xyz".parse::<SpanId>().is_err());
        assert!("0".parse::<SpanId>().is_err());
    }

    #[test]
    fn short_hex_is_padded_on_the_left() {
        let id: TraceId = "4a3b".parse().unwrap();
        assert_eq!(id.to_string(), "00000000000000000000000000004a3b");
    }

    proptest! {
        #[test]
        fn hex_is_read_as_the_standard_library_reads_it(text in "[0-9a-fA-Fg/:@`]{1,16}") {
            let known = u64::from_str_radix(&text, 16).ok().filter(|number| *number != 0);
            let read = SpanId::from_hex(text.as_bytes()).ok();
            prop_assert_eq!(read.map(|id| u64::from_be_bytes(*id.as_bytes())), known);
        }

        #[test]
        fn hex_round_trip(bytes in any::<[u8; 16]>()) {
            if let Ok(id) = TraceId::new(bytes) {
                prop_assert_eq!(id.to_string().parse::<TraceId>().unwrap(), id);
            }
        }
    }
}
