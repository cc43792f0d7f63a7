//! Recorded messages and files, with the spans that are known to be in them.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::Read;
use std::path::{Path, PathBuf};

use firm_model::{Interner, Span};
use firm_tracer::decode::{Note, Reject, UNKNOWN_SERVICE};
use firm_tracer::file::{FileError, Format, OneFile, ReadLimits, read_path, read_path_with};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data")
        .join(name)
}

fn read(name: &str) -> (OneFile, Vec<String>) {
    let names = Interner::new();
    let mut spans = Vec::new();
    let mut report = read_path(&path(name), &names, &mut spans).unwrap();
    let lines = spans.iter().map(|span| line(span, &names)).collect();
    (report.files.remove(0), lines)
}

/// A span in one line: who, what, ids, times, role.
fn line(span: &Span, names: &Interner) -> String {
    format!(
        "{}|{}|{} {} {}<-{} {}+{} {:?} {:?}{}{}",
        names.resolve(span.service),
        names.resolve(span.instance),
        names.resolve(span.operation),
        span.trace_id,
        span.span_id,
        span.parent_id
            .map_or("root".to_owned(), |id| id.to_string()),
        span.start.as_nanos(),
        span.end.nanos_since(span.start),
        span.kind,
        span.relation,
        if span.error { " error" } else { "" },
        if span.shared { " shared" } else { "" },
    )
}

fn thrift(service: &str, low: &str, start: i64, later: i64) -> [String; 3] {
    let head = |operation: &str| {
        format!("{service}|{service}@h1|{operation} 0000000000000007{low} 000000000000000")
    };
    [
        format!("{}1<-root {start}000+5000000 Server ChildOf", head("root")),
        format!(
            "{}2<-0000000000000001 {}000+2000000 Client ChildOf",
            head("child-of"),
            start + 100
        ),
        format!(
            "{}3<-0000000000000002 {}000+1000000 Unspecified FollowsFrom",
            head("follows-from"),
            start + later
        ),
    ]
}

#[test]
fn thrift_messages_of_real_clients() {
    let (file, spans) = read("wire/udp-compact-emitbatch.bin");
    assert_eq!(file.format, Format::JaegerThriftCompact);
    let start = 1_795_855_475_981_496;
    assert_eq!(
        spans,
        thrift("probe-udp-compact", "000661522fb6bcb8", start, 2200)
    );

    let (file, spans) = read("wire/udp-binary-emitbatch.bin");
    assert_eq!(file.format, Format::JaegerThriftBinary);
    let start = 1_795_855_476_082_126;
    assert_eq!(
        spans,
        thrift("probe-udp-binary", "000661522fb845ce", start, 2200)
    );

    let (file, spans) = read("wire/thrift-http-binary-batch.bin");
    assert_eq!(file.format, Format::JaegerThriftBatch);
    let start = 1_795_855_475_977_515;
    assert_eq!(
        spans,
        thrift("probe-thrift-http", "000661522fb6ad2b", start, 2200)
    );
}

#[test]
fn jaeger_protobuf_of_a_real_client() {
    let (file, spans) = read("wire/jaeger-grpc-postspans.pb");
    assert_eq!(file.format, Format::JaegerProto);
    let head = "probe-jaeger-grpc|probe-jaeger-grpc|";
    let trace = "000000000000000918ec290a61afab70";
    assert_eq!(
        spans,
        [
            format!(
                "{head}root {trace} 0000000000000001<-root 1795855475979299696+5000000 Unspecified ChildOf"
            ),
            format!(
                "{head}child {trace} 0000000000000002<-0000000000000001 1795855475980299696+1000000 Unspecified ChildOf"
            ),
        ]
    );
}

#[test]
fn otlp_protobuf_of_a_real_exporter() {
    let (file, spans) = read("wire/otlp-export-500spans.pb");
    assert_eq!((file.format, spans.len()), (Format::OtlpProto, 500));
    assert_eq!(file.decoded.rejected.total(), 0);
    assert_eq!(
        spans[0],
        "blast-00|blast-00@h1|op-37 52fdfc072182654f163f5f0f9a621d72 \
         54c3af7f072fb63c<-5716428953bb79ea 1795855838103223539+628000 Consumer ChildOf"
    );
}

#[test]
fn otlp_json_one_object_and_lines() {
    let (_, spans) = read("otlp-json/reference-example.json");
    assert_eq!(
        spans,
        [
            "my.service|my.service|I'm a server span 5b8efff798038103d269b633813fc60c \
          eee19b7ec3c1b174<-eee19b7ec3c1b173 1544712660000000000+1000000000 Server ChildOf"
        ]
    );
    let (file, spans) = read("otlp-json/lines.json");
    assert_eq!((file.format, spans.len()), (Format::OtlpJson, 4));
    assert_eq!(
        spans[3],
        "example-trace|example-trace|main c620759e5d60fafb8ee0922b30e06bc6 \
         eff3153be6b1fb93<-root 1711138246940000000+176321958 Internal ChildOf"
    );
}

#[test]
fn a_span_without_service_is_kept_and_noted() {
    let (file, spans) = read("otlp-json/no-service.json");
    assert!(spans[0].starts_with("unknown_service|unknown_service|okey-dokey-0 "));
    assert_eq!(file.decoded.notes.get(Note::MissingService), 1);
}

#[test]
fn zipkin_marks_the_server_half_of_a_shared_id() {
    let (_, spans) = read("zipkin-json/skew.json");
    let shared: Vec<_> = spans
        .iter()
        .filter(|span| span.contains(" 74280ae0c10d8062<-"))
        .collect();
    assert_eq!(
        shared,
        [
            "serviceb|serviceb@192.0.0.0|post 00000000000000001e223ff1f80f1c69 \
             74280ae0c10d8062<-bf396325699c84bf 1470150004008761000+93577000 Server ChildOf shared",
            "servicea|servicea@127.0.0.0|post 00000000000000001e223ff1f80f1c69 \
             74280ae0c10d8062<-bf396325699c84bf 1470150004074202000+94539000 Client ChildOf",
        ]
    );
    let (_, spans) = read("zipkin-json/single-span.json");
    assert!(spans[0].starts_with("订单维护服务|订单维护服务@2001:db8::c001|个人信息查询 "));
    assert!(spans[0].ends_with(" Client ChildOf error"));
}

#[test]
fn zipkin_times_may_be_missing() {
    let text = br#"[
        {"traceId":"1","id":"1","name":"a","annotations":[{"timestamp":20},{"timestamp":50},{"timestamp":30}]},
        {"traceId":"1","id":"2","name":"b","timestamp":10,"annotations":[{"timestamp":25}]},
        {"traceId":"1","id":"3","name":"c","timestamp":10},
        {"traceId":"1","id":"4","name":"d","duration":7}
    ]"#;
    let (names, mut spans) = (Interner::new(), Vec::new());
    let decoded = firm_tracer::decode::zipkin_json::decode(text, &names, &mut spans).unwrap();
    let times: Vec<_> = spans
        .iter()
        .map(|s| (s.start.as_nanos(), s.end.as_nanos()))
        .collect();
    assert_eq!(
        times,
        [(20_000, 50_000), (10_000, 25_000), (10_000, 10_000)]
    );
    assert_eq!(decoded.notes.get(Note::MissingDuration), 3);
    assert_eq!(decoded.notes.get(Note::TimeFromAnnotation), 1);
    assert_eq!(decoded.rejected.get(Reject::MissingTime), 1);
}

#[test]
fn jaeger_json_through_gzip() {
    let (file, spans) = read("jaeger-json/hotrod-4-traces.json.gz");
    assert_eq!(
        (file.format, file.gzip, spans.len()),
        (Format::JaegerJson, true, 158)
    );
    assert_eq!(
        spans[0],
        "frontend|frontend@vm|HTTP GET 4fa6ee49788f64c33f067af11bb2e79c \
         5310c8b377d24d96<-def7a79e6a86a57d 1795855443853290000+61018000 Client ChildOf"
    );
}

#[test]
fn elasticsearch_spans_and_references_to_other_traces() {
    let (file, spans) = read("jaeger-json/elasticsearch-span.json");
    assert_eq!(
        spans,
        [
            "service-x|service-x|test-general-conversion 00000000000000000000000000000001 \
          0000000000000002<-0000000000000003 1485467191639875000+5000 Unspecified ChildOf error"
        ]
    );
    assert_eq!(file.decoded.notes.get(Note::ReferenceToOtherTrace), 1);
    assert_eq!(read("jaeger-json/elasticsearch-spans.json").1.len(), 2);
}

#[test]
fn jaeger_members_may_come_in_any_order() {
    let text = br#"{"spans":[
        {"tags":[{"value":"client","type":"string","key":"span.kind"},{"value":true,"key":"error"}],
         "references":[{"spanID":"b","traceID":"a","refType":"FOLLOWS_FROM"}],
         "processID":"p\u0031","duration":2,"startTime":1,"spanID":"c","traceID":"a"}],
        "processes":{"p1":{"tags":[{"key":"hostname","value":"h"}],"serviceName":"s"}}}"#;
    let (names, mut spans) = (Interner::new(), Vec::new());
    firm_tracer::decode::jaeger_json::decode(text, &names, &mut spans).unwrap();
    assert_eq!(
        line(&spans[0], &names),
        "s|s@h| 0000000000000000000000000000000a \
         000000000000000c<-000000000000000b 1000+2000 Client FollowsFrom error"
    );
}

#[test]
fn a_malformed_span_does_not_lose_its_neighbours() {
    let span = |id: &str, rest: &str| {
        format!(r#"{{"traceID":"{id}","spanID":"1","operationName":"o","duration":1{rest}}}"#)
    };
    let text = format!(
        r#"[{},{},{},{},{},{}]"#,
        span("1", r#","startTime":1"#),
        span("0", r#","startTime":1"#),
        span("xyz", r#","startTime":1"#),
        span("1", r#","startTime":-5"#),
        span("1", r#","startTime":{"a":[1]}"#),
        span("2", r#","startTime":"7""#),
    );
    let (names, mut spans) = (Interner::new(), Vec::new());
    let decoded =
        firm_tracer::decode::jaeger_json::decode(text.as_bytes(), &names, &mut spans).unwrap();
    assert_eq!(spans.len(), 2);
    assert_eq!(
        decoded.rejected.to_string(),
        "zero_trace_id 1, bad_trace_id 1, bad_time 1, time_out_of_range 1"
    );
}

#[test]
fn a_bad_line_does_not_lose_the_others() {
    let good = String::from_utf8(fs_err::read(path("otlp-json/lines.json")).unwrap()).unwrap();
    let mut lines: Vec<&str> = good.lines().collect();
    lines.insert(2, r#"{"resourceSpans":[{"scopeSpans":[{"#);
    let (names, mut spans) = (Interner::new(), Vec::new());
    let text = lines.join("\n");
    let decoded =
        firm_tracer::decode::otlp_json::decode(text.as_bytes(), &names, &mut spans).unwrap();
    assert_eq!(
        (spans.len(), decoded.rejected.get(Reject::Malformed)),
        (4, 1)
    );
    assert!(
        decoded
            .first_rejected
            .unwrap()
            .0
            .to_string()
            .starts_with("line ")
    );
}

#[test]
fn a_cut_file_keeps_what_came_before_and_says_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs_err::read(path("wire/otlp-export-500spans.pb")).unwrap();
    let cut = dir.path().join("cut.pb");
    fs_err::write(&cut, &bytes[..100_000]).unwrap();
    let (names, mut spans) = (Interner::new(), Vec::new());
    let report = read_path(&cut, &names, &mut spans).unwrap();
    assert!(spans.len() > 300 && spans.len() < 500);
    // In this message each resource stands behind its spans, so the last one was cut off.
    assert_eq!(&*names.resolve(spans[0].service), "blast-00");
    assert_eq!(
        &*names.resolve(spans[spans.len() - 1].service),
        UNKNOWN_SERVICE
    );
    let damage = report.files[0].damage.as_ref().unwrap();
    assert!(
        damage.starts_with("byte ") && damage.contains("past the end"),
        "{damage}"
    );
}

#[test]
fn a_long_file_gives_what_its_text_gives_and_says_where_it_is_broken() {
    let mut text = String::new();
    let compressed = fs_err::read(path("jaeger-json/hotrod-4-traces.json.gz")).unwrap();
    flate2::read::MultiGzDecoder::new(&compressed[..])
        .read_to_string(&mut text)
        .unwrap();
    // Ten copies are two megabytes, more than what is read at once.
    let (from, to) = (text.find('[').unwrap() + 1, text.rfind(']').unwrap());
    let traces = [&text[from..to]; 10].join(",\n");
    let whole = format!("{}{traces}{}", &text[..from], &text[to..]);
    let lines = |path: &Path| {
        let (names, mut spans) = (Interner::new(), Vec::new());
        let mut report = read_path(path, &names, &mut spans).unwrap();
        let lines: Vec<String> = spans.iter().map(|span| line(span, &names)).collect();
        (report.files.remove(0), lines)
    };
    let (_, once) = read("jaeger-json/hotrod-4-traces.json.gz");
    let known = vec![once; 10].concat();

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long.json");
    fs_err::write(&file, &whole).unwrap();
    let (one, read) = lines(&file);
    assert_eq!(read, known);
    assert_eq!(one.bytes, whole.len() as u64);
    assert_eq!((one.format, one.gzip), (Format::JaegerJson, false));
    assert_eq!((one.decoded.spans, one.damage), (1580, None));

    let broken = format!(" {}{traces},\n{{\"spans\":[1;]}}]}}", &text[..from]);
    fs_err::write(&file, broken).unwrap();
    let (one, read) = lines(&file);
    assert_eq!(read, known);
    let damage = one.damage.unwrap();
    assert_eq!(damage, "line 11, column 12: expected `,` or `]`");

    // A short file may have lines within a document as well.
    fs_err::write(
        &file,
        whole.replace(&traces, &[&text[from..to]; 2].join(",\n")),
    )
    .unwrap();
    let (one, read) = lines(&file);
    assert_eq!(read, known[..read.len()]);
    assert_eq!((read.len(), one.damage), (316, None));
}

#[test]
fn errors_name_file_place_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs_err::write(&path, bytes).unwrap();
        let error = read_path(&path, &Interner::new(), &mut Vec::new()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(name), "{text}");
        text
    };
    assert!(error("empty", b"").contains("byte 0: the file is empty"));
    assert!(error("trailing", b"[{\"traceID\":\"1\"},\n]").contains("line 2, column 1"));
    assert!(error("query", b"{\"bool\":{}}").contains("`bool`"));
    let ids = fs_err::read(path("jaeger-json/ids-not-hexadecimal.json")).unwrap();
    assert!(error("ids", &ids).contains("span 1: bad_trace_id; none of 11 spans"));
    let gzip = fs_err::read(path("jaeger-json/hotrod-4-traces.json.gz")).unwrap();
    assert!(error("cut.gz", &gzip[..15]).contains("compressed file"));
    assert!(error("table", b"TraceID,SpanID\n1,1\n").contains("line 1: no column `ParentID`"));
}

#[test]
fn size_is_bounded_after_inflating() {
    let (names, mut spans) = (Interner::new(), Vec::new());
    let limits = ReadLimits {
        max_bytes: 20_000,
        max_inflated_bytes: 30_000,
    };
    let file = path("jaeger-json/hotrod-4-traces.json.gz");
    let error = read_path_with(&file, limits, &names, &mut spans).unwrap_err();
    assert!(
        matches!(error, FileError::TooLarge { inflated: true, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("larger than 30000 bytes after inflating")
    );
    let file = path("wire/otlp-export-500spans.pb");
    let error = read_path_with(&file, limits, &names, &mut spans).unwrap_err();
    assert!(
        matches!(
            error,
            FileError::TooLarge {
                inflated: false,
                ..
            }
        ),
        "{error}"
    );
    assert!(spans.is_empty());
}

#[test]
fn a_directory_is_walked_in_order_and_bad_files_are_listed() {
    let (names, mut spans) = (Interner::new(), Vec::new());
    let report = read_path(&path("jaeger-json"), &names, &mut spans).unwrap();
    let order: Vec<_> = report.files.iter().map(|file| &file.path).collect();
    assert!(order.is_sorted());
    assert_eq!(report.files.len(), 4);
    assert_eq!(report.failed.len(), 2, "the README and the file of bad ids");
    assert_eq!(report.total.spans, spans.len() as u64);
}
