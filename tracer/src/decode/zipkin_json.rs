//! Zipkin v2 JSON: a list of spans, a list of such lists, a single span, or one a line.
//!
//! Source: zipkin-api `zipkin2-api.yaml`. Times are microseconds. `shared` marks the server half
//! of a span id that client and server have in common. A span without timestamp starts at its
//! first annotation, and without any cannot be used; a span without duration ends at its last
//! annotation, else where it starts. Both are noted.

use std::fmt;

use firm_model::instance::IdentityHints;
use firm_model::{Interner, ParentRelation, Span};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::jaeger_json::interval;
use super::json::{Documents, Key, List, Scalar, documents, ignore_scalars, lenient};
use super::origin::{self, Origin};
use super::{DecodeError, Decoded, Note, Reject};

/// Decodes all documents of a text.
///
/// # Errors
/// The text is not JSON; spans before that place are kept. In JSON lines a bad line alone is
/// counted as malformed.
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
        f.write_str("a Zipkin span")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut read = JsonSpan::default();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if !read.set(&key.0, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let span = self.0.span(&read);
        self.0.decoded.take(span, self.0.out);
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Top(self.0))?.is_some() {}
        Ok(())
    }
    ignore_scalars!(());
}

lenient! {
    struct JsonSpan<'a> {
        trace_id: Scalar<'a> = "traceId",
        span_id: Scalar<'a> = "id",
        parent_id: Scalar<'a> = "parentId",
        name: Scalar<'a> = "name",
        kind: Scalar<'a> = "kind",
        timestamp: Scalar<'a> = "timestamp",
        duration: Scalar<'a> = "duration",
        local: Endpoint<'a> = "localEndpoint",
        annotations: List<Annotation<'a>> = "annotations",
        tags: Tags<'a> = "tags",
        shared: Scalar<'a> = "shared",
    }
}

lenient! {
    struct Endpoint<'a> {
        service: Scalar<'a> = "serviceName",
        ipv4: Scalar<'a> = "ipv4",
        ipv6: Scalar<'a> = "ipv6",
    }
}

lenient! {
    struct Annotation<'a> {
        timestamp: Scalar<'a> = "timestamp",
    }
}

lenient! {
    /// Zipkin calls a span failed when it has this tag, whatever its value.
    struct Tags<'a> {
        error: Scalar<'a> = "error",
    }
}

impl Target<'_> {
    fn span(&mut self, read: &JsonSpan<'_>) -> Result<Span, Reject> {
        let trace_id = read.trace_id.trace_id()?;
        let span_id = read.span_id.span_id()?;
        let parent_id = read.parent_id.parent_id()?;
        let marks = || {
            read.annotations
                .0
                .iter()
                .filter_map(|mark| mark.timestamp.signed().ok().flatten())
        };
        let stated = read.timestamp.signed()?.filter(|micros| *micros != 0);
        let first = stated
            .or_else(|| marks().min())
            .ok_or(Reject::MissingTime)?;
        let length = read.duration.signed()?;
        let duration = length.unwrap_or_else(|| {
            let last = marks().max().unwrap_or(first);
            last.saturating_sub(first).max(0)
        });
        let (start, end) = interval(first, duration)?;

        let hints = IdentityHints {
            host_name: read.local.ipv4.text().or(read.local.ipv6.text()),
            ..IdentityHints::default()
        };
        let origin = Origin::new(self.names, read.local.service.text(), &hints);
        for (note, holds) in [
            (Note::TimeFromAnnotation, stated.is_none()),
            (Note::MissingDuration, length.is_none()),
            (Note::MissingService, !origin.named),
        ] {
            self.decoded.notes.add(note, holds.into());
        }
        Ok(Span {
            trace_id,
            span_id,
            parent_id,
            start,
            end,
            service: origin.service,
            operation: self.names.intern(read.name.text().unwrap_or_default()),
            instance: origin.instance,
            kind: read.kind.text().map(origin::kind).unwrap_or_default(),
            relation: ParentRelation::ChildOf,
            error: !read.tags.error.is_absent(),
            shared: read.shared.truth(),
        })
    }
}
