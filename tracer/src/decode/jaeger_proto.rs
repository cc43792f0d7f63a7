//! Jaeger's own protobuf: `api_v2.PostSpansRequest`, without the gRPC frame.
//!
//! Source: jaeger-idl `proto/api_v2/model.proto`, `collector.proto`.

use firm_model::instance::IdentityHints;
use firm_model::{Interner, Span, SpanId, SpanKind, Timestamp, TraceId};

use super::origin::{self, Origin, Parents};
use super::wire::{CUT, Value, Wire, WireError};
use super::{DecodeError, Decoded, Note, Position, Reject, Tally};

/// Decodes a request. A span whose inside is broken is refused alone.
///
/// # Errors
/// The message is cut off or its framing is broken; spans before that place are kept.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    let mut decoded = Decoded::default();
    match request(Wire::new(bytes), names, out, &mut decoded) {
        Ok(()) => Ok(decoded),
        Err(error) => Err(DecodeError::new(
            Position::Byte(error.at),
            error.what,
            decoded,
        )),
    }
}

fn request(
    mut wire: Wire<'_>,
    names: &Interner,
    out: &mut Vec<Span>,
    decoded: &mut Decoded,
) -> Result<(), WireError> {
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Len(inner)) => batch(inner, names, out, decoded)?,
            (1, Value::Cut(inner)) => {
                batch(inner, names, out, decoded)?;
                return Err(wire.error(CUT));
            }
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => {}
        }
    }
    Ok(())
}

fn batch(
    mut wire: Wire<'_>,
    names: &Interner,
    out: &mut Vec<Span>,
    decoded: &mut Decoded,
) -> Result<(), WireError> {
    let mut process = None;
    // Spans may name a process of their own; the batch's is for those that do not.
    let mut nameless = Vec::new();
    let mut result = Ok(());
    loop {
        match wire.next() {
            Ok(Some((1, Value::Len(inner)))) => {
                let span = span(inner, names, &mut decoded.notes);
                if let Ok((_, false)) = span {
                    nameless.push(out.len());
                }
                decoded.take(span.map(|(span, _)| span), out);
            }
            Ok(Some((2, Value::Len(inner)))) => match read_process(inner, names) {
                Ok(read) => process = Some(read),
                Err(error) => result = Err(error),
            },
            Ok(Some((_, Value::Cut(inner)))) => result = Err(inner.error(CUT)),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => result = Err(error),
        }
        if result.is_err() {
            break;
        }
    }
    let origin = process.unwrap_or_else(|| Origin::new(names, None, &IdentityHints::default()));
    for index in nameless {
        if let Some(span) = out.get_mut(index) {
            origin.claim(std::slice::from_mut(span), &mut decoded.notes);
        }
    }
    result
}

fn read_process(mut wire: Wire<'_>, names: &Interner) -> Result<Origin, WireError> {
    let mut service = &[][..];
    let mut hints = IdentityHints::default();
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Len(inner)) => service = inner.bytes(),
            (2, Value::Len(inner)) => {
                let tag = tag(inner)?;
                if let (Ok(key), Ok(text)) =
                    (std::str::from_utf8(tag.key), std::str::from_utf8(tag.text))
                {
                    origin::hint(&mut hints, key, text);
                }
            }
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => {}
        }
    }
    let service = String::from_utf8_lossy(service);
    Ok(Origin::new(names, Some(&service), &hints))
}

#[derive(Default)]
struct Tag<'a> {
    key: &'a [u8],
    text: &'a [u8],
    truth: bool,
}

fn tag(mut wire: Wire<'_>) -> Result<Tag<'_>, WireError> {
    let mut tag = Tag::default();
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Len(inner)) => tag.key = inner.bytes(),
            (3, Value::Len(inner)) => tag.text = inner.bytes(),
            (4, Value::Varint(truth)) => tag.truth = truth != 0,
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => {}
        }
    }
    Ok(tag)
}

#[derive(Default)]
struct Raw<'a> {
    trace_id: &'a [u8],
    span_id: &'a [u8],
    operation: &'a [u8],
    references: Vec<Reference<'a>>,
    start: (i64, i64),
    duration: (i64, i64),
    kind: SpanKind,
    error: bool,
    process: Option<Origin>,
}

fn span(wire: Wire<'_>, names: &Interner, notes: &mut Tally<Note>) -> Result<(Span, bool), Reject> {
    let raw = raw_span(wire, names).map_err(|_| Reject::Malformed)?;
    let trace_id = TraceId::from_slice(raw.trace_id).map_err(origin::trace_error)?;
    let span_id = SpanId::from_slice(raw.span_id).map_err(origin::span_error)?;
    let mut parents = Parents::default();
    for reference in &raw.references {
        let id = origin::parent(SpanId::from_slice(reference.span_id))?;
        let same = reference.trace_id.is_empty() || reference.trace_id == raw.trace_id;
        parents.add(same, reference.follows, id);
    }
    let (parent_id, relation) = parents.choose(None);
    let (start, end) = times(&raw)?;
    notes.add(Note::ReferenceToOtherTrace, parents.foreign);
    let origin = raw.process.unwrap_or(Origin::NONE);
    if raw.process.is_some() && !origin.named {
        notes.add(Note::MissingService, 1);
    }
    let span = Span {
        trace_id,
        span_id,
        parent_id,
        start,
        end,
        service: origin.service,
        operation: super::otlp_proto::intern(names, raw.operation, notes),
        instance: origin.instance,
        kind: raw.kind,
        relation,
        error: raw.error,
        shared: false,
    };
    Ok((span, raw.process.is_some()))
}

fn raw_span<'a>(mut wire: Wire<'a>, names: &Interner) -> Result<Raw<'a>, WireError> {
    let mut raw = Raw::default();
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Len(inner)) => raw.trace_id = inner.bytes(),
            (2, Value::Len(inner)) => raw.span_id = inner.bytes(),
            (3, Value::Len(inner)) => raw.operation = inner.bytes(),
            (4, Value::Len(inner)) => raw.references.push(reference(inner)?),
            (6, Value::Len(inner)) => raw.start = seconds_and_nanos(inner)?,
            (7, Value::Len(inner)) => raw.duration = seconds_and_nanos(inner)?,
            (8, Value::Len(inner)) => {
                let tag = tag(inner)?;
                let text = std::str::from_utf8(tag.text).unwrap_or_default();
                match tag.key {
                    b"span.kind" => raw.kind = origin::kind(text),
                    b"error" => raw.error |= tag.truth || text.eq_ignore_ascii_case("true"),
                    b"otel.status_code" => raw.error |= text == "ERROR",
                    _ => {}
                }
            }
            (10, Value::Len(inner)) => raw.process = Some(read_process(inner, names)?),
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => {}
        }
    }
    Ok(raw)
}

#[derive(Default)]
struct Reference<'a> {
    trace_id: &'a [u8],
    span_id: &'a [u8],
    follows: bool,
}

fn reference(mut wire: Wire<'_>) -> Result<Reference<'_>, WireError> {
    let mut read = Reference::default();
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Len(inner)) => read.trace_id = inner.bytes(),
            (2, Value::Len(inner)) => read.span_id = inner.bytes(),
            (3, Value::Varint(kind)) => read.follows = kind == 1,
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => {}
        }
    }
    Ok(read)
}

/// `google.protobuf.Timestamp` and `Duration` alike.
fn seconds_and_nanos(mut wire: Wire<'_>) -> Result<(i64, i64), WireError> {
    let mut read = (0, 0);
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Varint(seconds)) => read.0 = seconds.cast_signed(),
            (2, Value::Varint(nanos)) => read.1 = nanos.cast_signed(),
            (_, Value::Cut(inner)) => return Err(inner.error(CUT)),
            _ => {}
        }
    }
    Ok(read)
}

fn times(raw: &Raw<'_>) -> Result<(Timestamp, Timestamp), Reject> {
    if raw.start == (0, 0) {
        return Err(Reject::MissingTime);
    }
    let nanos =
        |(seconds, nanos): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let start = nanos(raw.start);
    let end = start + nanos(raw.duration);
    let at = |nanos: i128| {
        u64::try_from(nanos)
            .ok()
            .and_then(Timestamp::from_nanos)
            .ok_or(Reject::TimeOutOfRange)
    };
    Ok((at(start)?, at(end)?))
}
