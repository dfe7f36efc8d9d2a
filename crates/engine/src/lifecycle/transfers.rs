//! Events that partitions emit into each other, seen from both sides: what has arrived, and whether it adds up.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_log::Durability;
use tidemill_types::{Offset, PartitionId, Result};

use crate::checkpoint::LoadedCheckpoint;
use crate::entry;
use crate::entry::{ArrivalKind, Emission, Entry};
use crate::lifecycle::report::StartupReport;
use crate::node::Node;
use crate::partition::Partition;
use crate::state::TransferCounts;

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
pub struct ArrivedEmissions(Vec<BTreeMap<(u32, ArrivalKind), Offset>>);

impl ArrivedEmissions {
    /// Looks through checkpoints and logs.
    pub fn find(node: &Node, loaded: &[LoadedCheckpoint]) -> Result<Self> {
        let scan = |p: usize, loaded: &LoadedCheckpoint| {
            let mut last = BTreeMap::new();
            for kind in ArrivalKind::ALL {
                let applied = loaded.state.arrived(kind);
                last.extend(applied.iter().map(|(from, offset)| ((*from, kind), *offset)));
            }
            // a single partition has no other to send to
            if node.host.log.partitions() > 1 {
                scan_log(node, PartitionId(p as u32), loaded.state.next, &mut last)?;
            }
            Ok(last)
        };
        let found: Result<Vec<_>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                loaded.iter().enumerate().map(|(p, loaded)| scope.spawn(move || scan(p, loaded))).collect();
            threads
                .into_iter()
                .map(|t| {
                    t.join().unwrap_or_else(|_| Err(tidemill_types::Error::internal("a log reader panicked")))
                })
                .collect()
        });
        found.map(Self)
    }

    /// Returns whether an emission of `from` is missing in the log that it belongs to.
    pub fn is_missing(&self, from: PartitionId, emission: &Emission) -> bool {
        let arrived = self.0.get(emission.target.0 as usize);
        let last = arrived.and_then(|a| a.get(&(from.0, emission.kind())));
        last.is_none_or(|last| *last < emission.cause())
    }

    /// No offset may be given out again that another partition remembers: what the new record emits would be taken for
    /// a repetition. The engine sends nothing on before its cause is on the disk, so this finds something only where a
    /// log lost its end afterwards, or where an earlier version wrote it.
    pub fn keep_offsets_unique(&self, node: &Node, report: &mut StartupReport) -> Result<()> {
        for p in node.host.partition_ids() {
            let remembered =
                self.0.iter().flatten().filter(|((from, _), _)| *from == p.0).map(|(_, last)| last.next());
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

/// Notes the provenance of every record from `from` on.
fn scan_log(
    node: &Node,
    partition: PartitionId,
    mut from: Offset,
    last: &mut BTreeMap<(u32, ArrivalKind), Offset>,
) -> Result<()> {
    let end = node.host.log.end(partition);
    while from < end {
        for record in node.host.log.read(partition, from, READ_BYTES)? {
            from = record.offset.next();
            let provenance = entry::provenance(&record.payload)
                .map_err(|e| e.context(format!("partition {partition}, offset {}", record.offset)))?;
            if let Some((source, offset, kind)) = provenance {
                let known = last.entry((source.0, kind)).or_default();
                *known = offset.max(*known);
            }
        }
    }
    Ok(())
}
