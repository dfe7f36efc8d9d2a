//! How many requests are worked on at one time. More are told to try again instead of queueing.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::metrics::gauge::Gauge;
use tidemill_types::Error;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::ApiError;

/// A place among the requests that are worked on, given back when its last clone goes.
///
/// The engine's work for a request holds one as well: a request that timed out keeps its place until its work ends.
#[derive(Debug, Clone)]
pub(crate) struct Slot(#[expect(dead_code, reason = "held for its drop")] Arc<Held>);

#[derive(Debug)]
struct Held {
    _permit: OwnedSemaphorePermit,
    in_flight: Gauge,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

/// Gives requests to `/api` a [`Slot`]; health and metrics must answer when everything else is busy.
pub(crate) async fn limit(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.uri().path().starts_with("/api/") {
        if app.is_stopping() {
            return Err(Error::unavailable("the server is shutting down").into());
        }
        let permit = app.slots.clone().try_acquire_owned().map_err(|_| {
            ApiError::from(Error::limit(format!(
                "{} requests are worked on, which is the limit (concurrency_max): try again",
                app.options.concurrency_max
            )))
        })?;
        let in_flight = app.metrics.in_flight.clone();
        in_flight.inc();
        request.extensions_mut().insert(Slot(Arc::new(Held { _permit: permit, in_flight })));
    }
    Ok(next.run(request).await)
}

/// What a panic in a handler becomes.
pub(crate) fn panicked(app: &App, payload: Box<dyn std::any::Any + Send>) -> ApiError {
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
