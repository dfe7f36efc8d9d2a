//! Running digest of the effects of a partition's records, by which replicas of the partition are compared.
//!
//! ```text
//! digest(17) = hash(digest(16), record 17: offset, time, dropped rows, emitted rows, emissions, written documents, reply, timers)
//! ```
//!
//! Applying is a function of the log, so all that have applied the same records from the same state have the same digest: an owner, a
//! standby, a replay after a restart. A difference is a defect or damage. `docs/formats/digest.md` has the bytes that are hashed.
//!
//! Rows of the log count by their number, as their values are those of the log; what rules and queries make of them counts by value. What is
//! not an effect, such as who waits for a reply, is left out.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, PrimitiveArray, RecordBatch, StringArray, downcast_primitive_array};
use arrow_buffer::ToByteSlice;
use arrow_schema::DataType;
use bson::RawDocumentBuf;
use serde::{Deserialize, Serialize};
use tidemill_docs::CommandOutcome;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};
use xxhash_rust::xxh3::Xxh3;

use crate::commit::{Decision, TransactionPart};
use crate::entry::{Emission, Entry, Events};

/// Version of what is hashed. Digests of different versions are not compared.
const VERSION: u32 = 1;

/// Digest of all effects of the records from `since` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// The first record in it. Digests with another first record are not comparable.
    pub since: Offset,
    /// 128 bits.
    pub value: u128,
}

impl fmt::Display for Digest {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.value)
    }
}

/// Digest as a checkpoint has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedDigest {
    version: u32,
    since: Offset,
    value: String,
}

/// Observer of the digest after each record that a partition of the process applies, also during a replay.
pub trait DigestObserver: Send + Sync {
    /// Takes the digest after the record at `offset`, of a kind as in [`crate::entry::Entry::kind`]. The owner waits for it.
    fn applied(&self, partition: PartitionId, offset: Offset, kind: &'static str, digest: Digest);
}

/// Choice of a process whether its partitions compute digests.
#[derive(Clone, Default)]
pub enum EffectDigests {
    /// They do not.
    #[default]
    Off,
    /// They do.
    On,
    /// They do, and an observer sees them.
    Observed(Arc<dyn DigestObserver>),
}

impl EffectDigests {
    /// Returns whether they are computed.
    pub fn are_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Passes the digest after a record to the observer, if there is one.
    pub fn observe(&self, partition: PartitionId, offset: Offset, kind: &'static str, digest: Digest) {
        if let Self::Observed(observer) = self {
            observer.applied(partition, offset, kind, digest);
        }
    }
}

/// Part of a record's effects. The numbers are hashed, so they must stay as they are.
#[derive(Debug, Clone, Copy)]
enum Part {
    Source = 1,
    Arrival = 2,
    DroppedRows = 3,
    Rows = 4,
    Redelivered = 5,
    Emission = 6,
    Decision = 7,
    Documents = 8,
    Reply = 9,
    Refusal = 10,
    Clock = 11,
    SetAside = 12,
    SourceEpoch = 13,
    FormerReader = 14,
    OrderedTransaction = 15,
}

/// Digest of a partition, and the effects of the record that is applied.
pub struct EffectDigest {
    since: Offset,
    value: u128,
    hasher: Xxh3,
    scratch: Vec<u8>,
}

impl EffectDigest {
    /// Begins before the record at `since`.
    pub fn new(since: Offset) -> Self {
        Self { since, value: 0, hasher: Xxh3::new(), scratch: Vec::new() }
    }

    /// Continues the digest of a checkpoint; `None` if it is one of another version.
    ///
    /// Errors: `Corrupt` for another text than a digest.
    pub fn restore(saved: &SavedDigest) -> Result<Option<Self>> {
        if saved.version != VERSION {
            return Ok(None);
        }
        let value = u128::from_str_radix(&saved.value, 16);
        let value = value.map_err(|e| Error::corrupt(format!("the digest {:?}: {e}", saved.value)))?;
        Ok(Some(Self { value, ..Self::new(saved.since) }))
    }

    /// Returns it for a checkpoint.
    pub fn saved(&self) -> SavedDigest {
        SavedDigest { version: VERSION, since: self.since, value: self.digest().to_string() }
    }

    /// Returns the digest after the last record.
    pub fn digest(&self) -> Digest {
        Digest { since: self.since, value: self.value }
    }

    /// Begins a record.
    pub fn begin(&mut self, offset: Offset, time: Timestamp, set_aside: bool) {
        self.hasher.reset();
        self.hasher.update(&self.value.to_le_bytes());
        self.number(offset.0);
        self.signed(time.0);
        if set_aside {
            self.part(Part::SetAside);
        }
    }

    /// Ends the record.
    pub fn end(&mut self) {
        self.value = self.hasher.digest128();
    }

    /// Adds the position that a source has reached.
    pub fn source(&mut self, name: &str, position: u64) {
        self.part(Part::Source);
        self.bytes(name.as_bytes());
        self.number(position);
    }

    /// Adds the epoch of the node that reads the sources from here on.
    pub fn source_epoch(&mut self, epoch: u64) {
        self.part(Part::SourceEpoch);
        self.number(epoch);
    }

    /// Adds that the record is one of a former reader of the sources.
    pub fn former_reader(&mut self) {
        self.part(Part::FormerReader);
    }

    /// Adds events of another partition; `known` if they have come before.
    pub fn arrival(&mut self, known: bool) {
        self.part(Part::Arrival);
        self.number(known.into());
    }

    /// Adds what is left of the rows of part `part` of the record: their numbers, if some were dropped, and how many have a value
    /// that does not fit its field.
    pub fn input(&mut self, part: usize, kept: Option<impl Iterator<Item = i32>>, mismatched: u64) {
        if kept.is_none() && mismatched == 0 {
            return;
        }
        self.part(Part::DroppedRows);
        self.number(part as u64);
        self.number(mismatched);
        let mut count: u64 = 0;
        for row in kept.into_iter().flatten() {
            self.hasher.update(&row.to_le_bytes());
            count += 1;
        }
        self.number(count);
    }

    /// Adds rows that the record adds to a table, with their numbers in the record.
    ///
    /// Errors: `Internal` for values of a type that no field has.
    pub fn rows(&mut self, table: &str, batch: &RecordBatch, numbers: &[i32]) -> Result<()> {
        self.part(Part::Rows);
        self.hasher.update(numbers.to_byte_slice());
        self.batch(table, batch)
    }

    /// Adds rows that go to a sink again.
    ///
    /// Errors: as [`Self::rows`].
    pub fn redelivered(&mut self, sink: &str, batch: &RecordBatch) -> Result<()> {
        self.part(Part::Redelivered);
        self.batch(sink, batch)
    }

    /// Adds events for another partition.
    ///
    /// Errors: as [`Self::rows`].
    pub fn emission(&mut self, emission: &Emission) -> Result<()> {
        let Emission { target, entry: Entry::Events(events) } = emission else { return Ok(()) };
        let Events { source: _, provenance, answered: _, forwarded, depth, parts, order, rejected: _ } =
            events;
        self.part(Part::Emission);
        self.number(target.0.into());
        if let Some((from, cause)) = provenance {
            self.number(from.0.into());
            self.number(cause.0);
        }
        self.number(u64::from(*forwarded) + (u64::from(*depth) << 1));
        self.number(parts.len() as u64);
        for (stream, batch) in parts {
            self.batch(&stream.name, batch)?;
        }
        self.number(order.as_ref().map_or(0, |order| order.len() as u64));
        for part in order.iter().flatten() {
            self.hasher.update(&part.to_le_bytes());
        }
        Ok(())
    }

    /// Adds a part of a transaction for the log of a partition.
    pub fn transaction_part(&mut self, target: PartitionId, part: &TransactionPart) {
        self.part(Part::OrderedTransaction);
        self.number(target.0.into());
        self.hasher.update(&part.id.bytes());
        self.signed(part.order);
        self.bytes(&part.writes);
    }

    /// Adds the decision on a transaction of several partitions.
    pub fn decision(&mut self, decision: &Decision) {
        self.part(Part::Decision);
        self.number(decision.committed.into());
        self.optional(decision.refused);
    }

    /// Adds the digest of the documents that were written.
    pub fn documents(&mut self, written: u128) {
        self.part(Part::Documents);
        self.hasher.update(&written.to_le_bytes());
    }

    /// Adds the reply of a record that was applied.
    pub fn reply(&mut self, duplicates: u64, rule_errors: &[String], outcome: Option<&CommandOutcome>) {
        self.part(Part::Reply);
        self.number(duplicates);
        self.number(rule_errors.len() as u64);
        for error in rule_errors {
            self.bytes(error.as_bytes());
        }
        let Some(outcome) = outcome else { return };
        let CommandOutcome { inserted, matched, modified, deleted, upserted_id, before, after, errors } =
            outcome;
        [inserted, matched, modified, deleted].into_iter().for_each(|count| self.number(*count));
        let id = upserted_id.clone().and_then(|id| bson::RawBson::try_from(id).ok()).map(|id| {
            let mut document = RawDocumentBuf::new();
            document.append(bson::cstr!("_id"), id);
            document.into_bytes()
        });
        self.bytes(id.as_deref().unwrap_or_default());
        self.bytes(before.as_deref().unwrap_or_default());
        self.bytes(after.as_deref().unwrap_or_default());
        self.number(errors.len() as u64);
        for failed in errors {
            self.number(failed.index as u64);
            self.signed(failed.error.code().into());
            self.bytes(failed.error.message().as_bytes());
        }
    }

    /// Adds the error of a record that has changed nothing.
    pub fn refusal(&mut self, error: &Error) {
        self.part(Part::Refusal);
        self.bytes(format!("{:?}", error.kind()).as_bytes());
        self.bytes(error.message().as_bytes());
    }

    /// Adds the clock of a unit of queries, and when its next timer is due; `None` before it has started, or without a timer.
    pub fn clock(&mut self, now: Option<i64>, due: Option<i64>) {
        self.part(Part::Clock);
        self.signed(now.unwrap_or(i64::MIN));
        self.signed(due.unwrap_or(i64::MAX));
    }

    fn part(&mut self, part: Part) {
        self.hasher.update(&[part as u8]);
    }

    fn number(&mut self, number: u64) {
        self.hasher.update(&number.to_le_bytes());
    }

    fn signed(&mut self, number: i64) {
        self.hasher.update(&number.to_le_bytes());
    }

    fn optional(&mut self, number: Option<u32>) {
        self.number(number.map_or(0, |number| u64::from(number) + 1));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hasher.update(bytes);
    }

    fn batch(&mut self, name: &str, batch: &RecordBatch) -> Result<()> {
        self.bytes(name.as_bytes());
        self.number(batch.num_rows() as u64);
        batch.columns().iter().try_for_each(|column| self.column(&**column))
    }

    /// Adds values, and not how they lie in memory: bits and bytes of missing values, and what lies before a slice, may differ.
    fn column(&mut self, column: &dyn Array) -> Result<()> {
        let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
        self.hasher.update(&[nulls.is_some().into()]);
        if let Some(nulls) = nulls {
            self.bits(nulls.iter());
        }
        downcast_primitive_array!(
            column => self.primitives(column),
            DataType::Boolean => self.bits(column.as_boolean().iter().map(Option::unwrap_or_default)),
            DataType::Utf8 => self.texts(column.as_string()),
            other => return Err(Error::internal(format!("values of type {other} have no digest")))
        );
        Ok(())
    }

    fn primitives<T: ArrowPrimitiveType>(&mut self, column: &PrimitiveArray<T>) {
        match column.null_count() {
            0 => self.hasher.update(column.values().to_byte_slice()),
            _ => self.gathered(|bytes| {
                column.iter().flatten().for_each(|value| bytes.extend_from_slice(value.to_byte_slice()));
            }),
        }
    }

    /// Adds where each text ends behind the first one, then the texts; of a column with missing ones the length and the text of each other.
    fn texts(&mut self, column: &StringArray) {
        let (offsets, texts) = (column.value_offsets(), column.value_data());
        match (column.null_count(), offsets) {
            (0, [0, ends @ ..]) => {
                self.hasher.update(ends.to_byte_slice());
                self.hasher.update(&texts[..ends.last().map_or(0, |end| *end as usize)]);
            }
            (0, [first, ends @ ..]) => {
                self.gathered(|bytes| ends.iter().for_each(|end| bytes.extend((end - first).to_le_bytes())));
                let end = ends.last().unwrap_or(first);
                self.hasher.update(&texts[*first as usize..*end as usize]);
            }
            _ => self.gathered(|bytes| {
                for text in column.iter().flatten() {
                    bytes.extend((text.len() as i32).to_le_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                }
            }),
        }
    }

    /// Adds bits, eight in a byte, the first the lowest.
    fn bits(&mut self, bits: impl Iterator<Item = bool>) {
        self.gathered(|bytes| {
            for (at, bit) in bits.enumerate() {
                if at % 8 == 0 {
                    bytes.push(0);
                }
                if let Some(byte) = bytes.last_mut() {
                    *byte |= u8::from(bit) << (at % 8);
                }
            }
        });
    }

    /// Adds the bytes that `gather` appends, at once.
    fn gathered(&mut self, gather: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        gather(&mut self.scratch);
        self.hasher.update(&self.scratch);
    }
}

#[cfg(test)]
mod tests;
