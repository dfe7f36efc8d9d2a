//! State shared by all handlers, and their access to the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tidemill_types::{Error, Result};
use tokio::sync::Semaphore;

use crate::Engine;
use crate::error::ApiError;
use crate::guard::concurrency::RequestPermit;
use crate::metrics::HttpMetrics;
use crate::options::ServerOptions;
use crate::request_log::RequestLog;
use crate::router::ApiDescription;
use crate::sql::Sql;

/// Shared state of the server.
pub(crate) struct AppState {
    pub engine: Arc<Engine>,
    pub sql: Arc<dyn Sql>,
    pub options: ServerOptions,
    pub metrics: HttpMetrics,
    pub log: RequestLog,
    pub description: ApiDescription,
    /// Permits for concurrent requests: `concurrency_max`.
    pub permits: Arc<Semaphore>,
    /// Permits for request bodies in memory, one per KiB: `bodies_bytes_max`.
    pub body_budget: Arc<Semaphore>,
    /// Whether the server listens on a loopback address.
    pub loopback: bool,
    stopping: AtomicBool,
}

impl AppState {
    pub fn new(engine: Arc<Engine>, sql: Arc<dyn Sql>, options: ServerOptions, loopback: bool) -> Self {
        let permits = |n: usize| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)));
        Self {
            permits: permits(options.concurrency_max),
            body_budget: permits(options.bodies_bytes_max.div_ceil(1024)),
            metrics: HttpMetrics::new(),
            log: RequestLog::default(),
            description: ApiDescription::new(),
            stopping: AtomicBool::new(false),
            engine,
            sql,
            options,
            loopback,
        }
    }

    /// Makes the server reject new requests and report that it is not ready.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Runs `work` on a blocking thread and waits at most `timeout` for it.
    ///
    /// Work that takes longer runs to its end and holds its slot until then; its result is dropped.
    /// Errors: those of `work`; `Unavailable` after the timeout; `Internal` when it panics, which is counted.
    pub async fn blocking<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        self: &Arc<Self>,
        slot: Option<RequestPermit>,
        timeout: Duration,
        work: impl FnOnce(&AppState) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            work(&app)
        });
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(result)) => result.map_err(Into::into),
            Ok(Err(join)) => Err(match join.try_into_panic() {
                Ok(payload) => crate::guard::concurrency::panicked(self, payload),
                Err(_) => Error::unavailable("the server is shutting down").into(),
            }),
            Err(_) => Err(Error::unavailable(format!(
                "no answer within {timeout:?}; what was asked may still be done: look before you send it again"
            ))
            .into()),
        }
    }
}

/// Context of a request: the shared state and the request's permit.
pub(crate) struct RequestContext {
    pub app: Arc<AppState>,
    pub permit: Option<RequestPermit>,
}

impl RequestContext {
    /// Calls the engine on a blocking thread, within the request timeout.
    pub async fn engine<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.engine_within(self.app.options.request_timeout, ask).await
    }

    /// Calls the engine on a blocking thread, within `timeout`.
    pub async fn engine_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        ask: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.app.blocking(self.permit.clone(), timeout, move |app| ask(&app.engine)).await
    }
}

impl FromRequestParts<Arc<AppState>> for RequestContext {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, Self::Rejection> {
        Ok(Self { app: app.clone(), permit: parts.extensions.get::<RequestPermit>().cloned() })
    }
}
