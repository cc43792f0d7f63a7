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
    rest: &'a [u8],
    /// Place of the end of `rest` in the whole input.
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
            rest: data,
            end: data.len(),
        }
    }

    /// What has not been read.
    #[inline]
    pub(super) fn bytes(self) -> &'a [u8] {
        self.rest
    }

    fn place(&self) -> usize {
        self.end - self.rest.len()
    }

    #[cold]
    pub(super) fn error(&self, what: &'static str) -> WireError {
        WireError {
            at: self.place(),
            what,
        }
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, WireError> {
        if let [byte, rest @ ..] = self.rest
            && *byte < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for (place, byte) in self.rest.iter().enumerate().take(10) {
            if place == 9 && *byte > 1 {
                return Err(self.error("number of more than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                self.rest = self.rest.get(place + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(self.error(CUT))
    }

    #[inline(always)]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.error(CUT));
        };
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next field, `None` at the end. Groups are skipped.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, WireError> {
        while !self.rest.is_empty() {
            let key = self.varint()?;
            if key & 7 == 3 {
                self.skip_group()?;
                continue;
            }
            return Ok(Some((key >> 3, self.value(key)?)));
        }
        Ok(None)
    }

    #[inline(always)]
    fn value(&mut self, key: u64) -> Result<Value<'a>, WireError> {
        let number = key >> 3;
        if number == 0 || number > 0x1fff_ffff {
            return Err(self.error("field number is out of range"));
        }
        match key & 7 {
            0 => Ok(Value::Varint(self.varint()?)),
            1 => Ok(Value::Fixed64(u64::from_le_bytes(self.fixed()?))),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                if let Some((inner, rest)) = self.rest.split_at_checked(length) {
                    self.rest = rest;
                    return Ok(Value::Len(Wire {
                        rest: inner,
                        end: self.end - rest.len(),
                    }));
                }
                let left = *self;
                self.rest = &[];
                Ok(Value::Cut(left))
            }
            5 => {
                self.fixed::<4>()?;
                Ok(Value::Fixed32)
            }
            _ => Err(self.error("unknown wire type")),
        }
    }

    /// Steps over the rest of a group whose start has been read, and the groups within.
    #[cold]
    fn skip_group(&mut self) -> Result<(), WireError> {
        let mut open = 1_u32;
        while open > 0 {
            if self.rest.is_empty() {
                return Err(self.error("group is not closed"));
            }
            let key = self.varint()?;
            match key & 7 {
                3 => open += 1,
                4 => open -= 1,
                _ => {
                    if let Value::Cut(inner) = self.value(key)? {
                        return Err(inner.error(CUT));
                    }
                }
            }
        }
        Ok(())
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
