//! Jaeger JSON as the query API and the web page give it: `{"data": [TRACE...]}`, a bare trace, an
//! array of traces; also single spans with their process inside (Elasticsearch's form), alone, in
//! an array or one a line.
//!
//! Source: jaeger `internal/uimodel/model.go`. Times are microseconds. Values of tags are read
//! only where they are used, logs not at all.

use std::borrow::Cow;
use std::fmt;

use firm_model::instance::IdentityHints;
use firm_model::{Interner, Span, SpanKind, Timestamp, TraceId};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json::{Documents, Key, List, Scalar, documents, ignore_array, ignore_scalars, lenient};
use super::origin::{self, Origin, Parents};
use super::{DecodeError, Decoded, Note, Reject};

/// Decodes all documents of a text.
///
/// # Errors
/// The text is not JSON; traces before that place are kept. In JSON lines a bad line alone is
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

/// A trace, a span, an array of such, or an object whose `data` holds them.
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
        f.write_str("a Jaeger trace")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut spans = List::<JsonSpan<'de>>::default();
        let mut processes = Processes::default();
        let mut lone = JsonSpan::default();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            match &*key.0 {
                "data" => map.next_value_seed(Top(self.0))?,
                "spans" => spans = map.next_value()?,
                "processes" => processes = map.next_value()?,
                other => {
                    if !lone.set(other, &mut map)? {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
        }
        if !lone.span_id.is_absent() {
            self.0.trace(std::slice::from_ref(&lone), &processes);
        }
        self.0.trace(&spans.0, &processes);
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
        trace_id: Scalar<'a> = "traceID",
        span_id: Scalar<'a> = "spanID",
        parent_id: Scalar<'a> = "parentSpanID",
        operation: Scalar<'a> = "operationName",
        references: List<Reference<'a>> = "references",
        start: Scalar<'a> = "startTime",
        duration: Scalar<'a> = "duration",
        tags: SpanTags = "tags",
        process_id: Scalar<'a> = "processID",
        process: Process<'a> = "process",
    }
}

lenient! {
    struct Reference<'a> {
        kind: Scalar<'a> = "refType",
        trace_id: Scalar<'a> = "traceID",
        span_id: Scalar<'a> = "spanID",
    }
}

lenient! {
    struct Process<'a> {
        service: Scalar<'a> = "serviceName",
        tags: List<Tag<'a>> = "tags",
    }
}

lenient! {
    struct Tag<'a> {
        key: Scalar<'a> = "key",
        value: Scalar<'a> = "value",
    }
}

impl Process<'_> {
    fn origin(&self, names: &Interner) -> Origin {
        let mut hints = IdentityHints::default();
        for tag in &self.tags.0 {
            if let (Some(key), Some(value)) = (tag.key.text(), tag.value.text()) {
                origin::hint(&mut hints, key, value);
            }
        }
        Origin::new(names, self.service.text(), &hints)
    }
}

/// A trace's processes by their ids.
#[derive(Debug, Default)]
struct Processes<'a>(Vec<(Cow<'a, str>, Process<'a>)>);

impl<'de> serde::Deserialize<'de> for Processes<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Processes<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of processes")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, process)) = map.next_entry::<Key<'de>, Process<'de>>()? {
                    entries.push((key.0, process));
                }
                Ok(Processes(entries))
            }
            ignore_array!(Processes::default());
            ignore_scalars!(Processes::default());
        }
        deserializer.deserialize_any(Entries)
    }
}

/// What is used of a span's tags.
#[derive(Debug, Default)]
struct SpanTags {
    kind: SpanKind,
    error: bool,
}

impl SpanTags {
    fn apply(&mut self, key: &str, value: &Scalar<'_>) {
        match key {
            "span.kind" => self.kind = value.text().map(origin::kind).unwrap_or_default(),
            "error" => self.error |= value.truth(),
            "otel.status_code" => self.error |= value.text() == Some("ERROR"),
            _ => {}
        }
    }
}

fn is_used(key: &str) -> bool {
    matches!(key, "span.kind" | "error" | "otel.status_code")
}

impl<'de> serde::Deserialize<'de> for SpanTags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tags;
        impl<'de> Visitor<'de> for Tags {
            type Value = SpanTags;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of tags")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut tags = SpanTags::default();
                while seq.next_element_seed(OneTag(&mut tags))?.is_some() {}
                Ok(tags)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(SpanTags::default())
            }
            ignore_scalars!(SpanTags::default());
        }
        deserializer.deserialize_any(Tags)
    }
}

/// Reads one tag; its value is parsed only when its key is one that is used.
struct OneTag<'t>(&'t mut SpanTags);

impl<'de> DeserializeSeed<'de> for OneTag<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OneTag<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tag")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut tag = Tag::default();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            // A value that comes before its key has to be kept.
            let skip = match &*key.0 {
                "key" => false,
                "value" => tag.key.text().is_some_and(|key| !is_used(key)),
                _ => true,
            };
            if skip || !tag.set(&key.0, &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if let Some(key) = tag.key.text() {
            self.0.apply(key, &tag.value);
        }
        Ok(())
    }
    ignore_array!(());
    ignore_scalars!(());
}

impl Target<'_> {
    fn trace(&mut self, spans: &[JsonSpan<'_>], processes: &Processes<'_>) {
        if spans.is_empty() {
            return;
        }
        let origins: Vec<(&str, Origin)> = processes
            .0
            .iter()
            .map(|(id, process)| (&**id, process.origin(self.names)))
            .collect();
        let by_id: foldhash::HashMap<&str, Origin> = if origins.len() > 16 {
            origins.iter().copied().collect()
        } else {
            foldhash::HashMap::default()
        };
        for read in spans {
            let id = read.process_id.text();
            let origin = id.and_then(|id| {
                if by_id.is_empty() {
                    origins
                        .iter()
                        .find(|(other, _)| *other == id)
                        .map(|(_, o)| *o)
                } else {
                    by_id.get(id).copied()
                }
            });
            let origin = origin.unwrap_or_else(|| read.process.origin(self.names));
            let span = self.span(read, origin);
            if span.is_ok() && !origin.named {
                self.decoded.notes.add(Note::MissingService, 1);
            }
            self.decoded.take(span, self.out);
        }
    }

    fn span(&mut self, read: &JsonSpan<'_>, origin: Origin) -> Result<Span, Reject> {
        let trace_id = read.trace_id.trace_id()?;
        let span_id = read.span_id.span_id()?;
        let mut parents = Parents::default();
        for reference in &read.references.0 {
            parents.add(
                same_trace(&reference.trace_id, &read.trace_id, trace_id),
                reference.kind.text() == Some("FOLLOWS_FROM"),
                reference.span_id.parent_id()?,
            );
        }
        let (parent_id, relation) = parents.choose(read.parent_id.parent_id()?);
        let start = read.start.signed()?.ok_or(Reject::MissingTime)?;
        let duration = read.duration.signed()?.unwrap_or(0);
        let (start, end) = interval(start, duration)?;
        self.decoded
            .notes
            .add(Note::ReferenceToOtherTrace, parents.foreign);
        Ok(Span {
            trace_id,
            span_id,
            parent_id,
            start,
            end,
            service: origin.service,
            operation: self.names.intern(read.operation.text().unwrap_or_default()),
            instance: origin.instance,
            kind: read.tags.kind,
            relation,
            error: read.tags.error,
            shared: false,
        })
    }
}

/// Whether a reference stays in its trace; one without a trace id does.
fn same_trace(reference: &Scalar<'_>, own: &Scalar<'_>, id: TraceId) -> bool {
    reference == own || reference.is_absent() || reference.trace_id() == Ok(id)
}

/// Start and end from microseconds.
pub(super) fn interval(start: i64, duration: i64) -> Result<(Timestamp, Timestamp), Reject> {
    let end = start.checked_add(duration).ok_or(Reject::TimeOutOfRange)?;
    match (Timestamp::from_micros(start), Timestamp::from_micros(end)) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(Reject::TimeOutOfRange),
    }
}
