//! Streams, sources and sinks of tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_connect::{
    Acknowledgement, Catalog, ConnectorConfig, ConnectorContext, ConnectorSink, ConnectorSource,
    DeliveryProgress, MapperConfig, OptionError, PartitionEpochs, Source, SplitPositions,
};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{
    Error, EventId, Field, FieldType, Offset, PartitionId, StreamSchema, Timestamp, Value, row_value,
};

/// Maximum time a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub use tidemill_test_servers::free_port;

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the stream `name (text string, n long)`.
pub fn schema(name: &str) -> Arc<StreamSchema> {
    let fields = vec![Field::new("text", FieldType::String), Field::new("n", FieldType::Int)];
    Arc::new(StreamSchema { name: name.into(), fields, key: None, id: vec![], time: None })
}

/// Returns a configuration with options written as `name=value`, and a mapper of JSON.
pub fn config(kind: &str, options: &[(&str, &str)]) -> ConnectorConfig {
    ConnectorConfig {
        kind: kind.into(),
        options: options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        mapper: Some(MapperConfig { kind: "json".into(), ..MapperConfig::default() }),
    }
}

/// Returns the place of a connector in an app.
pub fn context(app: &str, stream: &str) -> ConnectorContext {
    ConnectorContext {
        name: format!("{app}/{stream}"),
        writer: format!("{app}/{stream}"),
        app: app.into(),
        schema: schema(stream),
        dir: PathBuf::from("."),
        mapper: None,
        shares_partitions: false,
    }
}

/// Returns the catalog of the product.
pub fn catalog() -> Catalog {
    tidemill_connectors::catalog()
}

/// Source as the engine drives it, without an engine.
pub struct TestSource {
    source: ConnectorSource,
    /// True if batches are acknowledged.
    pub acknowledges: bool,
    /// Rows `text n` in order of arrival.
    pub rows: Vec<String>,
    /// Reasons of rejections.
    pub rejected: Vec<String>,
    /// Acknowledgements of the batches that were not acknowledged.
    kept: Vec<Acknowledgement>,
}

impl TestSource {
    /// Starts a source of the stream `S` of the app `app`.
    pub fn start(kind: &str, options: &[(&str, &str)]) -> Self {
        Self::start_in(&context("app", "S"), &config(kind, options))
    }

    /// Starts a source.
    pub fn start_in(context: &ConnectorContext, config: &ConnectorConfig) -> Self {
        Self::try_start(context, config).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Starts a source, or says why its options are wrong.
    pub fn try_start(context: &ConnectorContext, config: &ConnectorConfig) -> Result<Self, OptionError> {
        let source = catalog().open_source(config, context, SplitPositions::new())?;
        Ok(Self { source, acknowledges: true, rows: vec![], rejected: vec![], kept: vec![] })
    }

    /// Takes what has arrived.
    pub fn poll(&mut self) {
        let batch = self.source.next(Timestamp(0)).unwrap().expect("sources of tests do not end");
        batch.rows.for_each_arrival(|_, part, row| {
            let rows = &batch.rows.parts[part].1;
            let text = match row_value(rows, 0, row) {
                Value::Str(text) => text.to_string(),
                other => other.to_string(),
            };
            self.rows.push(format!("{text} {}", row_value(rows, 1, row)));
        });
        self.rejected.extend(batch.rejected.iter().map(|bad| bad.message.clone()));
        match batch.acknowledge {
            Some(acknowledge) if self.acknowledges => acknowledge.complete(Ok(())),
            kept => self.kept.extend(kept),
        }
    }

    /// Tells the connector that batches that were not acknowledged are not durable.
    pub fn drop_receipts(&mut self) {
        let lost = || Error::unavailable("the log is full");
        self.kept.drain(..).for_each(|acknowledge| acknowledge.complete(Err(lost())));
    }

    /// Takes rows until `done`.
    pub fn poll_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "waited in vain until {what}; rows: {:?}", self.rows);
            self.poll();
        }
    }

    /// Takes rows until there are `count`.
    pub fn poll_rows(&mut self, count: usize) -> &[String] {
        self.poll_until("all rows arrived", |source| source.rows.len() >= count);
        &self.rows
    }

    /// Waits until the source listens or is connected.
    pub fn wait_working(&self) {
        wait_until("the source works", || self.health() == "works");
    }

    /// Returns `works`, or what is wrong.
    pub fn health(&self) -> String {
        match self.source.health() {
            tidemill_connect::ConnectorHealth::Working => "works".into(),
            tidemill_connect::ConnectorHealth::Degraded(problem) => problem,
        }
    }
}

/// Opens a sink of the stream `S` of the app `app`.
pub fn sink(kind: &str, options: &[(&str, &str)]) -> ConnectorSink {
    catalog().open_sink(&config(kind, options), &context("app", "S")).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns why options of a sink are wrong.
pub fn sink_error(kind: &str, options: &[(&str, &str)]) -> String {
    match catalog().open_sink(&config(kind, options), &context("app", "S")) {
        Ok(_) => panic!("the options {options:?} are taken"),
        Err(e) => e.to_string(),
    }
}

/// Returns why options of a source are wrong.
pub fn source_error(kind: &str, options: &[(&str, &str)]) -> String {
    match catalog().create_source(&config(kind, options), &context("app", "S")) {
        Ok(_) => panic!("the options {options:?} are taken"),
        Err(e) => e.to_string(),
    }
}

/// Delivers events `(text, n)` once, connecting before if necessary.
pub fn deliver(sink: &mut ConnectorSink, events: &[(&str, i64)]) -> (DeliveryProgress, Result<(), Error>) {
    let mut builder = BatchBuilder::new(schema("S"));
    for (text, n) in events {
        builder.push_values(&[FieldValue::Text((*text).into()), FieldValue::Int(*n)], Timestamp(0)).unwrap();
    }
    let ids = (0..events.len() as u32)
        .map(|row| EventId { partition: PartitionId(0), offset: Offset(0), row })
        .collect::<Vec<_>>();
    let mut progress = DeliveryProgress::default();
    let delivered = sink
        .connect(&PartitionEpochs::new(), std::future::pending())
        .and_then(|_| sink.deliver(&builder.finish(), &ids, &mut progress, std::future::pending()));
    (progress, delivered)
}

/// Delivers events until all are taken, sending the rest again after failures.
pub fn deliver_all(sink: &mut ConnectorSink, events: &[(&str, i64)]) {
    let end = Instant::now() + PATIENCE;
    let mut from = 0;
    loop {
        let (progress, delivered) = deliver(sink, &events[from..]);
        from += progress.delivered;
        match delivered {
            Ok(()) => return,
            Err(e) => assert!(Instant::now() < end, "not delivered: {e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
