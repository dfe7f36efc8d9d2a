//! Body of a reply, which keeps its request in progress.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tidemill_gateway::ActiveRequest;

/// Body of a reply. The request stays in progress until the body is sent.
pub(crate) struct ReplyBody {
    body: axum::body::Body,
    _request: ActiveRequest,
}

impl ReplyBody {
    /// Wraps `body` as the reply to `request`.
    pub fn new(body: axum::body::Body, request: ActiveRequest) -> Self {
        Self { body, _request: request }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
