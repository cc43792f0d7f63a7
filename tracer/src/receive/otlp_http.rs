//! OTLP over HTTP: `POST /v1/traces`, protobuf or JSON, plain or gzip.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firm_model::Span;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::otlp_reply::{self, Encoding};
use super::{Parts, Refused};
use crate::decode::{DecodeError, Decoded, otlp_json, otlp_proto};
use crate::inflate::{self, Stopped};

/// Where traces are posted.
pub const PATH: &str = "/v1/traces";

/// Bodies from this size, and all compressed ones, whose size is not known, are decoded off the
/// threads that serve sockets.
const LARGE: usize = 256 << 10;

/// Pause after accepting failed (no file descriptors left, say).
const PAUSE: Duration = Duration::from_millis(50);

/// Bounds on clients.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// Most bytes of a body, as sent and inflated. Default 64 MiB.
    pub max_body: usize,
    /// Most connections at once; further ones wait. Default 1024.
    pub max_connections: usize,
    /// Longest time for a request's head, and again for its body. Default 10 s.
    pub read_timeout: Duration,
    /// Longest time that open requests have to finish after a shutdown. Default 2 s.
    pub drain: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_body: 64 << 20,
            max_connections: 1024,
            read_timeout: Duration::from_secs(10),
            drain: Duration::from_secs(2),
        }
    }
}

/// Serves until `shutdown` resolves, then lets open requests finish for [`HttpLimits::drain`].
///
/// A request is taken whole or not at all, but for spans that are malformed one by one: those are
/// told in the answer's partial success.
pub async fn run(
    listener: TcpListener,
    limits: HttpLimits,
    parts: Parts,
    shutdown: impl Future<Output = ()>,
) {
    tokio::pin!(shutdown);
    let graceful = GracefulShutdown::new();
    let connections = Arc::new(Semaphore::new(
        limits.max_connections.clamp(1, Semaphore::MAX_PERMITS),
    ));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        let Some((stream, permit)) = accepted else {
            parts.stats.socket_error();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let parts = parts.clone();
        let service = service_fn(move |request| {
            let parts = parts.clone();
            async move { Ok::<_, std::convert::Infallible>(answer(request, limits, &parts).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read_timeout)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tasks.spawn(async move {
            // A client that breaks its connection is no event of ours.
            let _ = connection.await;
            drop(permit);
        });
    }
    // Listening ends first, so that no connection is left waiting.
    drop(listener);
    let _ = tokio::time::timeout(limits.drain, graceful.shutdown()).await;
    tasks.shutdown().await;
}

async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    let (stream, _) = listener.accept().await.ok()?;
    // Answers are small; waiting to fill a packet would only delay them.
    stream.set_nodelay(true).ok()?;
    Some((stream, permit))
}

async fn answer(
    request: Request<Incoming>,
    limits: HttpLimits,
    parts: &Parts,
) -> Response<Full<Bytes>> {
    let encoding = content_type(request.headers());
    let response = match take(request, encoding, limits, parts).await {
        Ok(response) => response,
        Err((status, message)) => {
            otlp_reply::refused(status, encoding.unwrap_or(Encoding::Json), &message)
        }
    };
    parts.stats.answered(response.status().as_u16());
    response
}

type Failure = (StatusCode, String);

async fn take(
    request: Request<Incoming>,
    encoding: Option<Encoding>,
    limits: HttpLimits,
    parts: &Parts,
) -> Result<Response<Full<Bytes>>, Failure> {
    if request.uri().path() != PATH {
        return Err((
            StatusCode::NOT_FOUND,
            format!("nothing is here, traces go to {PATH}"),
        ));
    }
    if request.method() != Method::POST {
        return Err((
            StatusCode::METHOD_NOT_ALLOWED,
            format!("method is {}, expected POST", request.method()),
        ));
    }
    let Some(encoding) = encoding else {
        return Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content type is neither application/x-protobuf nor application/json".to_owned(),
        ));
    };
    let gzip = content_encoding(request.headers())?;
    let body = read_body(request.into_body(), limits).await?;
    let (names, max) = (Arc::clone(&parts.names), limits.max_body);
    let large = gzip || body.len() >= LARGE;
    let decode = move || decode_body(&body, encoding, gzip, max, &names);
    let decoded = if large {
        tokio::task::spawn_blocking(decode).await.map_err(|_| {
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "decoding did not finish".to_owned(),
            )
        })?
    } else {
        decode()
    };
    let (spans, decoded) = decoded?;
    let count = spans.len();
    match parts.spans.offer(spans) {
        Ok(()) => {}
        Err(refused) => {
            parts.stats.dropped(count, refused);
            let status = match refused {
                Refused::Full => StatusCode::TOO_MANY_REQUESTS,
                Refused::Closed => StatusCode::SERVICE_UNAVAILABLE,
            };
            return Err((status, refused.to_string()));
        }
    }
    parts.stats.queued(count);
    parts.stats.decoded(&decoded);
    let why = decoded.rejected.to_string();
    Ok(otlp_reply::accepted(
        encoding,
        decoded.rejected.total(),
        &why,
    ))
}

async fn read_body(body: Incoming, limits: HttpLimits) -> Result<Bytes, Failure> {
    let too_large = || {
        (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("body is larger than {} bytes", limits.max_body),
        )
    };
    if body.size_hint().lower() > limits.max_body as u64 {
        return Err(too_large());
    }
    let read = Limited::new(body, limits.max_body).collect();
    match tokio::time::timeout(limits.read_timeout, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err((
            StatusCode::BAD_REQUEST,
            format!("body cannot be read: {error}"),
        )),
        Err(_) => Err((
            StatusCode::REQUEST_TIMEOUT,
            format!("body took longer than {:?}", limits.read_timeout),
        )),
    }
}

fn decode_body(
    body: &[u8],
    encoding: Encoding,
    gzip: bool,
    max: usize,
    names: &firm_model::Interner,
) -> Result<(Vec<Span>, Decoded), Failure> {
    let inflated;
    let body = if gzip {
        inflated = inflate::gzip(body, max as u64);
        match inflated.stopped {
            None => &inflated.bytes[..],
            Some(Stopped::TooLarge) => {
                return Err((
                    StatusCode::PAYLOAD_TOO_LARGE,
                    format!("body is larger than {max} bytes after inflating"),
                ));
            }
            Some(Stopped::Broken { at, reason }) => {
                return Err((
                    StatusCode::BAD_REQUEST,
                    format!("gzip is broken at byte {at}: {reason}"),
                ));
            }
        }
    } else {
        body
    };
    let mut spans = Vec::new();
    let result = match encoding {
        Encoding::Proto => otlp_proto::decode(body, names, &mut spans),
        Encoding::Json if body.trim_ascii_start().first() != Some(&b'{') => {
            let message = "byte 0: body is not a JSON object".to_owned();
            return Err((StatusCode::BAD_REQUEST, message));
        }
        Encoding::Json => otlp_json::decode(body, names, &mut spans),
    };
    match result {
        Ok(decoded) => Ok((spans, decoded)),
        Err(DecodeError { at, reason, .. }) => {
            Err((StatusCode::BAD_REQUEST, format!("{at}: {reason}")))
        }
    }
}

fn content_type(headers: &HeaderMap) -> Option<Encoding> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = value.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/x-protobuf") {
        Some(Encoding::Proto)
    } else if kind.eq_ignore_ascii_case("application/json") {
        Some(Encoding::Json)
    } else {
        None
    }
}

/// Whether the body is gzip.
fn content_encoding(headers: &HeaderMap) -> Result<bool, Failure> {
    let Some(value) = headers.get(CONTENT_ENCODING) else {
        return Ok(false);
    };
    match value.to_str().map(str::trim) {
        Ok(word) if word.eq_ignore_ascii_case("gzip") => Ok(true),
        Ok(word) if word.is_empty() || word.eq_ignore_ascii_case("identity") => Ok(false),
        _ => Err((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content encoding is neither gzip nor identity".to_owned(),
        )),
    }
}
