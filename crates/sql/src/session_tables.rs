//! Tables of a session: those of the data, and the system tables that the session itself has.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::ObjectStore;
use tidemill_database::{AppendReceipt, AppendRequest, OpenStream};
use tidemill_types::{Result, Timestamp};
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, TabletKeys};
use url::Url;

use crate::StatementInfo;
use crate::execution::statements::Statements;
use crate::live::LiveRows;
use crate::tables::{Moment, Nodes, SystemTable, Tables};

/// Name of the system table of statements.
pub(crate) const STATEMENTS: &str = "statements";

/// The tables that a session was opened with, and its own.
pub(crate) struct SessionTables {
    pub tables: Arc<dyn Tables>,
    pub statements: Arc<Statements>,
}

impl Tables for SessionTables {
    fn streams(&self) -> Vec<String> {
        self.tables.streams()
    }

    fn stream(&self, name: &str) -> Result<Option<TableSnapshot>> {
        self.tables.stream(name)
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.stored(name)
    }

    fn collections(&self) -> Vec<String> {
        self.tables.collections()
    }

    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        self.tables.collection(name)
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        self.tables.moment(streams, collections)
    }

    fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        self.tables.aggregation_schema(name, per)
    }

    fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        self.tables.aggregation_rows(name, per, within)
    }

    fn system_tables(&self) -> Vec<String> {
        let mut names = self.tables.system_tables();
        names.push(STATEMENTS.to_owned());
        names
    }

    fn system(&self, name: &str) -> Result<Option<SystemTable>> {
        match name {
            STATEMENTS => Ok(Some(SystemTable::Rows(rows(&self.statements.list())))),
            other => self.tables.system(other),
        }
    }

    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        self.tables.rewrite(stream, rewriter)
    }

    fn open_stream(&self, name: &str) -> Result<Option<OpenStream>> {
        self.tables.open_stream(name)
    }

    fn append(&self, request: AppendRequest) -> Result<AppendReceipt> {
        self.tables.append(request)
    }

    fn live(&self, stream: &str) -> Result<Option<LiveRows>> {
        self.tables.live(stream)
    }

    fn catch_up(&self) -> Result<()> {
        self.tables.catch_up()
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        self.tables.object_store()
    }

    fn tablet_keys(&self) -> Option<TabletKeys> {
        self.tables.tablet_keys()
    }

    fn nodes(&self) -> Option<Arc<dyn Nodes>> {
        self.tables.nodes()
    }
}

/// Returns the rows of the system table of statements.
pub(crate) fn rows(statements: &[StatementInfo]) -> RecordBatch {
    let ids = statements.iter().map(|s| i64::try_from(s.id).unwrap_or(i64::MAX));
    let rows = statements.iter().map(|s| i64::try_from(s.rows).unwrap_or(i64::MAX));
    let text = |of: fn(&StatementInfo) -> Option<&str>| -> ArrayRef {
        Arc::new(statements.iter().map(of).collect::<StringArray>())
    };
    let times = |of: fn(&StatementInfo) -> Option<Timestamp>| -> ArrayRef {
        let times = statements.iter().map(|s| of(s).map(|time| time.0));
        Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids))),
        ("statement", text(|s| Some(&s.text))),
        ("origin", text(|s| Some(s.origin))),
        ("caller", text(|s| Some(&s.caller))),
        ("phase", text(|s| Some(s.phase.name()))),
        ("started", times(|s| Some(s.started))),
        ("ended", times(|s| s.ended)),
        ("rows", Arc::new(Int64Array::from_iter_values(rows))),
        ("error", text(|s| s.error.as_deref())),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one table have one length")
}
