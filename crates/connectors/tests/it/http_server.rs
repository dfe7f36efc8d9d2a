//! HTTP server of tests: answers by a function and remembers requests.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use parking_lot::Mutex;
use tidemill_connect::runtime;
use tokio::task::JoinHandle;

/// Request that arrived.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    pub body: String,
}

impl Received {
    /// Returns a header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Status, headers and body.
pub type Answer = (u16, Vec<(&'static str, String)>, String);

type Handler = dyn Fn(&Received) -> Answer + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    received: Mutex<Vec<Received>>,
}

/// Server that runs until it is dropped.
pub struct TestServer {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl TestServer {
    /// Starts a server on a port of 127.0.0.1.
    pub fn start(port: u16, handler: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared { handler: Box::new(handler), received: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let listener = loop {
            match runtime().block_on(tokio::net::TcpListener::bind(("127.0.0.1", port))) {
                Ok(listener) => break listener,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        };
        let task = runtime().spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { shared, task }
    }

    /// Returns the requests that arrived.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().clone()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let received = Received {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let (status, headers, body) = (shared.handler)(&received);
    shared.received.lock().push(received);
    let mut response = Response::builder().status(status).header("connection", "close");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body)).unwrap()
}
