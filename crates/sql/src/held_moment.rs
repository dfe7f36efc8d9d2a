//! Moments that several statements read: those of a transaction with `REPEATABLE READ`.
//!
//! ```text
//! BEGIN … first statement ──▶ take: all tables and collections that the caller may read, at one moment
//!         each statement  ──▶ TablesAtMoment: the same tables again
//! COMMIT, ROLLBACK, end of the connection, `moment_timeout` ──▶ dropped
//! ```
//!
//! A moment keeps rows that are in no file yet, documents that have changed since, and the names of files, which stay on the disk for
//! `zones.removed_retention_s`. Its number, its bytes and its time are bounded. System tables and aggregations are not part of it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::ObjectStore;
use parking_lot::Mutex;
use tidemill_database::{AppendReceipt, AppendRequest, OpenStream};
use tidemill_types::{Error, Result};
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, TabletKeys};
use tokio::runtime::Handle;
use url::Url;

use crate::SqlOptions;
use crate::query::AbortOnDrop;
use crate::tables::{Moment, Nodes, SystemTable, Tables};

/// Number and bytes of the moments of a session.
#[derive(Debug, Default)]
pub(crate) struct HeldMoments(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    count: usize,
    bytes: usize,
}

/// Content of a moment, until its time is over.
pub(crate) struct MomentContent {
    tables: Arc<Mutex<Option<Arc<TablesOfMoment>>>>,
    timeout: Duration,
    _timer: AbortOnDrop,
}

impl fmt::Debug for MomentContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MomentContent").finish_non_exhaustive()
    }
}

struct TablesOfMoment {
    streams: HashMap<String, TableSnapshot>,
    collections: HashMap<String, Vec<Bytes>>,
    bytes: usize,
    moments: Arc<HeldMoments>,
}

impl Drop for TablesOfMoment {
    fn drop(&mut self) {
        let mut held = self.moments.0.lock();
        held.count -= 1;
        held.bytes -= self.bytes;
    }
}

impl HeldMoments {
    fn hold(&self, bytes: usize, options: &SqlOptions) -> Result<()> {
        let mut held = self.0.lock();
        let (count_max, bytes_max) = (options.moments_max, options.moment_bytes_max);
        if held.count >= count_max {
            return Err(Error::limit(format!(
                "{count_max} transactions with REPEATABLE READ are open, which is the limit: try again when others have \
                 ended, or read with READ COMMITTED"
            )));
        }
        let all = held.bytes.saturating_add(bytes);
        if all > bytes_max {
            return Err(Error::limit(format!(
                "open transactions with REPEATABLE READ would hold {all} bytes of rows and documents, the limit is \
                 {bytes_max}: try again when others have ended, or read with READ COMMITTED"
            )));
        }
        held.count += 1;
        held.bytes = all;
        Ok(())
    }
}

impl MomentContent {
    /// Takes the tables and collections of `tables` at one moment. A timer of `timers` lets them go.
    ///
    /// Errors: `LimitReached` where there are too many moments, or too much in them; those of [`Tables::moment`].
    pub fn take(
        tables: &dyn Tables,
        moments: &Arc<HeldMoments>,
        options: &SqlOptions,
        timers: &Handle,
    ) -> Result<Self> {
        let (streams, collections) = (tables.streams(), tables.collections());
        let moment = tables.moment(&borrowed(&streams), &borrowed(&collections))?;
        let found = streams.into_iter().zip(moment.streams);
        let streams: HashMap<_, _> = found.filter_map(|(name, table)| Some((name, table?))).collect();
        let found = collections.into_iter().zip(moment.collections);
        let collections: HashMap<_, _> =
            found.filter_map(|(name, documents)| Some((name, documents?))).collect();
        let tails = streams.values().flat_map(|table| &table.tail).map(RecordBatch::get_array_memory_size);
        let documents = collections.values().map(|documents: &Vec<Bytes>| size_of_val(documents.as_slice()));
        let bytes = tails.chain(documents).fold(0, usize::saturating_add);
        moments.hold(bytes, options)?;
        let content = TablesOfMoment { streams, collections, bytes, moments: moments.clone() };
        let content = Arc::new(Mutex::new(Some(Arc::new(content))));
        let timeout = options.moment_timeout;
        let timer = timers.spawn({
            // the task of a moment that is dropped may live longer, and must not keep its content
            let content = Arc::downgrade(&content);
            async move {
                tokio::time::sleep(timeout).await;
                if let Some(content) = content.upgrade() {
                    *content.lock() = None;
                }
            }
        });
        Ok(Self { tables: content, timeout, _timer: AbortOnDrop(timer.abort_handle()) })
    }

    /// Returns the tables of the moment; what it does not have is that of `present`.
    ///
    /// Errors: `Conflict` when its time is over.
    pub fn tables(&self, present: Arc<dyn Tables>) -> Result<Arc<dyn Tables>> {
        let moment = self.tables.lock().clone().ok_or_else(|| {
            Error::conflict(format!(
                "snapshot too old: a transaction with REPEATABLE READ may read its moment for {:?}. Begin it again",
                self.timeout
            ))
        })?;
        Ok(Arc::new(TablesAtMoment { present, moment }))
    }
}

fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Tables at the moment of a transaction.
struct TablesAtMoment {
    present: Arc<dyn Tables>,
    moment: Arc<TablesOfMoment>,
}

impl Tables for TablesAtMoment {
    fn streams(&self) -> Vec<String> {
        self.moment.streams.keys().cloned().collect()
    }

    fn stream(&self, name: &str) -> Result<Option<TableSnapshot>> {
        Ok(self.moment.streams.get(name).cloned())
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.present.stored(name).filter(|_| self.moment.streams.contains_key(name))
    }

    fn collections(&self) -> Vec<String> {
        self.moment.collections.keys().cloned().collect()
    }

    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        Ok(self.moment.collections.get(name).cloned())
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        Ok(Moment {
            streams: streams.iter().map(|name| self.moment.streams.get(*name).cloned()).collect(),
            collections: collections.iter().map(|name| self.moment.collections.get(*name).cloned()).collect(),
        })
    }

    fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        self.present.aggregation_schema(name, per)
    }

    fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        self.present.aggregation_rows(name, per, within)
    }

    fn system_tables(&self) -> Vec<String> {
        self.present.system_tables()
    }

    fn system(&self, name: &str) -> Result<Option<SystemTable>> {
        self.present.system(name)
    }

    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        self.present.rewrite(stream, rewriter)
    }

    fn open_stream(&self, name: &str) -> Result<Option<OpenStream>> {
        self.present.open_stream(name)
    }

    fn append(&self, request: AppendRequest) -> Result<AppendReceipt> {
        self.present.append(request)
    }

    fn catch_up(&self) -> Result<()> {
        self.present.catch_up()
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        self.present.object_store()
    }

    fn tablet_keys(&self) -> Option<TabletKeys> {
        self.present.tablet_keys()
    }

    fn nodes(&self) -> Option<Arc<dyn Nodes>> {
        self.present.nodes()
    }
}
