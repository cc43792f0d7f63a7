//! Texts of one JSON document after the other.

use super::scan::{Scan, ScanError};
use super::{DecodeError, Decoded, Position, Reject};

/// A decoder that reads one document after the other.
pub(super) trait Documents<'a> {
    /// Reads one document.
    fn document(&mut self, scan: &mut Scan<'a>) -> Result<(), ScanError>;
    /// Counts so far.
    fn decoded(&mut self) -> &mut Decoded;
}

/// Reads all documents of a text: one, one a line, or several with white space between.
///
/// In a text of one document a line, a line that is not JSON is counted as malformed and reading
/// goes on with the next. Anywhere else it ends the reading with an error that names the place.
pub(super) fn documents<'a>(
    text: &'a [u8],
    mut target: impl Documents<'a>,
) -> Result<Decoded, DecodeError> {
    let mut scan = Scan::new(text);
    // Where lines have been counted up to, always the start of one.
    let (mut counted, mut lines) = (0, 0);
    while scan.peek().is_some() {
        let Err(error) = target.document(&mut scan) else {
            continue;
        };
        let before = text.get(counted..error.at).unwrap_or_default();
        let newlines = before.iter().filter(|byte| **byte == b'\n').count();
        let line_start = before.iter().rposition(|byte| *byte == b'\n');
        let at = Position::Line {
            line: lines + newlines + 1,
            column: before.len() - line_start.map_or(0, |at| at + 1) + 1,
        };
        let Some(next) = next_line(text, error.at) else {
            let decoded = std::mem::take(target.decoded());
            return Err(DecodeError::new(at, error.what, decoded));
        };
        target.decoded().reject_at(at, Reject::Malformed);
        lines += newlines + 1;
        counted = next;
        scan.go_to(next);
    }
    Ok(std::mem::take(target.decoded()))
}

/// Start of the line after the one that holds the byte `at`, if both begin with an object.
fn next_line(bytes: &[u8], at: usize) -> Option<usize> {
    let newline = |byte: &u8| *byte == b'\n';
    let (before, behind) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    let this = before.iter().rposition(newline).map_or(0, |at| at + 1);
    let next = before.len() + behind.iter().position(newline)? + 1;
    (bytes.get(this) == Some(&b'{') && bytes.get(next) == Some(&b'{')).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_skipped_only_between_lines_of_objects() {
        assert_eq!(next_line(b"{}\n{oops\n{}\n", 5), Some(9));
        assert_eq!(next_line(b"{}\n{oops\n", 5), None);
        assert_eq!(next_line(b"{\n \"a\": oops\n}\n", 5), None);
    }
}
