//! Body of a request, with the limits that hold for it before a message is decoded.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use tidemill_gateway::{HeldMessage, MessageMemory};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use crate::error::status;

/// Bytes before a message: a flag and the length.
const PREFIX_BYTES: usize = 5;
/// Messages up to this size need no memory that is shared.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// Limits of a body.
#[derive(Clone)]
pub(crate) struct BodyLimits {
    pub memory: Arc<MessageMemory>,
    pub message_bytes_max: usize,
    /// Time in which some bytes of a message that has begun have to arrive.
    pub transfer_timeout: Duration,
    /// Time in which a message has to begin.
    pub idle_timeout: Duration,
}

/// Body of a request: messages of gRPC, each with its length in front. A large one is read when there is memory for it, which it holds until
/// the next one begins.
pub(crate) struct RequestBody<B> {
    inner: B,
    limits: BodyLimits,
    prefix: [u8; PREFIX_BYTES],
    prefix_filled: usize,
    /// Bytes of the message that have yet to come, once the prefix is complete.
    rest: usize,
    held: Option<Held>,
    timer: Pin<Box<Sleep>>,
}

/// Memory of a large message.
struct Held {
    message: Arc<HeldMessage>,
    evicted: BoxFuture<'static, ()>,
    is_arriving: bool,
}

impl<B> RequestBody<B> {
    pub fn new(inner: B, limits: BodyLimits) -> Self {
        let timer = Box::pin(sleep(limits.idle_timeout));
        Self { inner, limits, prefix: [0; PREFIX_BYTES], prefix_filled: 0, rest: 0, held: None, timer }
    }

    /// Looks at bytes that have come.
    ///
    /// Errors: a message is too large, or there is no memory for it.
    fn look(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            if self.prefix_filled < PREFIX_BYTES {
                let taken = data.len().min(PREFIX_BYTES - self.prefix_filled);
                self.prefix[self.prefix_filled..][..taken].copy_from_slice(&data[..taken]);
                self.prefix_filled += taken;
                data = &data[taken..];
                if self.prefix_filled == PREFIX_BYTES {
                    self.begin((&self.prefix[1..]).get_u32() as usize)?;
                }
            } else {
                let taken = data.len().min(self.rest);
                self.rest -= taken;
                data = &data[taken..];
            }
            if self.prefix_filled == PREFIX_BYTES && self.rest == 0 {
                self.prefix_filled = 0;
                if let Some(held) = &mut self.held {
                    held.message.settle().map_err(status)?;
                    held.is_arriving = false;
                }
            }
        }
        if let Some(held) = self.held.as_ref().filter(|held| held.is_arriving) {
            held.message.moved();
        }
        Ok(())
    }

    fn begin(&mut self, length: usize) -> Result<(), Status> {
        if length > self.limits.message_bytes_max {
            return Err(Status::resource_exhausted(format!(
                "the message has {length} bytes, and at most {} are read: send less at once",
                self.limits.message_bytes_max
            )));
        }
        self.rest = length;
        self.held = None;
        if length > SMALL_BYTES {
            let message = Arc::new(self.limits.memory.begin());
            message.grow(length).map_err(status)?;
            let waiting = message.clone();
            let evicted = async move { waiting.evicted().await }.boxed();
            self.held = Some(Held { message, evicted, is_arriving: true });
        }
        Ok(())
    }

    /// Returns why the body ends although the client may send more.
    fn refusal(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if let Some(held) = self.held.as_mut().filter(|held| held.is_arriving)
            && held.evicted.poll_unpin(cx).is_ready()
        {
            return Some(status(held.message.full()));
        }
        self.timer.as_mut().poll(cx).is_ready().then(|| {
            let limit =
                if self.is_inside() { self.limits.transfer_timeout } else { self.limits.idle_timeout };
            Status::deadline_exceeded(format!(
                "the client has sent nothing for {limit:?}, and the call was not complete"
            ))
        })
    }

    fn is_inside(&self) -> bool {
        self.prefix_filled > 0
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => {
                return Poll::Ready(Some(Err(Status::cancelled(format!("the call ended early: {error}")))));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {
                return match this.refusal(cx) {
                    Some(refusal) => Poll::Ready(Some(Err(refusal))),
                    None => Poll::Pending,
                };
            }
        };
        if let Some(data) = frame.data_ref()
            && let Err(refusal) = this.look(data)
        {
            return Poll::Ready(Some(Err(refusal)));
        }
        let limit = if this.is_inside() { this.limits.transfer_timeout } else { this.limits.idle_timeout };
        this.timer.as_mut().reset(Instant::now() + limit);
        Poll::Ready(Some(Ok(frame)))
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
    use std::convert::Infallible;

    use futures::channel::mpsc;
    use http_body_util::{BodyExt, StreamBody};
    use tonic::Code;

    use super::*;

    type Sender = mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>;

    fn body(memory: &Arc<MessageMemory>) -> (Sender, impl Body<Data = Bytes, Error = Status> + Unpin) {
        let (sender, parts) = mpsc::unbounded();
        let limits = BodyLimits {
            memory: memory.clone(),
            message_bytes_max: 200_000,
            transfer_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
        };
        (sender, RequestBody::new(StreamBody::new(parts), limits))
    }

    fn prefix(length: usize) -> Vec<u8> {
        [&[0][..], &(length as u32).to_be_bytes()].concat()
    }

    fn send(sender: &Sender, bytes: &[u8]) {
        sender.unbounded_send(Ok(Frame::data(Bytes::copy_from_slice(bytes)))).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn messages_pass_in_any_parts() {
        let memory = MessageMemory::new(150_000);
        let whole =
            [prefix(3), b"abc".to_vec(), prefix(0), prefix(100_000), vec![7; 100_000], prefix(1), vec![9]]
                .concat();
        for step in [1_000_000, 60_000, 7] {
            let (sender, body) = body(&memory);
            whole.chunks(step).for_each(|part| send(&sender, part));
            drop(sender);
            assert_eq!(body.collect().await.unwrap().to_bytes(), whole);
        }
        // all memory was given back
        memory.begin().grow(150_000).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn large_late_and_slow_messages_are_refused() {
        let memory = MessageMemory::new(150_000);
        let (sender, mut large) = body(&memory);
        send(&sender, &prefix(200_001));
        assert_eq!(large.frame().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);

        let (sender, mut slow) = body(&memory);
        send(&sender, &prefix(100_000));
        slow.frame().await.unwrap().unwrap();
        // a message that moves needs its memory
        let other = memory.begin();
        other.grow(100_000).unwrap();
        let refused = slow.frame().await.unwrap().unwrap_err();
        assert!(
            refused.code() == Code::ResourceExhausted && refused.message().contains("the slowest"),
            "{refused}"
        );
        drop(sender);

        let (sender, mut late) = body(&memory);
        send(&sender, b"\0\0");
        late.frame().await.unwrap().unwrap();
        let refused = late.frame().await.unwrap().unwrap_err();
        assert!(
            refused.code() == Code::DeadlineExceeded && refused.message().contains("nothing for 1s"),
            "{refused}"
        );
        let (_sender, mut idle) = body(&memory);
        assert!(idle.frame().await.unwrap().unwrap_err().message().contains("nothing for 10s"));
    }
}
