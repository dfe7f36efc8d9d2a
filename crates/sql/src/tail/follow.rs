//! A statement over new rows while it runs.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::array::cast::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use futures::future::{Abortable, BoxFuture};
use futures::{FutureExt, StreamExt};
use tidemill_types::{Error, Result, StreamPositions, column};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::Steps;
use crate::StatementPhase;
use crate::execution::running::{Forwarded, send_bytes};
use crate::execution::work::Work;
use crate::live::{LiveRows, Rights, stopped};
use crate::output::{Encoder, Format, pieces};
use crate::query::{QueryMessage, QueryRequest};
use crate::session::Shared;

/// Rows that are read from the table at once, of one partition.
const CHUNK_ROWS: usize = 8_192;
/// Time between two looks at the rights of the caller while no rows come.
const RIGHTS_CHECK: Duration = Duration::from_secs(1);

/// A statement over new rows that is ready to run.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    request: QueryRequest,
    origin: &'static str,
    pub steps: Steps,
    live: LiveRows,
    /// Last row of each partition that was taken.
    positions: StreamPositions,
    /// True if stored rows come before the new ones.
    is_behind: bool,
    /// Rows that are computed at once.
    rows_max: usize,
    rights: Rights,
    _place: OwnedSemaphorePermit,
}

impl Shared {
    /// Runs a statement over new rows as a task, without the thread and the place of its beginning.
    ///
    /// Not `async`: the task starts statements that may be such ones again, for its stored rows.
    pub fn spawn_follower(
        self: &Arc<Self>,
        work: Arc<Work>,
        follower: Follower,
        format: Option<Format>,
        messages: mpsc::Sender<QueryMessage>,
    ) {
        work.give_up_place();
        let statement = work.statement().clone();
        let on_end = statement.statement().on_end();
        drop(work);
        let closing = self.closing.clone();
        let task = async move {
            statement.set_phase(StatementPhase::Running);
            let sent = |rows| statement.add_rows(rows);
            let last = match follower.run(format, &messages, &sent).await {
                Ok(Forwarded::ReaderGone) => return,
                Ok(Forwarded::All) => {
                    statement.set_outcome(None);
                    QueryMessage::End
                }
                Err(error) => {
                    let error = closing.explain(error);
                    statement.set_outcome(Some(&error));
                    QueryMessage::Failed(error)
                }
            };
            drop(statement);
            let _ = messages.send(last).await;
        };
        let task: BoxFuture<'static, ()> = task.boxed();
        self.threads.spawn(Abortable::new(task, on_end).map(drop));
    }
}

/// Receiver of the rows of the result.
struct Output<'a> {
    messages: &'a mpsc::Sender<QueryMessage>,
    encoder: Option<Encoder>,
    sent: &'a (dyn Fn(usize) + Send + Sync),
}

/// The reader has gone, or has all the rows that it wanted.
enum Ended {
    Complete,
    ReaderGone,
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Output<'_> {
    async fn send(&mut self, batch: RecordBatch) -> Result<(), Ended> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        (self.sent)(batch.num_rows());
        let Some(encoder) = &mut self.encoder else {
            return self.messages.send(QueryMessage::Batch(batch)).await.map_err(|_| Ended::ReaderGone);
        };
        for piece in pieces(batch) {
            let bytes = encoder.encode(&piece)?;
            if !send_bytes(self.messages, bytes).await {
                return Err(Ended::ReaderGone);
            }
        }
        Ok(())
    }
}

impl Follower {
    /// Begins to follow the stream of `steps`.
    ///
    /// Errors: `NotFound` for a stream that is not declared any more; `LimitReached` when too many statements follow streams;
    /// `Unavailable`.
    pub fn new(
        shared: &Arc<Shared>,
        request: &QueryRequest,
        origin: &'static str,
        steps: Steps,
        rows_max: usize,
    ) -> Result<Self> {
        let place = shared.tails.begin()?;
        let (_, tables) = shared.tables_of(request)?;
        let stream = &steps.source.stream;
        let live = tables.live(stream)?.ok_or_else(|| {
            Error::not_found(format!(
                "the stream `{stream}` takes no events: the app does not declare it any more"
            ))
        })?;
        let from_now = || {
            let mut positions = StreamPositions::default();
            for (partition, start) in &live.starts {
                // behind all rows of the record before the first that is new
                positions.advance((*partition, start - 1, i32::MAX));
            }
            positions
        };
        let is_behind = steps.source.position.is_some();
        let positions = steps.source.position.clone().unwrap_or_else(from_now);
        let rights = Rights::new(request.principal.clone());
        Ok(Self {
            shared: shared.clone(),
            request: QueryRequest {
                format: None,
                parameters: Arc::from([]),
                asks_origins: false,
                ..request.clone()
            },
            origin,
            steps,
            live,
            positions,
            is_behind,
            rows_max: rows_max.max(1),
            rights,
            _place: place,
        })
    }

    /// Sends rows until the reader has all that it wants, or goes; `sent` counts them.
    ///
    /// Errors: those of the steps and of reads of the table; `Forbidden` when the caller may not read the stream any more; `Unavailable`
    /// when the server stops.
    pub async fn run(
        mut self,
        format: Option<Format>,
        messages: &mpsc::Sender<QueryMessage>,
        sent: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<Forwarded> {
        let encoder = format.map(|format| Encoder::new(format, &self.steps.schema)).transpose()?;
        let mut output = Output { messages, encoder, sent };
        let shared = self.shared.clone();
        let ended = tokio::select! {
            ended = self.follow(&mut output) => ended,
            () = shared.tails.stopped() => Ended::Failed(stopped()),
            () = messages.closed() => Ended::ReaderGone,
        };
        match ended {
            Ended::Failed(error) => Err(error),
            Ended::ReaderGone => Ok(Forwarded::ReaderGone),
            Ended::Complete => {
                let has_reader = match output.encoder {
                    Some(encoder) => send_bytes(messages, encoder.finish()?).await,
                    None => true,
                };
                Ok(if has_reader { Forwarded::All } else { Forwarded::ReaderGone })
            }
        }
    }

    async fn follow(&mut self, output: &mut Output<'_>) -> Ended {
        if self.steps.has_no_rows() {
            return Ended::Complete;
        }
        match self.follow_until_failure(output).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn follow_until_failure(
        &mut self,
        output: &mut Output<'_>,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut checks = interval(RIGHTS_CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.check_rights()?;
            if std::mem::take(&mut self.is_behind) {
                self.read_stored(output).await?;
            }
            let batch = tokio::select! {
                batch = self.live.batches.next() => batch,
                _ = checks.tick() => continue,
            };
            let batch = batch.ok_or_else(stopped)?;
            if self.live.batches.take_gap() {
                self.is_behind = true;
                continue;
            }
            self.take(batch, output).await?;
        }
    }

    fn check_rights(&self) -> Result<()> {
        self.rights.check(&self.shared.tails, &self.steps.source.stream)
    }

    /// Reads the stored rows behind the positions, in chunks.
    async fn read_stored(&mut self, output: &mut Output<'_>) -> Result<(), Ended> {
        let partitions: Vec<u32> = self.live.starts.iter().map(|(partition, _)| *partition).collect();
        for partition in partitions {
            loop {
                self.check_rights()?;
                let text = self.chunk_text(partition);
                let request = QueryRequest { text: text.into(), ..self.request.clone() };
                let mut chunk = self.shared.query(request, self.origin).await?;
                let mut rows = 0;
                while let Some(batch) = chunk.next().await {
                    let batch = batch?;
                    rows += batch.num_rows();
                    self.take(batch, output).await?;
                }
                if rows < CHUNK_ROWS {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the statement for the next stored rows of a partition.
    fn chunk_text(&self, partition: u32) -> String {
        let behind = self.positions.of_partition(partition).map_or_else(String::new, |(offset, row)| {
            format!(" AND (_offset > {offset} OR (_offset = {offset} AND _row > {row}))")
        });
        let table = self.steps.source.stream.replace('"', "\"\"");
        format!(
            "SELECT * FROM events.\"{table}\" WHERE _partition = {partition}{behind} ORDER BY _offset, _row LIMIT {CHUNK_ROWS}"
        )
    }

    /// Takes rows through the steps, and sends what is left of them.
    async fn take(&mut self, batch: RecordBatch, output: &mut Output<'_>) -> Result<(), Ended> {
        let batch = self.new_rows(batch)?;
        for start in (0..batch.num_rows()).step_by(self.rows_max) {
            let part = batch.slice(start, self.rows_max.min(batch.num_rows() - start));
            let (rows, is_last) = self.steps.apply(part)?;
            output.send(rows).await?;
            if is_last {
                return Err(Ended::Complete);
            }
        }
        Ok(())
    }

    /// Returns the rows of a batch that were not taken before, in the columns of the plan, and notes their positions.
    fn new_rows(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let columns = &self.steps.source.columns;
        let batch = RecordBatch::try_new(columns.clone(), batch.columns().to_vec()).map_err(|e| {
            let stream = &self.steps.source.stream;
            Error::conflict(format!(
                "the columns of the stream `{stream}` have changed: send the statement again"
            ))
            .with_source(e)
        })?;
        let numbers = |name: &str| -> Result<_> {
            let found = batch.column_by_name(name);
            let found =
                found.ok_or_else(|| Error::internal(format!("rows of a stream have no column {name}")))?;
            let found = cast(found, &DataType::Int64)
                .map_err(|e| Error::internal(format!("the column {name} has no numbers")).with_source(e))?;
            Ok(found.as_primitive::<Int64Type>().clone())
        };
        let (partitions, offsets, rows) =
            (numbers(column::PARTITION)?, numbers(column::OFFSET)?, numbers(column::ROW)?);
        let outside = |_| Error::internal("the address of a row is outside of its range");
        let mut is_new = Vec::with_capacity(batch.num_rows());
        for at in 0..batch.num_rows() {
            let partition = u32::try_from(partitions.value(at)).map_err(outside)?;
            let row = i32::try_from(rows.value(at)).map_err(outside)?;
            is_new.push(self.positions.advance((partition, offsets.value(at), row)));
        }
        if is_new.iter().all(|is_new| *is_new) {
            return Ok(batch);
        }
        arrow::compute::filter_record_batch(&batch, &is_new.into())
            .map_err(|e| Error::internal("new rows cannot be picked").with_source(e))
    }
}
