//! OTLP JSON: one `TracesData` object, an array of them, or one a line as the Collector's file
//! exporter writes.
//!
//! Source: OTLP specification, "JSON Protobuf Encoding": ids are hexadecimal, 64-bit numbers are
//! text or numbers, enums numbers; names of enums and snake_case keys are taken as well.

use std::fmt;

use firm_model::instance::IdentityHints;
use firm_model::{Interner, ParentRelation, Span, SpanId, SpanKind, TraceId};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json::{Documents, Each, Key, List, Scalar, documents, ignore_scalars, lenient};
use super::origin::{self, Origin};
use super::otlp_proto::times;
use super::{DecodeError, Decoded, Reject};

/// Decodes all documents of a text.
///
/// # Errors
/// The text is not JSON; spans of the resources before that place are kept. In JSON lines a bad
/// line alone is counted as malformed.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    documents(
        bytes,
        Target {
            names,
            out,
            decoded: Decoded::default(),
        },
    )
}

struct Target<'n> {
    names: &'n Interner,
    out: &'n mut Vec<Span>,
    decoded: Decoded,
}

impl<'de> Documents<'de> for Target<'_> {
    fn document<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        Top(self).deserialize(deserializer)
    }

    fn decoded(&mut self) -> &mut Decoded {
        &mut self.decoded
    }
}

struct Top<'t, 'n>(&'t mut Target<'n>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `resourceSpans`")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if matches!(&*key.0, "resourceSpans" | "resource_spans") {
                map.next_value_seed(Each::new(|resource| self.0.resource(&resource)))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Top(self.0))?.is_some() {}
        Ok(())
    }
    ignore_scalars!(());
}

lenient! {
    struct ResourceSpans<'a> {
        resource: Resource<'a> = "resource",
        scopes: List<ScopeSpans<'a>> = "scopeSpans" | "scope_spans"
            | "instrumentationLibrarySpans",
    }
}

lenient! {
    struct Resource<'a> {
        attributes: List<Attribute<'a>> = "attributes",
    }
}

lenient! {
    struct Attribute<'a> {
        key: Scalar<'a> = "key",
        value: AnyValue<'a> = "value",
    }
}

lenient! {
    struct AnyValue<'a> {
        text: Scalar<'a> = "stringValue" | "string_value",
    }
}

lenient! {
    struct ScopeSpans<'a> {
        spans: List<JsonSpan<'a>> = "spans",
    }
}

lenient! {
    struct JsonSpan<'a> {
        trace_id: Scalar<'a> = "traceId" | "trace_id",
        span_id: Scalar<'a> = "spanId" | "span_id",
        parent_id: Scalar<'a> = "parentSpanId" | "parent_span_id",
        name: Scalar<'a> = "name",
        kind: Scalar<'a> = "kind",
        start: Scalar<'a> = "startTimeUnixNano" | "start_time_unix_nano",
        end: Scalar<'a> = "endTimeUnixNano" | "end_time_unix_nano",
        status: Status<'a> = "status",
    }
}

lenient! {
    struct Status<'a> {
        code: Scalar<'a> = "code",
    }
}

impl Target<'_> {
    fn resource(&mut self, read: &ResourceSpans<'_>) {
        let first = self.out.len();
        for span in read.scopes.0.iter().flat_map(|scope| &scope.spans.0) {
            let span = self.span(span);
            self.decoded.take(span, self.out);
        }
        let mut hints = IdentityHints::default();
        let mut service = None;
        for attribute in &read.resource.attributes.0 {
            let (Some(key), Some(text)) = (attribute.key.text(), attribute.value.text.text())
            else {
                continue;
            };
            if key == "service.name" {
                service.get_or_insert(text);
            } else {
                origin::hint(&mut hints, key, text);
            }
        }
        let spans = self.out.get_mut(first..).unwrap_or_default();
        Origin::new(self.names, service, &hints).claim(spans, &mut self.decoded.notes);
    }

    fn span(&self, read: &JsonSpan<'_>) -> Result<Span, Reject> {
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
            operation: self.names.intern(read.name.text().unwrap_or_default()),
            instance: Origin::NONE.instance,
            kind: kind(&read.kind),
            relation: ParentRelation::ChildOf,
            error: failed(&read.status.code),
            shared: false,
        })
    }
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
