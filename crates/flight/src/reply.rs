//! Rows on their way to a client.
//!
//! A task takes batches from the statement, encodes them and hands them to the reply one message at a time, so a result of any size takes
//! one batch and one message. The reply ends well only after the task has said so: a client never takes a part of a result for all
//! of it.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_schema::SchemaRef;
use futures::stream::{self, BoxStream, StreamExt};
use tidemill_gateway::{HeldMessage, MessageMemory};
use tidemill_types::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::error::{Result, status};
use crate::shared::ServerState;
use crate::wire::wire_batch;

/// Messages of a reply.
pub(crate) type DataStream = BoxStream<'static, Result<FlightData>>;

/// A message, and its memory.
type Part = (FlightData, HeldMessage);

/// Rows on their way.
pub(crate) struct Rows {
    /// Columns that the client gets. Those of the batches may have other encodings.
    pub schema: SchemaRef,
    pub batches: BoxStream<'static, Result<RecordBatch, Error>>,
}

/// Returns the messages for rows. `keep` is dropped when the statement ends; dropping the messages ends it.
pub(crate) fn reply(
    state: &ServerState,
    rows: Rows,
    cancellation: CancellationToken,
    keep: impl Send + 'static,
) -> DataStream {
    let (sender, receiver) = mpsc::channel(1);
    let (end, ended) = oneshot::channel();
    let pump =
        Pump { memory: state.memory.clone(), stall: state.options.transfer_timeout, sender, cancellation };
    tokio::spawn(async move {
        let outcome = pump.run(rows).await;
        drop(keep);
        // the client has gone if this fails
        let _ = end.send(outcome);
    });
    stream::unfold(Some((receiver, ended, None::<HeldMessage>)), |state| async move {
        let (mut receiver, ended, held) = state?;
        // the former message is taken
        drop(held);
        match receiver.recv().await {
            Some((data, held)) => Some((Ok(data), Some((receiver, ended, Some(held))))),
            None => {
                let defect = || {
                    Status::internal(
                        "a defect in Tidemill ended the statement; the server's log has the details",
                    )
                };
                match ended.await.unwrap_or_else(|_| Err(defect())) {
                    Ok(()) => None,
                    Err(failed) => Some((Err(failed), None)),
                }
            }
        }
    })
    .boxed()
}

/// The task that feeds a reply.
struct Pump {
    memory: Arc<MessageMemory>,
    /// Time in which the client has to take a message.
    stall: Duration,
    sender: mpsc::Sender<Part>,
    cancellation: CancellationToken,
}

impl Pump {
    async fn run(self, rows: Rows) -> Result<()> {
        let schema = rows.schema;
        let batches = {
            let schema = schema.clone();
            let failed = |error| FlightError::Tonic(Box::new(status(error)));
            rows.batches.map(move |batch| batch.and_then(|batch| wire_batch(&batch, &schema)).map_err(failed))
        };
        let mut messages = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
        loop {
            let message = tokio::select! {
                biased;
                () = self.cancellation.cancelled() => return Err(cancelled()),
                // the statement may make no rows for long, and a client that leaves meanwhile takes none
                () = self.sender.closed() => return Ok(()),
                message = messages.next() => message,
            };
            match message {
                None => return Ok(()),
                Some(Err(FlightError::Tonic(failed))) => return Err(*failed),
                Some(Err(error)) => {
                    return Err(status(Error::internal("a result cannot be encoded").with_source(error)));
                }
                Some(Ok(message)) => self.send(message).await?,
            }
        }
    }

    /// Hands a message to the reply, once the one before it is taken.
    async fn send(&self, message: FlightData) -> Result<()> {
        let held = self.memory.begin();
        held.grow(message.data_header.len() + message.data_body.len()).map_err(status)?;
        let place = tokio::select! {
            place = tokio::time::timeout(self.stall, self.sender.reserve()) => place,
            () = held.evicted() => return Err(status(held.full())),
            () = self.cancellation.cancelled() => return Err(cancelled()),
        };
        match place {
            Ok(Ok(place)) => {
                place.send((message, held));
                Ok(())
            }
            // the client has left; the loop sees it
            Ok(Err(_)) => Ok(()),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the client has taken no rows for {:?}: the statement was ended",
                self.stall
            ))),
        }
    }
}

fn cancelled() -> Status {
    Status::cancelled("the statement was cancelled by its client")
}
