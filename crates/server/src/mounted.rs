//! A protocol over HTTP with one path, served beside the routes: MCP.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderValue, Response, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use futures::future::BoxFuture;
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::AppState;
use crate::body::RequestBody;
use crate::error::{ApiError, ErrorDetail};
use crate::guard::{auth, concurrency, host, observe};

/// A protocol over HTTP with one path. Its requests pass the checks of the routes: host, page, token, and the limits of concurrent
/// requests and of bodies. It checks the rights of its caller itself.
pub trait MountedService: Send + Sync + 'static {
    /// Returns its path.
    fn path(&self) -> &'static str;

    /// Answers a request, whose body is whole and not compressed, and whose caller is an extension of it
    /// (`tidemill_access::Principal`).
    fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Bytes>>;

    /// Returns the body, in JSON, of a reply in which the server refuses a request.
    fn refusal_body(&self, message: &str) -> Bytes;
}

/// Creates the router of a service.
pub(crate) fn router(app: Arc<AppState>, service: Arc<dyn MountedService>) -> Router {
    let panicking = app.clone();
    let (path, refusing) = (service.path(), service.clone());
    let answer = move |State(app): State<Arc<AppState>>, request: Request| {
        let service = service.clone();
        async move {
            let (parts, body) = request.into_parts();
            let whole = Request::from_parts(parts.clone(), body);
            let content = RequestBody::from_request(whole, &app).await?;
            // the share of the memory for bodies is held until the answer is there
            let request = Request::from_parts(parts, content.bytes.clone());
            let reply = service.answer(request).await.map(Body::from);
            drop(content);
            Ok::<_, ApiError>(reply)
        }
    };
    Router::new()
        .route(path, any(answer))
        .layer(from_fn_with_state(app.clone(), concurrency::limit_all))
        .layer(from_fn_with_state(app.clone(), auth::check))
        .layer(from_fn_with_state(app.clone(), host::check))
        .layer(from_fn_with_state(app.clone(), host::check_page))
        .layer(CatchPanicLayer::custom(move |payload: Box<dyn std::any::Any + Send>| {
            panicking.panicked(&*payload).into_response()
        }))
        .layer(from_fn(move |request: Request, next: Next| {
            let service = refusing.clone();
            async move { own_form(&*service, next.run(request).await) }
        }))
        .layer(from_fn_with_state(app.clone(), observe::observe))
        .with_state(app)
}

/// Returns a reply with the body of the protocol, if it is an error of the server.
fn own_form(service: &dyn MountedService, reply: Response<Body>) -> Response<Body> {
    let Some(ErrorDetail { message, .. }) = reply.extensions().get::<ErrorDetail>() else { return reply };
    let body = service.refusal_body(message);
    let (mut head, _) = reply.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, Body::from(body))
}
