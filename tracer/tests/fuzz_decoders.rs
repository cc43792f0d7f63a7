//! Every decoder on damaged real messages and on noise: nothing panics, counts are what was
//! pushed, what was there before stays.
//!
//! Each target runs a fraction of a second under `cargo test`, and `FIRM_FUZZ_SECONDS` seconds
//! when that is set. Noise alone does not get past a decoder's first bytes, so most inputs are
//! real messages with a few bytes changed, removed, doubled or cut off.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::time::Duration;

use firm_model::Interner;
use firm_tracer::file::{Format, decode};

/// Time for a target when nothing else is asked for.
const SHORT: Duration = Duration::from_millis(300);

#[expect(
    clippy::disallowed_methods,
    reason = "a script sets how long fuzzing takes"
)]
fn test_time() -> Duration {
    std::env::var("FIRM_FUZZ_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .map_or(SHORT, Duration::from_secs)
}

fn data(name: &str) -> Vec<u8> {
    fs_err::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/data")
            .join(name),
    )
    .unwrap()
}

/// One change to a message: what, where, with what.
type Change = (u8, u32, u8);

fn damaged(seeds: &[Vec<u8>], which: u8, changes: &[Change]) -> Vec<u8> {
    let Some(seed) = seeds.get(usize::from(which) % (seeds.len() + 1)) else {
        // Noise, from the changes themselves.
        return changes
            .iter()
            .flat_map(|(a, b, c)| [*a, b.to_le_bytes()[0], *c])
            .collect();
    };
    let mut bytes = seed.clone();
    for (what, place, with) in changes.iter().take(8) {
        if bytes.is_empty() {
            break;
        }
        let place = usize::try_from(*place).unwrap() % bytes.len();
        let length = usize::from(*with).min(bytes.len() - place);
        match what % 7 {
            0 => bytes[place] = *with,
            1 => bytes[place] ^= 1 << (with % 8),
            2 => bytes.truncate(place),
            3 => drop(bytes.drain(place..place + length)),
            4 => bytes.insert(place, *with),
            5 => {
                let copy = bytes[place..place + length].to_vec();
                bytes.splice(place..place, copy);
            }
            // A long length or number.
            _ => drop(bytes.splice(place..=place, [0xff, 0xff, 0xff, 0xff, with & 0x7f])),
        }
    }
    bytes
}

fn check(format: Format, bytes: &[u8]) {
    let names = Interner::new();
    let mut out = Vec::new();
    let first = decode(format, bytes, &names, &mut out);
    let before = out.clone();
    let again = decode(format, bytes, &names, &mut out);
    assert_eq!(first, again, "same bytes, same result");
    let decoded = match &first {
        Ok(decoded) => decoded,
        Err(error) => &error.decoded,
    };
    assert_eq!(decoded.spans, before.len() as u64);
    assert_eq!(out.len(), 2 * before.len());
    assert_eq!(&out[..before.len()], &before[..]);
    assert_eq!(&out[before.len()..], &before[..]);
    assert_eq!(
        decoded.first_rejected.is_some(),
        decoded.rejected.total() > 0
    );
    for span in &before {
        assert!(!names.resolve(span.service).is_empty());
        assert!(!names.resolve(span.instance).is_empty());
        assert_ne!(span.parent_id.map(|id| *id.as_bytes()), Some([0; 8]));
    }
}

fn fuzz(format: Format, seeds: Vec<Vec<u8>>) {
    for seed in &seeds {
        check(format, seed);
    }
    bolero::check!()
        .with_test_time(test_time())
        .with_type::<(u8, Vec<Change>)>()
        .for_each(|(which, changes)| check(format, &damaged(&seeds, *which, changes)));
}

/// The first spans of the recorded export: small inputs are changed more thoroughly.
fn short_otlp() -> Vec<u8> {
    let whole = data("wire/otlp-export-500spans.pb");
    whole[..2000].to_vec()
}

#[test]
fn otlp_proto() {
    let whole = data("wire/otlp-export-500spans.pb");
    fuzz(
        Format::OtlpProto,
        vec![short_otlp(), whole[..20_000].to_vec()],
    );
}

#[test]
fn otlp_proto_framed() {
    let message = short_otlp();
    let mut framed = u32::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    framed.extend_from_slice(&message);
    fuzz(Format::OtlpProtoFramed, vec![framed.repeat(2), framed]);
}

#[test]
fn otlp_json() {
    let seeds = ["lines", "reference-example", "otlp2jaeger-in", "no-service"];
    let seeds = seeds.map(|name| data(&format!("otlp-json/{name}.json")));
    fuzz(Format::OtlpJson, seeds.to_vec());
}

#[test]
fn jaeger_json() {
    let seeds = [
        "otlp2jaeger-out",
        "elasticsearch-span",
        "elasticsearch-spans",
        "ids-not-hexadecimal",
    ];
    let seeds = seeds.map(|name| data(&format!("jaeger-json/{name}.json")));
    fuzz(Format::JaegerJson, seeds.to_vec());
}

#[test]
fn zipkin_json() {
    let seeds = ["skew", "single-span", "ascend", "messaging-kafka"];
    let seeds = seeds.map(|name| data(&format!("zipkin-json/{name}.json")));
    fuzz(Format::ZipkinJson, seeds.to_vec());
}

#[test]
fn nezha_csv() {
    let table = b"TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n\
        04ad175bfe7581788ca9b8f209b4b712,eb45c4c4138723df,root,frontend-579b9bff58-t2dbm,\"a,b\",1661140387563141850,1661140388006230783,443088\n\
        04ad175bfe7581788ca9b8f209b4b712,76a9c49355ecb991,eb45c4c4138723df,cart-579b9bff58-t2dbm,x,1661140387563264548,1661140387588755306,25490\n";
    fuzz(Format::NezhaCsv, vec![table.to_vec()]);
}

#[test]
fn jaeger_thrift_compact() {
    fuzz(
        Format::JaegerThriftCompact,
        vec![data("wire/udp-compact-emitbatch.bin")],
    );
}

#[test]
fn jaeger_thrift_binary() {
    fuzz(
        Format::JaegerThriftBinary,
        vec![data("wire/udp-binary-emitbatch.bin")],
    );
}

#[test]
fn jaeger_thrift_batch() {
    fuzz(
        Format::JaegerThriftBatch,
        vec![data("wire/thrift-http-binary-batch.bin")],
    );
}

#[test]
fn jaeger_proto() {
    fuzz(
        Format::JaegerProto,
        vec![data("wire/jaeger-grpc-postspans.pb")],
    );
}

#[test]
fn any_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let seeds = [
        "jaeger-json/hotrod-4-traces.json.gz",
        "jaeger-json/otlp2jaeger-out.json",
        "otlp-json/lines.json",
        "zipkin-json/skew.json",
        "wire/jaeger-grpc-postspans.pb",
        "wire/udp-compact-emitbatch.bin",
    ]
    .map(data);
    bolero::check!()
        .with_test_time(test_time())
        .with_type::<(u8, Vec<Change>)>()
        .for_each(|(which, changes)| {
            fs_err::write(&path, damaged(&seeds, *which, changes)).unwrap();
            let names = Interner::new();
            let mut out = Vec::new();
            match firm_tracer::file::read_path(&path, &names, &mut out) {
                Ok(report) => assert_eq!(report.total.spans, out.len() as u64),
                Err(error) => {
                    assert!(out.is_empty());
                    assert!(
                        error.to_string().contains("file"),
                        "names the file: {error}"
                    );
                }
            }
        });
}
