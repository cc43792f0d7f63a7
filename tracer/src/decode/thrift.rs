//! Apache Thrift's two encodings, read in place.
//!
//! Sources: thrift `doc/specs/thrift-binary-protocol.md` and `thrift-compact-protocol.md`.

/// Deepest nesting that is followed when a value is skipped.
const MAX_DEPTH: u32 = 32;

/// Broken framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThriftError {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// Types of values that both encodings have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// The compact encoding puts a field's value into its type.
    Bool(Option<bool>),
    I8,
    I16,
    I32,
    I64,
    Double,
    Binary,
    Struct,
    /// Lists and sets.
    List,
    Map,
    /// Sixteen bytes, newer than Jaeger.
    Uuid,
}

/// Which encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Small: variable-length numbers (port 6831).
    Compact,
    /// Plain: fixed-length numbers (port 6832, and HTTP).
    Binary,
}

/// A reader of either encoding.
#[derive(Debug)]
pub(super) struct Thrift<'a> {
    data: &'a [u8],
    pos: usize,
    protocol: Protocol,
}

/// Place in a struct; the compact encoding gives field numbers as differences.
#[derive(Debug, Default)]
pub(super) struct Fields {
    last: i16,
}

type Read<T> = Result<T, ThriftError>;

impl<'a> Thrift<'a> {
    pub(super) fn new(data: &'a [u8], protocol: Protocol) -> Self {
        Self {
            data,
            pos: 0,
            protocol,
        }
    }

    pub(super) fn error<T>(&self, what: &'static str) -> Read<T> {
        Err(ThriftError { at: self.pos, what })
    }

    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let end = self.pos.checked_add(count);
        match end.and_then(|end| self.data.get(self.pos..end)) {
            Some(bytes) => {
                self.pos += count;
                Ok(bytes)
            }
            None => self.error("value runs past the end"),
        }
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        match self.take(N)?.first_chunk() {
            Some(bytes) => Ok(*bytes),
            None => self.error("value runs past the end"),
        }
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn varint(&mut self) -> Read<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.error("number of more than 64 bits")
    }

    fn zigzag(&mut self) -> Read<i64> {
        let raw = self.varint()?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    fn i16(&mut self) -> Read<i16> {
        match self.protocol {
            Protocol::Binary => Ok(i16::from_be_bytes(self.array()?)),
            Protocol::Compact => match self.zigzag()?.try_into() {
                Ok(number) => Ok(number),
                Err(_) => self.error("number of more than 16 bits"),
            },
        }
    }

    pub(super) fn i32(&mut self) -> Read<i32> {
        match self.protocol {
            Protocol::Binary => Ok(i32::from_be_bytes(self.array()?)),
            Protocol::Compact => match self.zigzag()?.try_into() {
                Ok(number) => Ok(number),
                Err(_) => self.error("number of more than 32 bits"),
            },
        }
    }

    pub(super) fn i64(&mut self) -> Read<i64> {
        match self.protocol {
            Protocol::Binary => Ok(i64::from_be_bytes(self.array()?)),
            Protocol::Compact => self.zigzag(),
        }
    }

    /// A boolean; `ty` is the type that came with its field or list.
    pub(super) fn bool(&mut self, ty: Type) -> Read<bool> {
        match ty {
            Type::Bool(Some(value)) => Ok(value),
            _ => Ok(self.byte()? == 1),
        }
    }

    pub(super) fn binary(&mut self) -> Read<&'a [u8]> {
        let length = self.size()?;
        self.take(length)
    }

    /// A length or count.
    fn size(&mut self) -> Read<usize> {
        let size = match self.protocol {
            Protocol::Binary => usize::try_from(i32::from_be_bytes(self.array()?)).ok(),
            Protocol::Compact => usize::try_from(self.varint()?).ok(),
        };
        match size {
            Some(size) => Ok(size),
            None => self.error("negative length"),
        }
    }

    fn element_type(&self, code: u8) -> Read<Type> {
        let ty = match (self.protocol, code) {
            (Protocol::Binary, 2) => Type::Bool(None),
            (Protocol::Compact, 1 | 2) => Type::Bool(None),
            (_, 3) => Type::I8,
            (Protocol::Compact, 4) | (Protocol::Binary, 6) => Type::I16,
            (Protocol::Compact, 5) | (Protocol::Binary, 8) => Type::I32,
            (Protocol::Compact, 6) | (Protocol::Binary, 10) => Type::I64,
            (Protocol::Compact, 7) | (Protocol::Binary, 4) => Type::Double,
            (Protocol::Compact, 8) | (Protocol::Binary, 11) => Type::Binary,
            (Protocol::Compact, 9 | 10) | (Protocol::Binary, 14 | 15) => Type::List,
            (Protocol::Compact, 11) | (Protocol::Binary, 13) => Type::Map,
            (_, 12) => Type::Struct,
            (Protocol::Compact, 13) | (Protocol::Binary, 16) => Type::Uuid,
            _ => return self.error("unknown type"),
        };
        Ok(ty)
    }

    /// Name of a called method.
    pub(super) fn message(&mut self) -> Read<&'a [u8]> {
        match self.protocol {
            Protocol::Binary => {
                let head = i32::from_be_bytes(self.array()?);
                if head >= 0 {
                    // The old form: name, type, sequence number.
                    let name = self.take(usize::try_from(head).unwrap_or(usize::MAX))?;
                    self.take(5)?;
                    return Ok(name);
                }
                if head.cast_unsigned() >> 16 != 0x8001 {
                    return self.error("unknown version of the binary protocol");
                }
                let name = self.binary()?;
                self.take(4)?;
                Ok(name)
            }
            Protocol::Compact => {
                if self.byte()? != 0x82 {
                    return self.error("not a message of the compact protocol");
                }
                if self.byte()? & 0x1f != 1 {
                    return self.error("unknown version of the compact protocol");
                }
                self.varint()?;
                self.binary()
            }
        }
    }

    /// The next field of a struct, `None` at its end.
    pub(super) fn field(&mut self, fields: &mut Fields) -> Read<Option<(i16, Type)>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let (id, ty) = match self.protocol {
            Protocol::Binary => (self.i16()?, self.element_type(head)?),
            Protocol::Compact => {
                let code = head & 0x0f;
                let id = match i16::from(head >> 4) {
                    0 => Some(self.i16()?),
                    delta => fields.last.checked_add(delta),
                };
                let Some(id) = id else {
                    return self.error("field number is out of range");
                };
                let ty = match code {
                    1 => Type::Bool(Some(true)),
                    2 => Type::Bool(Some(false)),
                    _ => self.element_type(code)?,
                };
                (id, ty)
            }
        };
        fields.last = id;
        Ok(Some((id, ty)))
    }

    /// Head of a list: type and count of its elements.
    pub(super) fn list(&mut self) -> Read<(Type, usize)> {
        let (ty, count) = match self.protocol {
            Protocol::Binary => {
                let code = self.byte()?;
                let count = self.size()?;
                (code, count)
            }
            Protocol::Compact => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.size()?,
                    short => usize::from(short),
                };
                (head & 0x0f, count)
            }
        };
        // Every element takes at least a byte, so this bounds the work by the size of the input.
        if count > self.data.len().saturating_sub(self.pos) {
            return self.error("list is longer than the input");
        }
        if count == 0 {
            return Ok((Type::I8, 0));
        }
        Ok((self.element_type(ty)?, count))
    }

    /// Steps over a value.
    pub(super) fn skip(&mut self, ty: Type) -> Read<()> {
        self.skip_within(ty, MAX_DEPTH)
    }

    fn skip_within(&mut self, ty: Type, depth: u32) -> Read<()> {
        if depth == 0 {
            return self.error("nested too deeply");
        }
        match ty {
            Type::Bool(_) => self.bool(ty).map(|_| ()),
            Type::I8 => self.take(1).map(|_| ()),
            Type::I16 => self.i16().map(|_| ()),
            Type::I32 => self.i32().map(|_| ()),
            Type::I64 => self.i64().map(|_| ()),
            Type::Double => self.take(8).map(|_| ()),
            Type::Uuid => self.take(16).map(|_| ()),
            Type::Binary => self.binary().map(|_| ()),
            Type::Struct => {
                let mut fields = Fields::default();
                while let Some((_, ty)) = self.field(&mut fields)? {
                    self.skip_within(ty, depth - 1)?;
                }
                Ok(())
            }
            Type::List => {
                let (ty, count) = self.list()?;
                for _ in 0..count {
                    self.skip_within(ty, depth - 1)?;
                }
                Ok(())
            }
            Type::Map => self.skip_map(depth),
        }
    }

    fn skip_map(&mut self, depth: u32) -> Read<()> {
        let (key, value, count) = match self.protocol {
            Protocol::Binary => {
                let (key, value) = (self.byte()?, self.byte()?);
                (key, value, self.size()?)
            }
            Protocol::Compact => match self.size()? {
                0 => return Ok(()),
                count => {
                    let types = self.byte()?;
                    (types >> 4, types & 0x0f, count)
                }
            },
        };
        if count == 0 {
            return Ok(());
        }
        if count > self.data.len().saturating_sub(self.pos) {
            return self.error("map is longer than the input");
        }
        let (key, value) = (self.element_type(key)?, self.element_type(value)?);
        for _ in 0..count {
            self.skip_within(key, depth - 1)?;
            self.skip_within(value, depth - 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_counts_are_bounded() {
        // Lists of one list each: 0x19 is "one element, of type list".
        let deep = [0x19; 100];
        let error = Thrift::new(&deep, Protocol::Compact).skip(Type::List);
        assert_eq!(error.unwrap_err().what, "nested too deeply");

        let long = [0xf3, 0xff, 0xff, 0xff, 0x7f];
        let error = Thrift::new(&long, Protocol::Compact).list();
        assert_eq!(error.unwrap_err().what, "list is longer than the input");

        let negative = [11, 255, 255, 255, 255];
        let error = Thrift::new(&negative, Protocol::Binary).list();
        assert_eq!(error.unwrap_err().what, "negative length");
    }
}
