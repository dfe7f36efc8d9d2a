//! Interface between the SQL session and the owner of the data.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::ObjectStore;
use tidemill_database::{AppendReceipt, AppendRequest, OpenStream};
use tidemill_types::{Error, Result};
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, TabletKeys};
use url::Url;

use crate::live::LiveRows;

/// Source of table names and of table snapshots.
///
/// Every method is called from a query thread and should return without waiting for I/O. The session takes one
/// [`Moment`] of all tables and collections of a query.
pub trait Tables: Send + Sync + 'static {
    /// Returns the names of the stored streams: the tables of schema `events`.
    fn streams(&self) -> Vec<String>;

    /// Returns the tablets and the tail of a stream's table, such that every acknowledged row is in exactly
    /// one of them; `None` for an unknown stream.
    ///
    /// Errors: `Unavailable`.
    fn stream(&self, name: &str) -> Result<Option<TableSnapshot>>;

    /// Returns the table of a stream, for reads of its older versions; by default it has none.
    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        let _ = name;
        None
    }

    /// Returns the names of the collections: the tables of schema `docs`.
    fn collections(&self) -> Vec<String>;

    /// Returns all documents of a collection, each as a cheap handle to its BSON bytes; `None` for an unknown one.
    ///
    /// Errors: `Unavailable`.
    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>>;

    /// Returns tables of streams and documents of collections at one moment: what an event has led to is in all of them
    /// or in none. By default they are taken one after the other, for data that does not change meanwhile.
    ///
    /// Errors: `Unavailable`.
    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        Ok(Moment {
            streams: streams.iter().map(|name| self.stream(name)).collect::<Result<_>>()?,
            collections: collections.iter().map(|name| self.collection(name)).collect::<Result<_>>()?,
        })
    }

    /// Returns the columns of the buckets of an aggregation at the granularity `per`; the first is the start of the bucket.
    ///
    /// Errors: `NotFound` for an unknown aggregation, `Invalid` for a granularity that it does not keep.
    fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        let _ = per;
        Err(Error::not_found(format!("there is no aggregation `{name}`")))
    }

    /// Returns the buckets of an aggregation that begin in a range of milliseconds since 1970. Called from a thread that may
    /// wait.
    ///
    /// Errors: those of [`Self::aggregation_schema`]; `Unavailable`.
    fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        let _ = (per, within);
        Err(Error::not_found(format!("there is no aggregation `{name}`")))
    }

    /// Returns the names of the tables of schema `system`.
    fn system_tables(&self) -> Vec<String>;

    /// Returns the rows of a system table; `None` for an unknown one.
    ///
    /// Errors: `Unavailable`.
    fn system(&self, name: &str) -> Result<Option<SystemTable>>;

    /// Deletes or changes stored events of a stream, acknowledged ones included. Called from a thread that may wait.
    ///
    /// Errors: `Invalid` where the data cannot be changed, as by default; those of the rewriter; `Unavailable`.
    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        let _ = rewriter;
        Err(Error::invalid(format!("the events of `{stream}` cannot be changed here")))
    }

    /// Returns a stream that takes events; `None` for one that does not, as by default.
    ///
    /// Errors: `Unavailable`.
    fn open_stream(&self, name: &str) -> Result<Option<OpenStream>> {
        let _ = name;
        Ok(None)
    }

    /// Appends checked events. Called from a thread that may wait.
    ///
    /// Errors: `Invalid` where no events are taken, as by default; those of [`tidemill_database::Database::append`].
    fn append(&self, request: AppendRequest) -> Result<AppendReceipt> {
        let _ = request;
        Err(Error::invalid("events cannot be sent here"))
    }

    /// Returns the rows of a stream that are stored from now on; `None` for one that takes none, as by default.
    ///
    /// Errors: `Unavailable`.
    fn live(&self, stream: &str) -> Result<Option<LiveRows>> {
        let _ = stream;
        Ok(None)
    }

    /// Waits until every event that was acknowledged is in the tables. Called from a thread that may wait.
    ///
    /// Errors: `Unavailable`.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the object store to which the tablets' paths are relative, and its URL in plans.
    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>);

    /// Returns the keys with which tablets are decrypted; none by default.
    fn tablet_keys(&self) -> Option<TabletKeys> {
        None
    }

    /// Returns the nodes that execute parts of statements for each other; none by default.
    fn nodes(&self) -> Option<Arc<dyn Nodes>> {
        None
    }
}

/// Tables and collections in the order in which they were asked for; `None` for those that do not exist.
pub struct Moment {
    /// Tables of streams.
    pub streams: Vec<Option<TableSnapshot>>,
    /// Documents of collections.
    pub collections: Vec<Option<Vec<Bytes>>>,
}

/// Nodes that execute fragments of statements for each other.
pub trait Nodes: Send + Sync + 'static {
    /// Returns the name of this node.
    fn own_name(&self) -> String;

    /// Returns the names of the other nodes that are members and can be called.
    fn other_names(&self) -> Vec<String>;

    /// Sends a fragment to a node and returns its replies as they come. The node has `begin_timeout` to begin. Dropping the stream ends the work
    /// there.
    ///
    /// Errors: in the stream; `Unavailable` if the node cannot be reached, is lost or stops.
    fn run(&self, node: &str, fragment: Bytes, begin_timeout: Duration) -> BoxStream<'static, Result<Bytes>>;
}

/// Table of schema `system`.
pub enum SystemTable {
    /// Rows computed for this query.
    Rows(RecordBatch),
    /// Stored table, like that of a stream.
    Events(TableSnapshot),
}
