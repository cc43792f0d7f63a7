//! Zipkin v2 JSON: a list of spans, a list of such lists, a single span, or one a line.
//!
//! Source: zipkin-api `zipkin2-api.yaml`. Times are microseconds. `shared` marks the server half
//! of a span id that client and server have in common. A span without timestamp starts at its
//! first annotation, and without any cannot be used; a span without duration ends at its last
//! annotation, else where it starts. Both are noted.

use firm_model::instance::IdentityHints;
use firm_model::{Interner, ParentRelation, Span};

use super::documents::Target;
use super::jaeger_json::interval;
use super::origin::{self, Origin};
use super::scalar::Scalar;
use super::scan::{Scan, ScanError};
use super::{DecodeError, Decoded, Note, Reject};

/// Deepest nesting of lists around spans.
const MAX_DEPTH: u32 = 4;

/// Decodes all documents of a text.
///
/// # Errors
/// The text is not JSON; spans before that place are kept. In JSON lines a bad line alone is
/// counted as malformed.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    Target::new(names, out, Zipkin).documents(bytes, |target, scan| target.value(scan, MAX_DEPTH))
}

/// Keeps nothing between documents.
struct Zipkin;

/// A span as it stands in the text.
#[derive(Default)]
struct Raw<'a> {
    trace_id: Scalar<'a>,
    span_id: Scalar<'a>,
    parent_id: Scalar<'a>,
    name: Scalar<'a>,
    kind: Scalar<'a>,
    timestamp: Scalar<'a>,
    duration: Scalar<'a>,
    service: Scalar<'a>,
    ipv4: Scalar<'a>,
    ipv6: Scalar<'a>,
    /// Earliest and latest annotation.
    marks: Option<(i64, i64)>,
    /// Zipkin calls a span failed when it has this tag, whatever its value.
    error: bool,
    shared: bool,
}

fn raw_span<'a>(scan: &mut Scan<'a>) -> Result<Raw<'a>, ScanError> {
    let mut raw = Raw::default();
    scan.object(|scan, key| {
        let slot = match &**key {
            b"traceId" => &mut raw.trace_id,
            b"id" => &mut raw.span_id,
            b"parentId" => &mut raw.parent_id,
            b"name" => &mut raw.name,
            b"kind" => &mut raw.kind,
            b"timestamp" => &mut raw.timestamp,
            b"duration" => &mut raw.duration,
            b"localEndpoint" => {
                return scan.object(|scan, key| {
                    let slot = match &**key {
                        b"serviceName" => &mut raw.service,
                        b"ipv4" => &mut raw.ipv4,
                        b"ipv6" => &mut raw.ipv6,
                        _ => return scan.skip(),
                    };
                    *slot = scan.scalar()?.mended();
                    Ok(())
                });
            }
            b"annotations" => {
                return scan.array(|scan| {
                    scan.object(|scan, key| {
                        if **key != b"timestamp"[..] {
                            return scan.skip();
                        }
                        if let Ok(Some(at)) = scan.scalar()?.signed() {
                            let (first, last) = raw.marks.unwrap_or((at, at));
                            raw.marks = Some((first.min(at), last.max(at)));
                        }
                        Ok(())
                    })
                });
            }
            b"tags" => {
                return scan.object(|scan, key| {
                    raw.error |= **key == b"error"[..];
                    scan.skip()
                });
            }
            b"shared" => {
                raw.shared = scan.scalar()?.truth();
                return Ok(());
            }
            _ => return scan.skip(),
        };
        *slot = scan.scalar()?;
        Ok(())
    })?;
    Ok(raw)
}

impl Target<'_, Zipkin> {
    fn value(&mut self, scan: &mut Scan<'_>, depth: u32) -> Result<(), ScanError> {
        if depth == 0 {
            return scan.error("nested too deeply");
        }
        match scan.peek() {
            Some(b'[') => scan.array(|scan| self.value(scan, depth - 1)),
            Some(b'{') => {
                let raw = raw_span(scan)?;
                let span = self.span(&raw);
                self.decoded.take(span, self.out);
                Ok(())
            }
            _ => {
                self.decoded.reject(Reject::Malformed);
                scan.skip()
            }
        }
    }

    fn span(&mut self, read: &Raw<'_>) -> Result<Span, Reject> {
        let trace_id = read.trace_id.trace_id()?;
        let span_id = read.span_id.span_id()?;
        let parent_id = read.parent_id.parent_id()?;
        let stated = read.timestamp.signed()?.filter(|micros| *micros != 0);
        let first = stated
            .or(read.marks.map(|(earliest, _)| earliest))
            .ok_or(Reject::MissingTime)?;
        let length = read.duration.signed()?;
        let duration = length.unwrap_or_else(|| {
            let last = read.marks.map_or(first, |(_, latest)| latest);
            last.saturating_sub(first).max(0)
        });
        let (start, end) = interval(first, duration)?;

        let hints = IdentityHints {
            host_name: read.ipv4.text().or(read.ipv6.text()),
            ..IdentityHints::default()
        };
        let origin = Origin::new(self.names, read.service.text(), &hints);
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
            operation: read.name.name(self.names, &mut self.decoded.notes),
            instance: origin.instance,
            kind: read.kind.text().map(origin::kind).unwrap_or_default(),
            relation: ParentRelation::ChildOf,
            error: read.error,
            shared: read.shared,
        })
    }
}
