//! Messages that were handed over and are to be acknowledged to the other side, in order.

use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use tidemill_connect::PendingReceipt;
use tidemill_types::Result;

/// Receipts that are waited for, each with what has to be acknowledged then.
pub(crate) struct Receipts<T> {
    waiting: FuturesOrdered<BoxFuture<'static, Result<T>>>,
}

impl<T: Send + 'static> Receipts<T> {
    pub(crate) fn new() -> Self {
        Self { waiting: FuturesOrdered::new() }
    }

    /// Adds what is acknowledged when the events of `receipt` are durable.
    pub(crate) fn push(&mut self, receipt: PendingReceipt, acknowledge: T) {
        self.waiting.push_back(Box::pin(async move { receipt.wait().await.map(|_| acknowledge) }));
    }

    /// Returns the number of deliveries that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Waits for the next of them, in the order in which they were added; forever without any.
    ///
    /// Errors: the events are not known to be durable, so the messages must not be acknowledged.
    pub(crate) async fn next(&mut self) -> Result<T> {
        match self.waiting.next().await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
}
