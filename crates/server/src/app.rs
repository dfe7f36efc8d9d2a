//! State shared by all handlers, and their access to the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use tidemill_gateway::Metrics;
use tidemill_influxql::MemoryPool;
use tidemill_types::budget::{Budget, Stop};
use tidemill_types::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::Engine;
use crate::error::ApiError;
use crate::metrics::HttpMetrics;
use crate::openapi::description::ApiDescription;
use crate::options::ServerOptions;
use crate::request_log::RequestLog;
use crate::result_pages::PageStore;
use tidemill_database::Database;

/// Callers that may follow streams at once.
pub(crate) const TAILS_MAX: usize = 64;
/// Bytes that the rows of all statements of InfluxQL have in memory.
const INFLUXQL_BYTES_MAX: usize = 256 << 20;

/// Shared state of the server.
pub(crate) struct AppState {
    pub engine: Arc<Engine>,
    pub database: Arc<dyn Database>,
    pub options: ServerOptions,
    pub metrics: HttpMetrics,
    pub log: RequestLog,
    pub description: ApiDescription,
    /// Permits for concurrent requests: `concurrency_max`.
    pub permits: Arc<Semaphore>,
    /// Permits for request bodies in memory, one per KiB: `bodies_bytes_max`.
    pub body_budget: Arc<Semaphore>,
    /// Permits for callers that follow streams.
    pub tails: Arc<Semaphore>,
    /// Memory of the rows of statements of InfluxQL.
    pub influxql_memory: MemoryPool,
    /// Statements whose rows are taken page by page.
    pub pages: PageStore,
    /// Counts of the connections of all protocols.
    pub connections: Arc<Metrics>,
    stopping: AtomicBool,
}

impl AppState {
    pub fn new(
        engine: Arc<Engine>,
        database: Arc<dyn Database>,
        options: ServerOptions,
        description: ApiDescription,
        connections: Arc<Metrics>,
    ) -> Self {
        let permits = |n: usize| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)));
        Self {
            permits: permits(options.concurrency_max),
            body_budget: permits(options.bodies_bytes_max.div_ceil(1024)),
            tails: permits(TAILS_MAX),
            influxql_memory: MemoryPool::new(INFLUXQL_BYTES_MAX),
            pages: PageStore::new(options.clock.clone()),
            metrics: HttpMetrics::new(),
            log: RequestLog::default(),
            description,
            stopping: AtomicBool::new(false),
            engine,
            database,
            options,
            connections,
        }
    }

    /// Makes the server reject new requests and report that it is not ready.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.pages.clear();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Converts a panic of a request into a 500 reply, and counts and logs it.
    pub fn panicked(&self, payload: &(dyn std::any::Any + Send)) -> ApiError {
        let text = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        self.metrics.panics.inc();
        tracing::error!(panic = text, "a request hit a defect");
        ApiError::with_status(
            StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::Internal,
            "a defect in Tidemill ended this request; the server's log has the details",
        )
    }

    /// Runs `work` on a blocking thread and waits at most `timeout` for it.
    ///
    /// The work has a budget of that time, which also ends when the caller no longer waits for the result:
    /// filters and expressions stop at their next step. What asks no budget, such as a write that has been
    /// appended, runs to its end. The work holds `permit` until it ends.
    ///
    /// Errors: those of `work`; `Unavailable` after the timeout; `Internal` when it panics, which is counted.
    pub async fn blocking<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        self: &Arc<Self>,
        permit: impl Send + 'static,
        timeout: Duration,
        work: impl FnOnce(&AppState) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        let budget = Budget::builder().time(timeout).build();
        let _waiter = Waiter(budget.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let _entered = budget.enter();
            work(&app)
        });
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(result)) => result.map_err(Into::into),
            Ok(Err(join)) => Err(match join.try_into_panic() {
                Ok(payload) => self.panicked(&*payload),
                Err(_) => Error::unavailable("the server is shutting down").into(),
            }),
            Err(_) => Err(Error::unavailable(format!(
                "no answer within {timeout:?}; what was asked may still be done: look before you send it again"
            ))
            .into()),
        }
    }
}

/// A request that waits for work. Dropped, be it because its client has closed the connection, it ends the work.
struct Waiter(Budget);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.stop(Stop::ClientGone);
    }
}
