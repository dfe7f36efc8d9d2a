//! The work of a handler for a call.

use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tidemill_types::{Error, PartitionId};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};

use crate::call::{CallHandler, IncomingCall, PeerIdentity, Reply};
use crate::message::{CallMessage, ErrorMessage, NotOwnerMessage, Outcome, ReplyMessage};

/// A method that answers at once.
pub(super) struct Method<F>(pub F);

impl<F, In, Out> UnaryService<In> for Method<F>
where
    F: FnMut(In) -> Result<Out, Status>,
{
    type Response = Out;
    type Future = Ready<Result<Response<Out>, Status>>;

    fn call(&mut self, request: Request<In>) -> Self::Future {
        ready((self.0)(request.into_inner()).map(Response::new))
    }
}

/// A call that was admitted.
pub(super) struct CallRun {
    pub handler: Arc<dyn CallHandler>,
    pub peer: Arc<PeerIdentity>,
    pub deadline: Option<Instant>,
    /// Name of this node.
    pub node: String,
    pub draining: watch::Receiver<bool>,
    pub payload_bytes_max: usize,
    /// Set when the handler gets the call.
    pub has_begun: Arc<AtomicBool>,
}

impl CallRun {
    /// Returns the call for the handler, and a value that cancels it when it is dropped.
    ///
    /// Errors: no handler can have such a call.
    fn begin(&self, message: CallMessage) -> Result<(IncomingCall, DropGuard), Status> {
        let kind = u16::try_from(message.kind)
            .map_err(|_| Status::invalid_argument(format!("kind {}: expected 0 to 65535", message.kind)))?;
        self.has_begun.store(true, Ordering::Release);
        let cancellation = CancellationToken::new();
        let guard = cancellation.clone().drop_guard();
        let call = IncomingCall {
            kind,
            partition: PartitionId(message.partition),
            epoch: message.epoch,
            payload: message.payload,
            peer: self.peer.clone(),
            deadline: self.deadline,
            cancellation,
        };
        Ok((call, guard))
    }
}

impl UnaryService<CallMessage> for CallRun {
    type Response = ReplyMessage;
    type Future = BoxFuture<'static, Result<Response<ReplyMessage>, Status>>;

    fn call(&mut self, request: Request<CallMessage>) -> Self::Future {
        let (call, guard) = match self.begin(request.into_inner()) {
            Ok(begun) => begun,
            Err(status) => return ready(Err(status)).boxed(),
        };
        let (handler, payload_bytes_max, kind) = (self.handler.clone(), self.payload_bytes_max, call.kind);
        async move {
            let _guard = guard;
            let reply = AssertUnwindSafe(async { handler.call(call).await }).catch_unwind().await;
            let reply = reply.unwrap_or_else(|_| Err(defect(kind)));
            Ok(Response::new(message(reply, payload_bytes_max)))
        }
        .boxed()
    }
}

impl ServerStreamingService<CallMessage> for CallRun {
    type Response = ReplyMessage;
    type ResponseStream = BoxStream<'static, Result<ReplyMessage, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<CallMessage>) -> Self::Future {
        let (call, guard) = match self.begin(request.into_inner()) {
            Ok(begun) => begun,
            Err(status) => return ready(Err(status)),
        };
        let kind = call.kind;
        let replies = catch_unwind(AssertUnwindSafe(|| self.handler.stream(call)))
            .unwrap_or_else(|_| futures::stream::once(ready(Err(defect(kind)))).boxed());
        let replies = AssertUnwindSafe(replies)
            .catch_unwind()
            .map(move |reply| reply.unwrap_or_else(|_| Err(defect(kind))));
        let (mut draining, node, payload_bytes_max) =
            (self.draining.clone(), self.node.clone(), self.payload_bytes_max);
        let messages = until_stopped(
            guard,
            replies.boxed(),
            async move {
                // the sender is the front end, which every connection has
                let _ = draining.wait_for(|is_draining| *is_draining).await;
                Error::unavailable(format!("node `{node}` is shutting down and ends the stream"))
            }
            .boxed(),
        );
        ready(Ok(Response::new(messages.map(move |reply| Ok(message(reply, payload_bytes_max))).boxed())))
    }
}

/// Returns the replies of a handler up to the first one that ends them, or to the end of `stopped`.
fn until_stopped(
    guard: DropGuard,
    replies: BoxStream<'static, tidemill_types::Result<Reply>>,
    stopped: BoxFuture<'static, Error>,
) -> BoxStream<'static, tidemill_types::Result<Reply>> {
    futures::stream::unfold(Some((guard, replies, stopped)), |state| async move {
        let (guard, mut replies, mut stopped) = state?;
        let reply = tokio::select! {
            biased;
            error = stopped.as_mut() => Err(error),
            reply = replies.next() => reply?,
        };
        let continues = matches!(reply, Ok(Reply::Payload(_)));
        Some((reply, continues.then_some((guard, replies, stopped))))
    })
    .boxed()
}

fn defect(kind: u16) -> Error {
    tracing::error!(kind, "the handler of a call of another node hit a defect");
    Error::internal(format!(
        "a call of kind {kind} hit a defect; the log of the node that was called has the place"
    ))
}

fn message(reply: tidemill_types::Result<Reply>, payload_bytes_max: usize) -> ReplyMessage {
    let outcome = match reply {
        Ok(Reply::Payload(payload)) if payload.len() > payload_bytes_max => {
            let error = Error::limit(format!(
                "the reply has {} bytes, and a message at most {payload_bytes_max} (message_bytes_max): ask for less at once; a call that \
                 writes has had its effect",
                payload.len()
            ));
            Outcome::Error(ErrorMessage::from(&error))
        }
        Ok(Reply::Payload(payload)) => Outcome::Payload(payload),
        Ok(Reply::NotOwner { epoch, owner }) => Outcome::NotOwner(NotOwnerMessage { epoch, owner }),
        Err(error) => Outcome::Error(ErrorMessage::from(&error)),
    };
    ReplyMessage { outcome: Some(outcome) }
}
