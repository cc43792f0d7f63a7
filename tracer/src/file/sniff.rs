//! Tells a format from the first bytes, and from the first keys where it is JSON.

use super::Format;
use crate::decode::Position;
use crate::decode::documents::{place, without_mark};
use crate::decode::scan::{Scan, ScanError};

/// Why the format is not one that is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unsupported {
    pub(super) at: Position,
    pub(super) reason: String,
}

/// Most keys named in an error.
const NAMED_KEYS: usize = 6;

/// Deepest nesting of lists and of `data` that is looked into.
const MAX_DEPTH: u32 = 32;

pub(super) fn sniff(bytes: &[u8]) -> Result<Format, Unsupported> {
    let unsupported = |reason: String| Unsupported {
        at: Position::Byte(0),
        reason,
    };
    let bytes = without_mark(bytes);
    match bytes.trim_ascii_start() {
        [] if bytes.is_empty() => return Err(unsupported("the file is empty".to_owned())),
        [] => {
            let said = format!("only white space, {} bytes of it", bytes.len());
            return Err(unsupported(said));
        }
        [b'{' | b'[', ..] if !is_framed(bytes) => return json(bytes),
        _ => {}
    }
    match bytes {
        [0x80, 0x01, ..] => Ok(Format::JaegerThriftBinary),
        [0x82, version, ..] if version & 0x1f == 1 => Ok(Format::JaegerThriftCompact),
        [0x0c, 0, 1 | 2, ..] => Ok(Format::JaegerThriftBatch),
        [0x0a, ..] => Ok(proto(bytes)),
        _ if is_framed(bytes) => Ok(Format::OtlpProtoFramed),
        _ if is_nezha(bytes) => Ok(Format::NezhaCsv),
        _ => Err(unsupported(format!(
            "neither JSON nor a known binary form or table; it begins with `{}`",
            bytes[..bytes.len().min(16)].escape_ascii()
        ))),
    }
}

/// Whether the first line names the columns of Nezha's table.
fn is_nezha(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let names = |column: &[u8]| {
        line.split(|byte| *byte == b',')
            .any(|name| name.trim_ascii() == column)
    };
    names(b"TraceID") && names(b"SpanID")
}

/// Whether a length and a protobuf message of that length come first.
fn is_framed(bytes: &[u8]) -> bool {
    let Some((head, body)) = bytes.split_first_chunk::<4>() else {
        return false;
    };
    let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
    length > 0 && length <= body.len() && body.first() == Some(&0x0a)
}

/// Tells `PostSpansRequest` (batch > span > 16 bytes of trace id, 8 of span id) from OTLP
/// (resource spans > resource > attribute > key).
fn proto(bytes: &[u8]) -> Format {
    let mut rest = bytes;
    for _ in 0..2 {
        // A message in field 1: the key, then a length of at most five bytes.
        let length = rest.iter().skip(1).take(5).position(|byte| *byte < 0x80);
        match (rest.first(), length) {
            (Some(0x0a), Some(last)) => rest = rest.get(last + 2..).unwrap_or_default(),
            _ => return Format::OtlpProto,
        }
    }
    let is_span = rest.starts_with(&[0x0a, 16]) && rest.get(18..20) == Some(&[0x12, 8]);
    if is_span {
        Format::JaegerProto
    } else {
        Format::OtlpProto
    }
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Is(Format),
    IsNot(&'static str),
}

#[derive(Default)]
struct Seen {
    verdict: Option<Verdict>,
    keys: Vec<String>,
    trace_id: bool,
    id: bool,
    empty_list: bool,
}

fn json(bytes: &[u8]) -> Result<Format, Unsupported> {
    let mut seen = Seen::default();
    let mut scan = Scan::within(bytes, 0..bytes.len());
    let result = seen.look(&mut scan, MAX_DEPTH);
    let start = Position::Line { line: 1, column: 0 };
    match (seen.verdict, result) {
        (Some(Verdict::Is(format)), _) => Ok(format),
        (Some(Verdict::IsNot(what)), _) => Err(Unsupported {
            at: start,
            reason: format!("looks like {what}, which is not supported"),
        }),
        (None, Err(error)) => Err(Unsupported {
            at: place(bytes, error.at),
            reason: format!("not JSON: {}", error.what),
        }),
        // A list of nothing is right in every format.
        (None, Ok(())) if seen.empty_list => Ok(Format::ZipkinJson),
        (None, Ok(())) => Err(Unsupported {
            at: start,
            reason: format!(
                "JSON of no known trace format; its keys are `{}`",
                seen.keys.join("`, `")
            ),
        }),
    }
}

impl Seen {
    /// Looks at keys until they decide, then ends the reading with an error.
    fn look(&mut self, scan: &mut Scan<'_>, depth: u32) -> Result<(), ScanError> {
        if depth == 0 {
            return scan.error("nested too deeply");
        }
        if scan.peek() == Some(b'[') {
            let mut number = 0_u64;
            scan.array(|scan| {
                number += 1;
                match number {
                    1 => self.look(scan, depth - 1),
                    _ => scan.skip(),
                }
            })?;
            self.empty_list |= number == 0;
            return Ok(());
        }
        scan.object(|scan, key| {
            self.key(&String::from_utf8_lossy(key));
            if self.verdict.is_none() && matches!(&**key, b"data" | b"spans") {
                self.look(scan, depth - 1)?;
                // Empty, so nothing inside could tell: the query API's answer to no trace.
                self.verdict.get_or_insert(Verdict::Is(Format::JaegerJson));
            }
            match self.verdict {
                Some(_) => scan.error("decided"),
                None => scan.skip(),
            }
        })
    }

    /// Judges by one more key.
    fn key(&mut self, key: &str) {
        self.verdict = Some(match key {
            "resourceSpans" | "resource_spans" => Verdict::Is(Format::OtlpJson),
            "traceID" | "spanID" | "processes" => Verdict::Is(Format::JaegerJson),
            "TraceID" | "SpanID" => Verdict::IsNot("a row of Jaeger's Cassandra tables"),
            "trace_id" | "span_id" => Verdict::IsNot("flattened spans with snake_case keys"),
            "traceIdLow" | "traceIdHigh" => Verdict::IsNot("a thrift batch written as JSON"),
            "spanId" => Verdict::IsNot("Jaeger's domain model, or an OTLP span by itself"),
            "traceId" if self.id => Verdict::Is(Format::ZipkinJson),
            "id" if self.trace_id => Verdict::Is(Format::ZipkinJson),
            other => {
                self.trace_id |= other == "traceId";
                self.id |= other == "id";
                if self.keys.len() < NAMED_KEYS {
                    self.keys.push(other.chars().take(40).collect());
                }
                return;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_by_its_keys() {
        for (text, format) in [
            (r#"{"data":[{"traceID":"1"}]}"#, Format::JaegerJson),
            (
                r#"{"data":{"services":[],"spans":[{"traceID":"1"}]}}"#,
                Format::JaegerJson,
            ),
            (r#"{"data":[]}"#, Format::JaegerJson),
            (
                r#" [{"_comment":1,"spans":[{"spanID":"1"}]}]"#,
                Format::JaegerJson,
            ),
            (r#"{"resourceSpans":[]}"#, Format::OtlpJson),
            (r#"[[{"id":"1","traceId":"2"}]]"#, Format::ZipkinJson),
            (r#"{"traceId":"2","name":"x","id":"1"}"#, Format::ZipkinJson),
        ] {
            assert_eq!(sniff(text.as_bytes()), Ok(format), "{text}");
        }
    }

    #[test]
    fn wrong_text_and_numbers_before_the_telling_key_do_not_hide_the_format() {
        let text = b"\xef\xbb\xbf[{\"name\":\"\xff\\ud83d\",\"\xff\":1e999,\"duration\":NaN,\
            \"traceId\":\"1\",\"id\":\"2\"}]";
        assert_eq!(sniff(text), Ok(Format::ZipkinJson));
    }

    #[test]
    fn what_is_not_read_is_named() {
        for (text, word) in [
            ("", "the file is empty"),
            (" \n", "only white space, 2 bytes of it"),
            (r#"{"bool":{"should":[]}}"#, "`bool`"),
            (r#"{"TraceID":"AA=="}"#, "Cassandra"),
            (
                r#"{"process":{},"spans":[{"traceIdLow":1}]}"#,
                "thrift batch",
            ),
            (
                r#"{"spans":[{"traceId":"AA==","spanId":"AA=="}]}"#,
                "domain model",
            ),
            ("[1,2", "not JSON"),
            ("hello", "begins with"),
        ] {
            let reason = sniff(text.as_bytes()).unwrap_err().reason;
            assert!(reason.contains(word), "{text}: {reason}");
        }
    }
}
