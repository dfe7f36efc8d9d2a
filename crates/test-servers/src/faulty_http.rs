//! A proxy of HTTP/1.1 that delays requests, answers some of them with errors, and loses answers, as networks and loaded
//! servers do. A seed decides which requests fail.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Way in which a server fails to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Connections are closed at once.
    Closed,
    /// Connections are accepted, and nothing ever comes.
    Silent,
}

/// Fault injected into one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    InternalError,
    Unavailable,
    ClosedBefore,
    /// The server performs the request, and the connection is closed instead of its answer.
    AnswerLost,
    /// The server performs the request, and the answer is an error.
    AnswerReplaced,
}

const FAULTS: [Fault; 5] =
    [Fault::InternalError, Fault::Unavailable, Fault::ClosedBefore, Fault::AnswerLost, Fault::AnswerReplaced];

/// A request that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// `GET`, `PUT` …
    pub method: String,
    /// Path and query.
    pub target: String,
    /// True if the request is conditional on the absence of the object.
    pub conditional: bool,
}

/// Number of failed requests, by kind of failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Requests that the server has not seen.
    pub before: u64,
    /// Requests that the server performed, and whose sender was told otherwise.
    pub after: u64,
    /// Of these, conditional puts.
    pub after_conditional: u64,
}

/// A proxy in front of a server; it ends when it is dropped.
pub struct FaultyHttp {
    /// `http://127.0.0.1:PORT`
    url: String,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    upstream: String,
    state: Mutex<State>,
}

struct State {
    rng: StdRng,
    share: f64,
    latency: Duration,
    outage: Option<Outage>,
    requests: Vec<ReceivedRequest>,
    counts: FaultCounts,
}

impl FaultyHttp {
    /// Starts a proxy without faults in front of `upstream`, `http://HOST:PORT`. The seed is printed; `TIDEMILL_SEED` sets
    /// another one.
    pub fn start(upstream: &str, seed: u64) -> Self {
        let seed = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        println!("faults of the network: TIDEMILL_SEED={seed}");
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            share: 0.0,
            latency: Duration::ZERO,
            outage: None,
            requests: Vec::new(),
            counts: FaultCounts::default(),
        };
        let upstream = upstream.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state) });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads of the proxy");
        // bound here, because tests that are tasks themselves must not wait for one
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener for tasks");
        let url = format!("http://{}", listener.local_addr().expect("the address of a listener"));
        runtime.spawn(accept(listener, shared.clone()));
        Self { url, shared, runtime: Some(runtime) }
    }

    /// Returns the URL of the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Delays each request.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.state().latency = latency;
    }

    /// Lets this share of the requests fail, with and without effect alike.
    pub fn set_fault_share(&self, share: f64) {
        self.shared.state().share = share;
    }

    /// Begins or ends an outage. Connections that wait in it are closed when the proxy ends.
    pub fn set_outage(&self, outage: Option<Outage>) {
        self.shared.state().outage = outage;
    }

    /// Returns the requests since the last call, those that failed included.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut self.shared.state().requests)
    }

    /// Returns how many requests failed.
    pub fn counts(&self) -> FaultCounts {
        self.shared.state().counts
    }
}

impl fmt::Debug for FaultyHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyHttp").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for FaultyHttp {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request and decides what happens to it.
    fn receive(&self, request: &Request<Incoming>) -> (Duration, Option<Outage>, Option<Fault>) {
        let conditional = request.method() == Method::PUT && request.headers().contains_key("if-none-match");
        let mut state = self.state();
        state.requests.push(ReceivedRequest {
            method: request.method().to_string(),
            target: request.uri().to_string(),
            conditional,
        });
        let share = state.share;
        let fails = state.outage.is_none() && share > 0.0 && state.rng.random_bool(share);
        let fault = fails.then(|| FAULTS[state.rng.random_range(0..FAULTS.len())]);
        match fault {
            None => {}
            Some(Fault::AnswerLost | Fault::AnswerReplaced) => {
                state.counts.after += 1;
                state.counts.after_conditional += u64::from(conditional);
            }
            Some(_) => state.counts.before += 1,
        }
        (state.latency, state.outage, fault)
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&shared, request));
            // a connection that a fault closes ends with an error
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Error> {
    let (latency, outage, fault) = shared.receive(&request);
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    match outage {
        Some(Outage::Closed) => return Err("closed".into()),
        Some(Outage::Silent) => std::future::pending::<()>().await,
        None => {}
    }
    match fault {
        Some(Fault::InternalError) => refuse(request, StatusCode::INTERNAL_SERVER_ERROR).await,
        Some(Fault::Unavailable) => refuse(request, StatusCode::SERVICE_UNAVAILABLE).await,
        Some(Fault::ClosedBefore) => Err("closed".into()),
        Some(Fault::AnswerLost) => forward(&shared.upstream, request).await.and(Err("closed".into())),
        Some(Fault::AnswerReplaced) => {
            forward(&shared.upstream, request).await.map(|_| empty(StatusCode::INTERNAL_SERVER_ERROR))
        }
        None => forward(&shared.upstream, request).await,
    }
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Reads the request to its end, so that the connection can go on, and answers it.
async fn refuse(request: Request<Incoming>, status: StatusCode) -> Result<Response<Full<Bytes>>, Error> {
    request.into_body().collect().await?;
    Ok(empty(status))
}

/// Lets the server perform the request, on a connection of its own. Its headers stay as they are, because they are signed.
async fn forward(upstream: &str, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Error> {
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head, Full::new(body.collect().await?.to_bytes()));
    let stream = TcpStream::connect(upstream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (mut head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    head.headers.remove("transfer-encoding");
    head.headers.remove("connection");
    Ok(Response::from_parts(head, Full::new(body)))
}
