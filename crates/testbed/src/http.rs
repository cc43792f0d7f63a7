//! Calls between services: HTTP/2 without TLS, one connection to each peer.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Requests at once on one connection; above it they wait in the client.
pub(crate) const MAX_STREAMS: u32 = 4_096;

/// Header with the caller's span.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The peer could not be reached.
    #[error("cannot connect to {address}")]
    Connect {
        /// Its address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The path is no URI.
    #[error("`{path}` is not a path")]
    Path {
        /// The path.
        path: String,
        /// Why not.
        source: hyper::http::Error,
    },
    /// The exchange failed.
    #[error("exchange with {address} failed")]
    Exchange {
        /// The peer's address.
        address: SocketAddr,
        /// Why.
        source: hyper::Error,
    },
    /// The peer answered with an error.
    #[error("{address} answered {status}")]
    Status {
        /// The peer's address.
        address: SocketAddr,
        /// Its answer.
        status: StatusCode,
    },
}

/// One peer; connects when first used and again after the connection was lost.
pub(crate) struct Peer {
    address: SocketAddr,
    connection: Mutex<Option<SendRequest<Empty<Bytes>>>>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connection: Mutex::new(None),
        }
    }

    /// Asks for an operation and waits for the whole answer.
    pub(crate) async fn call(
        &self,
        operation: &str,
        traceparent: Option<String>,
    ) -> Result<(), CallError> {
        let path = |source| CallError::Path {
            path: operation.to_owned(),
            source,
        };
        let uri = Uri::builder()
            .scheme("http")
            .authority(self.address.to_string())
            .path_and_query(format!("/{operation}"))
            .build()
            .map_err(path)?;
        let mut request = Request::get(uri);
        if let Some(traceparent) = traceparent {
            request = request.header(TRACEPARENT, traceparent);
        }
        let request = request.body(Empty::new()).map_err(path)?;
        let exchange = |source| CallError::Exchange {
            address: self.address,
            source,
        };
        let mut connection = self.connection().await?;
        let answer = connection.send_request(request).await.map_err(exchange)?;
        let status = answer.status();
        answer.into_body().collect().await.map_err(exchange)?;
        if status.is_success() {
            Ok(())
        } else {
            Err(CallError::Status {
                address: self.address,
                status,
            })
        }
    }

    async fn connection(&self) -> Result<SendRequest<Empty<Bytes>>, CallError> {
        let mut slot = self.connection.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        let connect = |source| CallError::Connect {
            address: self.address,
            source,
        };
        let stream = TcpStream::connect(self.address).await.map_err(connect)?;
        stream.set_nodelay(true).map_err(connect)?;
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_max_send_streams(usize::try_from(MAX_STREAMS).unwrap_or(usize::MAX))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|source| CallError::Exchange {
                address: self.address,
                source,
            })?;
        // How a connection ends shows in the requests that it carried.
        tokio::spawn(async move { connection.await.is_ok() });
        *slot = Some(sender.clone());
        Ok(sender)
    }
}

/// Answers requests on `listener` until dropped. A request that its caller gave up is dropped
/// where it stands.
pub(crate) async fn serve<F, A>(listener: TcpListener, answer: F) -> std::io::Result<Infallible>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<Empty<Bytes>>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await?;
        // Only costs time when it fails.
        let _ = stream.set_nodelay(true);
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answer = answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let resets = usize::try_from(MAX_STREAMS).unwrap_or(usize::MAX);
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(MAX_STREAMS)
            // A throttled instance is given up on by many callers at once, which is no attack.
            .max_pending_accept_reset_streams(resets)
            .max_local_error_reset_streams(resets)
            .serve_connection(TokioIo::new(stream), service);
        // How a connection ends is the client's business.
        tokio::spawn(async move { connection.await.is_ok() });
    }
}
