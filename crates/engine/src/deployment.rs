//! A deployed app, compiled: everything that applying a record depends on besides the state of the partition.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use tidemill_rules::Program;
use tidemill_types::{Error, Field, FieldType, Result, StreamSchema, did_you_mean};

use crate::app::App;
use crate::app::settings::Settings;
use crate::connectors::app_sinks;
use crate::entry::Streams;
use crate::queries::compile::CompiledApp;
use crate::queries::{Partitioner, Queries};

/// A deployed app. It never changes; a deploy makes another one.
pub struct Deployment {
    /// The app as its author wrote it.
    pub app: App,
    /// Settings in force.
    pub settings: Settings,
    /// The compiled rules, and the streams of rules and queries.
    pub program: Arc<Program>,
    /// The compiled queries.
    pub queries: Arc<Queries>,
    /// Maps events to partitions.
    pub partitioner: Partitioner,
    /// Streams of the program by name, as entries of the log are decoded with them.
    pub streams: Streams,
    /// Schema of [`rejected_stream`].
    pub rejected_stream: Arc<StreamSchema>,
    /// Schemas of the tables, by position of their stream in the program.
    table_schemas: Vec<SchemaRef>,
    rejected_table_schema: SchemaRef,
}

/// Table that rows of an applied record belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableRef {
    /// The table of a stream, by its position in the program.
    Stream(usize),
    /// `system.rejected`.
    Rejected,
}

impl Deployment {
    /// Puts together what `compiled` says of `app`.
    pub fn new(app: App, compiled: CompiledApp, partitioner: Partitioner) -> Self {
        let CompiledApp { program, queries, .. } = compiled;
        let streams = program.streams();
        let rejected_stream = Arc::new(rejected_stream());
        Self {
            settings: app.settings.clone(),
            app,
            streams: streams.iter().map(|s| (s.name.clone(), (s.clone(), s.batch_schema()))).collect(),
            table_schemas: streams.iter().map(|s| s.table_schema()).collect(),
            rejected_table_schema: rejected_stream.table_schema(),
            rejected_stream,
            program,
            queries,
            partitioner,
        }
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> u32 {
        self.partitioner.partitions
    }

    /// Returns whether the app has the sink of a connector of this name.
    pub fn has_sink(&self, name: &str) -> bool {
        app_sinks(&self.queries).iter().any(|sink| sink.names.iter().any(|known| known == name))
    }

    /// Returns the stream called `name`.
    ///
    /// Errors: `NotFound` with the names that there are.
    pub fn stream(&self, name: &str) -> Result<&Arc<StreamSchema>> {
        self.streams.get(name).map(|(schema, _)| schema).ok_or_else(|| {
            let known = self.streams.keys().map(String::as_str);
            Error::not_found(format!("no stream `{name}`")).with_hint(did_you_mean(name, known))
        })
    }

    /// Returns the stream whose events a table stores.
    pub fn stream_of(&self, table: TableRef) -> &Arc<StreamSchema> {
        match table {
            TableRef::Stream(stream) => &self.program.streams()[stream],
            TableRef::Rejected => &self.rejected_stream,
        }
    }

    /// Returns the schema of the rows of a table.
    pub fn table_schema(&self, table: TableRef) -> &SchemaRef {
        match table {
            TableRef::Stream(stream) => &self.table_schemas[stream],
            TableRef::Rejected => &self.rejected_table_schema,
        }
    }
}

/// Returns the stream of rejected rows, with what is needed to correct them and to send them again.
fn rejected_stream() -> StreamSchema {
    let field = |name: &str| Field::new(name, FieldType::String);
    StreamSchema {
        name: "system.rejected".into(),
        fields: ["stream", "kind", "reason", "raw", "origin"].map(field).to_vec(),
        key: None,
        id: Vec::new(),
        time: None,
    }
}
