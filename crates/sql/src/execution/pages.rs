//! A query whose rows are taken page by page.
//!
//! ```text
//! statement's thread                              reader
//! rows ─▶ encoder ─▶ pieces of page 1 ──────────▶ page 1
//!         a row of page 2 is there: end of page ─▶ (so page 1 is not the last)
//!         gives up its place, waits ◀──────────── demand for page 2
//! rows ─▶ a new encoder ─▶ …
//! ```
//!
//! The end of a page comes with the first row of the next one, so that a reader knows of each page whether it is the last. What a
//! waiting statement keeps is its plan: the buffers of its operators, and the snapshots that it reads.

use std::collections::HashMap;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidemill_database::{Page, PageStream, ResultColumn};
use tidemill_types::{Error, Result};
use tokio::sync::{Semaphore, mpsc};

use crate::SqlOptions;
use crate::error::ended;
use crate::execution::running::{Forwarded, RunningQuery, prepare_to_encode, send_bytes};
use crate::execution::work::Work;
use crate::output::{Encoder, Format, batch_bytes, pieces};
use crate::query::{EncodedQuery, QueryMessage};
use crate::session::Shared;

/// Bytes of values, and of output, from which on a page ends although it has fewer rows than were asked for.
const PAGE_BYTES: usize = 8 << 20;
/// Part of the memory of all statements that those of one caller may keep between two pages, and that all may.
const KEPT_PARTS: (usize, usize) = (4, 2);

/// Demand of a reader for pages.
#[derive(Debug, Clone)]
pub(crate) struct PageDemand {
    rows: NonZeroUsize,
    /// A permit for each page that is wanted and not begun.
    wanted: Arc<Semaphore>,
}

impl PageDemand {
    /// Creates the demand for the first page.
    pub fn new(rows: NonZeroUsize) -> Self {
        Self { rows, wanted: Arc::new(Semaphore::new(0)) }
    }

    fn want_next(&self) {
        self.wanted.add_permits(1);
    }

    async fn wait(&self) {
        // never closed
        if let Ok(permit) = self.wanted.acquire().await {
            permit.forget();
        }
    }
}

/// Memory that statements keep while they wait for the demand of their next page.
#[derive(Debug)]
pub(crate) struct KeptStatements {
    bytes_max: usize,
    bytes_max_caller: usize,
    /// By statement: its caller, and its bytes.
    kept: Mutex<HashMap<u64, (String, usize)>>,
}

/// A statement that waits until this is dropped.
pub(crate) struct KeptStatement<'k> {
    all: &'k KeptStatements,
    id: u64,
}

impl KeptStatements {
    /// Creates the account of a session whose statements have `memory_bytes`.
    pub fn new(memory_bytes: usize) -> Self {
        let (of_caller, of_all) = KEPT_PARTS;
        Self {
            bytes_max: memory_bytes / of_all,
            bytes_max_caller: memory_bytes / of_caller,
            kept: Mutex::default(),
        }
    }

    /// Notes that a statement waits.
    ///
    /// Errors: `LimitReached` when it holds more memory than its caller's or all may keep beside those that wait already.
    pub fn keep(&self, work: &Work) -> Result<KeptStatement<'_>> {
        let statement = work.statement().statement();
        let (caller, bytes) = (statement.caller(), work.bytes_held());
        let mut kept = self.kept.lock();
        let (mut of_all, mut of_caller) = (bytes, bytes);
        for (other, other_bytes) in kept.values() {
            of_all += other_bytes;
            of_caller += if *other == caller { *other_bytes } else { 0 };
        }
        let refused = |whose: &str, most: usize| {
            Error::limit(format!(
                "the statement holds {bytes} bytes of memory, and {whose} may hold {most} in all between two pages: take the pages of \
                 others to their end, end them with KILL QUERY, or ask without `page_rows`, in which rows are sent as they come"
            ))
        };
        if of_caller > self.bytes_max_caller {
            return Err(refused("statements of one caller", self.bytes_max_caller));
        }
        if of_all > self.bytes_max {
            return Err(refused("all statements", self.bytes_max));
        }
        kept.insert(statement.id(), (caller, bytes));
        Ok(KeptStatement { all: self, id: statement.id() })
    }
}

impl Drop for KeptStatement<'_> {
    fn drop(&mut self) {
        self.all.kept.lock().remove(&self.id);
    }
}

/// Size of the page that is being made.
#[derive(Default)]
struct PageSize {
    rows: usize,
    bytes_in: usize,
    bytes_out: usize,
}

impl PageSize {
    fn is_full(&self, rows_max: NonZeroUsize) -> bool {
        self.rows >= rows_max.get() || self.bytes_in >= PAGE_BYTES || self.bytes_out >= PAGE_BYTES
    }
}

impl RunningQuery {
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

/// Result of a running query as pages. Dropping it stops the query.
pub struct PagedQuery {
    query: EncodedQuery,
    demand: PageDemand,
    shared: Arc<Shared>,
    /// True until the first page is taken, which the statement makes without a demand.
    is_first: bool,
}

impl PagedQuery {
    pub(crate) fn new(query: EncodedQuery, demand: PageDemand, shared: Arc<Shared>) -> Self {
        Self { query, demand, shared, is_first: true }
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
            let limit = self.shared.time_limit(self.query.result.reader().statement());
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
