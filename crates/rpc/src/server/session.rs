//! A connection of another node: its handshake, and what it has under way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tidemill_gateway::{ClientCertificate, ConnectionHandle};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::RpcFrontEnd;
use super::body::{Active, BytesPermit, CallBody, ReplyBody};
use super::handshake::Handshake;
use super::run::{CallRun, Method};
use crate::call::PeerIdentity;
use crate::message::{
    CALL_PATH, CallMessage, HANDSHAKE_BYTES_MAX, HELLO_PATH, Hello, MESSAGE_OVERHEAD_BYTES,
    NOT_EXECUTED_HEADER, PROVE_PATH, Proof, ProofAccepted, ReplyMessage, STREAM_PATH, Welcome,
};

/// A connection of another node.
pub(super) struct Session {
    front_end: Arc<RpcFrontEnd>,
    handle: ConnectionHandle,
    address: SocketAddr,
    certificate: Option<ClientCertificate>,
    handshake: Mutex<Handshake>,
    /// The node, once it has proven who it is.
    peer: watch::Sender<Option<Arc<PeerIdentity>>>,
    /// Number of calls and streams under way.
    active: watch::Sender<usize>,
    request_bytes: Arc<Semaphore>,
}

/// One of the calls and streams under way.
pub(super) struct CallSlot(Arc<Session>);

impl CallSlot {
    fn new(session: &Arc<Session>) -> Self {
        session.active.send_modify(|active| *active += 1);
        Self(session.clone())
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.0.active.send_modify(|active| *active -= 1);
    }
}

impl Session {
    pub fn new(
        front_end: Arc<RpcFrontEnd>,
        handle: ConnectionHandle,
        address: SocketAddr,
        certificate: Option<ClientCertificate>,
    ) -> Arc<Self> {
        let limits = &front_end.settings.limits;
        Arc::new(Self {
            request_bytes: Arc::new(Semaphore::new(limits.request_bytes_max)),
            front_end,
            handle,
            address,
            certificate,
            handshake: Mutex::default(),
            peer: watch::Sender::default(),
            active: watch::Sender::default(),
        })
    }

    /// Returns the node, if it has proven who it is.
    pub fn peer(&self) -> Option<Arc<PeerIdentity>> {
        self.peer.borrow().clone()
    }

    /// Returns when the node has proven who it is.
    pub async fn known(&self) {
        // the sender is in `self`
        let _ = self.peer.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns when nothing is under way.
    pub async fn idle(&self) {
        let _ = self.active.subscribe().wait_for(|active| *active == 0).await;
    }

    /// Answers a request.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        match request.uri().path() {
            HELLO_PATH => {
                let method = |hello: Hello| self.hello(hello);
                handshake_grpc::<Welcome, Hello>().unary(Method(method), request).await
            }
            PROVE_PATH => {
                let method = |proof: Proof| self.prove(&proof);
                handshake_grpc::<ProofAccepted, Proof>().unary(Method(method), request).await
            }
            CALL_PATH => self.call(request, false).await,
            STREAM_PATH => self.call(request, true).await,
            other => refused(Status::unimplemented(format!(
                "{other} is not a method of nodes: expected {HELLO_PATH}, {PROVE_PATH}, {CALL_PATH} or {STREAM_PATH}"
            ))),
        }
    }

    fn hello(&self, hello: Hello) -> Result<Welcome, Status> {
        let mut handshake = self.handshake.lock();
        let welcome = handshake.hello(hello, &self.front_end.settings, self.certificate.as_ref());
        self.took(&handshake, welcome)
    }

    fn prove(&self, proof: &Proof) -> Result<ProofAccepted, Status> {
        let mut handshake = self.handshake.lock();
        let proven = handshake.proof(proof, &self.front_end.settings);
        self.took(&handshake, proven.map(|()| ProofAccepted {}))
    }

    fn took<T>(&self, handshake: &Handshake, step: Result<T, String>) -> Result<T, Status> {
        if let Some(peer) = handshake.peer() {
            tracing::info!(node = %peer.node, incarnation = peer.incarnation, protocol = peer.protocol, "a node has connected");
            self.peer.send_replace(Some(peer));
            self.handle.trust();
        }
        step.map_err(|reason| {
            self.front_end.refusals.report(self.address, &reason);
            Status::permission_denied(reason)
        })
    }

    /// Answers a call, or a call with many replies.
    async fn call(self: Arc<Self>, request: Request<Incoming>, is_stream: bool) -> Response<Body> {
        let (peer, active) = match self.admit() {
            Ok(admitted) => admitted,
            Err(status) => return refused(status),
        };
        // a stream lasts as long as it is read
        let deadline = match timeout_of(request.headers()) {
            Ok(timeout) => timeout.filter(|_| !is_stream).map(|timeout| Instant::now() + timeout),
            Err(status) => return refused(status),
        };
        let settings = &self.front_end.settings;
        let message_bytes_max = settings.limits.message_bytes_max + MESSAGE_OVERHEAD_BYTES;
        // given back when the handler is done, before the caller sees the reply and sends the next call
        let permit = BytesPermit::default();
        let request = request
            .map(|body| CallBody::new(body, self.request_bytes.clone(), permit.clone(), message_bytes_max));
        let run = CallRun {
            handler: self.front_end.handler.clone(),
            peer,
            deadline,
            node: settings.identity.node.clone(),
            draining: self.front_end.draining.subscribe(),
            payload_bytes_max: settings.limits.message_bytes_max,
            has_begun: Arc::default(),
        };
        let has_begun = run.has_begun.clone();
        let mut grpc = Grpc::new(ProstCodec::<ReplyMessage, CallMessage>::default())
            .max_decoding_message_size(message_bytes_max);
        let answered = async {
            match is_stream {
                true => grpc.server_streaming(run, request).await,
                false => grpc.unary(run, request).await,
            }
        };
        let mut response = match deadline {
            None => answered.await,
            Some(deadline) => timeout_at(deadline, answered).await.unwrap_or_else(|_| {
                Status::deadline_exceeded(format!("node `{}` had no reply in time", settings.identity.node))
                    .into_http()
            }),
        };
        if !has_begun.load(std::sync::atomic::Ordering::Acquire) {
            mark_not_executed(&mut response);
        }
        response.map(|inner| Body::new(ReplyBody { inner, _active: active }))
    }

    /// Returns the node that calls, and what the call needs until its reply is sent.
    ///
    /// Errors: why the call is refused.
    fn admit(self: &Arc<Self>) -> Result<(Arc<PeerIdentity>, Active), Status> {
        let node = &self.front_end.settings.identity.node;
        let Some(peer) = self.peer() else {
            return Err(Status::unauthenticated("the connection has not proven which node calls"));
        };
        if self.handle.is_draining() || *self.front_end.draining.borrow() {
            return Err(Status::unavailable(format!(
                "node `{node}` is shutting down and takes no more calls"
            )));
        }
        let Some(request) = self.handle.begin() else {
            return Err(Status::unavailable(format!(
                "node `{node}` closes the connection to make room for others"
            )));
        };
        let active = Active { _request: request, _count: CallSlot::new(self) };
        Ok((peer, active))
    }
}

fn handshake_grpc<Encode, Decode>() -> Grpc<ProstCodec<Encode, Decode>>
where
    Encode: prost::Message + Send + 'static,
    Decode: prost::Message + Default + Send + 'static,
{
    Grpc::new(ProstCodec::default()).max_decoding_message_size(HANDSHAKE_BYTES_MAX)
}

/// Returns the response to a request that no handler gets.
fn refused(status: Status) -> Response<Body> {
    let mut response = status.into_http();
    mark_not_executed(&mut response);
    response
}

fn mark_not_executed(response: &mut Response<Body>) {
    response.headers_mut().insert(NOT_EXECUTED_HEADER, HeaderValue::from_static("true"));
}

/// Returns the time that the caller waits, by the header of gRPC: up to eight digits and a unit.
fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let parsed = || -> Option<Duration> {
        let text = value.to_str().ok()?;
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let number: u64 = digits.parse().ok()?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    };
    match parsed() {
        Some(timeout) => Ok(Some(timeout)),
        None => Err(Status::new(
            Code::InvalidArgument,
            format!("grpc-timeout {value:?}: expected up to eight digits and one of H, M, S, m, u, n"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_number_and_a_unit() {
        let parse = |text: &'static [u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_bytes(text).unwrap());
            timeout_of(&headers).map_err(|status| status.message().to_owned())
        };
        assert_eq!(timeout_of(&HeaderMap::new()).unwrap(), None);
        for (text, expected) in [
            (&b"99999999H"[..], Duration::from_secs(99_999_999 * 3600)),
            (b"2M", Duration::from_secs(120)),
            (b"0S", Duration::ZERO),
            (b"20m", Duration::from_millis(20)),
            (b"20u", Duration::from_micros(20)),
            (b"20n", Duration::from_nanos(20)),
        ] {
            assert_eq!(parse(text).unwrap(), Some(expected));
        }
        for bad in
            [&b""[..], b"S", b"1", b"-1S", b"+1S", b"1.5S", b"1s", b"123456789S", b"1 S", b"\xff", b"1\xff"]
        {
            assert!(parse(bad).unwrap_err().contains("expected up to eight digits"), "{bad:?}");
        }
    }
}
