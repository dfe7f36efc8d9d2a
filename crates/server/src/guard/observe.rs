//! Counting, timing and logging ([`crate::request_log`]) of every reply.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::app::AppState;
use crate::metrics::MethodLabel;
use crate::request_log::CompletedRequest;

/// Route label of requests that match no route.
const UNMATCHED: &str = "unmatched";

pub(crate) async fn observe(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = MethodLabel::from(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|c| c.0);
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    let mut response = next.run(request).await;
    // data must not be interpreted as a page by a browser
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let (status, took) = (response.status(), started.elapsed());
    app.metrics.record(method, route, status.as_u16(), took);
    app.log.record(&CompletedRequest { method: method.name(), route, status: status.as_u16(), took, peer });
    response
}
