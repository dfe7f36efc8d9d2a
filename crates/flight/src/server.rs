//! Flight SQL as a protocol of the gateway, on listeners of its own.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, pending};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidemill_gateway::{ActiveRequest, Connection, FrontEnd};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body as TonicBody;
use tower::ServiceExt;

use crate::grpc::FlightSql;
use crate::reply_body::KeepingBody;
use crate::shared::PROTOCOL;

/// Time for the first call of a connection.
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls of a connection at the same time.
const STREAMS_MAX: u32 = 128;
/// Maximum bytes of the headers of a call.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Calls that a client may give up before they are looked at; a connection with more of them ends.
const RESETS_MAX: usize = 64;
/// Bytes that a client may send in advance, in a call and in a connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of a reply that wait for a client to take them.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// Time between two signs of life, and the time to answer one.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Flight SQL alone on a listener, by HTTP/2 only.
pub struct FlightFrontEnd {
    service: FlightSql,
}

impl FlightFrontEnd {
    /// Creates the protocol over a service, which others may serve as well.
    pub fn new(service: FlightSql) -> Self {
        Self { service }
    }
}

impl FrontEnd for FlightFrontEnd {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn requires_login(&self) -> bool {
        !self.service.state().options.is_open()
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"h2"]
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Connection { socket, peer, handle, .. } = connection;
            let (first, mut has_begun) = watch::channel(false);
            let requests = handle.clone();
            let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
                first.send_replace(true);
                let active: Option<ActiveRequest> = requests.begin();
                request.extensions_mut().insert(requests.clone());
                let reply = self.service.clone().oneshot(request);
                async move {
                    let Some(active) = active else {
                        return Ok(Status::unavailable("the connection was closed to make room").into_http());
                    };
                    let Ok(reply) = reply.await;
                    Ok::<_, Infallible>(reply.map(|body| TonicBody::new(KeepingBody { body, _kept: active })))
                }
            });
            let served = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(HEADER_BYTES_MAX)
                .max_concurrent_streams(STREAMS_MAX)
                .max_pending_accept_reset_streams(RESETS_MAX)
                .max_send_buf_size(SEND_BUFFER_BYTES)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .serve_connection(TokioIo::new(socket), service);
            let mut served = pin!(served);
            let silent = async {
                if timeout(FIRST_CALL_TIMEOUT, has_begun.wait_for(|has_begun| *has_begun)).await.is_ok() {
                    pending::<()>().await;
                }
            };
            let ended = tokio::select! {
                ended = served.as_mut() => ended,
                () = silent => return,
                () = handle.draining() => {
                    served.as_mut().graceful_shutdown();
                    served.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "a connection ended with an error");
            }
        })
    }

    fn tick(&self) {
        self.service.tick();
    }

    fn drain(&self) {
        self.service.drain();
    }
}
