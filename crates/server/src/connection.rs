//! A connection of HTTP: HTTP/1.1, or HTTP/2 with many requests at once.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::future::pending;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidemill_gateway::{Connection, Socket};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::guard::host::ListenerAddress;
use crate::reply_body::ReplyBody;
use crate::router::resolve_alias;

/// Time limit for a request's head to arrive, for an idle connection of HTTP/1.1, and for the first request of HTTP/2.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Name of HTTP/2 during the TLS handshake.
const H2: &[u8] = b"h2";
/// Beginning of a connection of HTTP/2 without TLS; no method of HTTP/1.1 begins so.
const PREFACE: &[u8] = b"PRI ";
/// Pause when the preface has come in part.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// Requests of a connection of HTTP/2 at the same time.
const STREAMS_MAX: u32 = 128;
/// Requests that a client may give up before they are looked at; a connection with more of them ends.
const RESETS_MAX: usize = 64;
/// Bytes that a client may send in advance, in a request and in a connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of a reply that wait for a client to take them.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// Time between two signs of life of a client of HTTP/2, and the time to answer one.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until it ends.
pub(crate) async fn serve(connection: Connection, router: Router) {
    let Connection { socket, peer, listener, handle, .. } = connection;
    let is_http2 = tokio::select! {
        biased;
        // a request that has come before a drain is answered
        found = timeout(HEAD_TIMEOUT, is_http2(&socket)) => match found {
            Ok(Ok(is_http2)) => is_http2,
            Ok(Err(_)) | Err(_) => return,
        },
        () = handle.draining() => return,
    };
    let (first, mut has_begun) = watch::channel(false);
    let requests = handle.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        first.send_replace(true);
        let active = requests.begin();
        let mut request = request.map(Body::new);
        resolve_alias(&mut request);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(ListenerAddress(listener));
        request.extensions_mut().insert(requests.clone());
        let reply = router.clone().oneshot(request);
        async move {
            let Some(active) = active else {
                return Err(io::Error::other("the connection was closed to make room"));
            };
            let Ok(reply) = reply.await;
            Ok(reply.map(|body| ReplyBody::new(body, active)))
        }
    });
    let ended = match is_http2 {
        false => {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(socket), service);
            let mut served = pin!(served);
            tokio::select! {
                ended = served.as_mut() => ended,
                () = handle.draining() => {
                    served.as_mut().graceful_shutdown();
                    served.await
                }
            }
        }
        true => {
            let served = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(HEAD_BYTES_MAX as u32)
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
                if timeout(HEAD_TIMEOUT, has_begun.wait_for(|has_begun| *has_begun)).await.is_ok() {
                    pending::<()>().await;
                }
            };
            tokio::select! {
                ended = served.as_mut() => ended,
                () = silent => return,
                () = handle.draining() => {
                    served.as_mut().graceful_shutdown();
                    served.await
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended with an error");
    }
}

/// Returns whether the client speaks HTTP/2. What it has sent stays to be read.
///
/// Errors: the connection is broken.
async fn is_http2(socket: &Socket) -> io::Result<bool> {
    match socket.is_encrypted() {
        true => Ok(socket.alpn() == Some(H2)),
        false => begins_with_preface(socket.tcp()).await,
    }
}

async fn begins_with_preface(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut first).await?;
        if count == PREFACE.len() || count == 0 || first[..count] != PREFACE[..count] {
            return Ok(first == *PREFACE);
        }
        // the same bytes can be peeked at once, and more of them are on their way
        sleep(PREFACE_PAUSE).await;
    }
}
