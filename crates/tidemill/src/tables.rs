//! Tables of the engine for SQL.

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::ObjectStore;
use tidemill_access::{Action, Resource};
use tidemill_database::{AppendReceipt, AppendRequest, OpenStream};
use tidemill_engine::{Engine, PeerNodes, SYSTEM_TABLES, SendOptions, Tap};
use tidemill_sql::{LiveBatches, LiveRows, Moment, Nodes, SchemaRef, SystemTable, Tables};
use tidemill_types::{Error, Result, Timestamp};
use tidemill_zones::{Rewritten, RowRewriter, Table, TableSnapshot, TabletKeys};
use url::Url;

/// The tables `events.*`, `docs.*` and `system.*` of an engine.
pub struct EngineTables {
    engine: Weak<Engine>,
    store: (Url, Arc<dyn ObjectStore>),
    keys: Option<TabletKeys>,
}

impl EngineTables {
    /// Creates the tables of `engine`; they are empty once it has been dropped.
    pub fn new(engine: &Arc<Engine>) -> Self {
        let zones = engine.zones();
        Self {
            engine: Arc::downgrade(engine),
            store: (zones.root_url().clone(), zones.query_store()),
            keys: zones.tablet_keys().cloned(),
        }
    }

    fn running(&self) -> Result<Arc<Engine>> {
        self.engine.upgrade().ok_or_else(|| Error::unavailable("the engine has stopped"))
    }
}

impl Tables for EngineTables {
    fn streams(&self) -> Vec<String> {
        self.engine.upgrade().map_or_else(Vec::new, |e| e.stream_names())
    }

    fn stream(&self, name: &str) -> Result<Option<TableSnapshot>> {
        Ok(self.running()?.moment(&[name], &[])?.streams.into_iter().next().flatten())
    }

    fn stored(&self, name: &str) -> Option<Arc<Table>> {
        self.engine.upgrade()?.table(name)
    }

    fn collections(&self) -> Vec<String> {
        let engine = self.engine.upgrade();
        engine.map_or_else(Vec::new, |engine| {
            // a statement that reads a collection says why it cannot
            engine.collection_names().unwrap_or_else(|error| {
                tracing::warn!(%error, "the names of collections");
                Vec::new()
            })
        })
    }

    fn collection(&self, name: &str) -> Result<Option<Vec<Bytes>>> {
        self.running()?.collection_documents(name)
    }

    fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        let tidemill_engine::Moment { streams, collections } =
            self.running()?.moment(streams, collections)?;
        Ok(Moment { streams, collections })
    }

    fn aggregation_schema(&self, name: &str, per: &str) -> Result<SchemaRef> {
        self.running()?.aggregation_schema(name, per)
    }

    fn aggregation_rows(&self, name: &str, per: &str, within: &Range<i64>) -> Result<RecordBatch> {
        self.running()?.aggregation_rows(name, per, within)
    }

    fn system_tables(&self) -> Vec<String> {
        SYSTEM_TABLES.iter().copied().chain(["rejected"]).map(str::to_owned).collect()
    }

    fn system(&self, name: &str) -> Result<Option<SystemTable>> {
        let engine = self.running()?;
        match name {
            "rejected" => Ok(Some(SystemTable::Events(engine.rejected_snapshot()?))),
            other => Ok(engine.system_table(other)?.map(SystemTable::Rows)),
        }
    }

    fn rewrite(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        self.running()?.rewrite_events(stream, rewriter)
    }

    fn open_stream(&self, name: &str) -> Result<Option<OpenStream>> {
        let engine = self.running()?;
        // only a stream of a former app has a table and no schema
        let Ok(schema) = engine.stream_schema(name) else { return Ok(None) };
        let (schema, clock) = (schema.clone(), self.engine.clone());
        let clock = move || clock.upgrade().map_or(Timestamp(0), |engine| engine.now());
        Ok(Some(OpenStream { schema, clock: Arc::new(clock) }))
    }

    fn append(&self, request: AppendRequest) -> Result<AppendReceipt> {
        append(&*self.running()?, request)
    }

    fn live(&self, stream: &str) -> Result<Option<LiveRows>> {
        let engine = self.running()?;
        // only a stream of a former app has a table and no schema
        if engine.stream_schema(stream).is_err() {
            return Ok(None);
        }
        // followed first: what is applied in between comes, and is new or not by its address
        let tap = engine.tap(stream)?;
        let starts =
            engine.applied_offsets().into_iter().map(|(partition, next)| (partition.0, next.0 as i64));
        Ok(Some(LiveRows { starts: starts.collect(), batches: Box::new(AppliedRows(tap)) }))
    }

    fn catch_up(&self) -> Result<()> {
        self.running()?.catch_up()
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        self.store.clone()
    }

    fn tablet_keys(&self) -> Option<TabletKeys> {
        self.keys.clone()
    }

    fn nodes(&self) -> Option<Arc<dyn Nodes>> {
        let peers = self.engine.upgrade()?.peers()?.clone();
        Some(Arc::new(ClusterNodes(peers)))
    }
}

/// The nodes of a cluster, for statements.
struct ClusterNodes(Arc<PeerNodes>);

impl Nodes for ClusterNodes {
    fn own_name(&self) -> String {
        self.0.own_name().to_owned()
    }

    fn other_names(&self) -> Vec<String> {
        self.0.other_names()
    }

    fn run(&self, node: &str, fragment: Bytes, begin_timeout: Duration) -> BoxStream<'static, Result<Bytes>> {
        self.0.run_fragment(node, fragment, begin_timeout)
    }
}

/// Rows of a stream as they are applied.
struct AppliedRows(Tap);

impl LiveBatches for AppliedRows {
    fn next(&mut self) -> BoxFuture<'_, Option<RecordBatch>> {
        self.0.next().boxed()
    }

    fn take_gap(&mut self) -> bool {
        self.0.restart()
    }
}

/// Appends checked events, whose streams have to be as they were when they were checked.
pub(crate) fn append(engine: &Engine, request: AppendRequest) -> Result<AppendReceipt> {
    let AppendRequest { events, origin, principal, reports_stored } = request;
    events.streams().try_for_each(|name| principal.may(Action::Write, &Resource::stream(name)))?;
    for schema in events.schemas() {
        if engine.stream_schema(&schema.name).ok() != Some(schema) {
            return Err(Error::conflict(format!(
                "the stream `{}` was changed by a deploy since its events were checked: send them again",
                schema.name
            )));
        }
    }
    let options = SendOptions { origin: origin.to_owned(), wait: reports_stored, ..SendOptions::default() };
    let reply = engine.send_rows(events.into_rows()?, &options)?;
    let address = |event: Option<String>| event.map(|text| text.parse()).transpose();
    let stored = reply.events.filter(|_| reports_stored);
    let stored = stored.map(|events| events.into_iter().map(address).collect::<Result<_>>()).transpose()?;
    Ok(AppendReceipt { accepted: reply.accepted, stored })
}
