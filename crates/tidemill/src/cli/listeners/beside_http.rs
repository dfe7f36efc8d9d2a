//! Flight SQL on the connections of HTTP.

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
