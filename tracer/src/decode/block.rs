//! Finds bytes of a JSON text many at a time.
//!
//! The way of simdjson (Langdale and Lemire, "Parsing gigabytes of JSON per second", 2019,
//! section 3.1): comparisons give one bit a byte, and a running exclusive-or of the quotes tells
//! what is inside a string.

use wide::u8x16;

/// Bytes looked at together.
pub(super) const BLOCK: usize = 64;

const LANES: usize = 16;
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Offset of the first quote or backslash of a text, if its first bytes have one; else how many
/// bytes have none.
#[inline(always)]
pub(super) fn quote_or_backslash(text: &[u8]) -> Result<usize, usize> {
    let mut passed = 0;
    let (chunks, tail) = text.as_chunks::<LANES>();
    for chunk in chunks {
        let bytes = u8x16::new(*chunk);
        let found = bytes.simd_eq(u8x16::splat(b'"')) | bytes.simd_eq(u8x16::splat(b'\\'));
        let bits = found.to_bitmask();
        if bits != 0 {
            return Ok(passed + bits.trailing_zeros() as usize);
        }
        passed += LANES;
    }
    let in_tail = tail.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    in_tail.map_or(Err(text.len()), |at| Ok(passed + at))
}

/// Follows a text block by block and tells brackets from those in strings.
#[derive(Debug, Default)]
pub(super) struct Structure {
    /// All ones if the last block ended within a string.
    in_string: u64,
    /// 1 if the last block ended with a backslash that escapes what follows.
    escaped: u64,
}

/// Brackets of a block outside strings, one bit a byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brackets {
    pub(super) opening: u64,
    pub(super) closing: u64,
}

impl Structure {
    /// Takes the next block.
    #[inline(always)]
    pub(super) fn next(&mut self, block: &[u8; BLOCK]) -> Brackets {
        let (mut quotes, mut backslashes, mut opening, mut closing) = (0, 0, 0, 0);
        for (number, lanes) in block.as_chunks::<LANES>().0.iter().enumerate() {
            let bytes = u8x16::new(*lanes);
            // `[` and `{`, `]` and `}` differ in one bit.
            let folded = bytes | u8x16::splat(0x20);
            let bits = |bytes: u8x16, byte| {
                u64::from(bytes.simd_eq(u8x16::splat(byte)).to_bitmask()) << (LANES * number)
            };
            quotes |= bits(bytes, b'"');
            backslashes |= bits(bytes, b'\\');
            opening |= bits(folded, b'{');
            closing |= bits(folded, b'}');
        }
        quotes &= !self.escaped(backslashes);
        let within = running_xor(quotes) ^ self.in_string;
        self.in_string = 0_u64.wrapping_sub(within >> 63);
        Brackets {
            opening: opening & !within,
            closing: closing & !within,
        }
    }

    /// The bytes that a backslash escapes: those behind an odd number of backslashes.
    #[inline(always)]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        if backslashes == 0 {
            return std::mem::take(&mut self.escaped);
        }
        // A run's backslashes escape and are escaped in turns, from its first on; adding the
        // starts at odd places to all backslashes marks where such runs end.
        let backslashes = backslashes & !self.escaped;
        let behind = backslashes << 1 | self.escaped;
        let odd_starts = backslashes & !EVEN & !behind;
        let (even_runs, overflow) = odd_starts.overflowing_add(backslashes);
        self.escaped = overflow.into();
        (EVEN ^ (even_runs << 1)) & behind
    }
}

/// Each bit becomes the exclusive-or of itself and all lower ones.
#[inline(always)]
const fn running_xor(mut bits: u64) -> u64 {
    let mut shift = 1;
    while shift < 64 {
        bits ^= bits << shift;
        shift *= 2;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Brackets outside strings, byte by byte.
    fn plain(text: &[u8]) -> Vec<(usize, u8)> {
        let (mut within, mut escaped) = (false, false);
        let mut outside = Vec::new();
        for (place, byte) in text.iter().enumerate() {
            match byte {
                b'"' if !escaped => within = !within,
                b'[' | b'{' | b']' | b'}' if !within => outside.push((place, *byte)),
                _ => {}
            }
            escaped = *byte == b'\\' && !escaped;
        }
        outside
    }

    proptest! {
        #[test]
        fn brackets_are_those_of_a_reader_byte_by_byte(
            mut text in prop::collection::vec(prop::sample::select(b"\\\\\"[]{} x".to_vec()), 0..400),
        ) {
            text.resize(text.len().next_multiple_of(BLOCK), b' ');
            let mut structure = Structure::default();
            let mut found = Vec::new();
            for (number, block) in text.as_chunks::<BLOCK>().0.iter().enumerate() {
                let brackets = structure.next(block);
                for (place, byte) in block.iter().enumerate() {
                    let is = |bits: u64| bits >> place & 1 == 1;
                    prop_assert_eq!(is(brackets.opening) && is(brackets.closing), false);
                    if is(brackets.opening) || is(brackets.closing) {
                        prop_assert_eq!(is(brackets.closing), b"]}".contains(byte));
                        found.push((BLOCK * number + place, *byte));
                    }
                }
            }
            prop_assert_eq!(found, plain(&text));
        }

        #[test]
        fn the_first_quote_or_backslash_is_found(text in "[a-c]{0,70}[\"\\\\a]{0,3}[a-c]{0,40}") {
            let place = text.bytes().position(|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(quote_or_backslash(text.as_bytes()), place.ok_or(text.len()));
        }
    }
}
