//! How many requests are worked on at one time. More are told to try again instead of queueing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tidemill_types::Error;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::AppState;
use crate::error::ApiError;

/// A place among the requests that are worked on, given back when its last clone goes.
///
/// The engine's work for a request holds one as well: a request that timed out keeps its place until its work ends.
#[derive(Clone)]
pub(crate) struct RequestPermit(Arc<PermitState>);

struct PermitState {
    app: Arc<AppState>,
    /// `None` while the request's body arrives: who sends slowly must not keep others out.
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
    /// Errors: 429 when all places are taken.
    fn take(app: &Arc<AppState>) -> Result<Self, ApiError> {
        let held = Mutex::new(Some(PermitInner::take(app)?));
        Ok(Self(Arc::new(PermitState { app: app.clone(), inner: held })))
    }

    /// Gives the place to others until [`RequestPermit::resume`].
    pub fn pause(&self) {
        self.0.inner.lock().take();
    }

    /// Takes a place again. Errors: 429 when all are taken.
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

/// Gives requests to `/api` a [`RequestPermit`]; health and metrics must answer when everything else is busy.
pub(crate) async fn limit(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.uri().path().starts_with("/api/") {
        if app.is_stopping() {
            return Err(Error::unavailable("the server is shutting down").into());
        }
        let slot = RequestPermit::take(&app)?;
        request.extensions_mut().insert(slot);
    }
    Ok(next.run(request).await)
}

/// What a panic in a handler becomes.
pub(crate) fn panicked(app: &AppState, payload: Box<dyn std::any::Any + Send>) -> ApiError {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    app.metrics.panics.inc();
    tracing::error!(panic = text, "a request hit a defect");
    ApiError::with_status(
        StatusCode::INTERNAL_SERVER_ERROR,
        tidemill_types::ErrorKind::Internal,
        "a defect in Tidemill ended this request; the server's log has the details",
    )
}
