//! Receivers over real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use firm_model::Interner;
use firm_tracer::decode::jaeger_thrift::Protocol;
use firm_tracer::receive::otlp_http::HttpLimits;
use firm_tracer::receive::{
    Parts, QueueLimits, ReceiverStats, SpanReceiver, jaeger_udp, otlp_http, span_queue,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const PROTO: &str = "application/x-protobuf";
const JSON: &str = "application/json";

fn data(name: &str) -> Vec<u8> {
    fs_err::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/data")
            .join(name),
    )
    .unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Server {
    runtime: Runtime,
    parts: Parts,
    queue: SpanReceiver,
    stop: Option<oneshot::Sender<()>>,
    task: Option<tokio::task::JoinHandle<()>>,
    address: SocketAddr,
}

impl Server {
    fn parts(limits: QueueLimits) -> (Parts, SpanReceiver) {
        let (spans, queue) = span_queue(limits);
        let parts = Parts {
            names: Arc::new(Interner::new()),
            spans,
            stats: Arc::new(ReceiverStats::default()),
        };
        (parts, queue)
    }

    fn http_with(limits: HttpLimits, queue_limits: QueueLimits) -> Self {
        let runtime = Runtime::new().unwrap();
        let (parts, queue) = Self::parts(queue_limits);
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let task = runtime.spawn(otlp_http::run(listener, limits, parts.clone(), async {
            let _ = stopped.await;
        }));
        Self {
            runtime,
            parts,
            queue,
            stop: Some(stop),
            task: Some(task),
            address,
        }
    }

    fn http() -> Self {
        Self::http_with(HttpLimits::default(), QueueLimits::default())
    }

    fn udp(protocol: Protocol, queue_limits: QueueLimits) -> Self {
        let runtime = Runtime::new().unwrap();
        let (parts, queue) = Self::parts(queue_limits);
        let (stop, stopped) = oneshot::channel::<()>();
        let socket = runtime
            .block_on(tokio::net::UdpSocket::bind("127.0.0.1:0"))
            .unwrap();
        let address = socket.local_addr().unwrap();
        let task = runtime.spawn(jaeger_udp::run(socket, protocol, parts.clone(), async {
            let _ = stopped.await;
        }));
        Self {
            runtime,
            parts,
            queue,
            stop: Some(stop),
            task: Some(task),
            address,
        }
    }

    /// Status, head and body of the answer to a request with these header lines.
    fn send(&self, line: &str, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), answer[end + 4..].to_vec())
    }

    fn post(&self, kind: &str, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let headers = format!("content-type: {kind}\r\n{headers}");
        self.send("POST /v1/traces", &headers, body)
    }

    fn received(&self) -> usize {
        let mut count = 0;
        while let Ok(Some(batch)) = self.queue.try_next() {
            count += batch.len();
        }
        count
    }

    /// Spans of the next batches until there are `count`.
    fn wait_for(&self, count: usize) -> Vec<firm_model::Span> {
        let mut spans = Vec::new();
        while spans.len() < count {
            let batch = self.queue.next(Duration::from_secs(20)).unwrap();
            spans.extend(batch.unwrap());
        }
        spans
    }

    fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        let task = self.task.take().unwrap();
        let ended = async { tokio::time::timeout(Duration::from_secs(20), task).await };
        self.runtime.block_on(ended).unwrap().unwrap();
    }
}

#[test]
fn protobuf_json_and_gzip_are_taken() {
    let server = Server::http();
    let export = data("wire/otlp-export-500spans.pb");
    let (status, _, body) = server.post(PROTO, "", &export);
    assert_eq!((status, body.as_slice()), (200, &b""[..]));
    assert_eq!(server.received(), 500);

    // Two members, as some clients flush; the request is one message all the same.
    let members = [gzip(&export[..70_000]), gzip(&export[70_000..])].concat();
    assert_eq!(
        server.post(PROTO, "content-encoding: gzip\r\n", &members).0,
        200
    );
    assert_eq!(server.received(), 500);

    let json = data("otlp-json/reference-example.json");
    let (status, head, body) = server.post("application/json; charset=utf-8", "", &json);
    assert_eq!((status, body.as_slice()), (200, &b"{}"[..]));
    assert!(head.contains("content-type: application/json"));
    assert_eq!(server.received(), 1);

    let counts = server.parts.stats.counts();
    assert_eq!(counts.spans, 1001);
    assert_eq!(counts.requests.get(&200), Some(&3));
    server.stop();
}

#[test]
fn wrong_requests_are_told_apart() {
    let server = Server::http();
    let export = data("wire/otlp-export-500spans.pb");
    assert_eq!(server.post("text/plain", "", &export).0, 415);
    assert_eq!(
        server.post(PROTO, "content-encoding: br\r\n", &export).0,
        415
    );
    assert_eq!(
        server
            .send(
                "POST /elsewhere",
                "content-type: application/json\r\n",
                b"{}"
            )
            .0,
        404
    );
    let (status, head, _) = server.send("GET /v1/traces", "", b"");
    assert_eq!(status, 405);
    assert!(head.contains("allow: post"));

    let (status, _, body) = server.post(PROTO, "", &export[..1000]);
    assert_eq!(status, 400);
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(
        text.contains("byte ") && text.contains("past the end"),
        "{text}"
    );
    let (status, _, body) = server.post(JSON, "", br#"{"resourceSpans":[}"#);
    assert_eq!(status, 400);
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["message"], "line 1, column 19: expected a value");
    assert_eq!(server.post(JSON, "", b"").0, 400);

    let packed = gzip(&export);
    let cut = server.post(
        PROTO,
        "content-encoding: gzip\r\n",
        &packed[..packed.len() / 2],
    );
    assert_eq!(cut.0, 400);
    assert!(String::from_utf8_lossy(&cut.2).contains("gzip is broken at byte"));

    assert_eq!(
        server.received(),
        0,
        "a refused request leaves nothing behind"
    );
    let counts = server.parts.stats.counts();
    assert_eq!(counts.requests.values().sum::<u64>(), 8);
    assert_eq!(counts.spans, 0);
    server.stop();
}

#[test]
fn a_gzip_bomb_is_refused() {
    let limits = HttpLimits {
        max_body: 1 << 20,
        ..HttpLimits::default()
    };
    let server = Server::http_with(limits, QueueLimits::default());
    let bomb = gzip(&vec![0; 64 << 20]);
    assert!(bomb.len() < limits.max_body);
    let (status, _, body) = server.post(PROTO, "content-encoding: gzip\r\n", &bomb);
    assert_eq!(status, 413);
    assert!(String::from_utf8_lossy(&body).contains("after inflating"));
    // Larger than allowed as it is; the head alone decides.
    assert_eq!(server.post(PROTO, "", &vec![0; 2 << 20]).0, 413);
    assert_eq!(
        server
            .post(PROTO, "", &data("wire/otlp-export-500spans.pb"))
            .0,
        200
    );
    server.stop();
}

fn json_spans(spans: &[String]) -> Vec<u8> {
    format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"s"}}}}]}},"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
        spans.join(",")
    )
    .into_bytes()
}

fn json_span(id: u64, name: &str) -> String {
    format!(
        r#"{{"traceId":"{:032x}","spanId":"{id:016x}","name":"{name}","startTimeUnixNano":"1","endTimeUnixNano":"2"}}"#,
        id / 10
    )
}

#[test]
fn malformed_spans_are_told_as_partial_success() {
    let server = Server::http();
    let body = json_spans(&[
        json_span(0, "bad"),
        json_span(11, "good"),
        json_span(12, "good"),
    ]);
    let (status, _, answer) = server.post(JSON, "", &body);
    assert_eq!(status, 200);
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["partialSuccess"]["rejectedSpans"], "1");
    assert_eq!(answer["partialSuccess"]["errorMessage"], "zero_trace_id 1");
    assert_eq!(server.received(), 2);

    // Protobuf: damage one trace id's length, so that the span's inside is broken.
    let mut export = data("wire/otlp-export-500spans.pb");
    let id = export.windows(2).position(|two| two == [0x0a, 16]).unwrap();
    export[id + 1] = 15;
    let (status, _, answer) = server.post(PROTO, "", &export);
    assert_eq!(status, 200);
    let partial = ExportTraceServiceResponse::decode(&answer[..])
        .unwrap()
        .partial_success
        .unwrap();
    assert_eq!(partial.rejected_spans, 1);
    assert_eq!(server.received(), 499);
    let counts = server.parts.stats.counts();
    assert_eq!(counts.rejected.values().sum::<u64>(), 2);
    server.stop();
}

#[test]
fn names_of_a_megabyte_and_many_spans() {
    let server = Server::http();
    let long = "n".repeat(1 << 20);
    assert_eq!(
        server
            .post(JSON, "", &json_spans(&[json_span(11, &long)]))
            .0,
        200
    );
    let span = server.wait_for(1)[0];
    let name = server.parts.names.resolve(span.operation);
    assert_eq!(name.len(), firm_model::interner::MAX_NAME_BYTES);

    let many: Vec<String> = (10..100_010).map(|id| json_span(id, "op")).collect();
    assert_eq!(server.post(JSON, "", &json_spans(&many)).0, 200);
    assert_eq!(server.wait_for(100_000).len(), 100_000);
    server.stop();
}

#[test]
fn a_full_queue_asks_the_client_to_come_again() {
    let limits = QueueLimits {
        batches: 8,
        spans: 600,
    };
    let server = Server::http_with(HttpLimits::default(), limits);
    let export = data("wire/otlp-export-500spans.pb");
    assert_eq!(server.post(PROTO, "", &export).0, 200);
    let (status, head, _) = server.post(PROTO, "", &export);
    assert_eq!(status, 429);
    assert!(head.contains("retry-after: 1"));
    assert_eq!(server.parts.stats.counts().dropped_full, 500);
    assert_eq!(server.received(), 500);
    assert_eq!(server.post(PROTO, "", &export).0, 200, "room again");
    server.stop();
}

#[test]
fn a_slow_body_is_given_up() {
    let limits = HttpLimits {
        read_timeout: Duration::from_millis(100),
        ..HttpLimits::default()
    };
    let server = Server::http_with(limits, QueueLimits::default());
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTO}\r\ncontent-length: 10\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    server.stop();
}

#[test]
fn several_requests_on_one_connection() {
    let server = Server::http();
    let export = data("wire/otlp-export-500spans.pb");
    let mut stream = TcpStream::connect(server.address).unwrap();
    for _ in 0..3 {
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTO}\r\ncontent-length: {}\r\n\r\n",
            export.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&export).unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        let mut tail = Vec::new();
        let mut byte = [0];
        while !tail.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            tail.push(byte[0]);
        }
    }
    assert_eq!(server.wait_for(1500).len(), 1500);
    // An idle connection does not hold up the end.
    server.stop();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
}

#[test]
fn datagrams_in_both_encodings_and_broken_ones_between() {
    for (protocol, name) in [
        (Protocol::Compact, "wire/udp-compact-emitbatch.bin"),
        (Protocol::Binary, "wire/udp-binary-emitbatch.bin"),
    ] {
        let server = Server::udp(protocol, QueueLimits::default());
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let good = data(name);
        client.send_to(b"not thrift", server.address).unwrap();
        client.send_to(&good[..60], server.address).unwrap();
        client.send_to(b"", server.address).unwrap();
        client.send_to(&good, server.address).unwrap();
        let spans = server.wait_for(3);
        let names: Vec<_> = spans
            .iter()
            .map(|s| server.parts.names.resolve(s.operation))
            .collect();
        assert_eq!(
            names.iter().map(|n| &**n).collect::<Vec<_>>(),
            ["root", "child-of", "follows-from"]
        );
        let counts = server.parts.stats.counts();
        assert_eq!((counts.datagrams, counts.datagrams_malformed), (4, 3));
        server.stop();
    }
}

#[test]
fn the_largest_datagram_is_taken_whole() {
    let server = Server::udp(Protocol::Binary, QueueLimits::default());
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // The recorded message with its first span's name grown to fill a datagram.
    let good = data("wire/udp-binary-emitbatch.bin");
    let name = good
        .windows(8)
        .position(|w| w == b"\0\0\0\x04root")
        .unwrap();
    let length = 65_507 - (good.len() - 4);
    let mut large = good[..name].to_vec();
    large.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    large.extend_from_slice(&vec![b'x'; length]);
    large.extend_from_slice(&good[name + 8..]);
    assert_eq!(large.len(), 65_507);
    client.send_to(&large, server.address).unwrap();
    assert_eq!(server.wait_for(3).len(), 3);
    assert_eq!(server.parts.stats.counts().datagrams_malformed, 0);
    server.stop();
}
