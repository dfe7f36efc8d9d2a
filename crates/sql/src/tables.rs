//! What the SQL session asks of whoever holds the data.

use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use object_store::ObjectStore;
use tidemill_zones::TableSnapshot;
use url::Url;

/// The tables there are, and a snapshot of each on request.
///
/// Every method is called from a query thread and should return without waiting for I/O. A snapshot is taken once
/// per query and table, when the query names it first.
pub trait Tables: Send + Sync + 'static {
    /// Names of the kept streams: the tables of schema `events`.
    fn streams(&self) -> Vec<String>;

    /// Tablets and tail of a stream's table, such that every acknowledged row is in exactly one of them.
    fn stream(&self, name: &str) -> Option<TableSnapshot>;

    /// Names of the collections: the tables of schema `docs`.
    fn collections(&self) -> Vec<String>;

    /// All documents of a collection, one BSON document each, as cheap handles.
    fn collection(&self, name: &str) -> Option<Vec<Bytes>>;

    /// Names of the tables of schema `system`.
    fn system_tables(&self) -> Vec<String>;

    /// The rows of a system table.
    fn system(&self, name: &str) -> Option<SystemTable>;

    /// The store that the tablets' paths are relative to, and the address it goes by in plans.
    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>);
}

/// A table of schema `system`.
pub enum SystemTable {
    /// Rows made for this query.
    Rows(RecordBatch),
    /// A kept table, as streams are.
    Events(TableSnapshot),
}
