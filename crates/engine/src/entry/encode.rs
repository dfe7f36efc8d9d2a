//! Encoding of entries.

use arrow_array::RecordBatch;
use tidemill_types::Result;
use tidemill_types::ipc::BatchEncoder;

use super::{Entry, Events, SourcePosition, kind};
use crate::commit::{SessionWrite, TransactionPart};

/// Encoder of entries; reuses scratch space between calls.
#[derive(Default)]
pub struct EntryEncoder {
    batches: BatchEncoder,
}

impl EntryEncoder {
    /// Encodes the entry.
    pub fn encode(&mut self, entry: &Entry) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(256);
        match entry {
            Entry::Events(events) => self.events(events, &mut out)?,
            Entry::Rerun(events) => {
                out.push(kind::RERUN);
                self.events(events, &mut out)?;
            }
            Entry::Command(command) => {
                out.push(kind::COMMAND);
                write_bytes(&mut out, command);
            }
            Entry::LoadDocuments { source, collection, documents } => {
                out.push(kind::PUT);
                write_source(&mut out, source.as_ref());
                write_bytes(&mut out, collection.as_bytes());
                write_bytes(&mut out, documents);
            }
            Entry::Tick { jumps } => {
                out.push(kind::TICK);
                write_u32(&mut out, jumps.len());
                for (file, to) in jumps {
                    write_bytes(&mut out, file.as_bytes());
                    out.extend(to.to_le_bytes());
                }
            }
            Entry::OnDemand { file, text } => {
                out.push(kind::ON_DEMAND);
                write_bytes(&mut out, file.as_bytes());
                write_bytes(&mut out, text.as_bytes());
            }
            Entry::SessionCommand { session, command } => {
                out.push(kind::SESSION_COMMAND);
                write_session(&mut out, session);
                write_bytes(&mut out, command);
            }
            Entry::CollectChanges => out.push(kind::COLLECT_CHANGES),
            Entry::Transaction(part) => {
                if let Some((partition, offset)) = part.cause {
                    out.push(kind::ORDERED_TRANSACTION);
                    out.extend(partition.0.to_le_bytes());
                    out.extend(offset.0.to_le_bytes());
                }
                write_part(&mut out, part);
            }
            Entry::OrderTransaction(parts) => {
                out.push(kind::ORDER_TRANSACTION);
                write_u32(&mut out, parts.len());
                parts.iter().for_each(|part| write_part(&mut out, part));
            }
            Entry::Redeliver { ids } => {
                out.push(kind::REDELIVER);
                write_u32(&mut out, ids.len());
                ids.iter().for_each(|id| write_bytes(&mut out, id.as_bytes()));
            }
            Entry::ClaimSources { epoch } => {
                out.push(kind::CLAIM_SOURCES);
                out.extend(epoch.to_le_bytes());
            }
            Entry::Delivered { sink, last: (offset, row) } => {
                out.push(kind::DELIVERED);
                write_bytes(&mut out, sink.as_bytes());
                out.extend(offset.0.to_le_bytes());
                out.extend(row.to_le_bytes());
            }
        }
        Ok(out)
    }

    fn events(&mut self, events: &Events, out: &mut Vec<u8>) -> Result<()> {
        out.push(if events.forwarded { kind::FORWARDED } else { kind::EVENTS });
        write_source(out, events.source.as_ref());
        match events.provenance {
            Some((partition, offset)) => {
                out.push(if events.depth > 0 { kind::FOLLOWING } else { 1 });
                out.extend(partition.0.to_le_bytes());
                out.extend(offset.0.to_le_bytes());
                out.extend((events.depth > 0).then_some(events.depth));
            }
            None if events.answered => out.push(kind::ANSWERED),
            None => out.push(0),
        }
        write_u32(out, events.parts.len());
        for (stream, batch) in &events.parts {
            write_bytes(out, stream.name.as_bytes());
            self.batch(batch, out)?;
        }
        match &events.order {
            Some(order) => {
                write_u32(out, order.len());
                out.extend(order.iter().flat_map(|part| part.to_le_bytes()));
            }
            None => write_u32(out, 0),
        }
        write_u32(out, events.rejected.len());
        for row in &events.rejected {
            for text in [&row.stream, &row.kind, &row.reason, &row.raw, &row.origin] {
                write_bytes(out, text.as_bytes());
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let encoded = self.batches.encode(batch)?;
        write_bytes(out, &encoded.message);
        write_bytes(out, &encoded.data);
        Ok(())
    }
}

fn write_source(out: &mut Vec<u8>, source: Option<&SourcePosition>) {
    match source {
        Some(SourcePosition { name, position, epoch }) => {
            out.push(if epoch.is_some() { 2 } else { 1 });
            write_bytes(out, name.as_bytes());
            out.extend(position.to_le_bytes());
            out.extend(epoch.iter().flat_map(|epoch| epoch.to_le_bytes()));
        }
        None => out.push(0),
    }
}

fn write_part(out: &mut Vec<u8>, part: &TransactionPart) {
    match &part.places {
        None => {
            out.push(kind::TRANSACTION);
            write_transaction(out, part);
        }
        Some(places) => {
            out.push(kind::ORDERED_INSERT);
            write_transaction(out, part);
            write_u32(out, places.len());
            places.iter().for_each(|place| out.extend(place.to_le_bytes()));
        }
    }
}

fn write_session(out: &mut Vec<u8>, session: &SessionWrite) {
    write_bytes(out, &session.session);
    out.extend(session.number.to_le_bytes());
    out.extend(session.statement.to_le_bytes());
}

fn write_transaction(out: &mut Vec<u8>, part: &TransactionPart) {
    out.extend(part.id.bytes());
    out.extend(part.order.to_le_bytes());
    write_u32(out, part.participants.len());
    part.participants.iter().for_each(|p| out.extend(p.0.to_le_bytes()));
    out.extend(part.since.0.to_le_bytes());
    match &part.session {
        Some(session) => {
            out.push(1);
            write_session(out, session);
        }
        None => out.push(0),
    }
    write_bytes(out, &part.writes);
}

fn write_u32(out: &mut Vec<u8>, n: usize) {
    out.extend(u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_u32(out, bytes.len());
    out.extend(bytes);
}
