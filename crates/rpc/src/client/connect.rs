//! Opening a connection: TCP, TLS, HTTP/2, and the proof of who both nodes are.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidemill_types::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic_prost::ProstCodec;

use super::Link;
use super::failure::{SendFailure, chain};
use super::tls;
use crate::limits::STREAM_WINDOW_BYTES;
use crate::message::{HANDSHAKE_BYTES_MAX, HELLO_PATH, Hello, PROVE_PATH, Proof, ProofAccepted, Welcome};
use crate::secret::{Secret, Side, nonce};
use crate::security::Security;

/// Time for an attempt to connect.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// An open connection; clones are of the same one.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    requests: SendRequest<Body>,
    origin: Uri,
}

/// Task of a connection, which returns why it has ended.
pub(super) type ConnectionTask = JoinSet<String>;

impl Connection {
    /// Returns whether the connection takes no more calls.
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Returns a client of the service.
    pub fn grpc(&self, message_bytes_max: usize) -> Grpc<Sender> {
        Grpc::with_origin(Sender(self.requests.clone()), self.origin.clone())
            .max_decoding_message_size(message_bytes_max)
    }
}

/// Sends requests, and finds out whether those that fail may have been executed.
pub(super) struct Sender(SendRequest<Body>);

impl GrpcService<Body> for Sender {
    type ResponseBody = Incoming;
    type Error = SendFailure;
    type Future = BoxFuture<'static, Result<Response<Incoming>, SendFailure>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFailure>> {
        self.0.poll_ready(cx).map_err(SendFailure::from)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sent = self.0.try_send_request(request);
        async move { sent.await.map_err(SendFailure::from) }.boxed()
    }
}

/// Opens a connection. Dropping the task closes it.
///
/// Errors: `Unavailable` if there is nothing at the address; `Forbidden` if one of the nodes refuses the other one; `Invalid` for an
/// address or files that cannot be used.
pub(super) async fn connect(link: &Link) -> Result<(Connection, ConnectionTask)> {
    let stream = open(link).await?;
    match &link.settings.security {
        Security::Secret(_) => {
            let (connection, task) = http2(link, stream).await?;
            prove(link, &connection).await.map_err(|failure| match failure {
                ConnectRefusal::Told(error) => error,
                ConnectRefusal::Ended(reason) => link.unavailable(format!(
                    "it ended the connection before it proved which node it is ({reason}): is it a node of this cluster that proves itself by \
                     the shared secret, as this one does, and not by a certificate?"
                )),
            })?;
            Ok((connection, task))
        }
        Security::Certificates(files) => {
            let (stream, alert) = tls::encrypt(link, files, stream).await?;
            let (connection, task) = http2(link, stream).await?;
            prove(link, &connection).await.map_err(|failure| match (failure, alert.get()) {
                (ConnectRefusal::Told(error), _) => error,
                (ConnectRefusal::Ended(_), Some(alert)) => tls::refused(link, files, alert),
                (ConnectRefusal::Ended(reason), None) => link.unavailable(format!(
                    "it ended the connection before it said which node it is ({reason})"
                )),
            })?;
            Ok((connection, task))
        }
    }
}

/// Opens a TCP connection to the first address that can be reached.
async fn open(link: &Link) -> Result<TcpStream> {
    let address = &link.address;
    let found = tokio::net::lookup_host(address).await;
    let found: Vec<SocketAddr> = found
        .map_err(|e| link.unavailable(format!("the address is not known: {e}; expected HOST:PORT")))?
        .collect();
    let mut failure = link.unavailable("the host has no address");
    for address in found {
        link.settings.security.check_address(address).map_err(|e| link.error(e.kind(), e))?;
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // calls are small, so waiting to fill a packet would only add latency; a failure costs no more than that
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY");
                }
                return Ok(stream);
            }
            Err(error) => failure = link.unavailable(format!("it cannot be reached: {error}")),
        }
    }
    Err(failure)
}

/// Begins HTTP/2.
async fn http2(
    link: &Link,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(Connection, ConnectionTask)> {
    let limits = &link.settings.limits;
    let (requests, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keep_alive_interval)
        .keep_alive_timeout(limits.keep_alive_timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits.client_window_bytes())
        // callers may give up all their calls at once
        .max_concurrent_reset_streams(limits.requests_max() as usize)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| link.unavailable(format!("it does not speak HTTP/2: {}", chain(&e))))?;
    let mut task = JoinSet::new();
    task.spawn(async move {
        match connection.await {
            Ok(()) => "the other node closed it in order".to_owned(),
            Err(error) => chain(&error),
        }
    });
    let scheme = match link.settings.security {
        Security::Certificates(_) => "https",
        Security::Secret(_) => "http",
    };
    let origin = Uri::builder().scheme(scheme).authority(link.address.as_str()).path_and_query("/").build();
    let origin = origin.map_err(|e| link.error(ErrorKind::Invalid, format!("{e}; expected HOST:PORT")))?;
    Ok((Connection { requests, origin }, task))
}

/// Reasons for which two nodes do not come together.
enum ConnectRefusal {
    /// One of them has said why.
    Told(Error),
    /// The connection has ended without a word.
    Ended(String),
}

/// Says which node this is, and finds out which one the other is.
async fn prove(link: &Link, connection: &Connection) -> Result<(), ConnectRefusal> {
    let own = &link.settings.identity;
    let secret = match &link.settings.security {
        Security::Secret(secret) => Some(secret),
        Security::Certificates(_) => None,
    };
    let hello = Hello {
        cluster_id: own.cluster_id.clone(),
        node: own.node.clone(),
        incarnation: own.incarnation,
        protocol_min: *link.settings.protocols.start(),
        protocol_max: *link.settings.protocols.end(),
        callee: link.node.clone(),
        nonce: secret.map(|_| nonce().to_vec()).unwrap_or_default().into(),
    };
    let mut grpc = connection.grpc(HANDSHAKE_BYTES_MAX);
    let path = PathAndQuery::from_static(HELLO_PATH);
    let welcome =
        grpc.unary(tonic::Request::new(hello.clone()), path, ProstCodec::<Hello, Welcome>::default()).await;
    let welcome = welcome.map_err(|status| refusal(link, &status))?.into_inner();
    if let Some(secret) = secret {
        prove_secret(link, connection, secret, &hello, &welcome).await?;
    }
    check(link, &welcome).map_err(ConnectRefusal::Told)
}

/// Checks that the other node knows the secret, and then proves that this one does.
async fn prove_secret(
    link: &Link,
    connection: &Connection,
    secret: &Secret,
    hello: &Hello,
    welcome: &Welcome,
) -> Result<(), ConnectRefusal> {
    let is_proven = secret.is_proven(&welcome.proof, Side::Callee, hello, welcome);
    // an empty proof tells the other node why the connection ends, so that its log says so, too
    let proof = if is_proven { secret.proof(Side::Caller, hello, welcome) } else { vec![] };
    let mut grpc = connection.grpc(HANDSHAKE_BYTES_MAX);
    let path = PathAndQuery::from_static(PROVE_PATH);
    let proof = tonic::Request::new(Proof { proof: proof.into() });
    let accepted = grpc.unary(proof, path, ProstCodec::<Proof, ProofAccepted>::default()).await;
    if !is_proven {
        return Err(ConnectRefusal::Told(link.error(
            ErrorKind::Forbidden,
            format!(
                "it does not have the secret of node `{}`: give all nodes of the cluster the same one, and start those that have another one \
                 again",
                link.settings.identity.node
            ),
        )));
    }
    accepted.map(|_| ()).map_err(|status| refusal(link, &status))
}

/// Checks what the other node says of itself. It has checked the same of this one, so only a node with a defect gets here with something
/// else.
fn check(link: &Link, welcome: &Welcome) -> Result<()> {
    let own = &link.settings.identity;
    let is_expected = welcome.cluster_id == own.cluster_id
        && welcome.node == link.node
        && link.settings.protocols.contains(&welcome.protocol);
    match is_expected {
        true => Ok(()),
        false => Err(link.error(
            ErrorKind::Forbidden,
            format!(
                "it answers as node `{}` of cluster `{}` with protocol {}: expected node `{}` of cluster `{}` with protocol {} to {}",
                welcome.node.escape_default(),
                welcome.cluster_id.escape_default(),
                welcome.protocol,
                link.node,
                own.cluster_id,
                link.settings.protocols.start(),
                link.settings.protocols.end()
            ),
        )),
    }
}

fn refusal(link: &Link, status: &tonic::Status) -> ConnectRefusal {
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => {
            ConnectRefusal::Told(link.error(ErrorKind::Forbidden, status.message()))
        }
        _ => ConnectRefusal::Ended(
            std::error::Error::source(status).map_or_else(|| status.message().to_owned(), chain),
        ),
    }
}
