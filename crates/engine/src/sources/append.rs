//! From the batches of a source to the logs of the partitions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backon::{BlockingRetryable, ConstantBuilder};
use crossbeam_channel::{Receiver, Sender};
use tidemill_connect::{Acknowledgement, ConnectorHealth, Source, SourceBatch, SplitPositions};
use tidemill_log::{AppendReceipt, Ticket};
use tidemill_types::{Offset, PartitionId, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::reader::SourceReader;
use crate::entry::{Entry, Events, RejectedRow, SourcePosition};
use crate::ingest::PartitionedRows;
use crate::node::Node;

/// Batches of one source whose records may wait to be durable.
const ACKNOWLEDGEMENTS_MAX: usize = 256;
/// Maximum time that a partition that gets no rows may lag behind the position of a source.
const POSITION_LAG: Duration = Duration::from_secs(1);
/// Delay between attempts to append to a log that does not accept entries.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Position of a source in every partition. The source resumes at the minimum; each partition skips the rows
/// it has.
pub(super) struct SourcePositions {
    pub name: String,
    pub by_partition: Vec<u64>,
    /// True if each partition has a position.
    known: bool,
}

impl SourcePositions {
    /// Reads the positions stored under a name.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn read(node: &Node, name: &str) -> Result<Self> {
        let of = |p| match node.with_view(p, |view| view.sources.get(name).copied()) {
            Some(position) => Ok(position),
            None => Ok(node.client(p)?.progress()?.sources.get(name).copied()),
        };
        let found: Vec<Option<u64>> = node.host.partition_ids().map(of).collect::<Result<_>>()?;
        Ok(Self {
            name: name.to_owned(),
            known: found.iter().all(Option::is_some),
            by_partition: found.into_iter().map(Option::unwrap_or_default).collect(),
        })
    }

    pub fn start(&self) -> u64 {
        self.by_partition.iter().copied().min().unwrap_or(0)
    }
}

/// Returns the name under which the position of a split is stored.
fn split_name(source: &str, split: &str) -> String {
    format!("{source}#{split}")
}

/// Returns the positions of the splits of `source` that all partitions have. A split that some have was
/// begun, but no row of it was appended: its position is in all partitions before its first row is in one.
///
/// Errors: `Unavailable` while a partition cannot be asked.
pub(super) fn split_positions(node: &Node, source: &str) -> Result<SplitPositions> {
    let prefix = split_name(source, "");
    let progress = node.progress()?;
    let names = progress.iter().flat_map(|partition| partition.sources.keys());
    let splits: BTreeSet<String> =
        names.filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect();
    let mut positions = SplitPositions::default();
    for split in splits {
        let found = SourcePositions::read(node, &split_name(source, &split))?;
        if found.known {
            positions.insert(split, found.start());
        }
    }
    Ok(positions)
}

/// Sends everything that `source` returns, up to its end or until `reader` has to stop. `stream` is the stream of
/// rejected rows that name none.
pub(super) fn append_source(
    reader: &SourceReader,
    source: &mut dyn Source,
    name: &str,
    stream: &str,
) -> Result<()> {
    let node = reader.node();
    let (sender, receiver) = crossbeam_channel::bounded(ACKNOWLEDGEMENTS_MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| acknowledge_durable(reader, &receiver));
        let mut appender =
            SourceAppender { node, reader, name, stream, splits: HashMap::new(), acknowledgements: sender };
        let mut end = None;
        while let Some(batch) = source.next(node.host.clock.now())? {
            report_health(node, name, &source.health());
            end = batch.split.is_none().then_some(batch.position);
            appender.append(batch)?;
            if reader.is_stopping() {
                return Ok(());
            }
        }
        appender.end(end)
    })
}

fn report_health(node: &Node, name: &str, health: &ConnectorHealth) {
    match health {
        ConnectorHealth::Working => node.host.health.clear_problem_of("sources", name),
        ConnectorHealth::Degraded(problem) => {
            node.host.health.report_problem_of("sources", name, format!("{name}: {problem}"));
        }
    }
}

/// Records of a batch, and who waits for them to be durable.
struct PendingAcknowledgement {
    records: Vec<(PartitionId, Offset)>,
    /// True if the records have the position of the source.
    positioned: bool,
    acknowledgement: Acknowledgement,
}

/// Tells sources that their rows are durable, in the order of the batches.
fn acknowledge_durable(reader: &SourceReader, pending: &Receiver<PendingAcknowledgement>) {
    let node = reader.node();
    let durability = node.app.deployment.settings.durability;
    for PendingAcknowledgement { records, positioned, acknowledgement } in pending {
        let synced = records.iter().try_for_each(|(p, offset)| node.host.log.sync(*p, *offset, durability));
        let counted = synced.and_then(|()| match positioned {
            true => reader.check_counted(&records),
            false => Ok(()),
        });
        acknowledgement.complete(counted);
    }
}

/// Appends the rows of one source. Each record has the source's name and position, so that a partition never
/// takes a row twice and none is skipped after a crash.
struct SourceAppender<'a> {
    node: &'a Arc<Node>,
    reader: &'a SourceReader,
    name: &'a str,
    stream: &'a str,
    splits: HashMap<Option<Arc<str>>, SplitAppender>,
    acknowledgements: Sender<PendingAcknowledgement>,
}

/// Progress of a split.
struct SplitAppender {
    positions: SourcePositions,
    /// Position in the last record of each partition, and when that was appended.
    appended: Vec<(u64, Duration)>,
}

impl SourceAppender<'_> {
    fn append(&mut self, mut batch: SourceBatch) -> Result<()> {
        let acknowledgement = batch.acknowledge.take();
        let positioned = batch.split.is_some() || acknowledgement.is_none();
        let records = match positioned {
            true => self.append_positioned(batch)?,
            false => self.append_rows(batch)?,
        };
        if let Some(acknowledgement) = acknowledgement {
            // the receiver ends after the sender
            let _ =
                self.acknowledgements.send(PendingAcknowledgement { records, positioned, acknowledgement });
        }
        Ok(())
    }

    /// Appends rows of a source that counts nothing.
    fn append_rows(&self, batch: SourceBatch) -> Result<Vec<(PartitionId, Offset)>> {
        let node = self.node;
        let everything = vec![0; node.host.partitions()];
        let mut rejected = self.rejected_rows(&batch, self.name, &everything);
        let homes = node.app.deployment.partitioner.of_batch(node.app.number_batches(1));
        let split = batch.rows.split(homes)?;
        let mut records = vec![];
        for (p, rows) in split.into_iter().enumerate() {
            let rejected = rejected.remove(&p).unwrap_or_default();
            if rows.is_none() && rejected.is_empty() {
                continue;
            }
            let rows = rows.unwrap_or_default();
            node.app.counts.accepted.fetch_add(rows.len() as u64, Ordering::Relaxed);
            let events = Events { parts: rows.parts, order: rows.order, rejected, ..Events::default() };
            let offset = self.reader.append(p, || Entry::Events(events.clone()))?;
            records.push((PartitionId(p as u32), offset));
        }
        Ok(records)
    }

    /// Appends rows together with the position behind them.
    fn append_positioned(&mut self, batch: SourceBatch) -> Result<Vec<(PartitionId, Offset)>> {
        let node = self.node;
        let split = batch.split.clone();
        if !self.splits.contains_key(&split) {
            let begun = self.begin_split(&batch)?;
            self.splits.insert(split.clone(), begun);
        }
        let Some(of) = self.splits.get(&split) else { return Ok(vec![]) };
        let mut rejected = self.rejected_rows(&batch, &of.positions.name, &of.positions.by_partition);
        let rows = batch.rows.split_from(
            &batch.row_numbers,
            &of.positions.by_partition,
            // events that are read again have to come to the same partition, which knows that it has them
            node.app.deployment.partitioner.of_batch(xxh3_64(of.positions.name.as_bytes())),
        )?;
        let now = node.host.clock.monotonic();
        let mut records = vec![];
        for (p, rows) in rows.into_iter().enumerate() {
            let rejected = rejected.remove(&p).unwrap_or_default();
            let is_empty = rows.is_none() && rejected.is_empty();
            let lags =
                of.appended[p].0 < batch.position && now.saturating_sub(of.appended[p].1) >= POSITION_LAG;
            if is_empty && !lags {
                continue;
            }
            let rows = rows.unwrap_or_default();
            node.app.counts.accepted.fetch_add(rows.len() as u64, Ordering::Relaxed);
            let events = Events { parts: rows.parts, order: rows.order, rejected, ..Events::default() };
            let offset = self.append_record(&of.positions.name, p, batch.position, events)?;
            records.push((PartitionId(p as u32), offset, (batch.position, now)));
        }
        let Some(of) = self.splits.get_mut(&split) else { return Ok(vec![]) };
        records.iter().for_each(|(p, _, appended)| of.appended[p.0 as usize] = *appended);
        Ok(records.into_iter().map(|(p, offset, _)| (p, offset)).collect())
    }

    /// Begins a split. One that does not start at 0 gets its first position in all partitions, durably, so that
    /// a crash does not take it for one that starts at 0.
    fn begin_split(&self, batch: &SourceBatch) -> Result<SplitAppender> {
        let node = self.node;
        let name = match &batch.split {
            Some(split) => split_name(self.name, split),
            None => self.name.to_owned(),
        };
        let mut positions = SourcePositions::read(node, &name)?;
        let rejected = batch.rejected.iter().map(|bad| bad.origin.number).min();
        let first = batch.row_numbers.first().copied().into_iter().chain(rejected).min();
        let first = first.unwrap_or(batch.position);
        if batch.split.is_some() && !positions.known && first > 0 {
            for p in 0..node.host.partitions() {
                let offset = self.append_record(&name, p, first, Events::default())?;
                node.host.log.sync(PartitionId(p as u32), offset, node.app.deployment.settings.durability)?;
            }
            positions.by_partition.fill(first);
        }
        let appended = positions.by_partition.iter().map(|position| (*position, Duration::ZERO)).collect();
        Ok(SplitAppender { positions, appended })
    }

    /// Stores the final position of a source without splits in every partition.
    fn end(&mut self, position: Option<u64>) -> Result<()> {
        let (Some(position), Some(of)) = (position, self.splits.get(&None)) else { return Ok(()) };
        for (p, (appended, _)) in of.appended.iter().enumerate() {
            if *appended < position {
                self.append_record(&of.positions.name, p, position, Events::default())?;
            }
        }
        Ok(())
    }

    fn append_record(&self, name: &str, p: usize, position: u64, events: Events) -> Result<Offset> {
        let source = Some(SourcePosition { name: name.to_owned(), position, epoch: self.reader.epoch() });
        let events = Events { source, ..events };
        self.reader.append(p, || Entry::Events(events.clone()))
    }

    /// Groups bad rows by the partition whose ledger counts them.
    fn rejected_rows(
        &self,
        batch: &SourceBatch,
        name: &str,
        positions: &[u64],
    ) -> HashMap<usize, Vec<RejectedRow>> {
        let homes = &self.node.app.deployment.partitioner;
        let mut rejected: HashMap<usize, Vec<RejectedRow>> = HashMap::new();
        for bad in &batch.rejected {
            let stream = bad.stream.as_deref().unwrap_or(self.stream);
            let p = homes.for_stream(stream).0 as usize;
            if bad.origin.number >= positions[p] {
                let row = RejectedRow {
                    stream: stream.to_owned(),
                    kind: "malformed".into(),
                    reason: bad.message.clone(),
                    raw: bad.text.clone(),
                    origin: format!("{name}:{}", bad.origin.number + 1),
                };
                self.node.app.source_rejections.add(self.name, &row);
                rejected.entry(p).or_default().push(row);
            }
        }
        rejected
    }
}

/// Retries until the log accepts the entry: a source or sink can wait for a full disk or a busy partition.
///
/// Errors: why the log never takes the entry, or `is_stopping`.
pub fn append_with_retry(
    node: &Arc<Node>,
    p: usize,
    is_stopping: impl Fn() -> bool,
    entry: impl Fn() -> Entry,
) -> Result<AppendReceipt> {
    let partition = PartitionId(p as u32);
    let attempt = || {
        let durability = node.app.deployment.settings.durability;
        node.host
            .wait_for_room(partition, Duration::from_secs(1), || node.app.applying_waits_for(&node.host))
            .and_then(|()| node.host.check_disk_space())
            .and_then(|()| node.host.append(partition, entry(), durability, None))
            // the next entry has a later position in the source: it must not be in the log without this one
            .and_then(Ticket::wait_assigned)
    };
    let clock = node.host.clock.clone();
    attempt
        .retry(ConstantBuilder::new().with_delay(RETRY_INTERVAL).without_max_times())
        .sleep(move |delay| clock.sleep(delay))
        .when(|e| e.kind().is_retryable() && !is_stopping())
        .notify(|e, _| tracing::debug!(partition = p, error = %e, "a source waits"))
        .call()
}
