//! Jaeger JSON as the query API and the web page give it: `{"data": [TRACE...]}`, a bare trace, an
//! array of traces; also single spans with their process inside (Elasticsearch's form), alone, in
//! an array or one a line.
//!
//! Source: jaeger `internal/uimodel/model.go`. Times are microseconds. Values of tags are read
//! only where they are used, logs not at all.

pub(crate) mod stream;

use std::borrow::Cow;

use firm_model::instance::IdentityHints;
use firm_model::{Interner, Span, SpanKind, Timestamp, TraceId};
use foldhash::HashMap;

use super::documents::Target;
use super::origin::{self, Origin, Parents};
use super::scalar::Scalar;
use super::scan::{Scan, ScanError};
use super::{DecodeError, Decoded, Note, Reject};

/// Deepest nesting of arrays and of `data` around traces.
const MAX_DEPTH: u32 = 16;

/// Decodes all documents of a text.
///
/// # Errors
/// The text is not JSON; spans before that place are kept. In JSON lines a bad line alone is
/// counted as malformed.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    Target::new(names, out, Jaeger::default())
        .documents(bytes, |target, scan| target.value(scan, MAX_DEPTH))
}

/// Kept from span to span.
#[derive(Default)]
struct Jaeger<'a> {
    /// Spans of a trace mostly come together, so their id is parsed once.
    last_trace: Option<(Cow<'a, str>, TraceId)>,
    /// Room for a span's references, used again and again.
    references: Vec<Reference<'a>>,
}

/// A span as it stands in the text.
#[derive(Default)]
struct Raw<'a> {
    trace_id: Scalar<'a>,
    span_id: Scalar<'a>,
    parent_id: Scalar<'a>,
    operation: Scalar<'a>,
    start: Scalar<'a>,
    duration: Scalar<'a>,
    process_id: Scalar<'a>,
    process: Option<Origin>,
    kind: SpanKind,
    error: bool,
    references: Vec<Reference<'a>>,
}

#[derive(Default)]
struct Reference<'a> {
    trace_id: Scalar<'a>,
    span_id: Scalar<'a>,
    follows: bool,
}

/// The processes of one trace, which may stand before or behind its spans.
#[derive(Default)]
struct Processes<'a> {
    origins: HashMap<Cow<'a, str>, Origin>,
    /// Numbers of the processes that spans name.
    numbers: HashMap<Cow<'a, str>, usize>,
    named: Vec<Cow<'a, str>>,
    /// Places in the output, each with the number of its process.
    waiting: Vec<(usize, Option<usize>)>,
}

impl<'a> Target<'_, Jaeger<'a>> {
    /// A trace, a span, an array of such, or an object whose `data` holds them.
    fn value(&mut self, scan: &mut Scan<'a>, depth: u32) -> Result<(), ScanError> {
        if depth == 0 {
            return scan.error("nested too deeply");
        }
        scan.no_word()?;
        if scan.peek() == Some(b'[') {
            return scan.array(|scan| self.value(scan, depth - 1));
        }
        let mut processes = Processes::default();
        let mut lone = Raw::default();
        let result = scan.object(|scan, key| match &**key {
            b"data" => self.value(scan, depth - 1),
            b"spans" => {
                scan.no_word()?;
                scan.array(|scan| {
                    let mut raw = Raw {
                        references: std::mem::take(&mut self.format.references),
                        ..Raw::default()
                    };
                    scan.object(|scan, key| self.member(&mut raw, scan, key))?;
                    self.take(raw, &mut processes);
                    Ok(())
                })
            }
            b"processes" => scan.object(|scan, id| {
                let id = text(id);
                let origin = read_process(scan, self.names)?;
                processes.origins.insert(id, origin);
                Ok(())
            }),
            _ => self.member(&mut lone, scan, key),
        });
        if result.is_ok() && !lone.span_id.is_absent() {
            self.take(lone, &mut processes);
        }
        // Also after an error, so that the spans before it have their names.
        self.name(&processes);
        result
    }

    /// Reads one member of a span.
    #[inline]
    fn member(&self, raw: &mut Raw<'a>, scan: &mut Scan<'a>, key: &[u8]) -> Result<(), ScanError> {
        let slot = match key {
            b"traceID" => &mut raw.trace_id,
            b"spanID" => &mut raw.span_id,
            b"parentSpanID" => &mut raw.parent_id,
            b"operationName" => &mut raw.operation,
            b"startTime" => &mut raw.start,
            b"duration" => &mut raw.duration,
            b"processID" => &mut raw.process_id,
            b"process" => {
                raw.process = Some(read_process(scan, self.names)?);
                return Ok(());
            }
            b"tags" => {
                return scan.array(|scan| {
                    let (key, value) = read_tag(scan, is_used)?;
                    match &*key {
                        b"span.kind" => {
                            raw.kind = value.text().map(origin::kind).unwrap_or_default();
                        }
                        b"error" => raw.error |= value.truth(),
                        b"otel.status_code" => raw.error |= value.text() == Some("ERROR"),
                        _ => {}
                    }
                    Ok(())
                });
            }
            b"references" => {
                return scan.array(|scan| {
                    raw.references.push(read_reference(scan)?);
                    Ok(())
                });
            }
            _ => return scan.skip(),
        };
        *slot = scan.scalar()?;
        Ok(())
    }

    fn take(&mut self, mut raw: Raw<'a>, processes: &mut Processes<'a>) {
        let span = self.span(&mut raw);
        if span.is_ok() {
            match raw.process {
                Some(process) if !process.named => self.decoded.notes.add(Note::MissingService, 1),
                Some(_) => {}
                None => {
                    let number = processes.number(raw.process_id);
                    processes.waiting.push((self.out.len(), number));
                }
            }
        }
        self.decoded.take(span, self.out);
        raw.references.clear();
        self.format.references = raw.references;
    }

    fn span(&mut self, raw: &mut Raw<'a>) -> Result<Span, Reject> {
        let trace_id = self.trace_id(&mut raw.trace_id)?;
        let span_id = raw.span_id.span_id()?;
        let mut parents = Parents::default();
        for reference in &raw.references {
            let same = match (&reference.trace_id, &self.format.last_trace) {
                (Scalar::Absent, _) => true,
                (Scalar::Text(text), Some((own, _))) if text == own => true,
                (other, _) => other.trace_id() == Ok(trace_id),
            };
            parents.add(same, reference.follows, reference.span_id.parent_id()?);
        }
        let (parent_id, relation) = parents.choose(raw.parent_id.parent_id()?);
        let start = raw.start.signed()?.ok_or(Reject::MissingTime)?;
        let duration = raw.duration.signed()?.unwrap_or(0);
        let (start, end) = interval(start, duration)?;
        self.decoded
            .notes
            .add(Note::ReferenceToOtherTrace, parents.foreign);
        let origin = raw.process.unwrap_or(Origin::NONE);
        Ok(Span {
            trace_id,
            span_id,
            parent_id,
            start,
            end,
            service: origin.service,
            operation: raw.operation.name(self.names, &mut self.decoded.notes),
            instance: origin.instance,
            kind: raw.kind,
            relation,
            error: raw.error,
            shared: false,
        })
    }

    fn trace_id(&mut self, raw: &mut Scalar<'a>) -> Result<TraceId, Reject> {
        if let (Scalar::Text(text), Some((last, id))) = (&*raw, &self.format.last_trace)
            && text == last
        {
            return Ok(*id);
        }
        let id = raw.trace_id()?;
        if let Scalar::Text(text) = std::mem::take(raw) {
            self.format.last_trace = Some((text, id));
        }
        Ok(id)
    }

    /// Gives a trace's spans the names of their processes.
    fn name(&mut self, processes: &Processes<'a>) {
        let unknown = Origin::new(self.names, None, &IdentityHints::default());
        let origins: Vec<Origin> = processes
            .named
            .iter()
            .map(|id| processes.origins.get(id).copied().unwrap_or(unknown))
            .collect();
        for (place, number) in &processes.waiting {
            let origin = number
                .and_then(|number| origins.get(number))
                .unwrap_or(&unknown);
            if let Some(span) = self.out.get_mut(*place) {
                origin.claim(std::slice::from_mut(span), &mut self.decoded.notes);
            }
        }
    }
}

impl<'a> Processes<'a> {
    fn number(&mut self, id: Scalar<'a>) -> Option<usize> {
        let Scalar::Text(id) = id.mended() else {
            return None;
        };
        if let Some(number) = self.numbers.get(&id) {
            return Some(*number);
        }
        let number = self.named.len();
        self.named.push(id.clone());
        self.numbers.insert(id, number);
        Some(number)
    }
}

fn text<'a>(raw: &Cow<'a, [u8]>) -> Cow<'a, str> {
    match raw {
        Cow::Borrowed(raw) => String::from_utf8_lossy(raw),
        Cow::Owned(raw) => Cow::Owned(String::from_utf8_lossy(raw).into_owned()),
    }
}

fn is_used(key: &[u8]) -> bool {
    matches!(key, b"span.kind" | b"error" | b"otel.status_code")
}

/// Key and value of a tag; the value is read only if the key is used or comes behind it.
#[inline]
fn read_tag<'a>(
    scan: &mut Scan<'a>,
    used: impl Fn(&[u8]) -> bool,
) -> Result<(Cow<'a, [u8]>, Scalar<'a>), ScanError> {
    if let Some((key, value)) = scan.attempt(|scan| usual_tag(scan, &used)) {
        return Ok((Cow::Borrowed(key), value));
    }
    let (mut key, mut value) = (None, Scalar::Absent);
    scan.object(|scan, member| {
        match &**member {
            b"key" => key = scan.bytes()?,
            b"value" if key.as_deref().is_none_or(&used) => value = scan.scalar()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok((key.unwrap_or_default(), value))
}

/// A tag laid out as Jaeger writes it, which most are.
#[inline(always)]
fn usual_tag<'a>(
    scan: &mut Scan<'a>,
    used: impl Fn(&[u8]) -> bool,
) -> Option<(&'a [u8], Scalar<'a>)> {
    scan.accept(br#"{"key":"#)?;
    let key = scan.plain_string()?;
    scan.accept(br#","type":"#)?;
    scan.plain_string()?;
    scan.accept(br#","value":"#)?;
    let value = if used(key) {
        scan.scalar().ok()?
    } else {
        scan.skip().ok()?;
        Scalar::Absent
    };
    scan.accept(b"}")?;
    Some((key, value))
}

fn read_reference<'a>(scan: &mut Scan<'a>) -> Result<Reference<'a>, ScanError> {
    let mut reference = Reference::default();
    scan.object(|scan, key| {
        match &**key {
            b"refType" => reference.follows = scan.scalar()?.text() == Some("FOLLOWS_FROM"),
            b"traceID" => reference.trace_id = scan.scalar()?,
            b"spanID" => reference.span_id = scan.scalar()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(reference)
}

fn read_process(scan: &mut Scan<'_>, names: &Interner) -> Result<Origin, ScanError> {
    let mut service = Scalar::Absent;
    let mut tags = Vec::new();
    scan.object(|scan, key| match &**key {
        b"serviceName" => {
            service = scan.scalar()?.mended();
            Ok(())
        }
        b"tags" => scan.array(|scan| {
            let (key, value) = read_tag(scan, |_| true)?;
            tags.push((key, value.mended()));
            Ok(())
        }),
        _ => scan.skip(),
    })?;
    let mut hints = IdentityHints::default();
    for (key, value) in &tags {
        if let (Ok(key), Some(value)) = (std::str::from_utf8(key), value.text()) {
            origin::hint(&mut hints, key, value);
        }
    }
    Ok(Origin::new(names, service.text(), &hints))
}

/// Start and end from microseconds.
pub(super) fn interval(start: i64, duration: i64) -> Result<(Timestamp, Timestamp), Reject> {
    let end = start.checked_add(duration).ok_or(Reject::TimeOutOfRange)?;
    match (Timestamp::from_micros(start), Timestamp::from_micros(end)) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(Reject::TimeOutOfRange),
    }
}
