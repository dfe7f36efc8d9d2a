//! Following changes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::changes::{
    ChangeCursor, ChangeEvent, ChangePosition, PartitionChanges, PositionKind, READ_BYTES, ReadChanges,
    codec, not_kept,
};
use crate::documents::snapshot::DocumentSnapshot;
use crate::node::Node;

/// Maximum number of changes that one call looks at: a stream of a quiet collection next to busy ones returns
/// in time and continues with the next call.
const CHANGES_SCANNED_MAX: usize = 100_000;
/// Attempts of one call to see the other parts of a transaction.
const ATTEMPTS_MAX: usize = 50;
/// Pause between them.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

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
///
/// In a cluster, changes of different partitions come in the order in which this node learns of them, if they are not of one transaction.
pub struct ChangeStream {
    node: Arc<Node>,
    scope: ChangeScope,
    position: ChangePosition,
    partitions: Vec<FollowedPartition>,
}

/// A partition whose changes are read.
#[derive(Default)]
struct FollowedPartition {
    /// Place after those that were read, in the files of the replica that was asked.
    cursor: Option<ChangeCursor>,
    /// Changes that were read and not returned, each with the position after it.
    read: VecDeque<(ChangeEvent, (Offset, u32))>,
    /// Offset after the last record of the log whose changes were all read.
    seen: Offset,
    /// True if another process has answered in this call, and has no more.
    is_all: bool,
}

/// Part of a partition of this process that readers see: up to the offset after the last record, and to the end of its change log.
type SeenHere = Option<(Offset, Offset)>;

/// The change that comes next.
enum NextChange {
    /// The first one of this partition.
    Of(usize),
    /// A part of a transaction whose part in this partition is not shown yet: it is the record before this offset.
    Behind(usize, Offset),
    /// None.
    Nothing,
}

impl ChangeStream {
    /// Begins to follow changes. The first stream of a data directory makes the engine keep changes from then on.
    ///
    /// Errors: `NotFound` if changes after the start are not kept any more, or were not kept yet; `Invalid` for a position of another
    /// data directory; `Unavailable` when the change log cannot be opened, or a partition cannot be asked.
    pub(crate) fn new(node: Arc<Node>, scope: ChangeScope, start: ChangeStart) -> Result<Self> {
        node.enable_changes()?;
        let kind = match node.cluster.get() {
            None => PositionKind::ChangeLog,
            Some(_) => PositionKind::Log,
        };
        let partitions = node.host.partitions();
        let position = match start {
            ChangeStart::Now => ChangePosition { kind, partitions: places_now(&node, kind)? },
            ChangeStart::At(time) => {
                let places = node.host.partition_ids().map(|id| place_at(&node, kind, id, time));
                ChangePosition { kind, partitions: places.collect::<Result<_>>()? }
            }
            ChangeStart::After(position) => in_log(&node, kind, position)?,
        };
        if position.partitions.len() != partitions || position.kind != kind {
            return Err(Error::invalid(match position.kind == kind {
                true => "the position of a change has another number of partitions than this data directory",
                false => {
                    "the position of a change is one of a cluster and this process is alone, or the other way round"
                }
            }));
        }
        let partitions = (0..partitions).map(|_| FollowedPartition::default()).collect();
        let mut stream = Self { partitions, node, scope, position };
        stream.check_kept()?;
        Ok(stream)
    }

    fn check_kept(&mut self) -> Result<()> {
        let foreign = || Error::invalid("the position of a change is not one of this data directory");
        if self.position.kind == PositionKind::ChangeLog {
            for (id, (offset, _)) in (0..).map(PartitionId).zip(&self.position.partitions) {
                let changes = changes_here(&self.node, id)?;
                if *offset > changes.end() {
                    return Err(foreign());
                }
                if *offset < changes.start() {
                    return Err(not_kept());
                }
            }
            return Ok(());
        }
        let ends = self.node.catch_up_replicas()?;
        if self.position.partitions.iter().zip(ends.iter()).any(|((record, _), end)| record > end) {
            return Err(foreign());
        }
        let seen = self.seen_here()?;
        (0..self.partitions.len()).try_for_each(|p| self.fill(p, seen[p]))
    }

    /// Returns the position after the changes that were returned.
    pub fn position(&self) -> &ChangePosition {
        &self.position
    }

    /// Returns at most `most` next changes of about `bytes_max` bytes that readers can see by now, each with the position after it. It looks at 100,000 changes at
    /// most, so that there may be more although it returns none: [`Self::is_at_end`] tells.
    ///
    /// Errors: `NotFound` if the changes are not kept any more, because the stream was not read for too long; `Unavailable` while a partition
    /// cannot be asked.
    pub fn next(&mut self, most: usize, bytes_max: usize) -> Result<Vec<(ChangeEvent, ChangePosition)>> {
        self.partitions.iter_mut().for_each(|partition| partition.is_all = false);
        let mut seen = self.seen_here()?;
        let (mut changes, mut bytes, mut attempts) = (Vec::new(), 0, 0);
        for _ in 0..CHANGES_SCANNED_MAX {
            if changes.len() >= most || bytes >= bytes_max {
                break;
            }
            for (p, seen) in seen.iter().enumerate() {
                self.fill(p, *seen)?;
            }
            let p = match self.next_partition() {
                NextChange::Of(p) => p,
                NextChange::Behind(p, end) if attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    self.node.client(PartitionId(p as u32))?.wait_applied(end)?;
                    self.node.host.clock.sleep(RETRY_INTERVAL);
                    self.partitions[p].is_all = false;
                    seen = self.seen_here()?;
                    continue;
                }
                NextChange::Behind(..) | NextChange::Nothing => break,
            };
            let Some((change, after)) = self.partitions[p].read.pop_front() else { break };
            self.position.partitions[p] = after;
            // every partition changes a collection; the last one does so when no other has more to tell of it
            let told_elsewhere = change.kind.is_of_collection() && p + 1 < self.partitions.len();
            if self.scope.includes(&change.collection) && !told_elsewhere {
                bytes += change.bytes();
                changes.push((change, self.position.clone()));
            }
        }
        self.pass_over_quiet_records();
        Ok(changes)
    }

    /// Moves the position behind records that have changed nothing, so that it stays valid as long as possible.
    fn pass_over_quiet_records(&mut self) {
        if self.position.kind == PositionKind::Log {
            let places = self.partitions.iter().zip(&mut self.position.partitions);
            for (partition, place) in places.filter(|(partition, _)| partition.read.is_empty()) {
                *place = (*place).max((partition.seen, 0));
            }
        }
    }

    /// Returns the partition that has the next change: the earliest by the time of its record. What several partitions did together
    /// comes when all of them have nothing before it, in the order in which it was done.
    fn next_partition(&self) -> NextChange {
        let next = |p: usize| self.partitions[p].read.front().map(|(change, _)| change);
        let mut by_time: Vec<usize> = (0..self.partitions.len()).filter(|p| next(*p).is_some()).collect();
        by_time.sort_by_key(|p| next(*p).map(|change| change.time));
        let mut behind = NextChange::Nothing;
        'partitions: for p in by_time {
            let Some(change) = next(p) else { continue };
            let Some(group) = &change.group else { return NextChange::Of(p) };
            let others = group.offsets.iter().map(|(other, offset)| (*other as usize, *offset));
            let mut first = (change.place, p);
            for (other, offset) in others.filter(|(other, _)| *other != p && *other < self.partitions.len()) {
                match next(other) {
                    // another order would tell something before what it follows from
                    Some(before) if before.source < offset => continue 'partitions,
                    Some(same) if same.source == offset => first = first.min((same.place, other)),
                    // of a process that is alone, all partitions are seen at one moment; a log may have lost the record
                    None if self.position.kind == PositionKind::Log
                        && self.partitions[other].seen <= offset =>
                    {
                        behind = NextChange::Behind(other, offset.next());
                        continue 'partitions;
                    }
                    // it has told its part, or has none
                    _ => {}
                }
            }
            return NextChange::Of(first.1);
        }
        behind
    }

    /// Returns whether there are no more changes that readers can see by now.
    /// It is not while a partition cannot be asked, which [`Self::next`] tells.
    pub fn is_at_end(&self) -> bool {
        let Ok(seen) = self.seen_here() else { return false };
        let is_at_end = |(partition, seen): (&FollowedPartition, SeenHere)| {
            let is_read = match seen {
                Some((_, end)) => partition.cursor.is_some_and(|cursor| cursor.offset >= end),
                None => partition.is_all,
            };
            is_read && partition.read.is_empty()
        };
        self.partitions.iter().zip(seen).all(is_at_end)
    }

    /// Returns what readers see of the partitions of this process, of one moment.
    ///
    /// Errors: `Unavailable` if a process that is alone does not have one.
    fn seen_here(&self) -> Result<Vec<SeenHere>> {
        let _one_moment = self.node.host.commits.lock_views();
        let seen = |id| {
            let seen = self.node.with_view(id, |view| (view.next, view.changes_end));
            match (seen, self.node.cluster.get()) {
                (None, None) => Err(Error::unavailable(format!("this process does not have partition {id}"))),
                (seen, _) => Ok(seen),
            }
        };
        self.node.host.partition_ids().map(seen).collect()
    }

    /// Reads changes of a partition, unless some are read already.
    fn fill(&mut self, p: usize, seen: SeenHere) -> Result<()> {
        let id = PartitionId(p as u32);
        while self.partitions[p].read.is_empty() {
            let place = self.position.partitions[p];
            let (read, next) = match seen {
                Some((next, end)) => {
                    let changes = changes_here(&self.node, id)?;
                    let cursor = match self.partitions[p].cursor.filter(|cursor| changes.has_made(cursor)) {
                        Some(cursor) => cursor,
                        None if self.position.kind == PositionKind::ChangeLog => changes.cursor(place.0),
                        None => changes.cursor_after(place)?,
                    };
                    (changes.read_from(cursor, end, READ_BYTES)?, next)
                }
                None if self.partitions[p].is_all => return Ok(()),
                None => {
                    let part = self.node.client(id)?.changes(place, self.partitions[p].cursor)?;
                    self.partitions[p].is_all = part.read.is_all;
                    (part.read, part.next)
                }
            };
            let is_all = read.is_all;
            self.take(p, read)?;
            if is_all {
                self.partitions[p].seen = self.partitions[p].seen.max(next);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes over the changes that were read of a partition, but for those before the position.
    fn take(&mut self, p: usize, read: ReadChanges) -> Result<()> {
        let (partition, place) = (&mut self.partitions[p], &mut self.position.partitions[p]);
        partition.cursor = Some(read.cursor);
        for record in read.payloads {
            let changes = codec::decode(&record.payload)?;
            let (source, _) = codec::source(&record.payload)?;
            partition.seen = partition.seen.max(source);
            let count = changes.len() as u32;
            for (at, change) in (0..).zip(changes) {
                let (here, after) = match self.position.kind {
                    PositionKind::ChangeLog if at + 1 == count => {
                        ((record.offset, at), (record.offset.next(), 0))
                    }
                    PositionKind::ChangeLog => ((record.offset, at), (record.offset, at + 1)),
                    PositionKind::Log => ((source, record.first + at), (source, record.first + at + 1)),
                };
                if here >= *place {
                    partition.read.push_back((change, after));
                }
            }
            if self.position.kind == PositionKind::ChangeLog && partition.read.is_empty() {
                // a mark without changes
                *place = (record.offset.next(), 0);
            }
        }
        Ok(())
    }
}

fn changes_here(node: &Node, id: PartitionId) -> Result<Arc<PartitionChanges>> {
    let changes = node.host.changes.of(id);
    changes
        .ok_or_else(|| Error::unavailable(format!("the changes of partition {id} are not here: ask again")))
}

/// Returns the places after the changes that were answered by now, of one moment.
fn places_now(node: &Node, kind: PositionKind) -> Result<Vec<(Offset, u32)>> {
    if kind == PositionKind::Log {
        let documents = DocumentSnapshot::now(node)?;
        return Ok((0..node.host.partitions()).map(|p| (documents.next(p), 0)).collect());
    }
    let _one_moment = node.host.commits.lock_views();
    let end = |id| {
        let end = node.with_view(id, |view| (view.changes_end, 0));
        end.ok_or_else(|| Error::unavailable(format!("this process does not have partition {id}")))
    };
    node.host.partition_ids().map(end).collect()
}

/// Returns the position in the log for one in the changes of the data directory that the cluster was made from; any other one as it is.
fn in_log(node: &Node, kind: PositionKind, position: ChangePosition) -> Result<ChangePosition> {
    let Some(origin) = &node.host.origin else { return Ok(position) };
    let is_former = kind == PositionKind::Log && position.kind == PositionKind::ChangeLog;
    if !is_former || position.partitions.len() != origin.change_ends.len() {
        return Ok(position);
    }
    let place = |(id, (offset, at)): (PartitionId, &(Offset, u32))| {
        let end = origin.change_ends[id.0 as usize];
        match offset.cmp(&end) {
            Ordering::Less => node.client(id)?.change_place((*offset, *at)),
            Ordering::Equal if *at == 0 => Ok((origin.base_offset(id), 0)),
            _ => Err(Error::invalid(
                "the position of a change is not one of the data directory that the cluster was made from",
            )),
        }
    };
    let partitions = (0..).map(PartitionId).zip(&position.partitions).map(place).collect::<Result<_>>()?;
    Ok(ChangePosition { kind, partitions })
}

/// Returns the place of the first change that was made at `time` or later.
fn place_at(node: &Node, kind: PositionKind, id: PartitionId, time: Timestamp) -> Result<(Offset, u32)> {
    match kind {
        PositionKind::ChangeLog => Ok((changes_here(node, id)?.first_at(time)?, 0)),
        PositionKind::Log => node.client(id)?.changes_at(time),
    }
}
