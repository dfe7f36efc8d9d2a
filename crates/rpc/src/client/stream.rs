//! Replies of a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Streaming;

use super::keeper::Keeper;
use super::{Link, reply_of};
use crate::call::{CallError, Reply};
use crate::message::ReplyMessage;

/// Replies of a call that has many. It ends after [`Reply::NotOwner`], and after an error; [`CallError::Unanswered`] means that more
/// replies may have been lost. Dropping it cancels the work at the other node.
pub struct ReplyStream {
    /// `None` after the last reply.
    replies: Option<Streaming<ReplyMessage>>,
    link: Arc<Link>,
    /// Keeps the connection, also if the client is dropped.
    _keeper: Arc<Keeper>,
    runtime: Handle,
    slot: Option<OwnedSemaphorePermit>,
}

impl ReplyStream {
    pub(super) fn new(
        replies: Streaming<ReplyMessage>,
        link: Arc<Link>,
        keeper: Arc<Keeper>,
        runtime: Handle,
        slot: OwnedSemaphorePermit,
    ) -> Self {
        Self { replies: Some(replies), link, _keeper: keeper, runtime, slot: Some(slot) }
    }

    /// Returns the next reply, waiting for it; `None` at the end. For threads that wait: it panics on a thread that runs async tasks.
    pub fn next_blocking(&mut self) -> Option<Result<Reply, CallError>> {
        let runtime = self.runtime.clone();
        runtime.block_on(self.next())
    }
}

impl Stream for ReplyStream {
    type Item = Result<Reply, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(replies) = &mut self.replies else { return Poll::Ready(None) };
        let reply = match ready!(replies.poll_next_unpin(cx)) {
            None => None,
            Some(Ok(message)) => Some(reply_of(message)),
            Some(Err(status)) => Some(Err(self.link.failure(&status))),
        };
        if !matches!(reply, Some(Ok(Reply::Payload(_)))) {
            self.replies = None;
            self.slot = None;
        }
        Poll::Ready(reply)
    }
}

impl fmt::Debug for ReplyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyStream").field("node", &self.link.node).finish_non_exhaustive()
    }
}
