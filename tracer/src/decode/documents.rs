//! Texts of one JSON document after the other.

use firm_model::{Interner, Span};

use super::scan::{Scan, ScanError};
use super::{DecodeError, Decoded, Position, Reject};

/// What a decoder of JSON writes to, and what its format `F` keeps from document to document.
pub(super) struct Target<'n, F> {
    pub(super) names: &'n Interner,
    /// Spans so far.
    pub(super) out: &'n mut Vec<Span>,
    /// Counts so far.
    pub(super) decoded: Decoded,
    pub(super) format: F,
}

impl<'n, F> Target<'n, F> {
    pub(super) fn new(names: &'n Interner, out: &'n mut Vec<Span>, format: F) -> Self {
        Self {
            names,
            out,
            decoded: Decoded::default(),
            format,
        }
    }

    /// Reads all documents of a text, each with `document`: one, one a line, or several with
    /// white space between.
    ///
    /// In a text of one document a line, a line that is not JSON is counted as malformed and
    /// reading goes on with the next. Anywhere else it ends the reading with an error that names
    /// the place. Lines matter only after something was broken: before, a document may have them
    /// anywhere. A byte order mark at the start is no part of the text and of its first line.
    pub(super) fn documents<'a>(
        mut self,
        text: &'a [u8],
        document: impl Fn(&mut Self, &mut Scan<'a>) -> Result<(), ScanError>,
    ) -> Result<Decoded, DecodeError> {
        let text = without_mark(text);
        let mut places = Places {
            text,
            counted: 0,
            lines: 0,
        };
        let mut by_line = false;
        let mut from = 0;
        loop {
            let mut scan = Scan::within(text, from..text.len());
            if scan.peek().is_none() {
                return Ok(self.decoded);
            }
            let line = if by_line {
                own_line(text, scan.place())
            } else {
                None
            };
            from = line.unwrap_or(text.len());
            scan = Scan::within(text, scan.place()..from);
            while scan.peek().is_some() {
                let start = scan.place();
                let (spans, before) = (self.out.len(), self.decoded.clone());
                let Err(error) = document(&mut self, &mut scan) else {
                    continue;
                };
                if !by_line && own_line(text, start).is_some() {
                    // Again, so that a broken line takes nothing from the next.
                    by_line = true;
                    self.out.truncate(spans);
                    self.decoded = before;
                    from = start;
                    break;
                }
                let at = places.at(error.at);
                if line.is_none() {
                    return Err(DecodeError::new(at, error.what, self.decoded));
                }
                self.decoded.reject_at(at, Reject::Malformed);
                break;
            }
        }
    }
}

/// A text without its byte order mark, which some programs on Windows write.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The place of a byte.
pub(crate) fn place(text: &[u8], byte: usize) -> Position {
    let (counted, lines) = (0, 0);
    Places {
        text,
        counted,
        lines,
    }
    .at(byte)
}

/// Turns bytes into lines and columns, for places that only go forward.
struct Places<'a> {
    text: &'a [u8],
    /// Start of a line up to which lines have been counted.
    counted: usize,
    lines: usize,
}

impl Places<'_> {
    fn at(&mut self, byte: usize) -> Position {
        let before = self.text.get(self.counted..byte).unwrap_or_default();
        for newline in memchr::memchr_iter(b'\n', before) {
            self.lines += 1;
            // Positions are in `before`, which starts where counting began.
            self.counted = byte - before.len() + newline + 1;
        }
        Position::Line {
            line: self.lines + 1,
            column: byte.saturating_sub(self.counted) + 1,
        }
    }
}

/// End of the line that starts at `at`, if that line and the next both begin with an object: then
/// the text has one document a line.
fn own_line(text: &[u8], at: usize) -> Option<usize> {
    let starts_line = at == 0 || text.get(at - 1) == Some(&b'\n');
    if !starts_line || text.get(at) != Some(&b'{') {
        return None;
    }
    let end = at + memchr::memchr(b'\n', text.get(at..)?)?;
    (text.get(end + 1) == Some(&b'{')).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_document_only_between_lines_of_objects() {
        assert_eq!(own_line(b"{}\n{oops\n{}\n", 0), Some(2));
        assert_eq!(own_line(b"{}\n{oops\n{}\n", 3), Some(8));
        assert_eq!(own_line(b"{}\n{oops\n", 3), None);
        assert_eq!(own_line(b"{\n \"a\": oops\n}\n", 0), None);
        assert_eq!(own_line(b"[{}\n{}]\n", 1), None);
    }

    #[test]
    fn places_count_lines_once() {
        let mut places = Places {
            text: b"ab\n\ncd\nef",
            counted: 0,
            lines: 0,
        };
        for (byte, line, column) in [(1, 1, 2), (3, 2, 1), (5, 3, 2), (7, 4, 1), (8, 4, 2)] {
            assert_eq!(places.at(byte), Position::Line { line, column });
        }
    }
}
