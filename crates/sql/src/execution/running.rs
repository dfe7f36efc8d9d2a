//! A query that produces batches, and their way to its reader.

use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use tidemill_types::Result;
use tokio::sync::mpsc;

use crate::SqlOptions;
use crate::error::{ended, from_datafusion, too_many_rows};
use crate::events::OpenFiles;
use crate::execution::pages::{KeptStatement, PageDemand, PageSize};
use crate::execution::work::{self, Work};
use crate::output::{Encoder, Format, batch_bytes, pieces};
use crate::pg_catalog;
use crate::plans::origins::Origins;
use crate::query::QueryMessage;

/// Bytes of a row from which on memory is reserved before it is encoded: the row, the output, and the output while it grows.
const LARGE: usize = 4 << 20;

/// Checks the budget before rows are encoded, and reserves memory if they are large.
pub(crate) async fn prepare_to_encode(rows: &RecordBatch, work: &Work) -> Result<()> {
    work::check().map_err(|stop| ended(&stop))?;
    let bytes = batch_bytes(rows);
    if bytes >= LARGE {
        work.reserve_pages(bytes.saturating_mul(3)).await.map_err(|stop| ended(&stop))?;
    }
    Ok(())
}

/// Sends a piece of the output. Returns whether there is a reader.
pub(crate) async fn send_bytes(messages: &mpsc::Sender<QueryMessage>, bytes: Bytes) -> bool {
    bytes.is_empty() || messages.send(QueryMessage::Encoded(bytes)).await.is_ok()
}

/// Returns the result of a statement that is not a query.
pub(crate) fn one_row(row: RecordBatch) -> SendableRecordBatchStream {
    let schema = row.schema();
    Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(async move { Ok(row) })))
}

/// Returns a result with the names of columns that clients see.
pub(crate) fn shown(stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = stream.schema();
    let named = pg_catalog::without_marks(&schema);
    if Arc::ptr_eq(&schema, &named) {
        return stream;
    }
    let batches = {
        let named = named.clone();
        stream.map(move |batch| Ok(RecordBatch::try_new(named.clone(), batch?.columns().to_vec())?))
    };
    Box::pin(RecordBatchStreamAdapter::new(named, batches))
}

/// A query that has started to produce batches.
pub(crate) struct RunningQuery {
    pub stream: SendableRecordBatchStream,
    pub files: Arc<OpenFiles>,
    pub origins: Origins,
}

/// Outcome of forwarding batches.
pub(crate) enum Forwarded {
    All,
    ReaderGone,
}

impl RunningQuery {
    /// Returns the next batch with rows, and counts them; `None` at the end.
    pub async fn next_batch(
        &mut self,
        rows: &mut usize,
        options: &SqlOptions,
        work: &Work,
    ) -> Result<Option<RecordBatch>> {
        while let Some(batch) = self.stream.next().await {
            let batch: RecordBatch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(self.files.name_damaged(from_datafusion(&error, None)).await),
            };
            *rows += batch.num_rows();
            if let Some(most) = options.rows_max.filter(|most| *rows > *most) {
                return Err(too_many_rows(most));
            }
            work.statement().add_rows(batch.num_rows());
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Forwards the batches to `messages`.
    pub async fn forward(
        &mut self,
        options: &SqlOptions,
        format: Option<Format>,
        messages: &mpsc::Sender<QueryMessage>,
        work: &Work,
    ) -> Result<Forwarded> {
        let mut encoder = format.map(|format| Encoder::new(format, &self.stream.schema())).transpose()?;
        let mut rows = 0_usize;
        while let Some(batch) = self.next_batch(&mut rows, options, work).await? {
            let Some(encoder) = &mut encoder else {
                if messages.send(QueryMessage::Batch(batch)).await.is_err() {
                    return Ok(Forwarded::ReaderGone);
                }
                continue;
            };
            for piece in pieces(batch) {
                prepare_to_encode(&piece, work).await?;
                if !send_bytes(messages, encoder.encode(&piece)?).await {
                    return Ok(Forwarded::ReaderGone);
                }
            }
        }
        let has_reader = match encoder {
            Some(encoder) => send_bytes(messages, encoder.finish()?).await,
            None => true,
        };
        Ok(if has_reader { Forwarded::All } else { Forwarded::ReaderGone })
    }

    /// Sends the rows to `messages` in pages, and waits between two of them for the demand; `keep` counts the statement among those that
    /// wait.
    pub async fn forward_pages<'k>(
        &mut self,
        options: &SqlOptions,
        (format, demand): (Format, &PageDemand),
        messages: &mpsc::Sender<QueryMessage>,
        work: &Work,
        keep: impl Fn() -> Result<KeptStatement<'k>>,
    ) -> Result<Forwarded> {
        let new_encoder = |query: &Self| Encoder::new(format, &query.stream.schema());
        let mut encoder = new_encoder(self)?;
        let mut page = PageSize::default();
        let mut all_rows = 0;
        while let Some(batch) = self.next_batch(&mut all_rows, options, work).await? {
            for mut piece in pieces(batch) {
                while piece.num_rows() > 0 {
                    if page.is_full(demand.rows) {
                        let kept = keep()?;
                        let whole = std::mem::replace(&mut encoder, new_encoder(self)?);
                        let has_reader = send_bytes(messages, whole.finish()?).await
                            && messages.send(QueryMessage::PageEnd).await.is_ok();
                        if !has_reader {
                            return Ok(Forwarded::ReaderGone);
                        }
                        work.rest(demand.wait()).await.map_err(|stop| ended(&stop))?;
                        drop(kept);
                        page = PageSize::default();
                    }
                    let rows = piece.num_rows().min(demand.rows.get() - page.rows);
                    let taken = piece.slice(0, rows);
                    piece = piece.slice(rows, piece.num_rows() - rows);
                    prepare_to_encode(&taken, work).await?;
                    let bytes = encoder.encode(&taken)?;
                    page.rows += rows;
                    page.bytes_in += batch_bytes(&taken);
                    page.bytes_out += bytes.len();
                    if !send_bytes(messages, bytes).await {
                        return Ok(Forwarded::ReaderGone);
                    }
                }
            }
        }
        let has_reader = send_bytes(messages, encoder.finish()?).await;
        Ok(if has_reader { Forwarded::All } else { Forwarded::ReaderGone })
    }
}
