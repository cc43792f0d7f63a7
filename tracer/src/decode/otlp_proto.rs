//! OTLP protobuf: `ExportTraceServiceRequest` and `TracesData`, which are the same on the wire.
//!
//! Read by hand because this is the hot path: attribute texts are stepped over, not copied.
//! Source: opentelemetry-proto 1.x, `trace/v1/trace.proto`. Fields may come in any order, and
//! concatenated messages are one message, as protobuf says.

use firm_model::instance::IdentityHints;
use firm_model::{Interner, ParentRelation, Span, SpanId, SpanKind, TraceId};
use firm_model::{Symbol, Timestamp};

use super::origin::{self, Origin};
use super::wire::{CUT, Value, Wire, WireError};
use super::{DecodeError, Decoded, Note, Position, Reject, Tally};

/// Field of the messages that preceded `ScopeSpans` (OTLP before 0.15), of the same layout.
const INSTRUMENTATION_LIBRARY_SPANS: u64 = 1000;

/// Decodes a request.
///
/// A span whose inside is broken is refused alone, since its length is known.
///
/// # Errors
/// The message is cut off or its framing is broken; spans before that place are kept.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder {
        names,
        out,
        decoded: Decoded::default(),
    };
    match decoder.request(Wire::new(bytes)) {
        Ok(()) => Ok(decoder.decoded),
        Err(error) => Err(DecodeError::new(
            Position::Byte(error.at),
            error.what,
            decoder.decoded,
        )),
    }
}

/// Decodes messages that each follow their length in four bytes, most significant first, as the
/// Collector's file exporter writes with `format: proto`.
///
/// # Errors
/// As [`decode`]; positions are in the whole input.
pub fn decode_framed(
    bytes: &[u8],
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<Decoded, DecodeError> {
    let mut decoded = Decoded::default();
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((head, body)) = rest.split_first_chunk::<4>() else {
            return Err(DecodeError::new(Position::Byte(at), CUT, decoded));
        };
        let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        let message = body.get(..length).unwrap_or(body);
        match decode(message, names, out) {
            Ok(more) => decoded.merge(&more),
            Err(error) => {
                decoded.merge(&error.decoded);
                let inside = match error.at {
                    Position::Byte(inside) => inside,
                    _ => 0,
                };
                let place = Position::Byte(at + 4 + inside);
                return Err(DecodeError::new(place, error.reason, decoded));
            }
        }
        if message.len() < length {
            return Err(DecodeError::new(Position::Byte(at), CUT, decoded));
        }
        at += 4 + length;
    }
    Ok(decoded)
}

struct Decoder<'n> {
    names: &'n Interner,
    out: &'n mut Vec<Span>,
    decoded: Decoded,
}

impl Decoder<'_> {
    fn request(&mut self, mut wire: Wire<'_>) -> Result<(), WireError> {
        while let Some((number, value)) = wire.next()? {
            match (number, value) {
                (1, Value::Len(inner)) => self.resource_spans(inner)?,
                (1, Value::Cut(inner)) => {
                    self.resource_spans(inner)?;
                    return Err(wire.error(CUT));
                }
                (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
                _ => {}
            }
        }
        Ok(())
    }

    fn resource_spans(&mut self, wire: Wire<'_>) -> Result<(), WireError> {
        let first = self.out.len();
        let mut resource = Resource::default();
        // Also after an error, so that the spans before it have their names.
        let result = self.scopes(wire, &mut resource);
        let origin = Origin::new(self.names, resource.service, &resource.hints);
        let spans = self.out.get_mut(first..).unwrap_or_default();
        origin.claim(spans, &mut self.decoded.notes);
        result
    }

    fn scopes<'a>(
        &mut self,
        mut wire: Wire<'a>,
        resource: &mut Resource<'a>,
    ) -> Result<(), WireError> {
        while let Some((number, value)) = wire.next()? {
            match (number, value) {
                (1, Value::Len(inner)) => resource.read(inner)?,
                (2 | INSTRUMENTATION_LIBRARY_SPANS, Value::Len(inner)) => self.spans(inner)?,
                (2 | INSTRUMENTATION_LIBRARY_SPANS, Value::Cut(inner)) => {
                    self.spans(inner)?;
                    return Err(wire.error(CUT));
                }
                (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
                _ => {}
            }
        }
        Ok(())
    }

    fn spans(&mut self, mut wire: Wire<'_>) -> Result<(), WireError> {
        while let Some((number, value)) = wire.next()? {
            match (number, value) {
                (2, Value::Len(inner)) => {
                    let span = span(inner, self.names, &mut self.decoded.notes);
                    self.decoded.take(span, self.out);
                }
                (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
                _ => {}
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Resource<'a> {
    service: Option<&'a str>,
    hints: IdentityHints<'a>,
}

impl<'a> Resource<'a> {
    fn read(&mut self, mut wire: Wire<'a>) -> Result<(), WireError> {
        while let Some((number, value)) = wire.next()? {
            match (number, value) {
                (1, Value::Len(inner)) => self.attribute(inner)?,
                (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
                _ => {}
            }
        }
        Ok(())
    }

    fn attribute(&mut self, mut wire: Wire<'a>) -> Result<(), WireError> {
        let mut key = &[][..];
        let mut text = None;
        while let Some((number, value)) = wire.next()? {
            match (number, value) {
                (1, Value::Len(inner)) => key = inner.bytes(),
                (2, Value::Len(inner)) => text = string_value(inner)?,
                (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
                _ => {}
            }
        }
        if let (Ok(key), Some(text)) = (std::str::from_utf8(key), text) {
            if key == "service.name" {
                self.service.get_or_insert(text);
            } else {
                origin::hint(&mut self.hints, key, text);
            }
        }
        Ok(())
    }
}

/// The text of an `AnyValue`, `None` when it holds something else.
fn string_value(mut wire: Wire<'_>) -> Result<Option<&str>, WireError> {
    let mut text = None;
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Len(inner)) => text = std::str::from_utf8(inner.bytes()).ok(),
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => text = None,
        }
    }
    Ok(text)
}

fn span(mut wire: Wire<'_>, names: &Interner, notes: &mut Tally<Note>) -> Result<Span, Reject> {
    let (mut trace_id, mut span_id, mut parent_id, mut name) = (&[][..], &[][..], &[][..], &[][..]);
    let (mut start, mut end) = (0, 0);
    let mut kind = SpanKind::Unspecified;
    let mut error = false;
    while let Some((number, value)) = wire.next().map_err(|_| Reject::Malformed)? {
        match (number, value) {
            (1, Value::Len(inner)) => trace_id = inner.bytes(),
            (2, Value::Len(inner)) => span_id = inner.bytes(),
            (4, Value::Len(inner)) => parent_id = inner.bytes(),
            (5, Value::Len(inner)) => name = inner.bytes(),
            (6, Value::Varint(number)) => kind = origin::otlp_kind(number),
            (7, Value::Fixed64(nanos)) => start = nanos,
            (8, Value::Fixed64(nanos)) => end = nanos,
            (15, Value::Len(inner)) => {
                // Repeated status messages merge: the last code given stands.
                if let Some(failed) = status(inner)? {
                    error = failed;
                }
            }
            (_, Value::Cut(_)) => return Err(Reject::Malformed),
            _ => {}
        }
    }
    let trace_id = TraceId::from_slice(trace_id).map_err(origin::trace_error)?;
    let span_id = SpanId::from_slice(span_id).map_err(origin::span_error)?;
    let parent_id = origin::parent(SpanId::from_slice(parent_id))?;
    let (start, end) = times(start, end)?;
    Ok(Span {
        trace_id,
        span_id,
        parent_id,
        start,
        end,
        service: Origin::NONE.service,
        operation: intern(names, name, notes),
        instance: Origin::NONE.instance,
        kind,
        relation: ParentRelation::ChildOf,
        error,
        shared: false,
    })
}

/// Both times of an OTLP span; zero means that it was not set.
pub(super) fn times(start: u64, end: u64) -> Result<(Timestamp, Timestamp), Reject> {
    if start == 0 || end == 0 {
        return Err(Reject::MissingTime);
    }
    match (Timestamp::from_nanos(start), Timestamp::from_nanos(end)) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(Reject::TimeOutOfRange),
    }
}

/// Interns a name from the wire.
pub(super) fn intern(names: &Interner, name: &[u8], notes: &mut Tally<Note>) -> Symbol {
    match std::str::from_utf8(name) {
        Ok(name) => names.intern(name),
        Err(_) => {
            notes.add(Note::NameNotUtf8, 1);
            names.intern(&String::from_utf8_lossy(name))
        }
    }
}

/// Whether a status says that the span failed (`STATUS_CODE_ERROR`), if it gives a code.
fn status(mut wire: Wire<'_>) -> Result<Option<bool>, Reject> {
    let mut code = None;
    while let Some((number, value)) = wire.next().map_err(|_| Reject::Malformed)? {
        match (number, value) {
            (3, Value::Varint(number)) => code = Some(number == 2),
            (_, Value::Cut(_)) => return Err(Reject::Malformed),
            _ => {}
        }
    }
    Ok(code)
}
