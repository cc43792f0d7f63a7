//! One instance of a service, as a process of its own.
//!
//! The process talks with the fleet in JSON lines: a [`ServiceConfig`] comes in, [`Ready`] goes
//! out once the port is bound, an [`AddressBook`] comes in, and from then on it serves. It ends
//! when its stdin ends, on `SIGTERM`, and when its parent dies.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firm_child::Placement;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::http::{self, CallError, Peer, TRACEPARENT};
use crate::spans::{Export, Side, SpanRef, Spans, SpansError};
use crate::topology::{Call, Operation, Step};
use crate::work::WorkerPool;

/// What one instance is told at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceConfig {
    /// Where it runs, and whose child it is.
    pub placement: Placement,
    /// Name of its service.
    pub service: String,
    /// Its own name, `service.instance.id` in its spans.
    pub instance: String,
    /// Threads that do the CPU work; one more serves.
    pub threads: u32,
    /// Seed of the amounts of work.
    pub seed: u64,
    /// Where its spans go.
    pub export: Export,
    /// How often they go, in milliseconds.
    pub export_interval_ms: u64,
    /// What it can be asked for.
    pub operations: Vec<Operation>,
}

/// What an instance answers once its port is bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where it listens.
    pub ready: SocketAddr,
    /// Its process id.
    pub pid: u32,
}

/// Addresses of all instances by service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddressBook(pub BTreeMap<String, Vec<SocketAddr>>);

/// Why an instance cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The fleet did not say what was expected.
    #[error("the fleet's line cannot be used")]
    Line(#[from] firm_child::LineError),
    /// The process could not be placed.
    #[error("the process cannot be placed")]
    Enter(#[from] firm_child::EnterError),
    /// The system refused a thread, a port or a signal handler.
    #[error("cannot set up {what}")]
    System {
        /// What was to be set up.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// Spans could not be exported.
    #[error("spans cannot be exported")]
    Spans(#[from] SpansError),
}

/// What an operation failed on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no instance of `{0}` is known")]
    Unknown(String),
    #[error("call of `{call}` failed")]
    Call { call: Call, source: CallError },
}

struct App {
    operations: HashMap<String, Operation>,
    workers: WorkerPool,
    spans: Spans,
    peers: HashMap<String, Replicas>,
}

/// The instances of a service that is called, in turn.
struct Replicas {
    peers: Vec<Peer>,
    next: AtomicUsize,
}

/// Runs one instance to its end, talking with the fleet over stdin and stdout.
///
/// # Errors
/// It could not be set up. Requests that fail are answered so and never end it.
pub fn run_service() -> Result<(), ServiceError> {
    let mut stdin = std::io::BufReader::new(std::io::stdin());
    let config: ServiceConfig = firm_child::receive(&mut stdin)?;
    firm_child::enter(&config.placement)?;
    let system = |what| move |source| ServiceError::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("a runtime"))?;
    runtime.block_on(async {
        let mut terminate =
            signal(SignalKind::terminate()).map_err(system("a handler of SIGTERM"))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(system("a port"))?;
        let ready = Ready {
            ready: listener.local_addr().map_err(system("a port"))?,
            pid: std::process::id(),
        };
        let spans = Spans::start(
            &config.service,
            &config.instance,
            &config.export,
            Duration::from_millis(config.export_interval_ms),
        )?;
        let workers =
            WorkerPool::start(config.threads, config.seed).map_err(system("a worker thread"))?;
        firm_child::send(&mut std::io::stdout().lock(), &ready)?;
        let book: AddressBook = firm_child::receive(&mut stdin)?;
        let ended = end_of(stdin).map_err(system("a thread that watches stdin"))?;
        let app = Arc::new(App::new(config.operations, workers, spans, &book));
        let served = Arc::clone(&app);
        let result = tokio::select! {
            failed = http::serve(listener, move |request| answer(Arc::clone(&served), request)) => {
                failed.map(|_| ()).map_err(system("a connection"))
            }
            _ = terminate.recv() => Ok(()),
            _ = ended => Ok(()),
        };
        // It panics only if the last export does, and then there is nothing left to lose.
        let _ = tokio::task::spawn_blocking(move || app.spans.finish()).await;
        result
    })
}

/// Ends when the fleet closes the pipe.
fn end_of(mut stdin: impl BufRead + Send + 'static) -> std::io::Result<oneshot::Receiver<()>> {
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let mut rest = [0; 256];
            while matches!(stdin.read(&mut rest), Ok(1..)) {}
            // The process may be ending already.
            let _ = sender.send(());
        })?;
    Ok(ended)
}

async fn answer(app: Arc<App>, request: Request<Incoming>) -> Response<Empty<Bytes>> {
    let name = request.uri().path().trim_start_matches('/').to_owned();
    let parent = request
        .headers()
        .get(TRACEPARENT)
        .and_then(|header| header.to_str().ok())
        .and_then(SpanRef::parse);
    let status = match app.operations.get(&name) {
        None => StatusCode::NOT_FOUND,
        Some(operation) => {
            let mut span = app.spans.open(Side::Server, name, parent);
            match app.perform(operation, span.reference()).await {
                Ok(()) => StatusCode::OK,
                Err(failure) => {
                    span.fail(failure.to_string());
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            }
        }
    };
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}

// === impl App ===

impl App {
    fn new(
        operations: Vec<Operation>,
        workers: WorkerPool,
        spans: Spans,
        book: &AddressBook,
    ) -> Self {
        let peers = book
            .0
            .iter()
            .map(|(service, addresses)| {
                let replicas = Replicas {
                    peers: addresses.iter().copied().map(Peer::new).collect(),
                    next: AtomicUsize::new(0),
                };
                (service.clone(), replicas)
            })
            .collect();
        Self {
            operations: operations
                .into_iter()
                .map(|o| (o.name.clone(), o))
                .collect(),
            workers,
            spans,
            peers,
        }
    }

    async fn perform(
        self: &Arc<Self>,
        operation: &Operation,
        parent: Option<SpanRef>,
    ) -> Result<(), Failure> {
        for step in &operation.steps {
            match step {
                Step::Cpu(work) => self.workers.run(*work).await,
                Step::Sequence(calls) => {
                    for call in calls {
                        self.call(call, parent).await?;
                    }
                }
                Step::Parallel(calls) => {
                    let mut open = self.start(calls, parent);
                    while let Some(done) = open.join_next().await {
                        // A call is never cancelled while it is waited for.
                        done.unwrap_or(Ok(()))?;
                    }
                }
                Step::Background(calls) => self.start(calls, parent).detach_all(),
            }
        }
        Ok(())
    }

    fn start(
        self: &Arc<Self>,
        calls: &[Call],
        parent: Option<SpanRef>,
    ) -> JoinSet<Result<(), Failure>> {
        let mut open = JoinSet::new();
        for call in calls {
            let (app, call) = (Arc::clone(self), call.clone());
            open.spawn(async move { app.call(&call, parent).await });
        }
        open
    }

    async fn call(&self, call: &Call, parent: Option<SpanRef>) -> Result<(), Failure> {
        let mut span = self
            .spans
            .open(Side::Client, call.operation.clone(), parent);
        let traceparent = span.reference().map(|reference| reference.header());
        let result = match self.peers.get(&call.service).and_then(Replicas::next) {
            None => Err(Failure::Unknown(call.service.clone())),
            Some(peer) => peer
                .call(&call.operation, traceparent)
                .await
                .map_err(|source| Failure::Call {
                    call: call.clone(),
                    source,
                }),
        };
        if let Err(failure) = &result {
            span.fail(failure.to_string());
        }
        result
    }
}

impl Replicas {
    fn next(&self) -> Option<&Peer> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.peers.get(turn.checked_rem(self.peers.len())?)
    }
}
