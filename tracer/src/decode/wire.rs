//! Reads protobuf fields in place.
//!
//! Source: protobuf.dev, "Encoding". Positions are absolute in the whole input, so that an error
//! deep inside names the byte.

/// Broken framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireError {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

pub(super) const CUT: &str = "field runs past the end of its message";

/// A reader over one message, which may lie inside another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire<'a> {
    data: &'a [u8],
    pos: usize,
    end: usize,
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    /// Bytes, text or a message.
    Len(Wire<'a>),
    /// The same, but longer than what is left; holds what is left.
    Cut(Wire<'a>),
}

impl<'a> Wire<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            pos: 0,
            end: data.len(),
        }
    }

    /// What has not been read.
    pub(super) fn bytes(self) -> &'a [u8] {
        self.data.get(self.pos..self.end).unwrap_or_default()
    }

    pub(super) fn error(&self, what: &'static str) -> WireError {
        WireError { at: self.pos, what }
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        let start = self.pos;
        let mut value = 0_u64;
        let mut shift = 0;
        for byte in self.data.get(self.pos..self.end).unwrap_or_default() {
            self.pos += 1;
            if shift == 63 && *byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
        Err(WireError {
            at: start,
            what: if self.pos == self.end && shift < 70 {
                CUT
            } else {
                "number of more than 64 bits"
            },
        })
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let rest = self.data.get(self.pos..self.end).unwrap_or_default();
        let Some(bytes) = rest.first_chunk::<N>() else {
            return Err(self.error(CUT));
        };
        self.pos += N;
        Ok(*bytes)
    }

    /// The next field, `None` at the end. Groups are skipped.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, WireError> {
        let mut open_groups = 0_u32;
        while self.pos < self.end {
            let at = self.pos;
            let key = self.varint()?;
            let number = key >> 3;
            if number == 0 || number > 0x1fff_ffff {
                let what = "field number is out of range";
                return Err(WireError { at, what });
            }
            let value = match key & 7 {
                0 => Value::Varint(self.varint()?),
                1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
                2 => {
                    let length = self.varint()?;
                    let from = self.pos;
                    match usize::try_from(length) {
                        Ok(length) if length <= self.end - from => {
                            self.pos = from + length;
                            Value::Len(Wire {
                                data: self.data,
                                pos: from,
                                end: self.pos,
                            })
                        }
                        _ => {
                            self.pos = self.end;
                            Value::Cut(Wire {
                                data: self.data,
                                pos: from,
                                end: self.end,
                            })
                        }
                    }
                }
                3 => {
                    open_groups += 1;
                    continue;
                }
                4 if open_groups > 0 => {
                    open_groups -= 1;
                    continue;
                }
                5 => {
                    self.fixed::<4>()?;
                    Value::Fixed32
                }
                _ => {
                    let what = "unknown wire type";
                    return Err(WireError { at, what });
                }
            };
            if open_groups == 0 {
                return Ok(Some((number, value)));
            }
            if matches!(value, Value::Cut(_)) {
                return Err(WireError { at, what: CUT });
            }
        }
        if open_groups > 0 {
            return Err(self.error("group is not closed"));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_skipped_and_long_numbers_refused() {
        // Group 5 holding varint 1 = 7 and text 2 = "ab", then varint 3 = 300.
        let bytes = [0x2b, 0x08, 7, 0x12, 2, b'a', b'b', 0x2c, 0x18, 0xac, 0x02];
        let mut wire = Wire::new(&bytes);
        assert!(matches!(wire.next(), Ok(Some((3, Value::Varint(300))))));
        assert!(matches!(wire.next(), Ok(None)));

        let long = [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert_eq!(Wire::new(&long).next().unwrap_err().at, 1);
        let most = [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert!(matches!(
            Wire::new(&most).next(),
            Ok(Some((1, Value::Varint(u64::MAX))))
        ));
        assert!(Wire::new(&[0x2b, 0x08, 7]).next().is_err());
        assert!(Wire::new(&[0x07]).next().is_err());
        assert!(Wire::new(&[0x00]).next().is_err());
    }
}
