//! Jaeger's thrift: `emitBatch` datagrams as clients send them to the agent, and a bare `Batch` as
//! the collector's `/api/traces` takes it.
//!
//! Source: jaeger-idl `thrift/jaeger.thrift`, `agent.thrift`. Times are microseconds. Thrift has no
//! lengths around structs, so what comes after a broken byte cannot be found.

use firm_model::instance::IdentityHints;
use firm_model::{Interner, Span, SpanId, SpanKind, TraceId};

use super::jaeger_json::interval;
use super::origin::{self, Origin, Parents};
use super::thrift::{Fields, Thrift, ThriftError, Type};
use super::{DecodeError, Decoded, Note, Position, Reject, Tally};

pub use super::thrift::Protocol;

/// Decodes one datagram: a call of `emitBatch`.
///
/// # Errors
/// It is cut off, not thrift, or another call; spans before that place are kept.
pub fn decode_datagram(
    bytes: &[u8],
    protocol: Protocol,
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<Decoded, DecodeError> {
    run(bytes, protocol, names, out, |decoder| {
        if decoder.input.message()? != b"emitBatch" {
            return decoder.input.error("message is not `emitBatch`");
        }
        let mut fields = Fields::default();
        while let Some((id, ty)) = decoder.input.field(&mut fields)? {
            match (id, ty) {
                (1, Type::Struct) => decoder.batch()?,
                _ => decoder.input.skip(ty)?,
            }
        }
        Ok(())
    })
}

/// Decodes a bare `Batch`.
///
/// # Errors
/// It is cut off or not thrift; spans before that place are kept.
pub fn decode_batch(
    bytes: &[u8],
    protocol: Protocol,
    names: &Interner,
    out: &mut Vec<Span>,
) -> Result<Decoded, DecodeError> {
    run(bytes, protocol, names, out, |decoder| decoder.batch())
}

fn run<'a>(
    bytes: &'a [u8],
    protocol: Protocol,
    names: &Interner,
    out: &mut Vec<Span>,
    read: impl FnOnce(&mut Decoder<'a, '_>) -> Result<(), ThriftError>,
) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder {
        input: Thrift::new(bytes, protocol),
        names,
        out,
        decoded: Decoded::default(),
    };
    match read(&mut decoder) {
        Ok(()) => Ok(decoder.decoded),
        Err(error) => Err(DecodeError::new(
            Position::Byte(error.at),
            error.what,
            decoder.decoded,
        )),
    }
}

struct Decoder<'a, 'n> {
    input: Thrift<'a>,
    names: &'n Interner,
    out: &'n mut Vec<Span>,
    decoded: Decoded,
}

/// A tag whose value is text or a boolean, the only ones used.
#[derive(Default)]
struct Tag<'a> {
    key: &'a [u8],
    text: Option<&'a str>,
    truth: bool,
}

#[derive(Default)]
struct Raw<'a> {
    trace: (i64, i64),
    span_id: i64,
    parent_id: i64,
    operation: &'a [u8],
    references: Vec<(bool, (i64, i64), i64)>,
    start: Option<i64>,
    duration: i64,
    kind: SpanKind,
    error: bool,
}

impl<'a> Decoder<'a, '_> {
    fn batch(&mut self) -> Result<(), ThriftError> {
        let first = self.out.len();
        let mut origin = None;
        // Also after an error, so that the spans before it have their names.
        let result = self.batch_fields(&mut origin);
        let origin =
            origin.unwrap_or_else(|| Origin::new(self.names, None, &IdentityHints::default()));
        let spans = self.out.get_mut(first..).unwrap_or_default();
        origin.claim(spans, &mut self.decoded.notes);
        result
    }

    fn batch_fields(&mut self, origin: &mut Option<Origin>) -> Result<(), ThriftError> {
        let mut fields = Fields::default();
        while let Some((id, ty)) = self.input.field(&mut fields)? {
            match (id, ty) {
                (1, Type::Struct) => *origin = Some(self.process()?),
                (2, Type::List) => {
                    let (ty, count) = self.input.list()?;
                    for _ in 0..count {
                        if ty == Type::Struct {
                            let raw = self.raw_span()?;
                            let span = finish(&raw, self.names, &mut self.decoded.notes);
                            self.decoded.take(span, self.out);
                        } else {
                            self.input.skip(ty)?;
                        }
                    }
                }
                _ => self.input.skip(ty)?,
            }
        }
        Ok(())
    }

    fn process(&mut self) -> Result<Origin, ThriftError> {
        let mut service = &[][..];
        let mut hints = IdentityHints::default();
        let mut fields = Fields::default();
        while let Some((id, ty)) = self.input.field(&mut fields)? {
            match (id, ty) {
                (1, Type::Binary) => service = self.input.binary()?,
                (2, Type::List) => self.tags(|tag| {
                    if let (Ok(key), Some(text)) = (std::str::from_utf8(tag.key), tag.text) {
                        origin::hint(&mut hints, key, text);
                    }
                })?,
                _ => self.input.skip(ty)?,
            }
        }
        let service = String::from_utf8_lossy(service);
        Ok(Origin::new(self.names, Some(&service), &hints))
    }

    fn tags(&mut self, mut take: impl FnMut(Tag<'a>)) -> Result<(), ThriftError> {
        let (ty, count) = self.input.list()?;
        for _ in 0..count {
            if ty != Type::Struct {
                self.input.skip(ty)?;
                continue;
            }
            let mut tag = Tag::default();
            let mut fields = Fields::default();
            while let Some((id, ty)) = self.input.field(&mut fields)? {
                match (id, ty) {
                    (1, Type::Binary) => tag.key = self.input.binary()?,
                    (3, Type::Binary) => {
                        tag.text = std::str::from_utf8(self.input.binary()?).ok();
                    }
                    (5, Type::Bool(_)) => tag.truth = self.input.bool(ty)?,
                    _ => self.input.skip(ty)?,
                }
            }
            take(tag);
        }
        Ok(())
    }

    fn raw_span(&mut self) -> Result<Raw<'a>, ThriftError> {
        let mut raw = Raw::default();
        let mut fields = Fields::default();
        while let Some((id, ty)) = self.input.field(&mut fields)? {
            match (id, ty) {
                (1, Type::I64) => raw.trace.1 = self.input.i64()?,
                (2, Type::I64) => raw.trace.0 = self.input.i64()?,
                (3, Type::I64) => raw.span_id = self.input.i64()?,
                (4, Type::I64) => raw.parent_id = self.input.i64()?,
                (5, Type::Binary) => raw.operation = self.input.binary()?,
                (6, Type::List) => {
                    let (ty, count) = self.input.list()?;
                    for _ in 0..count {
                        if ty == Type::Struct {
                            raw.references.push(self.reference()?);
                        } else {
                            self.input.skip(ty)?;
                        }
                    }
                }
                (8, Type::I64) => raw.start = Some(self.input.i64()?),
                (9, Type::I64) => raw.duration = self.input.i64()?,
                (10, Type::List) => self.tags(|tag| match tag.key {
                    b"span.kind" => raw.kind = tag.text.map(origin::kind).unwrap_or_default(),
                    b"error" => {
                        let said = tag
                            .text
                            .is_some_and(|text| text.eq_ignore_ascii_case("true"));
                        raw.error |= tag.truth || said;
                    }
                    b"otel.status_code" => raw.error |= tag.text == Some("ERROR"),
                    _ => {}
                })?,
                _ => self.input.skip(ty)?,
            }
        }
        Ok(raw)
    }

    /// Whether it is FOLLOWS_FROM, the trace, the span.
    fn reference(&mut self) -> Result<(bool, (i64, i64), i64), ThriftError> {
        let (mut follows, mut trace, mut span) = (false, (0, 0), 0);
        let mut fields = Fields::default();
        while let Some((id, ty)) = self.input.field(&mut fields)? {
            match (id, ty) {
                (1, Type::I32) => follows = self.input.i32()? == 1,
                (2, Type::I64) => trace.1 = self.input.i64()?,
                (3, Type::I64) => trace.0 = self.input.i64()?,
                (4, Type::I64) => span = self.input.i64()?,
                _ => self.input.skip(ty)?,
            }
        }
        Ok((follows, trace, span))
    }
}

fn finish(raw: &Raw<'_>, names: &Interner, notes: &mut Tally<Note>) -> Result<Span, Reject> {
    let trace_id: TraceId = origin::trace_id(raw.trace.0, raw.trace.1)?;
    let span_id = SpanId::new(raw.span_id.to_be_bytes()).map_err(origin::span_error)?;
    let mut parents = Parents::default();
    for (follows, trace, span) in &raw.references {
        let id = SpanId::new(span.to_be_bytes()).ok();
        parents.add(*trace == raw.trace, *follows, id);
    }
    let (parent_id, relation) = parents.choose(SpanId::new(raw.parent_id.to_be_bytes()).ok());
    let (start, end) = interval(raw.start.ok_or(Reject::MissingTime)?, raw.duration)?;
    notes.add(Note::ReferenceToOtherTrace, parents.foreign);
    Ok(Span {
        trace_id,
        span_id,
        parent_id,
        start,
        end,
        service: Origin::NONE.service,
        operation: super::otlp_proto::intern(names, raw.operation, notes),
        instance: Origin::NONE.instance,
        kind: raw.kind,
        relation,
        error: raw.error,
        shared: false,
    })
}
