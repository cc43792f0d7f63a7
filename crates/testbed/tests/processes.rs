//! The real processes: they come up, serve, report spans of one trace by two client libraries,
//! and end with their parent.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use firm_testbed::Topology;
use firm_testbed::fleet::{Fleet, FleetConfig, FleetError};
use firm_testbed::load::{LoadConfig, LoadGenerator};
use http_body_util::{BodyExt as _, Empty};
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

const LONG: Duration = Duration::from_secs(30);

fn mini() -> (PathBuf, Topology) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/mini.yaml");
    let text = fs_err::read_to_string(&path).unwrap();
    let topology = Topology::parse("mini.yaml", &text).unwrap();
    (path, topology)
}

fn config(otlp: SocketAddr, jaeger: SocketAddr) -> FleetConfig {
    FleetConfig {
        program: env!("CARGO_BIN_EXE_firm-testbed").into(),
        args: vec!["service".to_owned()],
        otlp: format!("http://{otlp}"),
        jaeger,
        export_interval: Duration::from_millis(20),
        cpus: vec![0],
        nice: Some(1),
        seed: 1,
    }
}

/// Takes OTLP exports over HTTP until the test's process ends.
fn otlp_sink() -> (SocketAddr, Receiver<ExportTraceServiceRequest>) {
    let (exports, receiver) = channel();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let exports = exports.clone();
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let exports = exports.clone();
                    async move {
                        assert_eq!(request.uri().path(), "/v1/traces");
                        let body = request.into_body().collect().await?.to_bytes();
                        // The test may have seen enough.
                        let _ = exports.send(ExportTraceServiceRequest::decode(body).unwrap());
                        Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        })
    });
    (address, receiver)
}

/// `value` as thrift's compact protocol writes an i64: zigzag, then base 128.
fn compact(value: [u8; 8]) -> Vec<u8> {
    let value = i64::from_be_bytes(value);
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    let mut bytes = Vec::new();
    while rest > 0x7f {
        bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

fn contains(datagram: &[u8], part: &[u8]) -> bool {
    datagram.windows(part.len()).any(|window| window == part)
}

/// `(service, instance, span)` of all spans in an export.
fn spans(export: ExportTraceServiceRequest) -> Vec<(String, String, Span)> {
    let mut all = Vec::new();
    for resource_spans in export.resource_spans {
        let resource = resource_spans.resource.unwrap();
        let attribute = |key: &str| {
            let found = resource
                .attributes
                .iter()
                .find(|attribute| attribute.key == key);
            match found.unwrap().value.clone().unwrap().value.unwrap() {
                Value::StringValue(text) => text,
                other => panic!("{other:?}"),
            }
        };
        let (service, instance) = (attribute("service.name"), attribute("service.instance.id"));
        for scope in resource_spans.scope_spans {
            for span in scope.spans {
                all.push((service.clone(), instance.clone(), span));
            }
        }
    }
    all
}

#[test]
fn one_request_makes_one_trace_across_two_client_libraries() {
    let (_, topology) = mini();
    let (otlp, exports) = otlp_sink();
    let agent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    agent.set_read_timeout(Some(LONG)).unwrap();
    let mut placed = Vec::new();
    let fleet = Fleet::start(
        &topology,
        &config(otlp, agent.local_addr().unwrap()),
        &mut |id, pid| {
            placed.push((id.to_string(), pid));
            Ok(())
        },
    )
    .unwrap();
    let started: Vec<(String, u32)> = fleet
        .instances()
        .iter()
        .map(|one| (one.id.to_string(), one.pid))
        .collect();
    assert_eq!(placed, started);
    let names: Vec<&str> = started.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["front-0", "middle-0", "back-0", "back-1"]);
    for (_, pid) in &started {
        let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    }

    let mut load = LoadConfig::of(&topology, &fleet, 1).unwrap();
    load.duration = Some(Duration::from_millis(10));
    load.timeout = LONG;
    let report = LoadGenerator::start(load, |_| {}).unwrap().wait();
    assert_eq!((report[0].ok, report[0].total()), (1, 1));

    // front: server, three client spans; back: read twice, log once.
    let mut all: Vec<(String, String, Span)> = Vec::new();
    while all.len() < 7 {
        all.extend(spans(exports.recv_timeout(LONG).unwrap()));
    }
    let traces: BTreeSet<Vec<u8>> = all
        .iter()
        .map(|(_, _, span)| span.trace_id.clone())
        .collect();
    assert_eq!(traces.len(), 1, "{all:#?}");
    let of = |service: &str, kind: SpanKind| {
        all.iter()
            .filter(|(name, _, span)| name == service && span.kind == kind as i32)
            .map(|(_, instance, span)| (instance.as_str(), span))
            .collect::<Vec<_>>()
    };
    let root = of("front", SpanKind::Server);
    assert_eq!((root.len(), root[0].0), (1, "front-0"));
    assert!(root[0].1.parent_span_id.is_empty());
    let calls = of("front", SpanKind::Client);
    assert_eq!(calls.len(), 3);
    assert!(
        calls
            .iter()
            .all(|(_, span)| span.parent_span_id == root[0].1.span_id)
    );
    let served = of("back", SpanKind::Server);
    let instances: BTreeSet<&str> = served.iter().map(|(instance, _)| *instance).collect();
    assert!(instances.is_subset(&BTreeSet::from(["back-0", "back-1"])));
    let from_front = |span: &Span| {
        calls
            .iter()
            .any(|(_, call)| call.span_id == span.parent_span_id)
    };
    let from_middle: Vec<&Span> = served
        .iter()
        .map(|(_, span)| *span)
        .filter(|span| !from_front(span))
        .collect();
    assert_eq!((served.len(), from_middle.len()), (3, 1));

    // Middle's two spans are in its datagrams, under the same trace id, and one of them is the
    // parent of what back did for it.
    let trace: [u8; 16] = root[0].1.trace_id.clone().try_into().unwrap();
    let (high, low) = trace.split_at(8);
    let parts = [
        b"emitBatch".to_vec(),
        b"middle-0".to_vec(),
        compact(low.try_into().unwrap()),
        compact(high.try_into().unwrap()),
        compact(from_middle[0].parent_span_id.clone().try_into().unwrap()),
    ];
    let mut datagrams = Vec::new();
    let mut buffer = vec![0; 65_536];
    while !parts.iter().all(|part| contains(&datagrams, part)) {
        let length = agent.recv(&mut buffer).unwrap();
        datagrams.extend_from_slice(&buffer[..length]);
    }

    assert_eq!(fleet.take_exits(), []);
    let exits = fleet.stop(LONG).unwrap();
    assert!(
        exits.iter().all(|exit| exit.status.unwrap().success()),
        "{exits:?}"
    );
}

#[test]
fn an_instance_that_dies_is_reported_and_its_callers_fail() {
    let (_, topology) = mini();
    let unused = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let fleet = Fleet::start(&topology, &config(unused, unused), &mut |_, _| Ok(())).unwrap();
    let middle = &fleet.instances()[1];
    kill(
        Pid::from_raw(i32::try_from(middle.pid).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    let exits = loop {
        let exits = fleet.take_exits();
        if !exits.is_empty() {
            break exits;
        }
        std::thread::yield_now();
    };
    assert_eq!((exits.len(), exits[0].name.as_str()), (1, "middle-0"));
    let mut load = LoadConfig::of(&topology, &fleet, 1).unwrap();
    load.duration = Some(Duration::from_millis(10));
    load.timeout = LONG;
    let report = LoadGenerator::start(load, |_| {}).unwrap().wait();
    assert_eq!((report[0].errors, report[0].total()), (1, 1));
}

#[test]
fn an_instance_that_cannot_be_placed_ends_the_start() {
    let (_, topology) = mini();
    let unused = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let mut pids = Vec::new();
    let error = Fleet::start(&topology, &config(unused, unused), &mut |id, pid| {
        pids.push(pid);
        if id.as_str() == "middle-0" {
            Err("no group".into())
        } else {
            Ok(())
        }
    })
    .unwrap_err();
    assert!(matches!(error, FleetError::Place { pid, .. } if pid == pids[1]));
    assert!(pids.iter().all(|pid| !runs(*pid)));
}

/// Whether the process is there and not a zombie that nobody has waited for.
fn runs(pid: u32) -> bool {
    fs_err::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[test]
fn killing_the_parent_ends_the_children() {
    let (path, topology) = mini();
    let mut parent = Command::new(env!("CARGO_BIN_EXE_firm-testbed"))
        .arg("fleet")
        .arg(path)
        .args(["http://127.0.0.1:9", "127.0.0.1:9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pids: serde_json::Value = serde_json::from_str(&line).unwrap();
    let pids: Vec<u32> = serde_json::from_value(pids["pids"].clone()).unwrap();
    let instances: usize = topology
        .services
        .iter()
        .map(|s| s.instances().count())
        .sum();
    assert_eq!(pids.len(), instances);
    assert!(pids.iter().all(|pid| runs(*pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    while pids.iter().any(|pid| runs(*pid)) {
        std::thread::yield_now();
    }
}
