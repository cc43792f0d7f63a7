//! Nezha's CSV of OpenTelemetry spans.
//!
//! Source: github IntelligentDDS/Nezha, `rca_data`. Columns are found by their names; `PodName` is
//! the instance, the service is `PodName` less its last two dash parts (replica set and pod),
//! `ParentID` is `root` for roots. The format has no kind of span: it stays unspecified.

use firm_model::{Interner, ParentRelation, Span, SpanId, SpanKind, Timestamp, TraceId};

use super::documents::without_mark;
use super::origin::{self, Origin};
use super::{DecodeError, Decoded, Note, Position, Reject};

const COLUMNS: [&str; 7] = [
    "TraceID",
    "SpanID",
    "ParentID",
    "PodName",
    "OperationName",
    "StartTimeUnixNano",
    "EndTimeUnixNano",
];

/// Decodes a table. A bad row is refused alone.
///
/// # Errors
/// A column is missing in the first line.
pub fn decode(bytes: &[u8], names: &Interner, out: &mut Vec<Span>) -> Result<Decoded, DecodeError> {
    let mut decoded = Decoded::default();
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(without_mark(bytes));
    let failed = |line: u64, reason: String, decoded| {
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        DecodeError::new(Position::Line { line, column: 0 }, reason, decoded)
    };
    let header = match reader.byte_headers() {
        Ok(header) => header.clone(),
        Err(error) => return Err(failed(1, error.to_string(), decoded)),
    };
    let mut places = [0; COLUMNS.len()];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        match header
            .iter()
            .position(|name| name.trim_ascii() == column.as_bytes())
        {
            Some(found) => *place = found,
            None => return Err(failed(1, format!("no column `{column}`"), decoded)),
        }
    }
    let mut record = csv::ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(decoded),
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                return Err(failed(line, error.to_string(), decoded));
            }
        }
        match row(&record, &places, names, &mut decoded) {
            Ok(span) => decoded.take(Ok(span), out),
            Err(reason) => {
                let line = record.position().map_or(0, csv::Position::line);
                let line = usize::try_from(line).unwrap_or(usize::MAX);
                decoded.reject_at(Position::Line { line, column: 0 }, reason);
            }
        }
    }
}

fn row(
    record: &csv::ByteRecord,
    places: &[usize; COLUMNS.len()],
    names: &Interner,
    decoded: &mut Decoded,
) -> Result<Span, Reject> {
    let mut cells = [&[][..]; COLUMNS.len()];
    for (cell, place) in cells.iter_mut().zip(places) {
        *cell = record.get(*place).ok_or(Reject::Malformed)?.trim_ascii();
    }
    let [trace_id, span_id, parent_id, pod, operation, start, end] = cells;
    if trace_id.is_empty() {
        return Err(Reject::MissingTraceId);
    }
    if span_id.is_empty() {
        return Err(Reject::MissingSpanId);
    }
    let trace_id = TraceId::from_hex(trace_id).map_err(origin::trace_error)?;
    let span_id = SpanId::from_hex(span_id).map_err(origin::span_error)?;
    let parent_id = match parent_id {
        b"" | b"root" => None,
        id => origin::parent(SpanId::from_hex(id))?,
    };
    let (start, end) = (time(start)?, time(end)?);
    let pod = String::from_utf8_lossy(pod);
    let origin = if pod.is_empty() {
        decoded.notes.add(Note::MissingService, 1);
        Origin::new(names, None, &Default::default())
    } else {
        Origin {
            service: names.intern(service(&pod)),
            instance: names.intern(&pod),
            named: true,
        }
    };
    Ok(Span {
        trace_id,
        span_id,
        parent_id,
        start,
        end,
        service: origin.service,
        operation: super::otlp_proto::intern(names, operation, &mut decoded.notes),
        instance: origin.instance,
        kind: SpanKind::Unspecified,
        relation: ParentRelation::ChildOf,
        error: false,
        shared: false,
    })
}

fn time(cell: &[u8]) -> Result<Timestamp, Reject> {
    if cell.is_empty() {
        return Err(Reject::MissingTime);
    }
    let text = std::str::from_utf8(cell).map_err(|_| Reject::BadTime)?;
    let nanos: i128 = text.parse().map_err(|_| Reject::BadTime)?;
    u64::try_from(nanos)
        .ok()
        .and_then(Timestamp::from_nanos)
        .ok_or(Reject::TimeOutOfRange)
}

/// The service of a pod: its name less the last two dash parts, or all of it if it has fewer.
fn service(pod: &str) -> &str {
    let cut = pod.rmatch_indices('-').nth(1).map_or(0, |(at, _)| at);
    if cut == 0 { pod } else { &pod[..cut] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_is_the_pod_less_two_parts() {
        assert_eq!(service("frontend-579b9bff58-t2dbm"), "frontend");
        assert_eq!(service("ts-order-service-5d6-x1"), "ts-order-service");
        assert_eq!(service("frontend"), "frontend");
        assert_eq!(service("-a-b"), "-a-b");
    }

    #[test]
    fn rows_are_read_by_column_names_and_bad_ones_counted() {
        let table =
            b"SpanID,TraceID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano\n\
            a,1,root,cart-5d6-x1,\"list, all\",1661140387563141850,1661140388006230783\n\
            b,1,a,cart-5d6-x1,get,soon,3\n\
            c,1,a\n\
            d,1,a,cart-5d6-x1,get,-1,3\n\
            e,1,a,,get,2,3\n";
        let names = Interner::new();
        let mut spans = Vec::new();
        let decoded = decode(table, &names, &mut spans).unwrap();
        assert_eq!(spans.len(), 2);
        assert_eq!(&*names.resolve(spans[0].operation), "list, all");
        assert_eq!(&*names.resolve(spans[0].instance), "cart-5d6-x1");
        assert_eq!(spans[0].start.as_nanos(), 1_661_140_387_563_141_850);
        assert_eq!(spans[0].parent_id, None);
        assert_eq!(decoded.notes.get(Note::MissingService), 1);
        assert_eq!(
            decoded.rejected.to_string(),
            "bad_time 1, time_out_of_range 1, malformed 1"
        );
        assert_eq!(
            decoded.first_rejected,
            Some((Position::Line { line: 3, column: 0 }, Reject::BadTime))
        );
    }
}
