//! Calls of gRPC beside the routes.

use axum::body::Body;
use axum::http::{Request, Response};
use futures::future::BoxFuture;

/// A protocol over gRPC that is served on the connections of HTTP, such as Flight SQL. It knows its callers, limits and errors itself; the
/// checks of the host, the metrics and the log of requests are those of the routes.
pub trait GrpcService: Send + Sync + 'static {
    /// Returns the paths of its calls.
    fn paths(&self) -> &'static [&'static str];

    /// Answers a request, whose connection is an extension of it (`tidemill_gateway::ConnectionHandle`).
    fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>>;

    /// Does what is due about once a second.
    fn tick(&self);

    /// Refuses calls from now on.
    fn drain(&self);
}
