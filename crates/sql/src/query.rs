//! Streaming result of a query.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_database::{
    BadRows, ChangeGate, ClientSession, ColumnOrigin, Page, PageStream, Parameter, ResultColumn, StagedInsert,
};
use tidemill_types::{Error, Result, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::error::{in_words, too_many_rows};
use crate::execution::pages::PageDemand;
use crate::execution::statements::{Reader, Statement};
use crate::held_moment::MomentContent;
use crate::output::{Format, named_columns};
use crate::{MissingFields, SqlOptions};

/// Bytes of the values of parameters up to which they are written as text: more make a text that no plan is kept under.
const PLAN_VALUES_BYTES_MAX: usize = 256 << 10;

/// A query as its sender wrote it.
#[derive(Debug, Clone)]
pub(crate) struct QueryRequest {
    pub text: Arc<str>,
    /// Caller, who sees the tables that it may read.
    pub principal: Principal,
    pub missing: MissingFields,
    /// Values of `$1`, `$2`, ….
    pub parameters: Arc<[Parameter]>,
    /// The form of the result; `None` for batches.
    pub format: Option<Format>,
    /// Pages in which the result is sent; `None` if it is sent as a whole.
    pub pages: Option<PageDemand>,
    /// Session of the client.
    pub session: Option<Arc<ClientSession>>,
    /// Treatment of rows of an `INSERT` that do not fit.
    pub bad_rows: BadRows,
    /// True if the reply is to tell from which tables its columns come.
    pub asks_origins: bool,
    /// Moment whose tables a query reads; `None` for the present one.
    pub moment: Option<Arc<MomentContent>>,
    /// Point until which the sender may cancel a change of events.
    pub gate: Option<Arc<ChangeGate>>,
    /// Place for the rows of an `INSERT` that are not to be sent; `None` if they are.
    pub staged: Option<StagedRows>,
}

/// Place for the rows of an `INSERT`, until its caller takes them.
#[derive(Clone, Default)]
pub(crate) struct StagedRows(Arc<Mutex<Option<StagedInsert>>>);

impl StagedRows {
    pub fn put(&self, insert: StagedInsert) {
        *self.0.lock() = Some(insert);
    }

    pub fn take(&self) -> Option<StagedInsert> {
        self.0.lock().take()
    }
}

impl fmt::Debug for StagedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagedRows").finish_non_exhaustive()
    }
}

impl QueryRequest {
    /// Returns a query of the process itself.
    pub fn new(text: &str, missing: MissingFields) -> Self {
        Self {
            text: text.into(),
            principal: Principal::system(),
            missing,
            parameters: Arc::from([]),
            format: None,
            pages: None,
            session: None,
            bad_rows: BadRows::Refuse,
            asks_origins: false,
            moment: None,
            gate: None,
            staged: None,
        }
    }

    /// Returns the query with values for its parameters.
    pub fn with_parameters(self, parameters: &[Value<'static>]) -> Self {
        Self { parameters: parameters.iter().cloned().map(Parameter::Value).collect(), ..self }
    }

    /// Returns the text under which the plan is kept: that of the statement, with the values of its parameters. `None` for values that are
    /// too large for it.
    pub fn plan_key(&self) -> Option<Cow<'_, str>> {
        if self.parameters.is_empty() {
            return Some(Cow::Borrowed(&self.text));
        }
        let bytes = self.parameters.iter().map(Parameter::bytes).sum::<usize>();
        // text of a statement has no such character
        (bytes <= PLAN_VALUES_BYTES_MAX).then(|| Cow::Owned(format!("{}\0{:?}", self.text, self.parameters)))
    }
}

impl From<tidemill_database::QueryRequest> for QueryRequest {
    fn from(request: tidemill_database::QueryRequest) -> Self {
        let tidemill_database::QueryRequest {
            text,
            parameters,
            missing,
            principal,
            session,
            bad_rows,
            asks_origins,
            moment,
            gate,
            ..
        } = request;
        let (text, parameters) = (text.into(), parameters.into());
        Self {
            text,
            principal,
            missing,
            parameters,
            format: None,
            pages: None,
            session,
            bad_rows,
            asks_origins,
            // those of another database are none of ours
            moment: moment.and_then(|moment| moment.content()),
            gate,
            staged: None,
        }
    }
}

/// Columns of a query that has started.
pub(crate) struct ResultHead {
    pub schema: SchemaRef,
    pub origins: Vec<Option<ColumnOrigin>>,
    /// True if its rows have no end of their own.
    pub is_endless: bool,
}

impl ResultHead {
    /// Creates the head of a result that ends.
    pub fn new(schema: SchemaRef, origins: Vec<Option<ColumnOrigin>>) -> Self {
        Self { schema, origins, is_endless: false }
    }
}

/// Message of a query's task to its reader. A result without `End` is incomplete.
pub(crate) enum QueryMessage {
    Batch(RecordBatch),
    Encoded(Bytes),
    /// The page ends here, and rows follow.
    PageEnd,
    Failed(Error),
    End,
}

/// Result of a running query: a stream of batches. Dropping it stops the query.
///
/// Works on any executor, because the query runs on the session's own threads.
#[derive(Debug)]
pub struct QueryResult {
    schema: SchemaRef,
    origins: Vec<Option<ColumnOrigin>>,
    is_endless: bool,
    messages: mpsc::Receiver<QueryMessage>,
    ended: bool,
    collect_bytes_max: usize,
    closing: ClosingFlag,
    watchdog: Watchdog,
    reader: Reader,
}

/// Ends a query whose deadline has passed, or that is cancelled, although its thread does not say so: it may be in a step
/// that takes long.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Why the query is ended from outside: its deadline, or because it is cancelled.
    pub expired: oneshot::Receiver<Error>,
    /// Task that waits for the deadline; `None` while the statement rests.
    pub task: Option<AbortOnDrop>,
}

impl Watchdog {
    /// Returns the error for a query whose task ended without a last message.
    pub fn ended_early(&mut self, closing: &ClosingFlag) -> Error {
        self.expired.try_recv().unwrap_or_else(|_| closing.ended_early())
    }
}

/// Flag that the session is being closed, so that a query that ends early is not reported as a defect.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClosingFlag(Arc<AtomicBool>);

impl ClosingFlag {
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns the error to report for a failed query: the closing of the session if it has begun, else
    /// `error`.
    pub fn explain(&self, error: Error) -> Error {
        if self.0.load(Ordering::Acquire) { self.ended_early() } else { error }
    }

    /// Returns the error for a query whose task ended without a last message.
    pub fn ended_early(&self) -> Error {
        match self.0.load(Ordering::Acquire) {
            true => Error::unavailable("the query was stopped: the SQL session is being closed"),
            false => Error::internal("the query ended before its result was whole: a query thread panicked"),
        }
    }
}

/// All rows of a query.
#[derive(Debug, Clone)]
pub struct QueryRows {
    /// Columns of every batch.
    pub schema: SchemaRef,
    /// Rows, in the order of the result.
    pub batches: Vec<RecordBatch>,
}

impl QueryRows {
    /// Returns the number of rows of all batches.
    pub fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// Rows that are being collected, within the limits of a session.
pub(crate) struct CollectedRows {
    rows: usize,
    /// `None` if the sender of the rows checks it.
    rows_max: Option<usize>,
    bytes: usize,
    bytes_max: usize,
    pub batches: Vec<RecordBatch>,
}

impl CollectedRows {
    pub fn new(options: &SqlOptions) -> Self {
        let (rows_max, bytes_max) = (options.rows_max, options.collect_bytes_max);
        Self { rows: 0, rows_max, bytes: 0, bytes_max, batches: vec![] }
    }

    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        if let Some(most) = self.rows_max.filter(|most| self.rows > *most) {
            return Err(too_many_rows(most));
        }
        self.bytes = self.bytes.saturating_add(batch.get_array_memory_size());
        if self.bytes > self.bytes_max {
            return Err(Error::limit(format!(
                "the result is larger than {} bytes (`sql.collect_bytes_max`): select less, add LIMIT, or read it as a \
                 stream",
                self.bytes_max
            )));
        }
        if batch.num_rows() > 0 {
            self.batches.push(batch);
        }
        Ok(())
    }
}

/// Guard that aborts a task when it is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl QueryResult {
    pub(crate) fn new(
        head: ResultHead,
        messages: mpsc::Receiver<QueryMessage>,
        collect_bytes_max: usize,
        closing: ClosingFlag,
        watchdog: Watchdog,
        reader: Reader,
    ) -> Self {
        let ResultHead { schema, origins, is_endless } = head;
        Self {
            schema,
            origins,
            is_endless,
            messages,
            ended: false,
            collect_bytes_max,
            closing,
            watchdog,
            reader,
        }
    }

    /// Returns the guard of the statement.
    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Replaces what ends the statement when its time is over; `None` while it has no end.
    pub(crate) fn set_time_limit(&mut self, task: Option<AbortOnDrop>) {
        self.watchdog.task = task;
    }

    /// Returns the schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns the origin of each column, if the request asked for them; else none.
    pub fn origins(&self) -> Vec<Option<ColumnOrigin>> {
        self.origins.clone()
    }

    /// Returns whether the rows have no end of their own: those of `tail()` come until somebody ends the statement.
    pub fn is_endless(&self) -> bool {
        self.is_endless
    }

    /// Collects all rows in memory.
    ///
    /// Errors: those of the query; `LimitReached` when the rows take more than `collect_bytes_max` bytes.
    pub async fn collect(mut self) -> Result<QueryRows> {
        let mut rows = CollectedRows {
            rows: 0,
            rows_max: None,
            bytes: 0,
            bytes_max: self.collect_bytes_max,
            batches: vec![],
        };
        while let Some(batch) = self.next().await {
            rows.push(batch?)?;
        }
        Ok(QueryRows { schema: self.schema, batches: rows.batches })
    }

    /// Returns the next batch, for callers without an executor. Must not be called from async code.
    pub fn next_blocking(&mut self) -> Option<Result<RecordBatch>> {
        futures::executor::block_on(self.next())
    }
}

/// Result of a running query in a format: a stream of its pieces. Dropping it stops the query.
#[derive(Debug)]
pub struct EncodedQuery {
    pub(crate) result: QueryResult,
    pub(crate) format: Format,
}

impl EncodedQuery {
    /// Returns whether the rows have no end of their own.
    pub fn is_endless(&self) -> bool {
        self.result.is_endless
    }

    /// Returns the columns, as the output names them.
    pub fn columns(&self) -> Vec<ResultColumn> {
        let schema = self.result.schema();
        let column = |field: &FieldRef| ResultColumn {
            name: field.name().clone(),
            type_name: in_words(&field.data_type().to_string()),
        };
        named_columns(self.format, &schema).fields().iter().map(column).collect()
    }
}

impl Stream for EncodedQuery {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.result.poll_message(cx).map(|message| match message? {
            Ok(QueryMessage::Encoded(bytes)) => Some(Ok(bytes)),
            Ok(_) => Some(Err(Error::internal("the result has another form than bytes"))),
            Err(error) => Some(Err(error)),
        })
    }
}

impl Stream for QueryResult {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(cx).map(|message| match message? {
            Ok(QueryMessage::Batch(batch)) => Some(Ok(batch)),
            Ok(_) => Some(Err(Error::internal("the result has another form than batches"))),
            Err(error) => Some(Err(error)),
        })
    }
}

impl QueryResult {
    /// Returns the next batch, piece of text, or end of a page.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<QueryMessage>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let message = match self.messages.poll_recv(cx) {
            Poll::Ready(message) => message,
            Poll::Pending => match self.watchdog.expired.poll_unpin(cx) {
                Poll::Ready(Ok(error)) => Some(QueryMessage::Failed(error)),
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            },
        };
        let item = match message {
            Some(message @ (QueryMessage::Batch(_) | QueryMessage::Encoded(_) | QueryMessage::PageEnd)) => {
                return Poll::Ready(Some(Ok(message)));
            }
            Some(QueryMessage::End) => None,
            Some(QueryMessage::Failed(error)) => Some(Err(error)),
            None => {
                let closing = self.closing.clone();
                Some(Err(self.watchdog.ended_early(&closing)))
            }
        };
        self.ended = true;
        Poll::Ready(item)
    }
}

/// Starts the time in which a statement has to make a page.
type StartTime = Box<dyn Fn(&Arc<Statement>) -> AbortOnDrop + Send + Sync>;

/// Result of a running query as pages. Dropping it stops the query.
pub struct PagedQuery {
    query: EncodedQuery,
    demand: PageDemand,
    /// Starts the time of a page.
    start_time: StartTime,
    /// True until the first page is taken, which the statement makes without a demand.
    is_first: bool,
}

impl PagedQuery {
    pub(crate) fn new(query: EncodedQuery, demand: PageDemand, start_time: StartTime) -> Self {
        Self { query, demand, start_time, is_first: true }
    }

    /// Returns the columns, as the output names them.
    pub fn columns(&self) -> Vec<ResultColumn> {
        self.query.columns()
    }

    /// Returns the number of the statement.
    pub fn statement(&self) -> u64 {
        self.query.result.reader().statement().id()
    }

    async fn take_page(&mut self) -> Result<Page> {
        if !std::mem::take(&mut self.is_first) {
            let limit = (self.start_time)(self.query.result.reader().statement());
            self.query.result.set_time_limit(Some(limit));
            self.demand.want_next();
        }
        let mut pieces: Vec<Bytes> = vec![];
        loop {
            match poll_fn(|cx| self.query.result.poll_message(cx)).await {
                Some(Ok(QueryMessage::Encoded(bytes))) => pieces.push(bytes),
                Some(Ok(QueryMessage::PageEnd)) => {
                    self.query.result.set_time_limit(None);
                    return Ok(Page { pieces, is_last: false });
                }
                Some(Ok(_)) => return Err(Error::internal("the result has another form than pages")),
                Some(Err(error)) => return Err(error),
                None => return Ok(Page { pieces, is_last: true }),
            }
        }
    }
}

impl PageStream for PagedQuery {
    fn next_page(&mut self) -> BoxFuture<'_, Result<Page>> {
        self.take_page().boxed()
    }

    fn has_ended(&self) -> bool {
        self.query.result.reader().statement().budget().stopped().is_some()
    }
}
