//! Embedded Tidemill: events in, rules and documents over them, SQL over all data.
//!
//! ```no_run
//! # fn main() -> tidemill::Result<()> {
//! use tidemill::{App, Tidemill};
//!
//! let app = App::from_rules("shop", "event Sale { item: string, price: double } key item;");
//! let tidemill = Tidemill::open_with("data", app)?;
//! tidemill.send("Sale", &serde_json::json!({"item": "tea", "price": 3.5}))?;
//! let rows = tidemill.sql("SELECT item, sum(price) FROM events.Sale GROUP BY item")?;
//! assert_eq!(rows.num_rows(), 1);
//! # Ok(())
//! # }
//! ```

mod collection;
mod connectors;
mod database;
mod log_url;
#[cfg(feature = "mcp")]
mod mcp_engine;
mod options;
mod process;
mod tables;

use std::path::Path;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use serde::Serialize;
use tidemill_access::{Access, Principal};
use tidemill_database::{Database, MissingFields, QueryRequest};
use tidemill_engine::Analytics;
use tidemill_sql::{Sql, StatementLimits};

pub use collection::Collection;
pub use connectors::{catalog, connectors};
pub use database::EngineDatabase;
pub use log_url::{LogAtUrl, cluster_logs, control_log};
#[cfg(feature = "mcp")]
pub use mcp_engine::McpOverEngine;
pub use process::Process;
pub use tidemill_access as access;
pub use tidemill_docs as docs;
pub use tidemill_engine::{
    self as engine, App, BackupReport, BodyFormat, Clock, CollectionInfo, Damage, Durability, EmittedEvent,
    Engine, EngineBuilder, EventSelector, GrowthReport, Health, KindSummary, LedgerCounts, ManualClock,
    ProcessApp, ProcessLimits, QueryWhy, RestoreReport, RetryOutcome, RowError, RuleInfo, SendOptions,
    SendReply, SetAsideRecord, Settings, SinkInfo, StreamInfo, SystemClock, TakeOver, UndeliveredEvent,
    UndeliveredSelection, Verification, backup_stopped, restore, verify_backup, verify_data,
};
pub use tidemill_flight as flight;
pub use tidemill_flow as flow;
pub use tidemill_gateway as gateway;
#[cfg(feature = "mcp")]
pub use tidemill_mcp as mcp;
pub use tidemill_mongo as mongo;
pub use tidemill_postgres as postgres;
pub use tidemill_rules::Explanation;
pub use tidemill_server as server;
pub use tidemill_sql::{Prepared, QueryResult, QueryRows, output};
pub use tidemill_types::{
    self as types, Duration, Error, ErrorKind, EventId, Field, FieldType, Result, StreamSchema, Timestamp,
    Value,
};

// crates whose types are part of the public interface: a program with other versions of them could not call
// it
pub use arrow_array::{self, RecordBatch};
pub use bson::{self, Bson, Document};
pub use crossbeam_channel::Receiver;

use tables::EngineTables;

/// Returns the builder of an engine that has its log where the settings say, and all connectors.
fn builder(dir: impl AsRef<Path>) -> EngineBuilder {
    Engine::builder(dir).log(Arc::new(LogAtUrl::default())).connectors(connectors())
}

/// Sender of the statements of a program, in `system.statements`.
const PROGRAM: &str = "program";

/// Running Tidemill on one data directory. Dropping it stops it in order.
pub struct Tidemill {
    database: Arc<EngineDatabase>,
}

impl Tidemill {
    /// Opens a data directory with the app that is deployed in it.
    ///
    /// Errors: `NotFound` when no app is deployed; `Conflict` while another process has the directory open;
    /// `Corrupt` with the damaged file.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::start(builder(dir))
    }

    /// Opens a data directory, creating it if necessary, and deploys `app` in it.
    ///
    /// Errors: those of [`Self::open`]; `Invalid` with all diagnostics when the app does not compile.
    pub fn open_with(dir: impl AsRef<Path>, app: App) -> Result<Self> {
        Self::start(builder(dir).app(app))
    }

    /// Opens a data directory as [`Self::open_with`] does, with another clock than the machine's, for tests.
    pub fn open_with_clock(dir: impl AsRef<Path>, app: App, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::start(builder(dir).app(app).clock(clock))
    }

    /// Opens an engine as `builder` says, with SQL over it.
    ///
    /// Errors: those of [`EngineBuilder::open`]; `Invalid` for one in a process with others, which [`Process::start`] opens.
    pub fn start(builder: EngineBuilder) -> Result<Self> {
        let engine = builder.open()?;
        match engine.process() {
            None => Self::over(engine, None),
            Some(_) => Err(Error::invalid(
                "statements of apps in one process share their limits: open the app by `Process::start`",
            )),
        }
    }

    fn over(engine: Engine, shared: Option<&Arc<StatementLimits>>) -> Result<Self> {
        let engine = Arc::new(engine);
        let options = options::sql(&engine.app().settings, engine.data_dir());
        let tables = Arc::new(EngineTables::new(&engine));
        let sql = Arc::new(match shared {
            Some(limits) => Sql::with_limits(tables, options, limits)?,
            None => Sql::new(tables, options)?,
        });
        let fragments = Arc::downgrade(&sql);
        engine.answer_fragments(Arc::new(move |fragment| match fragments.upgrade() {
            Some(sql) => sql.run_fragment(&fragment),
            None => {
                let stopping = Error::unavailable("the node stops");
                futures::stream::once(std::future::ready(Err(stopping))).boxed()
            }
        }));
        let database = Arc::new(EngineDatabase { engine: engine.clone(), sql });
        engine.set_analytics(Arc::new(RuleAnalytics(Arc::downgrade(&database))));
        Ok(Self { database })
    }

    /// Sends one event and waits until it is applied. The reply has the events that rules emitted because of
    /// it.
    ///
    /// Errors: `NotFound` for an unknown stream; `Invalid` for an event that does not fit its schema.
    pub fn send(&self, stream: &str, event: &impl Serialize) -> Result<SendReply> {
        let body =
            serde_json::to_vec(event).map_err(|e| Error::invalid("the event is not JSON").with_source(e))?;
        let options = SendOptions { wait: true, origin: "in process".into(), ..SendOptions::default() };
        let reply = self.database.engine.send_json(stream, &body, BodyFormat::Json, &options)?;
        match reply.rejected.first() {
            Some(bad) if reply.accepted == 0 => Err(Error::invalid(bad.reason.clone())),
            _ => Ok(reply),
        }
    }

    /// Sends a batch of events and returns when it is as durable as `options` say.
    ///
    /// Shape: columns with the names of the stream's fields, in any order, whose types fit the fields. A field without a
    /// column is null.
    ///
    /// Errors: `NotFound` for an unknown stream; `Invalid` with the column that is not a field or has another
    /// type.
    pub fn send_batch(&self, stream: &str, batch: RecordBatch, options: &SendOptions) -> Result<SendReply> {
        self.database.engine.send_batch(stream, batch, options)
    }

    /// Returns a handle of the collection `name`, which need not exist yet.
    pub fn collection(&self, name: &str) -> Collection<'_> {
        Collection::new(&self.database.engine, name)
    }

    /// Runs a query and collects its rows. The result includes everything acknowledged before.
    ///
    /// Errors: `Invalid` with the location in the text; `LimitReached` for a result too large to collect,
    /// which [`Self::query`] can stream.
    pub fn sql(&self, query: &str) -> Result<QueryRows> {
        self.database.run_blocking(QueryRequest::new(query, PROGRAM, Principal::system()))
    }

    /// Prepares a query that is executed many times, and may have parameters: `$1`, `$2`, …. Its results include what was
    /// applied before: [`Engine::catch_up`] waits for everything that was acknowledged.
    ///
    /// Errors: `Invalid` with the location in the text; `NotFound` for an unknown table.
    pub fn prepare(&self, query: &str) -> Result<Prepared> {
        self.database.sql.prepare_blocking(query)
    }

    /// Runs a query of the app's summary. Fields and collections that have not been written yet are null and
    /// empty, as they are for aggregate rules.
    ///
    /// Errors: those of [`Self::sql`].
    pub fn summary(&self, query: &str) -> Result<QueryRows> {
        let request =
            QueryRequest::new(query, PROGRAM, Principal::system()).with_missing(MissingFields::Null);
        self.database.run_blocking(request)
    }

    /// Plans a query of the app's summary without running it.
    ///
    /// Errors: those of [`Self::sql`].
    pub fn check_summary(&self, query: &str) -> Result<()> {
        let request =
            QueryRequest::new(query, PROGRAM, Principal::system()).with_missing(MissingFields::Null);
        futures::executor::block_on(self.database.describe(request)).map(|_| ())
    }

    /// Starts a query and returns its rows as a stream.
    pub async fn query(&self, query: &str) -> Result<QueryResult> {
        self.database.start(QueryRequest::new(query, PROGRAM, Principal::system())).await
    }

    /// Subscribes to a stream: returns the batches applied from now on, with the columns of its table.
    pub fn subscribe(&self, stream: &str) -> Result<Receiver<RecordBatch>> {
        self.database.engine.subscribe(stream)
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.database.engine
    }

    /// Sets the users whose rights are looked at while a SQL statement over new rows of a stream runs.
    pub fn follow_access(&self, access: Arc<Access>) {
        self.database.sql.follow_access(access);
    }

    /// Ends the SQL statements over new rows of streams, which have no end of their own, and refuses new ones: the program stops.
    pub fn end_tails(&self) {
        self.database.sql.end_tails();
    }

    /// Returns the settings of the listener for MongoDB drivers, from the app's settings. The caller has to add the password.
    pub fn mongo_options(&self) -> mongo::MongoOptions {
        options::mongo(&self.engine().app().settings)
    }

    /// Returns the settings of the HTTP server, from the app's settings. The caller has to add the token.
    pub fn server_options(&self) -> server::ServerOptions {
        options::server(&self.engine().app().settings.server)
    }

    /// Returns the database for front ends, such as the HTTP server.
    pub fn database(&self) -> Arc<EngineDatabase> {
        self.database.clone()
    }

    /// Stops in order: applies acknowledged events, flushes tails and takes a checkpoint.
    ///
    /// Errors: when the last flush failed. No data is lost: the next start replays the log.
    pub fn close(self) -> Result<()> {
        self.database.engine.stop()
    }
}

/// SQL for aggregate rules. The reference is weak, because the engine owns this and a strong one would be a cycle.
struct RuleAnalytics(Weak<EngineDatabase>);

impl Analytics for RuleAnalytics {
    fn query(&self, query: &str) -> Result<Vec<RecordBatch>> {
        let database = self.0.upgrade().ok_or_else(|| Error::unavailable("the engine is stopping"))?;
        // a rule may read fields and collections that have not been written yet
        let request =
            QueryRequest::new(query, "rules", Principal::system()).with_missing(MissingFields::Null);
        Ok(database.run_blocking(request)?.batches)
    }
}
