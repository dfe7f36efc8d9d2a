//! Events as messages: mappers of the catalog in the sink `log` and between topics.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_connect::{
    Catalog, ConnectorContext, EventBuilder, MapperConfig, Message, RefusedRow, SinkMapper, SourceMapper,
};
use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::Annotation;
use tidemill_types::{StreamSchema, Timestamp};

use super::connector::{self, ConnectedStream};
use crate::arrow;
use crate::catalog::Attributes;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;

/// Mapper that makes messages of a stream's events.
#[derive(Clone)]
pub struct MessageWriter {
    config: MapperConfig,
    attributes: Attributes,
    mapper: Arc<Mutex<Box<dyn SinkMapper>>>,
}

/// Mapper that makes events of a stream of messages.
#[derive(Clone)]
pub struct MessageReader {
    config: MapperConfig,
    schema: Arc<StreamSchema>,
    attributes: Attributes,
    mapper: Arc<Mutex<Box<dyn SourceMapper>>>,
}

/// Message of a topic.
pub(crate) struct TopicMessage {
    /// Content.
    pub content: Bytes,
    /// Time of its first event, in milliseconds.
    pub time: i64,
}

impl MessageWriter {
    /// Compiles `@map` of a sink. Errors: an unknown mapper, wrong options.
    pub(super) fn compile(
        sink: &Annotation,
        map: &Annotation,
        stream: &ConnectedStream<'_>,
        catalog: &Catalog,
    ) -> Result<Self, Diagnostic> {
        let config = connector::mapper(map)?;
        let mapper = catalog.create_sink_mapper(&config, &context(stream));
        let mapper = mapper.map_err(|e| connector::diagnostic(&e, sink, None))?;
        Ok(Self { config, attributes: stream.attributes.clone(), mapper: Arc::new(Mutex::new(mapper)) })
    }

    /// Returns the messages of these events, and why others cannot be represented.
    pub(crate) fn messages(&self, events: &Batch) -> (Vec<TopicMessage>, Vec<String>) {
        let mut refused: Vec<RefusedRow> = vec![];
        let rows = match arrow::record_batch(events.columns.clone(), &self.attributes) {
            Ok(rows) => rows,
            Err(e) => return (vec![], vec![e.to_string()]),
        };
        let payloads = self.mapper.lock().map(&rows, &mut refused);
        let message = |payload: tidemill_connect::Payload| TopicMessage {
            content: payload.bytes,
            time: events.times[payload.row],
        };
        (payloads.into_iter().map(message).collect(), refused.into_iter().map(|r| r.reason).collect())
    }

    /// Returns the text of event `row`: its message, in hexadecimal digits if it is not text, or the reason
    /// why it has no message.
    pub(super) fn text(&self, events: &Batch, row: usize) -> String {
        let mut single = Batch::new(events.columns.iter().map(Column::ty));
        single.push_row(events, row, EventKind::Current, events.times[row]);
        let (messages, refused) = self.messages(&single);
        match (messages.first(), refused.first()) {
            (Some(message), _) => match std::str::from_utf8(&message.content) {
                Ok(text) => text.to_owned(),
                Err(_) => message.content.iter().map(|byte| format!("{byte:02x}")).collect(),
            },
            (None, reason) => {
                let reason = reason.map_or("the mapper made no message", String::as_str);
                format!("the event cannot be written as {}: {reason}", self.config.kind)
            }
        }
    }
}

impl MessageReader {
    /// Compiles `@map` of a source. Errors: an unknown mapper, wrong options.
    pub(super) fn compile(
        source: &Annotation,
        map: &Annotation,
        stream: &ConnectedStream<'_>,
        catalog: &Catalog,
    ) -> Result<Self, Diagnostic> {
        let config = connector::mapper(map)?;
        let context = context(stream);
        let mapper = catalog.create_source_mapper(&config, &context);
        let mapper = mapper.map_err(|e| connector::diagnostic(&e, source, None))?;
        Ok(Self {
            config,
            schema: context.schema,
            attributes: stream.attributes.clone(),
            mapper: Arc::new(Mutex::new(mapper)),
        })
    }

    /// Returns the name of the mapper.
    pub(crate) fn kind(&self) -> &str {
        &self.config.kind
    }

    /// Returns the events of these messages, and why others cannot be read.
    pub(crate) fn events(&self, messages: &[TopicMessage], clock: i64) -> (Batch, Vec<String>) {
        let mut builder = EventBuilder::new(self.schema.clone());
        for (number, message) in messages.iter().enumerate() {
            let message = Message {
                number: number as u64,
                time: Some(Timestamp(message.time.saturating_mul(1000))),
                ..Message::new(message.content.clone())
            };
            self.mapper.lock().map(&message, &mut builder);
        }
        let decoded = builder.finish();
        let mut failures: Vec<String> = decoded.rejected.into_iter().map(|bad| bad.message).collect();
        let mut events = Batch::new(self.attributes.iter().map(|(_, ty)| *ty));
        for (_, rows) in decoded.rows.parts {
            let times = times(&rows);
            match arrow::columns(rows, &self.attributes) {
                Ok(columns) => {
                    events.columns = columns;
                    events.kinds = vec![EventKind::Current; times.len()];
                    events.times = times;
                }
                Err(e) => failures.push(e.to_string()),
            }
        }
        events.end_chunk(clock);
        (events, failures)
    }
}

/// Returns the times of rows in milliseconds.
fn times(rows: &RecordBatch) -> Vec<i64> {
    let time = rows.column_by_name(tidemill_types::column::TIME);
    let time = time.and_then(|time| time.as_primitive_opt::<TimestampMicrosecondType>());
    time.map_or_else(Vec::new, |time| time.values().iter().map(|us| us.div_euclid(1000)).collect())
}

fn context(stream: &ConnectedStream<'_>) -> ConnectorContext {
    ConnectorContext {
        name: stream.name.to_owned(),
        writer: String::new(),
        app: String::new(),
        schema: connector::schema(stream),
        dir: std::path::PathBuf::new(),
        mapper: None,
        shares_partitions: false,
    }
}

// Mappers are equal if they do the same.
impl PartialEq for MessageWriter {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config && self.attributes == other.attributes
    }
}

impl Eq for MessageWriter {}

impl PartialEq for MessageReader {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config && self.attributes == other.attributes
    }
}

impl Eq for MessageReader {}

impl std::fmt::Debug for MessageWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MessageWriter").field(&self.config).finish()
    }
}

impl std::fmt::Debug for MessageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MessageReader").field(&self.config).finish()
    }
}
