//! Sources of any stream, with the positions that the log of an engine would have.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidemill_connect::{
    ConnectorConfig, ConnectorContext, ConnectorHealth, ConnectorSource, MapperConfig, NamedText, Source,
    SplitPositions,
};
use tidemill_types::{Field, FieldType, StreamSchema, Timestamp, Value, row_value};

use crate::helpers::{PATIENCE, catalog};

/// Source, the rows that its log has, and the positions of its splits.
pub struct PositionedSource {
    context: ConnectorContext,
    config: ConnectorConfig,
    source: ConnectorSource,
    pub positions: SplitPositions,
    /// Values of each stored event, joined by `|`.
    pub rows: Vec<String>,
    /// Reasons of rejections.
    pub rejected: Vec<String>,
    /// Set once the input has ended.
    pub ended: bool,
}

impl PositionedSource {
    /// Opens a source of the stream `S` with these fields at its beginning.
    pub fn open(fields: &[(&str, FieldType)], config: ConnectorConfig, dir: &Path) -> Self {
        Self::open_as("app/S", fields, config, dir)
    }

    /// Opens a source with this name at its beginning.
    pub fn open_as(name: &str, fields: &[(&str, FieldType)], config: ConnectorConfig, dir: &Path) -> Self {
        let context = ConnectorContext { name: name.into(), dir: dir.into(), ..context(fields) };
        let source = start(&context, &config, SplitPositions::new());
        Self {
            context,
            config,
            source,
            positions: SplitPositions::new(),
            rows: vec![],
            rejected: vec![],
            ended: false,
        }
    }

    /// Stores the next batch and acknowledges it.
    pub fn poll(&mut self) {
        let Some(batch) = self.source.next(Timestamp(0)).unwrap() else {
            self.ended = true;
            return;
        };
        batch.rows.for_each_arrival(|_, part, row| {
            let rows = &batch.rows.parts[part].1;
            let values =
                (0..self.context.schema.fields.len()).map(|column| match row_value(rows, column, row) {
                    Value::Str(text) => text.to_string(),
                    other => other.to_string(),
                });
            self.rows.push(values.collect::<Vec<_>>().join("|"));
        });
        self.rejected.extend(batch.rejected.iter().map(|bad| bad.message.clone()));
        if let Some(split) = &batch.split {
            let first = self.positions.insert(split.to_string(), batch.position).unwrap_or(0);
            assert!(batch.row_numbers.iter().all(|n| (first..batch.position).contains(n)), "{batch:?}");
        }
        if let Some(acknowledge) = batch.acknowledge {
            acknowledge.complete(Ok(()));
        }
    }

    /// Stores batches until `done`.
    pub fn poll_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            let health = self.source.health();
            assert!(Instant::now() < end, "waited in vain until {what}; rows: {:?}; {health:?}", self.rows);
            self.poll();
        }
    }

    /// Stores batches until there are `count` rows.
    pub fn poll_rows(&mut self, count: usize) -> &[String] {
        self.poll_until(&format!("{count} rows arrived"), |source| source.rows.len() >= count);
        &self.rows
    }

    /// Waits for a problem and returns it.
    pub fn wait_problem(&mut self) -> String {
        let problem = |source: &Self| match source.source.health() {
            ConnectorHealth::Degraded(text) if text != "it is connecting" => Some(text),
            _ => None,
        };
        self.poll_until("there is a problem", |source| problem(source).is_some());
        problem(self).unwrap_or_default()
    }

    /// Waits for a problem and returns it, or `works` if `works` holds before.
    pub fn wait_problem_or(&mut self, what: &str, works: impl Fn(&Self) -> bool) -> String {
        let problem = |source: &Self| match source.source.health() {
            ConnectorHealth::Degraded(text) if text != "it is connecting" => Some(text),
            _ => None,
        };
        self.poll_until(what, |source| works(source) || problem(source).is_some());
        problem(self).unwrap_or_else(|| "works".into())
    }

    /// Waits until the source works.
    pub fn wait_working(&mut self) {
        let works = |source: &Self| source.source.health() == ConnectorHealth::Working;
        self.poll_until("the source works", works);
    }

    /// Crashes, and continues at the stored positions.
    pub fn restart(&mut self) {
        self.source = start(&self.context, &self.config, self.positions.clone());
    }
}

fn start(context: &ConnectorContext, config: &ConnectorConfig, positions: SplitPositions) -> ConnectorSource {
    catalog().open_source(config, context, positions).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the place of a connector of the stream `S` with these fields in the app `app`.
pub fn context(fields: &[(&str, FieldType)]) -> ConnectorContext {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    let schema = StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None };
    ConnectorContext { schema: Arc::new(schema), ..crate::helpers::context("app", "S") }
}

/// Returns a configuration with a mapper and the attributes that it reads.
pub fn mapped(kind: &str, options: &[(&str, &str)], mapper: &str, attributes: &[&str]) -> ConnectorConfig {
    let attributes = attributes.iter().map(|text| NamedText { name: None, text: (*text).into() }).collect();
    let mapper = MapperConfig { kind: mapper.into(), attributes, ..MapperConfig::default() };
    ConnectorConfig { mapper: Some(mapper), ..crate::helpers::config(kind, options) }
}
