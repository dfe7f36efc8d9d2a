//! Statements that write: `INSERT`, `DELETE`, `UPDATE`. What has begun when such a statement has to end is finished.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::physical_plan::SendableRecordBatchStream;
use tidemill_database::AppendRequest;
use tidemill_types::{Error, Result};

use crate::StatementPhase;
use crate::change::Change;
use crate::error::ended;
use crate::execution::running::one_row;
use crate::execution::work::Work;
use crate::query::QueryRequest;
use crate::session::Shared;

impl Shared {
    /// Appends the rows of an `INSERT` and returns those of `RETURNING`, or how many there are; or keeps them for the caller.
    pub async fn insert(
        self: &Arc<Self>,
        work: &Arc<Work>,
        request: &QueryRequest,
    ) -> Result<SendableRecordBatchStream> {
        let staged = self.stage_insert(work, request).await?;
        if let Some(place) = &request.staged {
            place.put(staged);
            return Ok(one_row(inserted(0)?));
        }
        let statement = work.statement();
        statement.set_phase(StatementPhase::Running);
        statement.begin_change()?;
        let append = AppendRequest {
            events: staged.events(),
            origin: statement.statement().origin(),
            principal: request.principal.clone(),
            reports_stored: staged.reports_stored(),
        };
        let (tables, held) = (self.visible(self.tables.clone(), &request.principal), work.clone());
        let append = tokio::task::spawn_blocking(move || {
            // it keeps its place, and is listed, until it has ended
            let _held = held;
            tables.append(append)
        });
        let receipt = append.await.map_err(|_| self.closing.ended_early())??;
        let outcome = staged.outcome(&receipt)?;
        Ok(one_row(match outcome.rows {
            Some(rows) => rows,
            None => inserted(outcome.count)?,
        }))
    }

    /// Deletes or changes stored events and returns how many, as a result of one row.
    pub async fn change(
        self: &Arc<Self>,
        work: &Arc<Work>,
        change: Change,
        request: &QueryRequest,
    ) -> Result<SendableRecordBatchStream> {
        let (stream, rewriter) = self.plan_change(&change, &request.principal).await?;
        work.become_long().await.map_err(|stop| ended(&stop))?;
        work.statement().set_phase(StatementPhase::Running);
        if request.gate.as_ref().is_some_and(|gate| !gate.begin()) {
            return Err(Error::conflict("the statement was cancelled before it changed events"));
        }
        work.statement().begin_change()?;
        let (tables, held) = (self.visible(self.tables.clone(), &request.principal), work.clone());
        let rewrite = tokio::task::spawn_blocking(move || {
            // it keeps its place, and is listed, until it has ended
            let _held = held;
            tables.rewrite(&stream, rewriter)
        });
        let done = rewrite.await.map_err(|_| self.closing.ended_early())??;
        Ok(one_row(change.result(done.deleted + done.changed)?))
    }
}

/// Returns the result of an `INSERT`: how many events there are.
fn inserted(count: u64) -> Result<RecordBatch> {
    let count = Int64Array::from(vec![i64::try_from(count).unwrap_or(i64::MAX)]);
    RecordBatch::try_from_iter([("inserted", Arc::new(count) as ArrayRef)])
        .map_err(|e| Error::internal("a count does not fit its column").with_source(e))
}
