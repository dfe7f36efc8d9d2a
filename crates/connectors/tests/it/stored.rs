//! Sources and sinks as the engine drives them, with what its log would have.
#![allow(dead_code, reason = "helpers of tests that come with their connectors")]

use std::collections::BTreeMap;
use std::time::Instant;

use tidemill_connect::{
    Acknowledgement, ConnectorConfig, ConnectorContext, ConnectorHealth, ConnectorSink, ConnectorSource,
    DeliveryProgress, PartitionEpochs, RefusedRow, Source, SplitPositions,
};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{EventId, Offset, PartitionId, Timestamp, Value, row_value};

use crate::helpers::{PATIENCE, catalog, config, context, schema};

/// A source, the rows that its log has, and the positions of its splits.
pub struct StoredSource {
    name: String,
    config: ConnectorConfig,
    source: ConnectorSource,
    pub positions: SplitPositions,
    /// Text and number of each stored event, in order.
    pub rows: Vec<(String, i64)>,
    pub rejected: Vec<String>,
    /// True if batches are acknowledged at once.
    pub acknowledges: bool,
    waiting: Vec<Acknowledgement>,
}

impl StoredSource {
    pub fn start(name: &str, kind: &str, options: &[(&str, &str)]) -> Self {
        Self::start_with(name, config(kind, options))
    }

    pub fn start_with(name: &str, config: ConnectorConfig) -> Self {
        let source = open(name, &config, SplitPositions::new());
        Self {
            name: name.into(),
            config,
            source,
            positions: SplitPositions::new(),
            rows: vec![],
            rejected: vec![],
            acknowledges: true,
            waiting: vec![],
        }
    }

    /// Stores the next batch.
    pub fn poll(&mut self) {
        let Some(batch) = self.source.next(Timestamp(0)).unwrap() else { return };
        let first = batch.split.as_deref().and_then(|split| self.positions.get(split)).copied().unwrap_or(0);
        batch.rows.for_each_arrival(|_, part, row| {
            let rows = &batch.rows.parts[part].1;
            let text = match row_value(rows, 0, row) {
                Value::Str(text) => text.to_string(),
                other => other.to_string(),
            };
            let Value::Int(n) = row_value(rows, 1, row) else { panic!("n is an integer") };
            self.rows.push((text, n));
        });
        assert!(batch.row_numbers.iter().all(|number| batch.split.is_none() || *number >= first));
        self.rejected.extend(batch.rejected.iter().map(|bad| bad.message.clone()));
        if let Some(split) = &batch.split {
            self.positions.insert(split.to_string(), batch.position);
        }
        if let Some(acknowledgement) = batch.acknowledge {
            match self.acknowledges {
                true => acknowledgement.complete(Ok(())),
                false => self.waiting.push(acknowledgement),
            }
        }
    }

    /// Stores batches until `done`.
    pub fn poll_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE * 2;
        while !done(self) {
            assert!(
                Instant::now() < end,
                "waited in vain until {what}; {} rows, {:?}, {:?}",
                self.rows.len(),
                self.source.health(),
                self.rejected.first()
            );
            self.poll();
        }
    }

    /// Stores batches until there are `count` rows.
    pub fn poll_rows(&mut self, count: usize) {
        self.poll_until(&format!("{count} rows arrived"), |source| source.rows.len() >= count);
    }

    /// Waits until the source is connected.
    pub fn wait_working(&mut self) {
        self.poll_until("the source works", |source| source.source.health() == ConnectorHealth::Working);
    }

    /// Waits for a problem and returns it.
    pub fn wait_problem(&mut self) -> String {
        self.poll_until("there is a problem", |source| source.problem().is_some());
        self.problem().unwrap_or_default()
    }

    /// Returns the present problem.
    pub fn problem(&self) -> Option<String> {
        match self.source.health() {
            ConnectorHealth::Degraded(text) if text != "it is connecting" => Some(text),
            _ => None,
        }
    }

    /// Acknowledges everything that waits.
    pub fn acknowledge(&mut self) {
        self.waiting.drain(..).for_each(|waiting| waiting.complete(Ok(())));
    }

    /// Crashes: what is not acknowledged stays so. Goes on at the stored positions.
    pub fn restart(&mut self) {
        self.waiting.clear();
        self.source = open(&self.name, &self.config, self.positions.clone());
    }

    /// Returns the numbers of the rows, sorted.
    pub fn sorted(&self) -> Vec<i64> {
        let mut numbers: Vec<i64> = self.rows.iter().map(|(_, n)| *n).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Checks that the numbers of each text increase, repetitions aside.
    pub fn assert_ordered(&self) {
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for (text, n) in &self.rows {
            let last = last.entry(text).or_insert(*n);
            assert!(*last <= *n, "{n} of {text} comes behind {last}");
            *last = *n;
        }
    }
}

fn open(name: &str, config: &ConnectorConfig, positions: SplitPositions) -> ConnectorSource {
    catalog().open_source(config, &context(name, "S"), positions).unwrap_or_else(|e| panic!("{e}"))
}

/// A sink, and the events that wait for it: event `n` has the id `0-n-0`.
pub struct StoredSink {
    sink: ConnectorSink,
    /// Number of the next event to deliver.
    next: i64,
    owned: PartitionEpochs,
    /// Epoch of a later owner of the partition, as the other side knows it.
    pub later_owner: Option<u64>,
    pub refused: Vec<RefusedRow>,
}

impl StoredSink {
    pub fn new(name: &str, kind: &str, options: &[(&str, &str)]) -> Self {
        Self::with(name, config(kind, options))
    }

    pub fn with(name: &str, config: ConnectorConfig) -> Self {
        let sink = catalog().open_sink(&config, &context(name, "S")).unwrap_or_else(|e| panic!("{e}"));
        Self::of(sink)
    }

    fn of(sink: ConnectorSink) -> Self {
        Self { sink, next: 0, owned: PartitionEpochs::new(), later_owner: None, refused: vec![] }
    }

    /// Opens the sink of a process that owns the partition in `epoch`, as one of several.
    pub fn owning(name: &str, kind: &str, options: &[(&str, &str)], epoch: u64) -> Self {
        let context = ConnectorContext { shares_partitions: true, ..context(name, "S") };
        let sink = catalog().open_sink(&config(kind, options), &context).unwrap_or_else(|e| panic!("{e}"));
        Self { owned: PartitionEpochs::from([(PartitionId(0), epoch)]), ..Self::of(sink) }
    }

    /// Connects if necessary, and skips the events that the other side has.
    pub fn connect(&mut self) -> Result<(), tidemill_types::Error> {
        let delivered = self.sink.connect(&self.owned, std::future::pending())?;
        let later = delivered.as_ref().and_then(|known| known.later_owners.get(&PartitionId(0)));
        self.later_owner = later.copied().or(self.later_owner);
        if let Some(last) = delivered.and_then(|known| known.delivered.get(&PartitionId(0)).copied()) {
            self.next = self.next.max(last.offset.0 as i64 + 1);
        }
        Ok(())
    }

    /// Delivers the events up to `end` once. Event `n` has the text `text(n)`.
    pub fn try_deliver(
        &mut self,
        end: i64,
        text: &dyn Fn(i64) -> String,
    ) -> Result<(), tidemill_types::Error> {
        self.connect()?;
        let numbers: Vec<i64> = (self.next..end).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let mut builder = BatchBuilder::new(schema("S"));
        for n in &numbers {
            builder.push_values(&[FieldValue::Text(text(*n)), FieldValue::Int(*n)], Timestamp(0)).unwrap();
        }
        let id = |n: &i64| EventId { partition: PartitionId(0), offset: Offset(*n as u64), row: 0 };
        let ids: Vec<EventId> = numbers.iter().map(id).collect();
        let mut progress = DeliveryProgress::default();
        let result = self.sink.deliver(&builder.finish(), &ids, &mut progress, std::future::pending());
        self.next += progress.delivered as i64;
        self.refused.extend(progress.refused);
        result
    }

    /// Delivers the events up to `end`, in batches, again after failures.
    pub fn deliver(&mut self, end: i64, batch: i64, text: &dyn Fn(i64) -> String) {
        let patience = Instant::now() + PATIENCE * 2;
        while self.next < end {
            if let Err(e) = self.try_deliver((self.next + batch).min(end), text) {
                assert!(e.kind().is_retryable(), "{e}");
                assert!(Instant::now() < patience, "not delivered: {e}");
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
    }

    /// Closes the sink, and opens it as after a crash that forgot what was delivered.
    pub fn forget_progress(&mut self, name: &str, kind: &str, options: &[(&str, &str)]) {
        *self = Self::new(name, kind, options);
    }

    pub fn close(&mut self) {
        self.sink.close();
    }
}

/// Checks that a sink whose partition has moved delivers nothing after its next owner has. `read` returns the numbers of the events that
/// the other side has, in order.
pub fn check_former_owner(
    kind: &str,
    name: &str,
    options: &[(&str, &str)],
    read: &mut dyn FnMut(usize) -> Vec<i64>,
) {
    let text = |n: i64| n.to_string();
    let mut former = StoredSink::owning(name, kind, options, 3);
    former.try_deliver(10, &text).unwrap();
    let mut present = StoredSink::owning(name, kind, options, 4);
    present.connect().unwrap();
    assert_eq!(present.next, 10, "it continues where the former owner ended");
    present.try_deliver(20, &text).unwrap();
    // it has not heard of the other one, and delivers the same and more
    assert!(former.try_deliver(30, &text).is_err(), "{kind}: a former owner delivers");
    let _ = former.connect();
    assert_eq!(former.later_owner, Some(4), "{kind}");
    present.try_deliver(25, &text).unwrap();
    assert_eq!(read(25), (0..25).collect::<Vec<_>>(), "{kind}");
    assert_eq!(present.later_owner, None);
}
