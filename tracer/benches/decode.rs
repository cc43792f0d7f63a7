//! Spans a second of the decoders on real messages, one thread.
//!
//! `cargo bench -p firm-tracer --bench decode`. Each input is decoded again and again for about a
//! second; the median run counts, and the best one is given for machines that are not quiet. The calibration loop beside it (integer work that no change to
//! the decoders touches) lets figures of different machines and days be compared. The last line
//! is one JSON object.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use firm_model::clock::SystemClock;
use firm_model::{Clock, Interner};
use firm_tracer::file::{Format, decode};

/// Time spent on each input.
const BUDGET_NS: u64 = 1_000_000_000;

/// Copies of the recorded message in one run.
const COPIES: usize = 20;

fn now() -> u64 {
    SystemClock.monotonic().as_nanos()
}

/// Nanoseconds of a run over the budget: the median and the best.
fn time_ns(mut run: impl FnMut()) -> (u64, u64) {
    run();
    let (begin, mut runs) = (now(), Vec::new());
    while now() - begin < BUDGET_NS {
        let start = now();
        run();
        runs.push(now() - start);
    }
    runs.sort_unstable();
    let at = |place: usize| runs.get(place).copied().unwrap_or(1).max(1);
    (at(runs.len() / 2), at(0))
}

/// Ten million steps of a xorshift generator.
fn calibration() {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..10_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

fn data(name: &str) -> std::io::Result<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data")
        .join(name);
    let bytes = fs_err::read(path)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut inflated = Vec::new();
    flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut inflated)?;
    Ok(inflated)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let otlp = data("wire/otlp-export-500spans.pb")?.repeat(COPIES);
    let hotrod = data("jaeger-json/hotrod-4-traces.json.gz")?.repeat(COPIES);
    let otlp_json = data("otlp-json/otlp2jaeger-in.json")?.repeat(COPIES * 10);
    let zipkin = data("zipkin-json/messaging-kafka.json")?.repeat(COPIES);
    let compact = data("wire/udp-compact-emitbatch.bin")?;
    let binary = data("wire/udp-binary-emitbatch.bin")?;

    let (loop_ns, _) = time_ns(calibration);
    println!("calibration loop: {:.2} ms", loop_ns as f64 / 1e6);
    let mut figures = serde_json::Map::new();
    figures.insert("calibration_loop_ns".to_owned(), loop_ns.into());
    for (format, bytes) in [
        (Format::OtlpProto, &otlp),
        (Format::JaegerJson, &hotrod),
        (Format::OtlpJson, &otlp_json),
        (Format::ZipkinJson, &zipkin),
        (Format::JaegerThriftCompact, &compact),
        (Format::JaegerThriftBinary, &binary),
    ] {
        let names = Interner::new();
        let mut out = Vec::new();
        let spans = decode(format, bytes, &names, &mut out)?.spans.max(1);
        let (run_ns, best_ns) = time_ns(|| {
            out.clear();
            let decoded = decode(format, black_box(bytes), &names, &mut out);
            black_box(decoded.is_ok());
        });
        let (per_span, best) = (run_ns as f64 / spans as f64, best_ns as f64 / spans as f64);
        let size = bytes.len() as f64 / spans as f64;
        println!(
            "{format}: {:.0} spans/s (best {:.0}), {per_span:.0} ns a span of {size:.0} bytes, {:.0} MB/s",
            1e9 / per_span,
            1e9 / best,
            size / per_span * 1e3
        );
        for (name, nanos) in [("spans_per_s", per_span), ("best_spans_per_s", best)] {
            figures.insert(format!("{format}_{name}"), (1e9 / nanos).round().into());
        }
    }
    println!("{}", serde_json::Value::Object(figures));
    Ok(())
}
