//! Decoding of entries.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bson::oid::ObjectId;
use bytes::Bytes;
use tidemill_types::ipc::decode_batch;
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::{ArrivalKind, Entry, Events, RejectedRow, SourcePosition, Streams, kind};
use crate::commit::{SessionWrite, TransactionPart};

/// Returns the provenance of an entry without decoding its batches: partition, offset of the record that
/// emitted it, and its kind. `None` for entries that no partition emitted.
///
/// Errors: `Corrupt` when the bytes are not an entry.
pub fn provenance(payload: &Bytes) -> Result<Option<(PartitionId, Offset, ArrivalKind)>> {
    let mut input = EntryReader { bytes: payload, at: 0 };
    let kind = match input.u8()? {
        kind::EVENTS => ArrivalKind::Stored,
        kind::FORWARDED => ArrivalKind::Forwarded,
        kind::ORDERED_TRANSACTION => {
            return Ok(Some((PartitionId(input.u32()?), Offset(input.u64()?), ArrivalKind::Transaction)));
        }
        _ => return Ok(None),
    };
    input.source()?;
    Ok(input.provenance()?.cause.map(|(part, offset)| (part, offset, kind)))
}

/// Returns whether an entry is a transaction that the partition orders, see [`Entry::OrderTransaction`].
pub fn orders_transaction(payload: &[u8]) -> bool {
    payload.first() == Some(&kind::ORDER_TRANSACTION)
}

/// Decodes an entry. `streams` are the streams of the deployed app.
///
/// Errors: `Corrupt` when the bytes are not an entry; `Invalid` when a stream is not declared.
pub fn decode(payload: &Bytes, streams: &Streams) -> Result<Entry> {
    let mut input = EntryReader { bytes: payload, at: 0 };
    let entry = match input.u8()? {
        kind::EVENTS => Entry::Events(input.events(streams)?),
        kind::FORWARDED => Entry::Events(Events { forwarded: true, ..input.events(streams)? }),
        kind::RERUN => {
            let forwarded = input.u8()? == kind::FORWARDED;
            Entry::Rerun(Events { forwarded, ..input.events(streams)? })
        }
        kind::TICK => Entry::Tick { jumps: input.jumps()? },
        kind::ON_DEMAND => Entry::OnDemand { file: input.text()?, text: input.text()? },
        kind::COMMAND => Entry::Command(input.blob()?),
        kind::SESSION_COMMAND => Entry::SessionCommand { session: input.session()?, command: input.blob()? },
        kind::COLLECT_CHANGES => Entry::CollectChanges,
        kind @ (kind::TRANSACTION | kind::ORDERED_INSERT) => Entry::Transaction(input.part(kind)?),
        kind::ORDERED_TRANSACTION => {
            let cause = Some((PartitionId(input.u32()?), Offset(input.u64()?)));
            let kind = input.u8()?;
            Entry::Transaction(TransactionPart { cause, ..input.part(kind)? })
        }
        kind::ORDER_TRANSACTION => {
            let count = input.count()?;
            let mut part = || {
                let kind = input.u8()?;
                input.part(kind)
            };
            let parts = (0..count).map(|_| part()).collect::<Result<Vec<_>>>()?;
            if parts.iter().any(|part| part.participants.len() != parts.len()) {
                return Err(Error::corrupt(
                    "log entry of a transaction that has not a part for each participant",
                ));
            }
            Entry::OrderTransaction(parts)
        }
        kind::REDELIVER => Entry::Redeliver { ids: input.texts()? },
        kind::PUT => Entry::LoadDocuments {
            source: input.source()?,
            collection: input.text()?,
            documents: input.blob()?,
        },
        kind::CLAIM_SOURCES => Entry::ClaimSources { epoch: input.u64()? },
        kind::DELIVERED => {
            Entry::Delivered { sink: input.text()?, last: (Offset(input.u64()?), input.u32()?) }
        }
        kind => return Err(Error::corrupt(format!("log entry of unknown kind {kind}"))),
    };
    if input.at != payload.len() {
        return Err(Error::corrupt(format!("log entry has {} bytes too many", payload.len() - input.at)));
    }
    Ok(entry)
}

/// Origin of events.
struct Provenance {
    /// Partition that emitted them, and the offset of the record that caused them.
    cause: Option<(PartitionId, Offset)>,
    /// True if the node that appended them asks for their outcome.
    answered: bool,
    /// See [`Events::depth`].
    depth: u8,
}

struct EntryReader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl EntryReader<'_> {
    fn take(&mut self, n: usize) -> Result<std::ops::Range<usize>> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(Error::corrupt(format!(
                "log entry ends at byte {} in the middle of a field",
                self.bytes.len()
            )));
        };
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let range = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[range]);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count of items that take at least a byte each, so that a damaged count cannot cause a large
    /// allocation.
    fn count(&mut self) -> Result<usize> {
        let n = self.u32()? as usize;
        if n > self.bytes.len() {
            return Err(Error::corrupt(format!("log entry counts {n} parts in {} bytes", self.bytes.len())));
        }
        Ok(n)
    }

    fn blob(&mut self) -> Result<Bytes> {
        let n = self.u32()? as usize;
        let range = self.take(n)?;
        Ok(self.bytes.slice(range))
    }

    fn text(&mut self) -> Result<String> {
        String::from_utf8(self.blob()?.to_vec())
            .map_err(|e| Error::corrupt("log entry text is not UTF-8").with_source(e))
    }

    fn texts(&mut self) -> Result<Vec<String>> {
        let n = self.count()?;
        (0..n).map(|_| self.text()).collect()
    }

    fn rejected(&mut self) -> Result<RejectedRow> {
        Ok(RejectedRow {
            stream: self.text()?,
            kind: self.text()?,
            reason: self.text()?,
            raw: self.text()?,
            origin: self.text()?,
        })
    }

    fn source(&mut self) -> Result<Option<SourcePosition>> {
        let has_epoch = match self.u8()? {
            0 => return Ok(None),
            1 => false,
            2 => true,
            other => return Err(Error::corrupt(format!("log entry with a source of unknown kind {other}"))),
        };
        let (name, position) = (self.text()?, self.u64()?);
        let epoch = if has_epoch { Some(self.u64()?) } else { None };
        Ok(Some(SourcePosition { name, position, epoch }))
    }

    fn provenance(&mut self) -> Result<Provenance> {
        let kind = self.u8()?;
        let mut read = Provenance { cause: None, answered: kind == kind::ANSWERED, depth: 0 };
        if kind == 1 || kind == kind::FOLLOWING {
            read.cause = Some((PartitionId(self.u32()?), Offset(self.u64()?)));
        }
        if kind == kind::FOLLOWING {
            read.depth = self.u8()?;
        }
        Ok(read)
    }

    fn session(&mut self) -> Result<SessionWrite> {
        Ok(SessionWrite {
            session: self.blob()?,
            number: i64::from_le_bytes(self.array()?),
            statement: i32::from_le_bytes(self.array()?),
        })
    }

    fn part(&mut self, kind: u8) -> Result<TransactionPart> {
        let part = self.transaction()?;
        match kind {
            kind::TRANSACTION => Ok(part),
            kind::ORDERED_INSERT => {
                let count = self.count()?;
                let places = (0..count).map(|_| self.u32()).collect::<Result<_>>()?;
                Ok(TransactionPart { places: Some(places), ..part })
            }
            kind => {
                Err(Error::corrupt(format!("log entry with a part of a transaction of unknown kind {kind}")))
            }
        }
    }

    fn transaction(&mut self) -> Result<TransactionPart> {
        let id = ObjectId::from_bytes(self.array()?);
        let order = i64::from_le_bytes(self.array()?);
        let n = self.count()?;
        let participants = (0..n).map(|_| Ok(PartitionId(self.u32()?))).collect::<Result<_>>()?;
        let since = Offset(self.u64()?);
        let session = if self.u8()? == 1 { Some(self.session()?) } else { None };
        Ok(TransactionPart {
            id,
            order,
            participants,
            since,
            session,
            writes: self.blob()?,
            places: None,
            cause: None,
        })
    }

    fn jumps(&mut self) -> Result<Vec<(String, i64)>> {
        let n = self.count()?;
        (0..n).map(|_| Ok((self.text()?, self.array().map(i64::from_le_bytes)?))).collect()
    }

    fn events(&mut self, streams: &Streams) -> Result<Events> {
        let source = self.source()?;
        let Provenance { cause: provenance, answered, depth } = self.provenance()?;
        let n = self.count()?;
        let mut parts = Vec::with_capacity(n);
        for _ in 0..n {
            let name = self.text()?;
            let (schema, arrow) = streams.get(&name).ok_or_else(|| {
                Error::invalid(format!(
                    "the log holds events of stream `{name}`, which the app does not declare"
                ))
            })?;
            parts.push((schema.clone(), self.batch(arrow.clone())?));
        }
        let n = self.count()?;
        let order = if n == 0 {
            None
        } else {
            Some((0..n).map(|_| self.array().map(u16::from_le_bytes)).collect::<Result<_>>()?)
        };
        let n = self.count()?;
        let rejected = (0..n).map(|_| self.rejected()).collect::<Result<_>>()?;
        let events = Events { source, provenance, answered, forwarded: false, depth, parts, order, rejected };
        events.check_order()?;
        Ok(events)
    }

    fn batch(&mut self, schema: SchemaRef) -> Result<RecordBatch> {
        let message = self.blob()?;
        decode_batch(&message, self.blob()?, schema).map_err(|e| e.context("log entry"))
    }
}

impl Events {
    /// Checks that the order refers to every part exactly as often as the part has rows.
    fn check_order(&self) -> Result<()> {
        let Some(order) = &self.order else { return Ok(()) };
        let mut left: Vec<usize> = self.parts.iter().map(|(_, b)| b.num_rows()).collect();
        for part in order {
            match left.get_mut(usize::from(*part)) {
                Some(n) if *n > 0 => *n -= 1,
                _ => {
                    return Err(Error::corrupt(format!(
                        "log entry orders a row that part {part} does not have"
                    )));
                }
            }
        }
        if left.iter().any(|n| *n > 0) {
            return Err(Error::corrupt("log entry has rows without a place in its order"));
        }
        Ok(())
    }
}
