//! What apps say about their connectors, and what becomes of it: annotations as text.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_connect::{
    Catalog, ConnectorConfig, ConnectorContext, ConnectorHealth, PartitionEpochs, Source, SplitPositions,
};
use tidemill_flow::io::connector::{ConnectedStream, ConnectorDirection, schema};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::{Connectors, Registry, replay};
use tidemill_types::Timestamp;

use crate::helpers::catalog;

/// Maximum time for a connector to report a problem.
const PATIENCE: Duration = Duration::from_secs(120);

/// Compiles an app with all connectors. Errors: the diagnostics as a user sees them.
pub fn compile(text: &str) -> Result<AppPlan, String> {
    let mut registry = Registry::standard();
    let catalog: Arc<Catalog> = Arc::new(catalog());
    registry.set_connectors(Connectors::Catalog(catalog));
    replay::compile("app.siddhi", text, &registry, &|_| None)
}

/// Compiles an app, connects its sources and sinks, and returns what is wrong first; `none` if nothing is.
pub fn problem(text: &str, dir: &Path) -> String {
    let plan = match compile(text) {
        Ok(plan) => plan,
        Err(diagnostics) => return diagnostics.trim_end().to_owned(),
    };
    for connector in &plan.connectors {
        let stream = &plan.catalog.streams()[connector.stream];
        let connected =
            ConnectedStream { index: connector.stream, name: &stream.name, attributes: &stream.attributes };
        let context = ConnectorContext {
            name: format!("app/{}", stream.name),
            writer: format!("app/{}", stream.name),
            app: "app".into(),
            schema: schema(&connected),
            dir: dir.into(),
            mapper: None,
            shares_partitions: false,
        };
        let found = match &connector.direction {
            ConnectorDirection::In(config) => source_problem(config, &context),
            ConnectorDirection::Out(config) => {
                config.destinations.iter().find_map(|destination| sink_problem(destination, &context))
            }
        };
        if let Some(found) = found {
            return found;
        }
    }
    "none".into()
}

fn source_problem(config: &ConnectorConfig, context: &ConnectorContext) -> Option<String> {
    let mut source = match catalog().open_source(config, context, SplitPositions::new()) {
        Ok(source) => source,
        Err(e) => return Some(e.to_string()),
    };
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        match source.health() {
            ConnectorHealth::Degraded(text) if text != "it is connecting" => return Some(text),
            ConnectorHealth::Working => return None,
            ConnectorHealth::Degraded(_) => {}
        }
        match source.next(Timestamp(0)) {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(e) => return Some(e.to_string()),
        }
    }
    Some("the source says nothing".into())
}

fn sink_problem(config: &ConnectorConfig, context: &ConnectorContext) -> Option<String> {
    let mut sink = match catalog().open_sink(config, context) {
        Ok(sink) => sink,
        Err(e) => return Some(e.to_string()),
    };
    let connected = sink.connect(&PartitionEpochs::new(), async { tokio::time::sleep(PATIENCE).await });
    sink.close();
    connected.err().map(|e| format!("{}: {e}", e.kind().name()))
}
