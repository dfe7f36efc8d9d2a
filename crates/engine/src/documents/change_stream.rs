//! Following changes.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_log::Log;
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result, Timestamp};

use crate::changes::{ChangeEvent, ChangePosition, codec};
use crate::node::Node;

/// Bytes that are read from a partition at once.
const READ_BYTES: usize = 1 << 20;
/// Maximum number of changes that one call looks at: a stream of a quiet collection next to busy ones returns
/// in time and continues with the next call.
const CHANGES_SCANNED_MAX: usize = 100_000;

/// The collections whose changes are wanted.
#[derive(Debug, Clone)]
pub enum ChangeScope {
    /// All.
    All,
    /// One collection, by its name in the store.
    Collection(String),
    /// Those whose names begin so, and have no slash after that.
    Prefix(String),
}

impl ChangeScope {
    fn includes(&self, collection: &str) -> bool {
        match self {
            Self::All => true,
            Self::Collection(name) => collection == name,
            Self::Prefix(prefix) => {
                collection.strip_prefix(prefix.as_str()).is_some_and(|rest| !rest.contains('/'))
            }
        }
    }
}

/// Start of a change stream.
#[derive(Debug, Clone)]
pub enum ChangeStart {
    /// With the changes that come.
    Now,
    /// After a position.
    After(ChangePosition),
    /// With the changes of this time.
    At(Timestamp),
}

/// The changes of documents, each once. The changes of one document come in their order, and a change never comes before one that
/// was answered before it was made; changes of one transaction, and of one ordered insert, come together and in their order.
pub struct ChangeStream {
    node: Arc<Node>,
    scope: ChangeScope,
    position: ChangePosition,
    /// Changes that were read and not returned, by partition, each with the position after it in its partition.
    read: Vec<VecDeque<(ChangeEvent, (Offset, u32))>>,
}

impl ChangeStream {
    /// Begins to follow changes. The first stream of a data directory makes the engine keep changes from then on.
    ///
    /// Errors: `NotFound` if changes after the start are not kept any more, or were not kept yet; `Invalid` for a position of another
    /// data directory; `Unavailable` when the change log cannot be opened.
    pub(crate) fn new(node: Arc<Node>, scope: ChangeScope, start: ChangeStart) -> Result<Self> {
        node.enable_changes()?;
        let partitions = node.host.partitions();
        let position = match start {
            ChangeStart::Now => {
                ChangePosition { partitions: ends(&node)?.into_iter().map(|end| (end, 0)).collect() }
            }
            ChangeStart::At(time) => {
                let starts = node.host.partition_ids().map(|p| first_at(&node, p, time));
                ChangePosition { partitions: starts.map(|start| Ok((start?, 0))).collect::<Result<_>>()? }
            }
            ChangeStart::After(position) => {
                if position.partitions.len() != partitions {
                    return Err(Error::invalid(
                        "the position of a change has another number of partitions than this data directory",
                    ));
                }
                position
            }
        };
        let stream = Self { read: vec![VecDeque::new(); partitions], node, scope, position };
        stream.check_kept()?;
        Ok(stream)
    }

    fn check_kept(&self) -> Result<()> {
        let log = self.node.host.changes.log()?;
        for (partition, (offset, _)) in (0..).map(PartitionId).zip(&self.position.partitions) {
            if *offset > log.end(partition) {
                return Err(Error::invalid("the position of a change is not one of this data directory"));
            }
            if *offset < log.start(partition) {
                return Err(not_kept());
            }
        }
        Ok(())
    }

    /// Returns the position after the changes that were returned.
    pub fn position(&self) -> &ChangePosition {
        &self.position
    }

    /// Returns at most `most` next changes of about `bytes_max` bytes that readers can see by now, each with the position after it. It looks at 100,000 changes at
    /// most, so that there may be more although it returns none: [`Self::is_at_end`] tells.
    ///
    /// Errors: `NotFound` if the changes are not kept any more, because the stream was not read for too long.
    pub fn next(&mut self, most: usize, bytes_max: usize) -> Result<Vec<(ChangeEvent, ChangePosition)>> {
        let ends = ends(&self.node)?;
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for _ in 0..CHANGES_SCANNED_MAX {
            if changes.len() >= most || bytes >= bytes_max {
                break;
            }
            for (p, end) in ends.iter().enumerate() {
                self.fill(p, *end)?;
            }
            let Some(p) = self.next_partition() else { break };
            let Some((change, after)) = self.read[p].pop_front() else { break };
            self.position.partitions[p] = after;
            // every partition changes a collection; the last one does so when no other has more to tell of it
            let told_elsewhere = change.kind.is_of_collection() && p + 1 < self.read.len();
            if self.scope.includes(&change.collection) && !told_elsewhere {
                bytes += change.bytes();
                changes.push((change, self.position.clone()));
            }
        }
        Ok(changes)
    }

    /// Returns the partition that has the next change: the earliest by the time of its record. What several partitions did together
    /// comes when all of them have nothing before it, in the order in which it was done.
    fn next_partition(&self) -> Option<usize> {
        let next = |p: usize| self.read[p].front().map(|(change, _)| change);
        let mut by_time: Vec<usize> = (0..self.read.len()).filter(|p| next(*p).is_some()).collect();
        by_time.sort_by_key(|p| next(*p).map(|change| change.time));
        by_time.iter().copied().find_map(|p| {
            let change = next(p)?;
            let Some(group) = &change.group else { return Some(p) };
            let others = group.offsets.iter().map(|(other, offset)| (*other as usize, *offset));
            let mut first = (change.place, p);
            for (other, offset) in others.filter(|(other, _)| *other != p && *other < self.read.len()) {
                match next(other) {
                    // another order would tell something before what it follows from
                    Some(before) if before.source < offset => return None,
                    Some(same) if same.source == offset => first = first.min((same.place, other)),
                    // it has told its part, or has none
                    _ => {}
                }
            }
            Some(first.1)
        })
    }

    /// Returns whether there are no more changes that readers can see by now.
    /// It is not while a partition cannot be asked, which [`Self::next`] tells.
    pub fn is_at_end(&self) -> bool {
        let read_to = |ends: Vec<Offset>| {
            ends.iter().zip(&self.position.partitions).all(|(end, (from, _))| from >= end)
        };
        ends(&self.node).is_ok_and(read_to)
    }

    /// Reads changes of a partition before `end`, unless some are read already.
    fn fill(&mut self, p: usize, end: Offset) -> Result<()> {
        while self.read[p].is_empty() {
            let (from, skip) = self.position.partitions[p];
            if from >= end {
                return Ok(());
            }
            let records = self.node.host.changes.log()?.read(PartitionId(p as u32), from, READ_BYTES);
            let records =
                records.map_err(|e| if e.kind() == ErrorKind::NotFound { not_kept() } else { e })?;
            for record in records.into_iter().take_while(|record| record.offset < end) {
                let changes = codec::decode(&record.payload)?;
                let skip = if record.offset == from { skip as usize } else { 0 };
                let count = changes.len();
                for (at, change) in changes.into_iter().enumerate().skip(skip) {
                    let is_last = at + 1 == count;
                    let after =
                        if is_last { (record.offset.next(), 0) } else { (record.offset, at as u32 + 1) };
                    self.read[p].push_back((change, after));
                }
                if self.read[p].is_empty() {
                    // a mark without changes
                    self.position.partitions[p] = (record.offset.next(), 0);
                }
            }
        }
        Ok(())
    }
}

fn not_kept() -> Error {
    Error::not_found(
        "the changes after this position are not kept any more: begin a new stream, or raise `change_stream_bytes`",
    )
}

/// Returns the ends of the changes that readers see, of one moment of all partitions.
///
/// Errors: `Unavailable` while a partition cannot be asked.
fn ends(node: &Node) -> Result<Vec<Offset>> {
    let _one_moment = node.host.commits.lock_views();
    let end = |id| {
        let here = node.with_view(id, |view| view.changes_end);
        here.ok_or_else(|| Error::unavailable(format!("this process does not have partition {id}")))
    };
    node.host.partition_ids().map(end).collect()
}

/// Returns the first record of the change log whose changes were made at `time` or later.
fn first_at(node: &Node, partition: PartitionId, time: Timestamp) -> Result<Offset> {
    let log = node.host.changes.log()?;
    let (mut low, mut high) = (log.start(partition), log.end(partition));
    let time_of = |offset: Offset| {
        let record = log.read(partition, offset, 1)?.into_iter().next();
        record.map_or(Ok(Timestamp(i64::MAX)), |record| codec::source(&record.payload).map(|(_, time)| time))
    };
    // the first record that is kept says how far back the history goes
    if low < high && time_of(low)? > time {
        return Err(not_kept());
    }
    while low < high {
        let middle = Offset(low.0 + (high.0 - low.0) / 2);
        if time_of(middle)? < time {
            low = middle.next();
        } else {
            high = middle;
        }
    }
    Ok(low)
}
