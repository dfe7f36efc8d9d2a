//! Bodies of requests and replies, with the limits that hold for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tidemill_gateway::ActiveRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::message::MESSAGE_OVERHEAD_BYTES;

/// Bytes before a message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Place of the permit for the bytes of a request, which outlives the body.
pub(super) type BytesPermit = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

/// Body of a request: one message. It is not read before there is room for all of it.
pub(super) struct CallBody<B> {
    inner: B,
    room: Arc<Semaphore>,
    permit: BytesPermit,
    message_bytes_max: usize,
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    /// Bytes of the message that have yet to come, once the prefix is complete.
    rest: usize,
}

impl<B> CallBody<B> {
    pub fn new(inner: B, room: Arc<Semaphore>, permit: BytesPermit, message_bytes_max: usize) -> Self {
        Self { inner, room, permit, message_bytes_max, prefix: [0; PREFIX_BYTES], prefix_filled: 0, rest: 0 }
    }

    /// Looks at bytes that have come.
    ///
    /// Errors: there is no room for the message, or there is more than one.
    fn look(&mut self, data: &Bytes) -> Result<(), Status> {
        let of_prefix = data.len().min(PREFIX_BYTES - self.prefix_filled);
        if of_prefix > 0 {
            self.prefix[self.prefix_filled..][..of_prefix].copy_from_slice(&data[..of_prefix]);
            self.prefix_filled += of_prefix;
            if self.prefix_filled == PREFIX_BYTES {
                self.rest = self.reserve((&self.prefix[1..]).get_u32() as usize)?;
            }
        }
        match self.rest.checked_sub(data.len() - of_prefix) {
            Some(rest) => self.rest = rest,
            None => return Err(Status::invalid_argument("the call has more than one message")),
        }
        Ok(())
    }

    fn reserve(&self, length: usize) -> Result<usize, Status> {
        if length > self.message_bytes_max {
            return Err(Status::resource_exhausted(format!(
                "the call has {length} bytes, and at most {} are read (message_bytes_max): send less at once",
                self.message_bytes_max
            )));
        }
        // the limit is that of payloads
        let payload = length.saturating_sub(MESSAGE_OVERHEAD_BYTES) as u32;
        match self.room.clone().try_acquire_many_owned(payload) {
            Ok(permit) => *self.permit.lock() = Some(permit),
            Err(_) => {
                return Err(Status::resource_exhausted(
                    "the calls of this connection that are under way have too many bytes (request_bytes_max): wait for some of them",
                ));
            }
        }
        Ok(length)
    }
}

impl<B> Body for CallBody<B>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::cancelled(error.to_string())))),
            None => return Poll::Ready(None),
        };
        if let Some(data) = frame.data_ref()
            && let Err(status) = self.look(data)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Counts of a call, which last until its reply is sent.
pub(super) struct Active {
    pub _request: ActiveRequest,
    pub _count: super::session::CallSlot,
}

/// Body of a reply. It keeps the call active until it is sent.
pub(super) struct ReplyBody {
    pub inner: tonic::body::Body,
    pub _active: Active,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use futures::FutureExt;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// Reads a body that comes in these parts. Returns its bytes, or the message of its error.
    fn read(room: &Arc<Semaphore>, parts: &[&'static [u8]]) -> (Result<Bytes, String>, BytesPermit) {
        let parts: VecDeque<_> =
            parts.iter().map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part)))).collect();
        let permit = BytesPermit::default();
        let body =
            CallBody::new(StreamBody::new(futures::stream::iter(parts)), room.clone(), permit.clone(), 1000);
        let collected = body.collect().now_or_never().expect("all parts are there");
        (collected.map(|all| all.to_bytes()).map_err(|status| status.message().to_owned()), permit)
    }

    #[test]
    fn a_body_has_one_message_for_which_there_is_room() {
        let room = Arc::new(Semaphore::new(100));
        for parts in [
            &[&b"\0\0\0\0\x02ab"[..]][..],
            &[b"\0", b"\0\0", b"", b"\0\x02a", b"b"],
            &[b"\0\0\0\0\x02", b"a", b"b"],
        ] {
            let (read, _permit) = read(&room, parts);
            assert_eq!(read.unwrap(), &b"\0\0\0\0\x02ab"[..]);
        }
        for parts in
            [&[&b"\0\0\0\0\x02abc"[..]][..], &[b"\0\0\0\0\x02", b"ab", b"\0"], &[b"\0\0\0\0\0", b"a"]]
        {
            assert_eq!(read(&room, parts).0.unwrap_err(), "the call has more than one message");
        }
        let (large, _) = read(&room, &[b"\0\0\0\x03\xe9"]);
        assert!(large.unwrap_err().contains("the call has 1001 bytes, and at most 1000 are read"));
        assert_eq!(room.available_permits(), 100);
    }

    #[test]
    fn the_room_is_taken_before_the_message_comes_until_the_permit_goes() {
        let room = Arc::new(Semaphore::new(100));
        // 160 bytes; 64 of them are not counted
        let (_, permit) = read(&room, &[b"\0\0\0\0\xa0"]);
        assert_eq!(room.available_permits(), 4);
        let (refused, _) = read(&room, &[b"\0\0\0\0\xa0"]);
        assert!(refused.unwrap_err().contains("too many bytes (request_bytes_max)"));
        drop(permit);
        assert_eq!(room.available_permits(), 100);
    }
}
