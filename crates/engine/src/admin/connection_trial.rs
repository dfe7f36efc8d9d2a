//! Attempts to reach the systems that an app is connected with, before it runs.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int32Array, RecordBatch};
use tidemill_connect::{
    Catalog, ConnectorConfig, ConnectorContext, ConnectorHealth, PartitionEpochs, Source, SplitPositions,
    StoreComparison, StoreExpr, StoreMonitor, runtime,
};
use tidemill_flow::Connectors;
use tidemill_flow::table::create_store;
use tidemill_types::{Error, Result};

use crate::app::App;
use crate::connectors::{app_sinks, file_sources};
use crate::queries::QueryFile;
use crate::queries::compile::{CompiledApp, schema};
use crate::queries::files::file_path;

/// Interval at which an attempt checks whether the source is connected.
const POLL: Duration = Duration::from_millis(20);

/// Attempt to reach one system.
#[derive(Debug)]
pub struct ConnectionTrial {
    /// Name of the source, sink or table.
    pub name: String,
    /// Success, or the reason why the system was not reached.
    pub outcome: Result<()>,
}

/// Tries to reach each system that an app is connected with, one after the other, each for at most `timeout`. What connecting
/// does when the app runs happens here too: ports are opened, missing tables are created. Messages that arrive meanwhile are not
/// acknowledged.
pub fn try_connections(app: &App, compiled: &CompiledApp, timeout: Duration) -> Vec<ConnectionTrial> {
    let Connectors::Catalog(catalog) = app.registry().connectors().clone() else { return vec![] };
    let mut trials = vec![];
    for file in &compiled.queries.files {
        for source in file_sources(file) {
            let context = context(app, file, &source.name, source.stream);
            let outcome = try_source(&catalog, source.config, &context, timeout);
            trials.push(ConnectionTrial { name: format!("source {}", source.name), outcome });
        }
        for table in file.plan.catalog.stored_tables() {
            let name = format!("table {}: {}", file.name, table.name);
            trials.push(ConnectionTrial { name, outcome: try_store(&catalog, file, table, timeout) });
        }
    }
    for sink in app_sinks(&compiled.queries) {
        for (number, destination) in sink.config.destinations.iter().enumerate() {
            let name = sink.names.get(number).or(sink.names.first()).cloned().unwrap_or_default();
            let context = context(app, sink.file, &name, sink.stream);
            let outcome = try_sink(&catalog, destination, &context, timeout);
            trials.push(ConnectionTrial { name: format!("sink {name}"), outcome });
        }
    }
    trials
}

fn context(
    app: &App,
    file: &QueryFile,
    name: &str,
    stream: &tidemill_flow::catalog::CatalogStream,
) -> ConnectorContext {
    ConnectorContext {
        name: name.to_owned(),
        // not that of the app, which may run and would have to make way
        writer: format!("check/{name}"),
        app: app.name.clone(),
        schema: schema(stream, None),
        dir: file_path(app, file, ""),
        mapper: None,
        shares_partitions: false,
    }
}

fn try_source(
    catalog: &Catalog,
    config: &ConnectorConfig,
    context: &ConnectorContext,
    timeout: Duration,
) -> Result<()> {
    let source = catalog
        .open_source(config, context, SplitPositions::new())
        .map_err(|e| Error::invalid(e.to_string()))?;
    runtime().block_on(async {
        let connected = async {
            while source.health() != ConnectorHealth::Working {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(timeout, connected).await.map_err(|_| match source.health() {
            ConnectorHealth::Degraded(problem) => Error::unavailable(problem),
            ConnectorHealth::Working => timed_out(timeout),
        })
    })
}

fn try_sink(
    catalog: &Catalog,
    config: &ConnectorConfig,
    context: &ConnectorContext,
    timeout: Duration,
) -> Result<()> {
    let mut sink = catalog.open_sink(config, context).map_err(|e| Error::invalid(e.to_string()))?;
    let mut is_late = false;
    let connected = sink.connect(&PartitionEpochs::new(), async {
        tokio::time::sleep(timeout).await;
        is_late = true;
    });
    match connected {
        Err(_) if is_late => Err(timed_out(timeout)),
        connected => {
            sink.close();
            connected.map(drop)
        }
    }
}

fn try_store(
    catalog: &Catalog,
    file: &QueryFile,
    table: &tidemill_flow::catalog::CatalogTable,
    timeout: Duration,
) -> Result<()> {
    let monitor = Arc::new(StoreMonitor::default());
    let created = create_store(table, &file.name, catalog, &monitor);
    let Some(mut store) = created.map_err(|e| Error::invalid(e.to_string()))? else { return Ok(()) };
    // 1 == 2: no row is found
    let (one, two) = (Int32Array::from(vec![1]), Int32Array::from(vec![2]));
    let parameters = RecordBatch::try_from_iter([("p0", Arc::new(one) as _), ("p1", Arc::new(two) as _)])
        .map_err(|e| Error::internal("parameters").with_source(e))?;
    let (left, right) = (StoreExpr::Parameter(0), StoreExpr::Parameter(1));
    let nothing = StoreExpr::Compare(StoreComparison::Eq, Box::new(left), Box::new(right));
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let timer = monitor.clone();
        scope.spawn(move || {
            if is_done.recv_timeout(timeout).is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout) {
                timer.stop();
            }
        });
        let found = store.find(Some(&nothing), &parameters, Some(1));
        drop(done);
        found.map(drop)
    })
}

fn timed_out(timeout: Duration) -> Error {
    Error::unavailable(format!("no answer within {timeout:?}"))
}
