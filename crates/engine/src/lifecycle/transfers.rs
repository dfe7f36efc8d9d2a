//! Events that partitions emit into each other, seen from both sides: what has arrived, and whether it adds up.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::checkpoint::LoadedCheckpoint;
use crate::entry;
use crate::entry::{ArrivalKind, Emission, Entry};
use crate::lifecycle::report::StartupReport;
use crate::node::Node;
use crate::partition::Partition;
use crate::state::{PartitionState, TransferCounts};

/// Log bytes read at once.
const READ_BYTES: usize = 8 << 20;
/// Records that are appended before the engine waits for the disk where offsets are passed over.
const FILLER_RECORDS_PER_APPEND: usize = 1024;

/// Rows that one partition emitted into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The partition that emitted them.
    pub from: PartitionId,
    /// The partition that they belong to.
    pub to: PartitionId,
    /// Rows emitted.
    pub sent: u64,
    /// Rows taken by the other partition, repetitions left out.
    pub received: u64,
}

/// All pairs of partitions with transfers. While events are on their way `received` is behind `sent`, never ahead.
///
/// Errors: `Unavailable` while a partition cannot be asked.
pub fn list(node: &Node) -> Result<Vec<Transfer>> {
    let counts = |id| match node.with_view(id, |view| view.transfers.clone()) {
        Some(transfers) => Ok((id, transfers)),
        None => Ok((id, Arc::new(node.client(id)?.progress()?.transfers))),
    };
    let all = || node.host.partition_ids().map(counts).collect::<Result<Vec<_>>>();
    // the receiving sides first: what arrives meanwhile must not look like more than was sent
    let received = all()?;
    Ok(pairs(&received, &all()?))
}

/// Transfers between partitions that this process has; those with another process have one side only.
pub fn list_here(node: &Node) -> Vec<Transfer> {
    let all = || {
        let counts = |partition: &Arc<Partition>| (partition.id, partition.view().transfers.clone());
        node.owned.replicas().iter().map(counts).collect::<Vec<_>>()
    };
    let received = all();
    pairs(&received, &all())
}

/// Puts together what partitions have sent, and what they had received before that was looked at.
fn pairs(
    received: &[(PartitionId, Arc<TransferCounts>)],
    sent: &[(PartitionId, Arc<TransferCounts>)],
) -> Vec<Transfer> {
    let mut all: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    for (to, counts) in received {
        for (from, rows) in &counts.received {
            all.entry((*from, to.0)).or_default().1 = *rows;
        }
    }
    for (from, counts) in sent {
        for (to, rows) in &counts.sent {
            all.entry((from.0, *to)).or_default().0 = *rows;
        }
    }
    let transfer = |((from, to), (sent, received))| Transfer {
        from: PartitionId(from),
        to: PartitionId(to),
        sent,
        received,
    };
    all.into_iter().map(transfer).collect()
}

/// Pairs of own partitions in which more has arrived than was sent. What is on its way can make it only less.
pub fn find_duplicated(node: &Node) -> Vec<String> {
    let owned = node.owned.load();
    let told = |t: Transfer| {
        (t.received > t.sent && owned.contains_key(&t.from)).then(|| {
            format!(
                "partition {} emitted {} events into partition {}, which has taken {}: some are doubled",
                t.from, t.sent, t.to, t.received
            )
        })
    };
    list_here(node).into_iter().filter_map(told).collect()
}

/// After recovery every row that was sent has arrived or waits in the sender's outbox. Says where that does not hold.
pub fn check(node: &Node) -> Vec<String> {
    let told = |t: Transfer| {
        let waiting = pending_rows(node, &t);
        (t.sent != t.received + waiting).then(|| {
            format!(
                "partition {} emitted {} events into partition {}, which has taken {}, and {waiting} are on their way: \
                 some are lost or doubled",
                t.from, t.sent, t.to, t.received
            )
        })
    };
    list_here(node).into_iter().filter_map(told).collect()
}

/// Makes both sides agree, for a data directory of a version that did not count transfers.
pub fn reset_counts(node: &Node) {
    for partition in node.owned.all() {
        Arc::make_mut(&mut partition.state.write().transfers).received.clear();
        partition.publish();
    }
    for transfer in list_here(node) {
        let received = transfer.sent.saturating_sub(pending_rows(node, &transfer));
        if let Some(target) = node.owned.get(transfer.to) {
            Arc::make_mut(&mut target.state.write().transfers).received.insert(transfer.from.0, received);
            target.publish();
        }
    }
}

fn pending_rows(node: &Node, transfer: &Transfer) -> u64 {
    node.owned.get(transfer.from).map_or(0, |p| p.outbox.pending_rows(transfer.to))
}

/// For every partition the last record of each other partition whose emission is in its log or was applied.
pub struct ArrivedEmissions(Vec<Arrived>);

/// Emissions that have arrived in a partition, and transactions that it has to emit.
#[derive(Default)]
struct Arrived {
    last: BTreeMap<(u32, ArrivalKind), Offset>,
    /// Records that order transactions and are not applied, with their times.
    ordering: Vec<(Offset, Timestamp)>,
}

impl Arrived {
    fn note(&mut self, (from, offset): (PartitionId, Offset), kind: ArrivalKind) {
        let known = self.last.entry((from.0, kind)).or_default();
        *known = offset.max(*known);
    }
}

impl ArrivedEmissions {
    /// Looks through checkpoints and logs.
    pub fn find(node: &Node, loaded: &[LoadedCheckpoint]) -> Result<Self> {
        let scan = |p: usize, loaded: &LoadedCheckpoint| {
            let mut found = Arrived::default();
            for kind in ArrivalKind::ALL {
                let applied = loaded.state.arrived(kind);
                found.last.extend(applied.iter().map(|(from, offset)| ((*from, kind), *offset)));
            }
            // a single partition has no other to send to
            if node.host.log.partitions() > 1 {
                scan_log(node, PartitionId(p as u32), &loaded.state, &mut found)?;
            }
            Ok(found)
        };
        let found: Result<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                loaded.iter().enumerate().map(|(p, loaded)| scope.spawn(move || scan(p, loaded))).collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(Error::internal("a log reader panicked"))))
                .collect()
        });
        found.map(Self)
    }

    /// Returns whether an emission of `from` is missing in the log that it belongs to.
    pub fn is_missing(&self, from: PartitionId, emission: &Emission) -> bool {
        let arrived = self.0.get(emission.target.0 as usize);
        let last = arrived.and_then(|a| a.last.get(&(from.0, emission.kind())));
        last.is_none_or(|last| *last < emission.cause())
    }

    /// Appends the parts of ordered transactions that are not in the logs that they belong to, before the logs are replayed. A replay
    /// decides what the logs have: a participant without its part would be taken for one that never gets it. And transactions of
    /// this process, which is alone, must not come between the parts. Only the log of a cluster has such transactions.
    ///
    /// Errors: `Corrupt` for a record that is not an entry; `Unavailable` when the disk fails.
    pub fn send_missing_parts(&mut self, node: &Node, loaded: &[LoadedCheckpoint]) -> Result<()> {
        for (id, loaded) in node.host.partition_ids().zip(loaded) {
            let is_part = |emission: &&Emission| emission.kind() == ArrivalKind::Transaction;
            let mut parts: Vec<Emission> = loaded.outbox.iter().filter(is_part).cloned().collect();
            let mut order = loaded.state.transaction_order;
            for (offset, time) in std::mem::take(&mut self.0[id.0 as usize].ordering) {
                if node.host.set_aside.contains(id, offset) {
                    continue;
                }
                let records = node.host.log.read(id, offset, 1)?;
                let decoded = records
                    .first()
                    .map(|record| entry::decode(&record.payload, &node.app.deployment.streams));
                let place = |e: Error| e.context(format!("partition {id}, offset {offset}"));
                let Some(Entry::OrderTransaction(ordered)) = decoded.transpose().map_err(place)? else {
                    continue;
                };
                order = entry::next_order(order, time);
                parts.extend(entry::ordered_parts(ordered, order, (id, offset)));
            }
            for part in parts {
                self.send_missing_part(node, id, &part)?;
            }
        }
        Ok(())
    }

    fn send_missing_part(&mut self, node: &Node, from: PartitionId, part: &Emission) -> Result<()> {
        if !self.is_missing(from, part) {
            return Ok(());
        }
        let payload = Bytes::from(entry::EntryEncoder::default().encode(&part.entry)?);
        node.host.log.append(part.target, payload.into(), Durability::Fsync)?.wait()?;
        if let Some(arrived) = self.0.get_mut(part.target.0 as usize) {
            arrived.note((from, part.cause()), ArrivalKind::Transaction);
        }
        Ok(())
    }

    /// No offset may be given out again that another partition remembers: what the new record emits would be taken for
    /// a repetition. The engine sends nothing on before its cause is on the disk, so this finds something only where a
    /// log lost its end afterwards, or where an earlier version wrote it.
    pub fn keep_offsets_unique(&self, node: &Node, report: &mut StartupReport) -> Result<()> {
        for p in node.host.partition_ids() {
            let remembered = self
                .0
                .iter()
                .flat_map(|arrived| &arrived.last)
                .filter(|((from, _), _)| *from == p.0)
                .map(|(_, last)| last.next());
            let Some(remembered) = remembered.max() else { continue };
            let end = node.host.log.end(p);
            if end >= remembered {
                continue;
            }
            report.warnings.push(format!(
                "partition {p}: other partitions hold events that follow from records up to offset {remembered}, but its \
                 log ends at {end}: those records are lost; their offsets are passed over"
            ));
            let filler =
                Bytes::from(entry::EntryEncoder::default().encode(&Entry::Tick { jumps: Vec::new() })?);
            let mut left = (remembered.0 - end.0) as usize;
            while left > 0 {
                let now = left.min(FILLER_RECORDS_PER_APPEND);
                let append = |_| node.host.log.append(p, filler.clone().into(), Durability::Fsync);
                let tickets = (0..now).map(append).collect::<Result<Vec<_>>>()?;
                tickets.into_iter().try_for_each(|ticket| ticket.wait().map(|_| ()))?;
                left -= now;
            }
        }
        Ok(())
    }
}

/// Notes the provenance of every record behind `state`, and the transactions that it orders.
fn scan_log(node: &Node, partition: PartitionId, state: &PartitionState, found: &mut Arrived) -> Result<()> {
    let end = node.host.log.end(partition);
    let (mut from, mut time) = (state.next, state.time);
    while from < end {
        for record in node.host.log.read(partition, from, READ_BYTES)? {
            from = record.offset.next();
            time = time.max(record.time);
            if entry::orders_transaction(&record.payload) {
                found.ordering.push((record.offset, time));
            }
            let provenance = entry::provenance(&record.payload)
                .map_err(|e| e.context(format!("partition {partition}, offset {}", record.offset)))?;
            if let Some((source, offset, kind)) = provenance {
                found.note((source, offset), kind);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
