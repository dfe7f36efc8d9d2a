//! A query that produces batches, and their way to its reader.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use tidemill_types::Result;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::SqlOptions;
use crate::error::{from_datafusion, too_many_rows};
use crate::events::OpenFiles;
use crate::query::QueryMessage;
use crate::statements::RunningStatement;

/// Returns the result of a statement that is no query.
pub(crate) fn one_row(row: RecordBatch) -> SendableRecordBatchStream {
    let schema = row.schema();
    Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(async move { Ok(row) })))
}

/// A query that has started to produce batches.
pub(crate) struct RunningQuery {
    pub stream: SendableRecordBatchStream,
    pub files: Arc<OpenFiles>,
    /// The place among the queries that may run; none for a statement that needs none.
    pub _permit: Option<Arc<OwnedSemaphorePermit>>,
}

/// How the forwarding of batches has ended.
pub(crate) enum Forwarded {
    All,
    ReaderGone,
}

impl RunningQuery {
    /// Forwards the batches to `messages`.
    pub async fn forward(
        &mut self,
        options: &SqlOptions,
        messages: &mpsc::Sender<QueryMessage>,
        statement: &RunningStatement,
    ) -> Result<Forwarded> {
        let mut rows = 0_usize;
        while let Some(batch) = self.stream.next().await {
            let batch: RecordBatch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(self.files.name_damaged(from_datafusion(&error, None)).await),
            };
            rows += batch.num_rows();
            if let Some(most) = options.rows_max.filter(|most| rows > *most) {
                return Err(too_many_rows(most));
            }
            statement.add_rows(batch.num_rows());
            if batch.num_rows() > 0 && messages.send(QueryMessage::Batch(batch)).await.is_err() {
                return Ok(Forwarded::ReaderGone);
            }
        }
        Ok(Forwarded::All)
    }
}
