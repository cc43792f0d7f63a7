//! Gzip with a bound on what comes out: all members are read, a bomb is an error.

use std::io::{self, Read};

use flate2::bufread::MultiGzDecoder;

/// What inflating gave.
#[derive(Debug)]
pub(crate) struct Inflated {
    /// The content, or what came before it stopped.
    pub(crate) bytes: Vec<u8>,
    /// Why it stopped before the end, if it did.
    pub(crate) stopped: Option<Stopped>,
}

/// Why inflating stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// More than the bound would come out.
    TooLarge,
    /// Broken or cut off.
    Broken {
        /// Compressed bytes read so far.
        at: u64,
        /// What is wrong.
        reason: String,
    },
}

/// Bytes inflated at a time.
const CHUNK: usize = 64 << 10;

/// Inflates all members of `input` to at most `limit` bytes.
///
/// Room that is never filled is never touched, so that this takes as much memory as comes out.
pub(crate) fn gzip(input: &[u8], limit: u64) -> Inflated {
    let mut decoder = MultiGzDecoder::new(input).take(limit.saturating_add(1));
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK];
    let result = loop {
        match decoder.read(&mut chunk) {
            Ok(0) => break Ok(()),
            Ok(read) => {
                let more = chunk.get(..read).unwrap_or_default();
                if bytes.try_reserve(more.len()).is_err() {
                    break Err(io::ErrorKind::OutOfMemory.into());
                }
                bytes.extend_from_slice(more);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    let left = decoder.get_ref().get_ref().len();
    let stopped = match result {
        _ if bytes.len() as u64 > limit => Some(Stopped::TooLarge),
        Ok(()) => None,
        Err(error) => Some(Stopped::Broken {
            at: (input.len() - left) as u64,
            reason: error.to_string(),
        }),
    };
    Inflated { bytes, stopped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn member(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn all_members_are_read() {
        let input = [member(b"one "), member(b"two")].concat();
        let inflated = gzip(&input, 100);
        assert_eq!(inflated.bytes, b"one two");
        assert_eq!(inflated.stopped, None);
    }

    #[test]
    fn the_bound_is_on_what_comes_out() {
        let input = member(&vec![0; 1 << 20]);
        assert!(input.len() < 1 << 16);
        assert_eq!(gzip(&input, 1 << 20).stopped, None);
        assert_eq!(gzip(&input, (1 << 20) - 1).stopped, Some(Stopped::TooLarge));
    }

    #[test]
    fn what_came_before_a_cut_is_given() {
        let mut content = Vec::new();
        for number in 0..20_000_u32 {
            content.extend_from_slice(&number.wrapping_mul(2_654_435_761).to_le_bytes());
        }
        let input = member(&content);
        let inflated = gzip(&input[..input.len() / 2], 1 << 20);
        assert!(matches!(inflated.stopped, Some(Stopped::Broken { .. })));
        assert!(!inflated.bytes.is_empty());
        assert!(content.starts_with(&inflated.bytes));
    }
}
