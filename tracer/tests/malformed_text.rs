//! Text and numbers that are not right cost one span at most, never its neighbours.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::Write;

use firm_model::{Interner, Span};
use firm_tracer::decode::{Decoded, Note, Reject};
use firm_tracer::file::{Format, decode, read_path};

/// Three spans of a trace each, the middle one of them made by hand.
fn three(format: Format, middle: &[u8]) -> Vec<u8> {
    let whole = |id: u8| {
        let text = match format {
            Format::JaegerJson => jaeger(id, "op", "1", "true"),
            Format::OtlpJson => otlp(id, "op", "\"2\""),
            _ => zipkin(id, "op", "1"),
        };
        text.into_bytes()
    };
    let (before, after): (&[u8], &[u8]) = match format {
        Format::JaegerJson => (b"{\"data\":[", b"]}"),
        Format::OtlpJson => (b"{\"resourceSpans\":[", b"]}"),
        _ => (b"[", b"]"),
    };
    let spans = [&whole(1)[..], middle, &whole(3)].join(&b","[..]);
    [before, &spans, after].concat()
}

fn jaeger(id: u8, name: &str, duration: &str, tag: &str) -> String {
    format!(
        r#"{{"traceID":"{id}","spans":[{{"traceID":"{id}","spanID":"1","operationName":"{name}","startTime":1,"duration":{duration},"processID":"p1","tags":[{{"key":"error","type":"bool","value":{tag}}}]}}],"processes":{{"p1":{{"serviceName":"a"}}}}}}"#
    )
}

fn otlp(id: u8, name: &str, end: &str) -> String {
    format!(
        r#"{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"a"}}}}]}},"scopeSpans":[{{"spans":[{{"traceId":"{id:032}","spanId":"0000000000000001","name":"{name}","startTimeUnixNano":"1","endTimeUnixNano":{end}}}]}}]}}"#
    )
}

fn zipkin(id: u8, name: &str, duration: &str) -> String {
    format!(
        r#"{{"traceId":"{id}","id":"1","name":"{name}","timestamp":1,"duration":{duration},"localEndpoint":{{"serviceName":"a"}}}}"#
    )
}

/// As a file, so that the format is told from the damaged text as well.
fn read(format: Format, bytes: &[u8]) -> (Decoded, Vec<String>) {
    let (names, mut spans) = (Interner::new(), Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs_err::write(&path, bytes).unwrap();
    let mut report = read_path(&path, &names, &mut spans).unwrap();
    let file = report.files.remove(0);
    assert_eq!((file.format, file.damage), (format, None));
    let mut decoded_spans = Vec::new();
    let decoded = decode(format, bytes, &names, &mut decoded_spans).unwrap();
    assert_eq!((&decoded, &decoded_spans), (&file.decoded, &spans));
    let name = |span: &Span| names.resolve(span.operation).to_string();
    (decoded, spans.iter().map(name).collect())
}

#[test]
fn a_lone_surrogate_in_a_name_loses_no_span() {
    let name = r"x\ud83d";
    for (format, middle) in [
        (Format::JaegerJson, jaeger(2, name, "1", "true")),
        (Format::OtlpJson, otlp(2, name, "\"2\"")),
        (Format::ZipkinJson, zipkin(2, name, "1")),
    ] {
        let (decoded, names) = read(format, &three(format, middle.as_bytes()));
        assert_eq!(names, ["op", "x\u{fffd}", "op"], "{format}");
        assert_eq!(decoded.notes.get(Note::NameNotUtf8), 1, "{format}");
        assert_eq!(decoded.notes.total(), 1, "{format}");
        assert_eq!(decoded.rejected.total(), 0, "{format}");
    }
}

#[test]
fn a_byte_that_is_not_utf8_in_a_name_loses_no_span() {
    for (format, middle) in [
        (Format::JaegerJson, jaeger(2, "x?", "1", "true")),
        (Format::OtlpJson, otlp(2, "x?", "\"2\"")),
        (Format::ZipkinJson, zipkin(2, "x?", "1")),
    ] {
        let mut middle = middle.into_bytes();
        let place = middle.iter().position(|byte| *byte == b'?').unwrap();
        middle[place] = 0xff;
        let (decoded, names) = read(format, &three(format, &middle));
        assert_eq!(names, ["op", "x\u{fffd}", "op"], "{format}");
        assert_eq!(decoded.notes.get(Note::NameNotUtf8), 1, "{format}");
        assert_eq!(decoded.rejected.total(), 0, "{format}");
    }
}

#[test]
fn a_number_out_of_range_costs_its_span_alone() {
    for (text, reason) in [
        ("1e999", Reject::TimeOutOfRange),
        ("-1e999", Reject::TimeOutOfRange),
        ("99999999999999999999999", Reject::TimeOutOfRange),
        ("NaN", Reject::BadTime),
        ("-Infinity", Reject::BadTime),
        ("01", Reject::BadTime),
    ] {
        for (format, middle) in [
            (Format::JaegerJson, jaeger(2, "op", text, "true")),
            (Format::OtlpJson, otlp(2, "op", text)),
            (Format::ZipkinJson, zipkin(2, "op", text)),
        ] {
            let (decoded, names) = read(format, &three(format, middle.as_bytes()));
            assert_eq!(names, ["op", "op"], "{format} {text}");
            assert_eq!(decoded.rejected.get(reason), 1, "{format} {text}");
            assert_eq!(decoded.rejected.total(), 1, "{format} {text}");
        }
    }
}

#[test]
fn a_tag_that_is_used_may_hold_any_number() {
    for tag in ["1e999", "NaN", "-", r#""\ud83d""#] {
        let middle = jaeger(2, "middle", "1", tag);
        let (decoded, names) = read(
            Format::JaegerJson,
            &three(Format::JaegerJson, middle.as_bytes()),
        );
        assert_eq!(names, ["op", "middle", "op"], "{tag}");
        assert_eq!(decoded.rejected.total(), 0, "{tag}");
    }
}

#[test]
fn a_process_id_that_is_not_utf8_still_names_its_process() {
    let text = jaeger(1, "op", "1", "true").replace("p1", r"p\ud83d");
    let (names, mut spans) = (Interner::new(), Vec::new());
    decode(Format::JaegerJson, text.as_bytes(), &names, &mut spans).unwrap();
    assert_eq!(&*names.resolve(spans[0].service), "a");
}

#[test]
fn a_service_that_is_not_utf8_is_kept() {
    let name = r#""x\ud83d""#;
    for (format, text) in [
        (Format::JaegerJson, jaeger(1, "op", "1", "true")),
        (
            Format::OtlpJson,
            format!(r#"{{"resourceSpans":[{}]}}"#, otlp(1, "op", "\"2\"")),
        ),
        (Format::ZipkinJson, zipkin(1, "op", "1")),
    ] {
        let (names, mut spans) = (Interner::new(), Vec::new());
        let text = text.replace(r#""a""#, name);
        decode(format, text.as_bytes(), &names, &mut spans).unwrap();
        let service = names.resolve(spans[0].service);
        assert_eq!(&*service, "x\u{fffd}", "{format}");
    }
}

#[test]
fn a_word_in_the_place_of_many_spans_is_an_error() {
    for (format, text) in [
        (Format::JaegerJson, r#"{"data":[{"spans":oops}]}"#),
        (Format::JaegerJson, r#"{"data":oops}"#),
        (Format::JaegerJson, r#"{"data":[]} oops {"data":[]}"#),
        (Format::OtlpJson, r#"{"resourceSpans":oops}"#),
        (Format::OtlpJson, r#"{"resourceSpans":[oops]}"#),
        (
            Format::OtlpJson,
            r#"{"resourceSpans":[{"scopeSpans":oops}]}"#,
        ),
        (
            Format::OtlpJson,
            r#"{"resourceSpans":[{"scopeSpans":[oops]}]}"#,
        ),
        (
            Format::OtlpJson,
            r#"{"resourceSpans":[{"scopeSpans":[{"spans":oops}]}]}"#,
        ),
        (Format::OtlpJson, r#"{"resourceSpans":[]} oops {}"#),
    ] {
        let error = decode(format, text.as_bytes(), &Interner::new(), &mut Vec::new());
        let error = error.unwrap_err();
        assert_eq!(error.reason, "expected a value", "{text}");
        let column = text.find("oops").unwrap() + 1;
        assert_eq!(error.at.to_string(), format!("line 1, column {column}"));
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let table = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano\n\
                 1,1,root,cart-5d6-x1,op,1,2\n";
    let otlp = otlp(1, "op", "\"2\"");
    for (format, text) in [
        (Format::NezhaCsv, table.to_owned()),
        (Format::JaegerJson, jaeger(1, "op", "1", "true")),
        (Format::OtlpJson, format!(r#"{{"resourceSpans":[{otlp}]}}"#)),
        (Format::ZipkinJson, format!("[{}]", zipkin(1, "op", "1"))),
    ] {
        let (decoded, names) = read(format, format!("\u{feff}{text}").as_bytes());
        assert_eq!((decoded.spans, &*names[0]), (1, "op"), "{format}");
    }
    // Long enough to be read through a window; and with one trace a line, one of them broken.
    let trace = jaeger(1, "op", "1", "true");
    let traces = vec![&*trace; 6000].join(",");
    assert!(traces.len() > 1 << 20);
    let long = format!("\u{feff}{{\"data\":[{traces}]}}");
    assert_eq!(read(Format::JaegerJson, long.as_bytes()).0.spans, 6000);
    let lines = format!("\u{feff}{trace}\n{{\"traceID\"\n{trace}\n{trace}\n");
    let (decoded, _) = read(Format::JaegerJson, lines.as_bytes());
    assert_eq!((decoded.spans, decoded.rejected.total()), (3, 1));
}

#[test]
fn white_space_alone_is_not_called_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spaces.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&[b' '; 100_000]).unwrap();
    fs_err::write(&path, encoder.finish().unwrap()).unwrap();
    let error = read_path(&path, &Interner::new(), &mut Vec::new()).unwrap_err();
    let said = error.to_string();
    assert!(
        said.ends_with("spaces.gz: byte 0: only white space, 100000 bytes of it"),
        "{said}"
    );
}
