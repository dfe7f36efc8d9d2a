//! What sources and sinks of connectors have in common.

use std::collections::BTreeSet;

use tidemill_connect::ConnectorConfig;
use tidemill_flow::catalog::CatalogStream;
use tidemill_flow::io::connector::{ConnectorDirection, ConnectorSinkConfig};

use crate::queries::{Queries, QueryFile};

/// Source of a connector in an app.
pub struct AppSource<'q> {
    /// Stream that gets its events.
    pub stream: &'q CatalogStream,
    /// Configuration of the source in the app.
    pub config: &'q ConnectorConfig,
    /// Name of the source. Its position belongs to this place in the app: changed options do not reset it.
    pub name: String,
}

/// Returns the sources of connectors of a file.
pub fn file_sources(file: &QueryFile) -> Vec<AppSource<'_>> {
    let (mut sources, mut names) = (vec![], ConnectorNames::default());
    for connector in &file.plan.connectors {
        let ConnectorDirection::In(config) = &connector.direction else { continue };
        let stream = &file.plan.catalog.streams()[connector.stream];
        let name = names.unique(format!("{}: {} to {}", file.name, config.kind, stream.name));
        sources.push(AppSource { stream, config, name });
    }
    sources
}

/// Sink of a connector in an app.
pub struct AppSink<'q> {
    /// File that has it.
    pub file: &'q QueryFile,
    /// Stream whose events it sends.
    pub stream: &'q CatalogStream,
    /// Configuration of the sink in the app.
    pub config: &'q ConnectorSinkConfig,
    /// Name of the sink; one for each destination if all of them get all events.
    pub names: Vec<String>,
}

/// Returns the sinks of connectors of an app.
pub fn app_sinks(queries: &Queries) -> Vec<AppSink<'_>> {
    let (mut sinks, mut names) = (vec![], ConnectorNames::default());
    for file in &queries.files {
        for connector in &file.plan.connectors {
            let ConnectorDirection::Out(config) = &connector.direction else { continue };
            let stream = &file.plan.catalog.streams()[connector.stream];
            let kind = config.destinations.first().map_or("", |destination| &destination.kind);
            let count = if config.distribution().is_some() { 1 } else { config.destinations.len() };
            let unique = |_| names.unique(format!("{}: {} to {kind}", file.name, stream.name));
            let names = (0..count).map(unique).collect();
            sinks.push(AppSink { file, stream, config, names });
        }
    }
    sinks
}

/// Gives each connector of an app a name of its own.
#[derive(Default)]
struct ConnectorNames(BTreeSet<String>);

impl ConnectorNames {
    /// Returns `name`, with a number behind it if it is taken.
    fn unique(&mut self, name: String) -> String {
        let numbered = (2..).map(|n| format!("{name} {n}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let free = free.unwrap_or(name);
        self.0.insert(free.clone());
        free
    }
}
