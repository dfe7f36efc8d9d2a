//! Limit of concurrent requests. Further requests are rejected with 429 instead of queueing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tidemill_types::Error;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::AppState;
use crate::error::ApiError;
use crate::paths::api_version::ApiVersion;
use crate::paths::telemetry_path;

/// Path of the routes of SQL statements. The limit does not hold for them: it may have been reached by the statements that are
/// to be cancelled.
pub(crate) const STATEMENTS: &str = "/api/v1/statements";

/// Permit of a concurrent request, released when its last clone is dropped.
///
/// The engine call of a request holds a clone: a request that timed out keeps its permit until the call ends.
#[derive(Clone)]
pub(crate) struct RequestPermit(Arc<PermitState>);

struct PermitState {
    app: Arc<AppState>,
    /// `None` while the request's body arrives, so that slow senders do not block others.
    inner: Mutex<Option<PermitInner>>,
}

struct PermitInner {
    _permit: OwnedSemaphorePermit,
    in_flight: Gauge,
}

impl Drop for PermitInner {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

impl RequestPermit {
    /// Acquires a permit. Errors: 429 when none is free.
    fn take(app: &Arc<AppState>) -> Result<Self, ApiError> {
        let held = Mutex::new(Some(PermitInner::take(app)?));
        Ok(Self(Arc::new(PermitState { app: app.clone(), inner: held })))
    }

    /// Releases the permit until [`RequestPermit::resume`].
    pub fn pause(&self) {
        self.0.inner.lock().take();
    }

    /// Acquires the permit again. Errors: 429 when none is free.
    pub fn resume(&self) -> Result<(), ApiError> {
        let held = PermitInner::take(&self.0.app)?;
        *self.0.inner.lock() = Some(held);
        Ok(())
    }
}

impl PermitInner {
    fn take(app: &AppState) -> Result<Self, ApiError> {
        let permit = app.permits.clone().try_acquire_owned().map_err(|_| {
            ApiError::from(Error::limit(format!(
                "{} requests are worked on, which is the limit (concurrency_max): try again",
                app.options.concurrency_max
            )))
        })?;
        let in_flight = app.metrics.in_flight.clone();
        in_flight.inc();
        Ok(Self { _permit: permit, in_flight })
    }
}

/// Returns whether the limit holds for a path: for `/api` without the routes of statements, for line protocol, and for OTLP. Statements,
/// health and metrics must answer under load.
pub(crate) fn is_counted(path: &str) -> bool {
    let rest = path.strip_prefix(STATEMENTS);
    let is_statements = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_otlp = telemetry_path::http_signal(path).or_else(|| telemetry_path::grpc_signal(path)).is_some();
    (path.starts_with("/api/") && !is_statements) || ApiVersion::of_path(path).is_some() || is_otlp
}

/// Middleware that gives requests a [`RequestPermit`] where the limit holds.
pub(crate) async fn limit(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if is_counted(request.uri().path()) {
        return limit_all(State(app), request, next).await;
    }
    Ok(next.run(request).await)
}

/// Middleware that gives every request a [`RequestPermit`].
pub(crate) async fn limit_all(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if app.is_stopping() {
        return Err(Error::unavailable("the server is shutting down").into());
    }
    let slot = RequestPermit::take(&app)?;
    request.extensions_mut().insert(slot);
    Ok(next.run(request).await)
}
