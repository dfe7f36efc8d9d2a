//! Deduplication of the events of a stream: first writer wins, in log order.
//!
//! The last ids are in memory; those before them are in sorted runs on the disk, so that an event is recognised however
//! long ago it came first. An event that is not in memory is looked up in the runs whose times include its own. Events
//! mostly come in the order of their times: then no run does, and nothing is looked up.

mod id_queue;
mod run;
mod runs;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_log::disk::Disk;
use tidemill_types::decode::FieldValue;
use tidemill_types::{Error, Result, StreamSchema, Value, row_value};
use xxhash_rust::xxh3::Xxh3;

pub use id_queue::IdQueue;
pub use run::{IdRun, RunInfo, TimeRange};
pub use runs::IdRuns;

/// Parts of the ids in memory; the oldest becomes a run when another id does not fit.
const SEGMENTS: usize = 4;

/// The ids of the events of one stream in one partition: 128-bit hashes.
///
/// Bounds: `capacity` ids in memory. Without runs, as in tests of an app, all of them are in memory.
#[derive(Clone, Default)]
pub struct Dedupe {
    seen: HashSet<u128, BuildHasherDefault<IdentityHasher>>,
    order: IdQueue,
    /// Segments of `order` that become runs, with number and times of their ids; the newest is not full.
    segments: VecDeque<Segment>,
    capacity: usize,
    /// Number of ids at which a run that could not be written is tried again; 0 otherwise.
    retry_at: usize,
    /// Runs that a checkpoint names, until they are opened.
    named: Vec<RunInfo>,
    runs: Option<Arc<IdRuns>>,
    /// Why ids could not be looked up; nothing must be applied any more then.
    failed: Option<Arc<Error>>,
}

/// Consecutive ids, and the times of their events; `None` when one has no time in its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Segment {
    ids: usize,
    times: Option<TimeRange>,
}

/// The id of an event, and its time if that is part of the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKey {
    /// Hash of the id fields.
    pub id: u128,
    /// Time in microseconds. Events with the same id have the same time.
    pub time: Option<i64>,
}

/// The ids are hashes already.
#[derive(Debug, Clone, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
    fn write_u128(&mut self, n: u128) {
        self.0 = n as u64;
    }
}

impl Dedupe {
    /// Remembers `capacity` ids in memory.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(SEGMENTS), ..Self::default() }
    }

    /// Restores what a checkpoint has. Without segments, as earlier versions wrote it, the times are unknown.
    pub fn restore(
        capacity: usize,
        ids: impl Iterator<Item = u128>,
        segments: Vec<Segment>,
        named: Vec<RunInfo>,
    ) -> Self {
        let mut restored = Self { named, ..Self::new(capacity) };
        for id in ids {
            if restored.seen.insert(id) {
                restored.order.push_back(id);
            }
        }
        let total: usize = segments.iter().map(|segment| segment.ids).sum();
        restored.segments = match total == restored.order.len() {
            true => segments.into(),
            false => VecDeque::from([Segment { ids: restored.order.len(), times: None }]),
        };
        restored
    }

    /// Opens the runs in `dir`. From now on older ids go there and are looked up there.
    ///
    /// Errors: `Corrupt` naming a run that is missing or damaged; `Unavailable`.
    pub fn open_runs(&mut self, disk: Arc<dyn Disk>, dir: PathBuf) -> Result<()> {
        self.runs = Some(Arc::new(IdRuns::open(disk, dir, &std::mem::take(&mut self.named))?));
        Ok(())
    }

    /// Forgets the times of the ids, as they are no part of the ids any more.
    pub fn forget_times(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.times = None);
        self.named.iter_mut().for_each(|run| run.times = None);
    }

    /// Returns the runs.
    pub fn runs(&self) -> Option<&Arc<IdRuns>> {
        self.runs.as_ref()
    }

    /// Takes in the id of an event; false when it was there already. Once ids could not be looked up the result means
    /// nothing, and [`Self::failure`] says so.
    pub fn admit(&mut self, key: EventKey) -> bool {
        if !self.seen.insert(key.id) {
            return false;
        }
        if let Some(runs) = &self.runs {
            match runs.contains(key.id, key.time) {
                Ok(false) => {}
                Ok(true) => {
                    self.seen.remove(&key.id);
                    return false;
                }
                Err(error) => self.failed = Some(Arc::new(error)),
            }
        }
        self.push(key);
        true
    }

    fn push(&mut self, key: EventKey) {
        if self.order.len() >= self.capacity.max(self.retry_at) {
            self.spill();
        }
        let times = key.time.map(TimeRange::of);
        match self.segments.back_mut().filter(|segment| segment.ids < self.capacity / SEGMENTS) {
            Some(segment) => {
                segment.ids += 1;
                segment.times = segment.times.zip(times).map(|(all, one)| all.union(one));
            }
            None => self.segments.push_back(Segment { ids: 1, times }),
        }
        self.order.push_back(key.id);
    }

    /// Moves the oldest segment to a run. If that cannot be written it stays in memory, until as many ids have come again.
    fn spill(&mut self) {
        let (Some(runs), Some(segment)) = (&self.runs, self.segments.front().copied()) else { return };
        let ids: Vec<u128> = self.order.iter().take(segment.ids).collect();
        if let Err(error) = runs.add(ids, segment.times) {
            tracing::warn!(%error, "ids of events stay in memory: they cannot be written");
            self.retry_at = self.order.len() + self.capacity / SEGMENTS;
            return;
        }
        self.retry_at = 0;
        for _ in 0..segment.ids {
            if let Some(id) = self.order.pop_front() {
                self.seen.remove(&id);
            }
        }
        self.segments.pop_front();
    }

    /// Returns why ids could not be looked up, if that happened.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_deref()
    }

    /// Returns the ids in memory, oldest first, as they are now.
    pub fn ids(&self) -> IdQueue {
        self.order.clone()
    }

    /// Returns what a checkpoint must say of the runs.
    pub fn run_infos(&self) -> Vec<RunInfo> {
        self.runs.as_ref().map_or_else(|| self.named.clone(), |runs| runs.infos())
    }

    /// Returns the segments of the ids in memory.
    pub fn segments(&self) -> Vec<Segment> {
        self.segments.iter().copied().collect()
    }
}

/// Returns the position in the id of the stream's time, which then tells where an id can be.
pub fn time_in_id(stream: &StreamSchema) -> Option<usize> {
    stream.time.and_then(|time| stream.id.iter().position(|field| *field == time))
}

/// The key of a stored row, or `None` when all its id fields are missing: such an event is never a duplicate.
pub fn row_key(stream: &StreamSchema, batch: &RecordBatch, row: usize) -> Option<EventKey> {
    let id = row_id(stream, batch, row)?;
    let time = time_in_id(stream).and_then(|at| match row_value(batch, stream.id[at], row) {
        Value::Time(time) => Some(time.0),
        _ => None,
    });
    Some(EventKey { id, time })
}

/// The key of an emitted row; agrees with [`row_key`] once the row is stored.
pub fn values_key(stream: &StreamSchema, id: &[FieldValue]) -> Option<EventKey> {
    let time = time_in_id(stream).and_then(|at| match id.get(at) {
        Some(FieldValue::Time(time)) => Some(time.0),
        _ => None,
    });
    Some(EventKey { id: values_id(id)?, time })
}

/// The hash of the id fields of a row, or `None` when all of them are missing.
fn row_id(stream: &StreamSchema, batch: &RecordBatch, row: usize) -> Option<u128> {
    let mut hash = Xxh3::new();
    let mut present = false;
    for column in &stream.id {
        present |= hash_value(&mut hash, &row_value(batch, *column, row));
    }
    present.then(|| hash.digest128())
}

/// The hash of the values of id fields; agrees with [`row_id`].
fn values_id(id: &[FieldValue]) -> Option<u128> {
    let mut hash = Xxh3::new();
    let mut present = false;
    for cell in id {
        present |= match cell {
            FieldValue::Missing => hash_value(&mut hash, &Value::Missing),
            FieldValue::Bool(b) => hash_value(&mut hash, &Value::Bool(*b)),
            FieldValue::Int(n) => hash_value(&mut hash, &Value::Int(*n)),
            FieldValue::Float(x) => hash_value(&mut hash, &Value::Float(*x)),
            FieldValue::Text(s) => hash_value(&mut hash, &Value::str(s)),
            FieldValue::Time(t) => hash_value(&mut hash, &Value::Time(*t)),
            FieldValue::Span(d) => hash_value(&mut hash, &Value::Int(d.0 / 1000)),
        };
    }
    present.then(|| hash.digest128())
}

/// Integers and floats of equal value feed the same bytes, as an emitted integer may be stored in a float field.
fn hash_value(hash: &mut Xxh3, value: &Value<'_>) -> bool {
    match value {
        Value::Missing | Value::Null | Value::Bson(_) => {
            hash.update(&[0]);
            return false;
        }
        Value::Bool(b) => hash.update(&[1, u8::from(*b)]),
        Value::Int(n) => {
            hash.update(&[2]);
            hash.update(&(*n as f64).to_bits().to_le_bytes());
            hash.update(&n.to_le_bytes());
        }
        Value::Float(x) => {
            hash.update(&[2]);
            hash.update(&x.to_bits().to_le_bytes());
            hash.update(&(*x as i64).to_le_bytes());
        }
        Value::Str(s) => {
            hash.update(&[3]);
            hash.update(&(s.len() as u64).to_le_bytes());
            hash.update(s.as_bytes());
        }
        Value::Time(t) => {
            hash.update(&[4]);
            hash.update(&t.0.to_le_bytes());
        }
    }
    true
}

#[cfg(test)]
mod tests;
