//! The other system of a test, at the other end of its source and its sink: a value that remembers what it was given and can be down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidemill_connect::{
    Catalog, ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, EventBuilder, Message,
    NamedText, OptionError, OptionSpec, Options, PartitionEpochs, RefusedRow, SinkBatch, SinkConnector,
    SinkPositions, SinkType, SourceConnector, SourceMapper, SourceMapperType, SourceOutput, SourceType,
};
use tidemill_flow::Connectors;
use tidemill_types::{Error, EventId, Result, StreamSchema, event_json};

/// System outside, at the other end of the connectors.
#[derive(Default)]
pub struct Outside {
    /// Messages that sources read.
    pub inbox: Mutex<Vec<String>>,
    /// Receipts of messages that were handed over: events and rejections.
    pub receipts: Mutex<Vec<(usize, Vec<String>)>>,
    /// Events that sinks delivered, with the name of their destination.
    pub outbox: Mutex<Vec<(String, EventId, String)>>,
    pub is_down: AtomicBool,
    /// Deliveries that were begun.
    pub attempts: AtomicUsize,
    /// Number of events after which the connection fails in the middle of a delivery.
    pub fails_after: AtomicUsize,
    /// Whether sinks learn what they delivered before.
    pub remembers: AtomicBool,
    /// Whether negative numbers are taken.
    pub takes_negative: AtomicBool,
}

impl Outside {
    pub fn new() -> Arc<Self> {
        let outside = Self::default();
        outside.fails_after.store(usize::MAX, Ordering::Relaxed);
        Arc::new(outside)
    }

    pub fn catalog(self: &Arc<Self>) -> Connectors {
        let mut catalog = Catalog::default();
        let end = End(self.clone());
        catalog.add_source(end.clone()).add_sink(end).add_source_mapper(JsonMapper);
        Connectors::Catalog(Arc::new(catalog))
    }

    /// Returns the last event that was delivered of each partition, if sinks learn it.
    fn positions(&self) -> Option<DeliveredEvents> {
        if !self.remembers.load(Ordering::Relaxed) {
            return None;
        }
        let mut known = BTreeMap::new();
        for (_, id, _) in self.outbox.lock().iter() {
            known.insert(id.partition, *id);
        }
        Some(known)
    }

    /// Returns the numbers `n` of the delivered events, sorted.
    pub fn numbers(&self) -> Vec<i64> {
        let outbox = self.outbox.lock();
        let number = |event: &String| -> i64 {
            serde_json::from_str::<serde_json::Value>(event).unwrap()["n"].as_i64().unwrap()
        };
        let mut numbers: Vec<i64> = outbox.iter().map(|(_, _, event)| number(event)).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Type of source and of sink.
#[derive(Clone)]
struct End(Arc<Outside>);

const SOURCE_OPTIONS: [OptionSpec; 1] =
    [OptionSpec::flag("splits", "true", "Whether messages have numbers.")];
const SINK_OPTIONS: [OptionSpec; 1] = [OptionSpec::text("to", "Name of the destination.").default("x")];

impl SourceType for End {
    fn name(&self) -> &'static str {
        "outside"
    }
    fn summary(&self) -> &'static str {
        "Messages of the test."
    }
    fn options(&self) -> &'static [OptionSpec] {
        &SOURCE_OPTIONS
    }
    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }
    fn create(
        &self,
        options: &Options,
        _context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        Ok(Box::new(Reader { outside: self.0.clone(), splits: options.flag("splits") }))
    }
}

struct Reader {
    outside: Arc<Outside>,
    splits: bool,
}

#[async_trait]
impl SourceConnector for Reader {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        output.report_connected();
        let split: Arc<str> = "a/0".into();
        let mut next = output.position(&split).unwrap_or(0);
        loop {
            let message = self.outside.inbox.lock().get(next as usize).cloned();
            let Some(text) = message else {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            };
            let message = Message { number: next, ..Message::new(text) };
            next += 1;
            let receipt = match self.splits {
                true => output.send_split(&split, vec![message], next).await?,
                false => output.send(vec![message]).await?,
            };
            if !self.splits {
                let receipt = receipt.wait().await?;
                self.outside.receipts.lock().push((receipt.accepted, receipt.rejected));
            }
        }
    }
}

impl SinkType for End {
    fn name(&self) -> &'static str {
        "outside"
    }
    fn summary(&self) -> &'static str {
        "Events for the test."
    }
    fn options(&self) -> &'static [OptionSpec] {
        &SINK_OPTIONS
    }
    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }
    fn takes_messages(&self) -> bool {
        false
    }
    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let (outside, to) = (self.0.clone(), options.text("to").to_owned());
        Ok(Box::new(Writer { outside, to, schema: context.schema.clone() }))
    }
}

struct Writer {
    outside: Arc<Outside>,
    to: String,
    schema: Arc<StreamSchema>,
}

#[async_trait]
impl SinkConnector for Writer {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        if self.outside.is_down.load(Ordering::Relaxed) {
            return Err(Error::unavailable("connection refused"));
        }
        Ok(self.outside.positions())
    }

    async fn own(&mut self, _: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        let positions = self.outside.positions();
        Ok(positions.map(|delivered| SinkPositions { delivered, ..SinkPositions::default() }))
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        self.outside.attempts.fetch_add(1, Ordering::Relaxed);
        for row in progress.delivered..batch.rows.num_rows() {
            if self.outside.is_down.load(Ordering::Relaxed)
                || self.outside.outbox.lock().len() >= self.outside.fails_after.load(Ordering::Relaxed)
            {
                self.outside.fails_after.store(usize::MAX, Ordering::Relaxed);
                return Err(Error::unavailable("connection reset"));
            }
            let event = event_json(&self.schema, &batch.rows, row);
            let is_refused = event["n"].as_i64().is_some_and(|n| n < 0);
            if is_refused && !self.outside.takes_negative.load(Ordering::Relaxed) {
                progress.refused.push(RefusedRow { row, reason: "negative".into() });
            } else {
                let event = serde_json::Value::Object(event).to_string();
                self.outside.outbox.lock().push((self.to.clone(), batch.ids[row], event));
            }
            // what was taken is acknowledged only in part when the connection fails
            if row % 10 == 9 {
                progress.delivered = row + 1;
            }
        }
        Ok(())
    }
}

/// Mapper of JSON objects.
struct JsonMapper;

impl SourceMapperType for JsonMapper {
    fn name(&self) -> &'static str {
        "passThrough"
    }
    fn summary(&self) -> &'static str {
        "JSON objects."
    }
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }
    fn create(
        &self,
        _options: &Options,
        _attributes: &[NamedText],
        _schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        Ok(Box::new(JsonMapper))
    }
}

impl SourceMapper for JsonMapper {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        if let Err(e) = out.push_json(message, &message.payload, true) {
            out.reject(message, e, &message.payload);
        }
    }
}
