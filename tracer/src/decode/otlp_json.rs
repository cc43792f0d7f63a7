//! OTLP JSON: one `TracesData` object, an array of them, or one a line as the Collector's file
//! exporter writes.
//!
//! Source: OTLP specification, "JSON Protobuf Encoding": ids are hexadecimal, 64-bit numbers are
//! text or numbers, enums numbers; names of enums and snake_case keys are taken as well.

use firm_model::instance::IdentityHints;
use firm_model::{Interner, ParentRelation, Span, SpanId, SpanKind, TraceId};

use super::documents::Target;
use super::origin::{self, Origin};
use super::otlp_proto::times;
use super::scalar::Scalar;
use super::scan::{Scan, ScanError};
use super::{DecodeError, Decoded, Reject};

/// Deepest nesting of arrays around documents.
const MAX_DEPTH: u32 = 4;

/// Decodes all documents of a text.
///
/// # Errors
/// The text is not JSON; spans before that place are kept. In JSON lines a bad line alone is
/// counted as malformed.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    Target::new(names, out, Otlp).documents(bytes, |target, scan| target.value(scan, MAX_DEPTH))
}

/// Keeps nothing between documents.
struct Otlp;

/// A span as it stands in the text.
#[derive(Default)]
struct Raw<'a> {
    trace_id: Scalar<'a>,
    span_id: Scalar<'a>,
    parent_id: Scalar<'a>,
    name: Scalar<'a>,
    kind: Scalar<'a>,
    start: Scalar<'a>,
    end: Scalar<'a>,
    status: Scalar<'a>,
}

impl Target<'_, Otlp> {
    fn value(&mut self, scan: &mut Scan<'_>, depth: u32) -> Result<(), ScanError> {
        if depth == 0 {
            return scan.error("nested too deeply");
        }
        scan.no_word()?;
        if scan.peek() == Some(b'[') {
            return scan.array(|scan| self.value(scan, depth - 1));
        }
        scan.object(|scan, key| match &**key {
            b"resourceSpans" | b"resource_spans" => {
                scan.no_word()?;
                scan.array(|scan| self.resource_spans(scan))
            }
            _ => scan.skip(),
        })
    }

    fn resource_spans(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanError> {
        scan.no_word()?;
        let first = self.out.len();
        let mut attributes = Vec::new();
        let result = scan.object(|scan, key| match &**key {
            b"resource" => scan.object(|scan, key| match &**key {
                b"attributes" => scan.array(|scan| {
                    attributes.push(attribute(scan)?);
                    Ok(())
                }),
                _ => scan.skip(),
            }),
            b"scopeSpans" | b"scope_spans" | b"instrumentationLibrarySpans" => {
                scan.no_word()?;
                scan.array(|scan| self.scope_spans(scan))
            }
            _ => scan.skip(),
        });
        let mut hints = IdentityHints::default();
        let mut service = None;
        for (key, value) in &attributes {
            let (Some(key), Some(text)) = (key.text(), value.text()) else {
                continue;
            };
            if key == "service.name" {
                service.get_or_insert(text);
            } else {
                origin::hint(&mut hints, key, text);
            }
        }
        // Also after an error, so that the spans before it have their names.
        let spans = self.out.get_mut(first..).unwrap_or_default();
        Origin::new(self.names, service, &hints).claim(spans, &mut self.decoded.notes);
        result
    }

    fn scope_spans(&mut self, scan: &mut Scan<'_>) -> Result<(), ScanError> {
        scan.no_word()?;
        scan.object(|scan, key| match &**key {
            b"spans" => {
                scan.no_word()?;
                scan.array(|scan| {
                    let raw = raw_span(scan)?;
                    let span = self.span(&raw);
                    self.decoded.take(span, self.out);
                    Ok(())
                })
            }
            _ => scan.skip(),
        })
    }

    fn span(&mut self, read: &Raw<'_>) -> Result<Span, Reject> {
        let trace_id = read
            .trace_id
            .digits(32)
            .and_then(TraceId::from_hex)
            .map_err(origin::trace_error)?;
        let span_id = read
            .span_id
            .digits(16)
            .and_then(SpanId::from_hex)
            .map_err(origin::span_error)?;
        let parent_id = origin::parent(read.parent_id.digits(16).and_then(SpanId::from_hex))?;
        let (start, end) = times(nanos(&read.start)?, nanos(&read.end)?)?;
        Ok(Span {
            trace_id,
            span_id,
            parent_id,
            start,
            end,
            service: Origin::NONE.service,
            operation: read.name.name(self.names, &mut self.decoded.notes),
            instance: Origin::NONE.instance,
            kind: kind(&read.kind),
            relation: ParentRelation::ChildOf,
            error: failed(&read.status),
            shared: false,
        })
    }
}

fn raw_span<'a>(scan: &mut Scan<'a>) -> Result<Raw<'a>, ScanError> {
    let mut raw = Raw::default();
    scan.object(|scan, key| {
        let slot = match &**key {
            b"traceId" | b"trace_id" => &mut raw.trace_id,
            b"spanId" | b"span_id" => &mut raw.span_id,
            b"parentSpanId" | b"parent_span_id" => &mut raw.parent_id,
            b"name" => &mut raw.name,
            b"kind" => &mut raw.kind,
            b"startTimeUnixNano" | b"start_time_unix_nano" => &mut raw.start,
            b"endTimeUnixNano" | b"end_time_unix_nano" => &mut raw.end,
            b"status" => {
                return scan.object(|scan, key| {
                    if **key == b"code"[..] {
                        raw.status = scan.scalar()?;
                        return Ok(());
                    }
                    scan.skip()
                });
            }
            _ => return scan.skip(),
        };
        *slot = scan.scalar()?;
        Ok(())
    })?;
    Ok(raw)
}

/// Key and text of an attribute.
fn attribute<'a>(scan: &mut Scan<'a>) -> Result<(Scalar<'a>, Scalar<'a>), ScanError> {
    let (mut name, mut text) = (Scalar::Absent, Scalar::Absent);
    scan.object(|scan, key| match &**key {
        b"key" => {
            name = scan.scalar()?;
            Ok(())
        }
        b"value" => scan.object(|scan, key| match &**key {
            b"stringValue" | b"string_value" => {
                text = scan.scalar()?.mended();
                Ok(())
            }
            _ => scan.skip(),
        }),
        _ => scan.skip(),
    })?;
    Ok((name, text))
}

/// A `fixed64`; 0 where it is absent.
fn nanos(scalar: &Scalar<'_>) -> Result<u64, Reject> {
    match scalar {
        Scalar::Unsigned(number) => Ok(*number),
        other => u64::try_from(other.signed()?.unwrap_or(0)).map_err(|_| Reject::TimeOutOfRange),
    }
}

fn kind(scalar: &Scalar<'_>) -> SpanKind {
    match scalar {
        Scalar::Unsigned(number) => origin::otlp_kind(*number),
        Scalar::Text(word) => origin::kind(word.strip_prefix("SPAN_KIND_").unwrap_or(word)),
        _ => SpanKind::Unspecified,
    }
}

fn failed(code: &Scalar<'_>) -> bool {
    match code {
        Scalar::Unsigned(number) => *number == 2,
        Scalar::Text(word) => &**word == "STATUS_CODE_ERROR",
        _ => false,
    }
}
