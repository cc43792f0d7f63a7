//! `cargo bench -p firm-lab --bench analyze`: from file to result, spans a second on one core.
//!
//! The files are made from real exports, repeated with other trace ids: OTLP protobuf (500 spans
//! of about 290 bytes) and Jaeger JSON (four traces of HotROD). Each is read and analysed as
//! `firm analyze FILE` does it, several times; the fastest and the median count. A figure for
//! the machine (sorting a million numbers) stands beside, so that runs can be compared. The last
//! line is one JSON object.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends when it cannot run"
)]

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use firm_lab::analyze::analyze;
use firm_model::clock::SystemClock;
use firm_model::{Clock, Interner, PathRule, Span, TraceId};
use firm_tracer::file::read_path;

const ROUNDS: usize = 7;
const OTLP_COPIES: u32 = 400;
const JAEGER_COPIES: u32 = 250;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let calibration_ms = calibrate();
    println!("calibration: sorting 1,000,000 numbers takes {calibration_ms:.1} ms");
    let mut figures = serde_json::json!({
        "benchmark": "analyze",
        "calibration_sort_1e6_ms": calibration_ms,
    });
    for (name, path) in [
        ("otlp_protobuf", otlp_file(dir.path())),
        ("jaeger_json", jaeger_file(dir.path())),
    ] {
        figures[name] = measure(name, &path);
    }
    println!("{figures}");
}

fn measure(name: &str, path: &Path) -> serde_json::Value {
    let bytes = fs_err::metadata(path).unwrap().len();
    let (mut totals, mut readings, mut spans, mut traces) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let names = Interner::new();
        let mut read = Vec::new();
        let start = SystemClock.monotonic();
        read_path(path, &names, &mut read).unwrap();
        let decoded = SystemClock.monotonic();
        let report = analyze(&read, None, PathRule::Firm, &names);
        let done = SystemClock.monotonic();
        totals.push((done - start).as_secs_f64());
        readings.push((decoded - start).as_secs_f64());
        (spans, traces) = (report.spans, report.traces.used);
    }
    totals.sort_by(f64::total_cmp);
    readings.sort_by(f64::total_cmp);
    let (best, median) = (totals[0], totals[ROUNDS / 2]);
    let count = spans as f64;
    println!(
        "{name}: {spans} spans in {traces} traces, {} bytes a span; {:.0} spans/s best, {:.0} \
         median; of {:.0} ns a span {:.0} are reading and decoding",
        bytes / spans.max(1),
        count / best,
        count / median,
        best * 1e9 / count,
        readings[0] * 1e9 / count,
    );
    serde_json::json!({
        "spans": spans,
        "traces": traces,
        "bytes": bytes,
        "spans_per_s_best": (count / best).round(),
        "spans_per_s_median": (count / median).round(),
        "ns_per_span": (best * 1e9 / count).round(),
        "ns_per_span_decode": (readings[0] * 1e9 / count).round(),
    })
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(name)
}

/// The export again and again; protobuf messages written after each other are one message. The
/// ids are where they are on the wire; their first bytes become the number of the copy.
fn otlp_file(dir: &Path) -> PathBuf {
    let source = data("wire/otlp-export-500spans.pb");
    let mut spans: Vec<Span> = Vec::new();
    read_path(&source, &Interner::new(), &mut spans).unwrap();
    let ids: HashSet<TraceId> = spans.iter().map(|span| span.trace_id).collect();
    let message = fs_err::read(&source).unwrap();
    let known = |window: &[u8]| TraceId::from_slice(window).is_ok_and(|id| ids.contains(&id));
    let places: Vec<usize> = message
        .windows(16)
        .enumerate()
        .filter(|(_, window)| known(window))
        .map(|(place, _)| place)
        .collect();
    let mut out = Vec::new();
    for copy in 0..OTLP_COPIES {
        let from = out.len();
        out.extend_from_slice(&message);
        for place in &places {
            let at = from + place;
            out[at..at + 4].copy_from_slice(&(copy + 1).to_be_bytes());
        }
    }
    let path = dir.join("otlp.pb");
    fs_err::write(&path, out).unwrap();
    path
}

fn jaeger_file(dir: &Path) -> PathBuf {
    let compressed = fs_err::read(data("jaeger-json/hotrod-4-traces.json.gz")).unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(compressed.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    // The text stays as Jaeger wrote it, but for the ids.
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let traces = value["data"].as_array().unwrap();
    let ids: Vec<&str> = traces
        .iter()
        .map(|t| t["traceID"].as_str().unwrap())
        .collect();
    let from = text.find('[').unwrap() + 1;
    let to = text.rfind(']').unwrap();
    let end = text[..to].rfind('}').unwrap() + 1;
    let body = &text[from..end];
    let mut out = String::from("{\"data\":[");
    for copy in 0..JAEGER_COPIES {
        let mut own = body.to_owned();
        for id in &ids {
            own = own.replace(id, &format!("{:08x}{}", copy + 1, &id[8..]));
        }
        out.push_str(if copy == 0 { "" } else { "," });
        out.push_str(&own);
    }
    out.push_str("]}");
    let path = dir.join("jaeger.json");
    fs_err::write(&path, out).unwrap();
    path
}

fn calibrate() -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut numbers: Vec<u64> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        })
        .take(1_000_000)
        .collect();
        let start = SystemClock.monotonic();
        numbers.sort_unstable();
        let time = SystemClock.monotonic() - start;
        std::hint::black_box(&numbers);
        best = best.min(time.as_secs_f64() * 1e3);
    }
    best
}
