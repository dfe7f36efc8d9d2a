//! Calls of gRPC as requests of HTTP/2: checks before a message is decoded, and what lasts as long as a reply.

use std::convert::Infallible;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_flight::flight_service_server::FlightServiceServer;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode, Version, header};
use http_body::{Body, Frame};
use tidemill_database::Database;
use tidemill_gateway::ConnectionHandle;
use tonic::Status;
use tonic::body::Body as TonicBody;
use tower::Service;

use crate::error::Result;
use crate::options::FlightOptions;
use crate::reply_body::KeepingBody;
use crate::request_body::{BodyLimits, RequestBody, SMALL_BYTES};
use crate::service::Calls;
use crate::shared::{Caller, ServerState};

/// Paths of the calls.
const PATHS: [&str; 10] = [
    "/arrow.flight.protocol.FlightService/Handshake",
    "/arrow.flight.protocol.FlightService/ListFlights",
    "/arrow.flight.protocol.FlightService/GetFlightInfo",
    "/arrow.flight.protocol.FlightService/PollFlightInfo",
    "/arrow.flight.protocol.FlightService/GetSchema",
    "/arrow.flight.protocol.FlightService/DoGet",
    "/arrow.flight.protocol.FlightService/DoPut",
    "/arrow.flight.protocol.FlightService/DoExchange",
    "/arrow.flight.protocol.FlightService/DoAction",
    "/arrow.flight.protocol.FlightService/ListActions",
];
const HANDSHAKE: &str = PATHS[0];
const DO_PUT: &str = PATHS[6];

/// Flight SQL over a database, as a service for requests of HTTP/2. Clones share their state.
///
/// The server of HTTP serves it beside its own routes; [`crate::FlightFrontEnd`] serves it alone. Where a request has the extension
/// [`ConnectionHandle`], its connection is trusted once its caller is known.
#[derive(Clone)]
pub struct FlightSql {
    state: Arc<ServerState>,
    calls: FlightServiceServer<Calls>,
}

impl FlightSql {
    /// Creates the service.
    pub fn new(database: Arc<dyn Database>, options: FlightOptions) -> Self {
        let state = Arc::new(ServerState::new(database, options));
        let calls = FlightServiceServer::new(Calls::new(state.clone()))
            .max_decoding_message_size(state.options.message_bytes_max)
            .max_encoding_message_size(usize::MAX);
        Self { state, calls }
    }

    /// Returns the paths of its calls.
    pub fn paths() -> &'static [&'static str] {
        &PATHS
    }

    /// Does what is due about once a second.
    pub fn tick(&self) {
        self.state.tick();
    }

    /// Refuses calls from now on; those under way continue.
    pub fn drain(&self) {
        self.state.stop();
    }

    pub(crate) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    async fn answer<B>(mut self, request: http::Request<B>) -> Result<http::Response<TonicBody>>
    where
        B: Body<Data = Bytes, Error: Display> + Unpin + Send + 'static,
    {
        let state = self.state.clone();
        if state.is_stopping() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        let (mut parts, body) = request.into_parts();
        let is_handshake = parts.uri.path() == HANDSHAKE;
        if !is_handshake {
            let principal = state.login.principal(&parts.headers).await?;
            if let Some(connection) = parts.extensions.get::<ConnectionHandle>() {
                connection.trust();
            }
            parts.extensions.insert(Caller::new(principal));
        }
        let permit = state.calls.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{} calls are under way, which is the limit: try again",
                state.options.calls_max
            ))
        })?;
        let limits = BodyLimits {
            memory: state.memory.clone(),
            // one who is not known yet sends little
            message_bytes_max: if is_handshake { SMALL_BYTES } else { state.options.message_bytes_max },
            transfer_timeout: state.options.transfer_timeout,
            idle_timeout: match parts.uri.path() {
                DO_PUT => state.options.idle_timeout,
                _ => state.options.transfer_timeout,
            },
        };
        let request = http::Request::from_parts(parts, RequestBody::new(body, limits));
        let reply = AssertUnwindSafe(self.calls.call(request)).catch_unwind().await;
        let Ok(reply) = reply.map_err(|_| {
            tracing::error!("a call hit a defect");
            Status::internal("a defect in Tidemill ended this call; the server's log has the details")
        })?;
        Ok(reply.map(|body| TonicBody::new(KeepingBody { body, _kept: permit })))
    }
}

impl<B> Service<http::Request<B>> for FlightSql
where
    B: Body<Data = Bytes, Error: Display> + Unpin + Send + 'static,
{
    type Response = http::Response<TonicBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let this = self.clone();
        async move {
            if request.version() != Version::HTTP_2 || !is_grpc(request.headers()) {
                return Ok(no_grpc());
            }
            Ok(this.answer(request).await.unwrap_or_else(Status::into_http))
        }
        .boxed()
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the reply to a request that is not a call of gRPC.
fn no_grpc() -> http::Response<TonicBody> {
    let text =
        "expected a call of gRPC (HTTP/2, content type application/grpc): this is the path of Arrow Flight\n";
    let mut reply = http::Response::new(TonicBody::new(FullText(Some(text))));
    *reply.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    reply
}

/// Body with a text.
struct FullText(Option<&'static str>);

impl Body for FullText {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}
