//! Jaeger's agent port: thrift datagrams, compact (6831) or binary (6832).

use std::future::Future;
use std::time::Duration;

use tokio::net::UdpSocket;

use super::Parts;
use crate::decode::jaeger_thrift::{Protocol, decode_datagram};

/// Largest datagram that UDP over IPv4 carries is 65,507 bytes; one more shows an overlong one.
const BUFFER: usize = 65_508;

/// Most datagrams that are put into the queue together.
const GATHER: usize = 64;

/// Pause after the socket failed, so that a lasting failure does not take the core.
const PAUSE: Duration = Duration::from_millis(10);

/// Receives until `shutdown` resolves. Broken datagrams are counted and never stop it; spans that
/// find the queue full are dropped and counted, since the protocol has no answer.
pub async fn run(
    socket: UdpSocket,
    protocol: Protocol,
    parts: Parts,
    shutdown: impl Future<Output = ()>,
) {
    tokio::pin!(shutdown);
    let mut buffer = vec![0; BUFFER];
    loop {
        let received = tokio::select! {
            () = &mut shutdown => return,
            received = socket.recv(&mut buffer) => received,
        };
        let mut spans = Vec::new();
        match received {
            Ok(length) => take(&buffer, length, protocol, &parts, &mut spans),
            Err(_) => {
                parts.stats.socket_error();
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        for _ in 1..GATHER {
            match socket.try_recv(&mut buffer) {
                Ok(length) => take(&buffer, length, protocol, &parts, &mut spans),
                Err(_) => break,
            }
        }
        let count = spans.len();
        match parts.spans.offer(spans) {
            Ok(()) => parts.stats.queued(count),
            Err(refused) => parts.stats.dropped(count, refused),
        }
    }
}

fn take(
    buffer: &[u8],
    length: usize,
    protocol: Protocol,
    parts: &Parts,
    spans: &mut Vec<firm_model::Span>,
) {
    let datagram = buffer.get(..length).unwrap_or_default();
    match decode_datagram(datagram, protocol, &parts.names, spans) {
        Ok(decoded) => {
            parts.stats.datagram(false);
            parts.stats.decoded(&decoded);
        }
        Err(error) => {
            parts.stats.datagram(true);
            parts.stats.decoded(&error.decoded);
        }
    }
}
