//! Flight SQL and MCP on the connections of HTTP.

use axum::body::Body;
use axum::http::{Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use tidemill::flight::FlightSql;
use tidemill::server::GrpcService;
use tower::ServiceExt;

/// Flight SQL as the calls of gRPC that the server of HTTP serves beside its routes.
pub(super) struct FlightBesideHttp(FlightSql);

impl FlightBesideHttp {
    pub fn new(service: FlightSql) -> Self {
        Self(service)
    }
}

impl GrpcService for FlightBesideHttp {
    fn paths(&self) -> &'static [&'static str] {
        FlightSql::paths()
    }

    fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let reply = self.0.clone().oneshot(request);
        async move {
            let Ok(reply) = reply.await;
            reply.map(Body::new)
        }
        .boxed()
    }

    fn tick(&self) {
        self.0.tick();
    }

    fn drain(&self) {
        self.0.drain();
    }
}

/// MCP as the service that the server of HTTP serves beside its routes.
#[cfg(feature = "mcp")]
pub(super) struct McpBesideHttp(tidemill::mcp::McpService);

#[cfg(feature = "mcp")]
impl McpBesideHttp {
    pub fn new(service: tidemill::mcp::McpService) -> Self {
        Self(service)
    }
}

#[cfg(feature = "mcp")]
impl tidemill::server::MountedService for McpBesideHttp {
    fn path(&self) -> &'static str {
        tidemill::mcp::PATH
    }

    fn answer(&self, request: Request<bytes::Bytes>) -> BoxFuture<'static, Response<bytes::Bytes>> {
        self.0.answer(request)
    }

    fn refusal_body(&self, message: &str) -> bytes::Bytes {
        tidemill::mcp::McpService::refusal_body(message)
    }
}
