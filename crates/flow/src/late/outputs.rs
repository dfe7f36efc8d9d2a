//! Emitted rows that may still change, and their difference from the correct output.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tidemill_types::FieldType;
use xxhash_rust::xxh3::Xxh3;

use crate::catalog::Catalog;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data};
use crate::columns::value::{Key, OpaqueValue, Value};
use crate::eval_error::EvalError;
use crate::runtime::OutputHandler;

use super::RetractionHandler;

/// Minimum number of dropped rows for which memory is reclaimed.
const DROPPED_ROWS_MAX: usize = 4096;

/// Emitted rows of each stream, in order, and failures.
#[derive(Default, Clone)]
pub(super) struct EmittedRows {
    /// Indexes into `streams` by name, of the streams that are visible outside the app.
    index: Arc<HashMap<String, usize>>,
    pub(super) streams: Vec<StreamRows>,
    /// Counts of failures by query and message. Their order is not kept.
    pub(super) failures: FailureCounts,
}

pub(super) type FailureCounts = BTreeMap<(String, String), u64>;

/// Emitted rows of one stream.
#[derive(Clone, Default)]
pub(super) struct StreamRows {
    name: String,
    rows: Batch,
    /// Number of rows at the front that were dropped.
    dropped: usize,
}

impl EmittedRows {
    pub(super) fn new(catalog: &Catalog) -> Self {
        let streams = catalog.streams().iter().enumerate();
        let visible =
            streams.filter(|(i, s)| catalog.window(*i).is_none() && !s.name.starts_with(['#', '!']));
        let streams: Vec<StreamRows> = visible
            .map(|(_, s)| StreamRows {
                name: s.name.clone(),
                rows: Batch::new(s.attributes.iter().map(|(_, ty)| *ty)),
                dropped: 0,
            })
            .collect();
        let index = streams.iter().enumerate().map(|(i, rows)| (rows.name.clone(), i)).collect();
        Self { index: Arc::new(index), streams, failures: BTreeMap::new() }
    }

    /// Returns the number of rows of all streams.
    pub(super) fn len(&self) -> usize {
        self.streams.iter().map(StreamRows::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.failures.is_empty()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&StreamRows, &StreamRows)| a.len() == b.len() && a.difference(b).1.is_empty();
        self.failures == other.failures && self.streams.iter().zip(&other.streams).all(same)
    }

    pub(super) fn lengths(&self) -> Vec<usize> {
        self.streams.iter().map(StreamRows::len).collect()
    }

    /// Drops the given number of rows of each stream.
    pub(super) fn drop_front(&mut self, counts: &[usize]) {
        self.streams.iter_mut().zip(counts).for_each(|(rows, count)| rows.drop_front(*count));
    }

    fn stream_rows(&mut self, stream: &str) -> Option<&mut StreamRows> {
        self.index.get(stream).map(|i| &mut self.streams[*i])
    }

    fn record_failure(&mut self, query: &str, failure: &EvalError) {
        *self.failures.entry((query.to_owned(), failure.to_string())).or_default() += 1;
    }

    /// Computes the retractions, insertions and failure reports that turn the emitted output `self` into
    /// `wanted`. `failed` counts failures that were not reported yet.
    pub(super) fn difference(&self, wanted: &Self, failed: &FailureCounts) -> OutputCorrection {
        let mut difference = OutputCorrection::default();
        for (was, is) in self.streams.iter().zip(&wanted.streams) {
            let (retracted, added) = was.difference(is);
            let pick = |of: &StreamRows, rows: &[usize]| of.pick(rows);
            if !retracted.is_empty() {
                difference.retracted.push((was.name.clone(), pick(was, &retracted)));
            }
            if !added.is_empty() {
                difference.added.push((was.name.clone(), pick(is, &added)));
            }
        }
        let of = |failures: &FailureCounts, which| failures.get(which).copied().unwrap_or_default();
        for which in wanted.failures.keys().chain(failed.keys().filter(|w| !wanted.failures.contains_key(w)))
        {
            let more =
                (of(&wanted.failures, which) + of(failed, which)).saturating_sub(of(&self.failures, which));
            // counts keep messages only
            let failure = || (which.0.clone(), EvalError::argument(which.1.as_str()));
            difference.failures.extend((0..more).map(|_| failure()));
        }
        difference
    }
}

impl StreamRows {
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.dropped
    }

    pub(super) fn types(&self) -> Vec<FieldType> {
        self.rows.columns.iter().map(Column::ty).collect()
    }

    pub(super) fn push(&mut self, events: &Batch) {
        for (column, from) in self.rows.columns.iter_mut().zip(&events.columns) {
            match from.ty() {
                // functions may change objects later
                FieldType::Object => (0..events.len()).for_each(|row| column.push(deep_copy(&from.get(row)))),
                _ => column.extend_range(from, 0..events.len()),
            }
        }
        self.rows.times.extend_from_slice(&events.times);
        self.rows.kinds.resize(self.rows.times.len(), EventKind::Current);
    }

    fn push_row(&mut self, events: &Batch, row: usize) {
        for (column, from) in self.rows.columns.iter_mut().zip(&events.columns) {
            column.push(deep_copy(&from.get(row)));
        }
        self.rows.times.push(events.times[row]);
        self.rows.kinds.push(EventKind::Current);
    }

    fn drop_front(&mut self, count: usize) {
        self.dropped += count;
        if self.dropped >= DROPPED_ROWS_MAX && self.dropped * 2 >= self.rows.len() {
            self.rows = self.batch();
            self.dropped = 0;
        }
    }

    /// Returns the rows that were not dropped.
    pub(super) fn batch(&self) -> Batch {
        self.pick(&(0..self.len()).collect::<Vec<_>>())
    }

    fn pick(&self, rows: &[usize]) -> Batch {
        let mut batch = Batch::new(self.rows.columns.iter().map(Column::ty));
        for row in rows {
            batch.push_row(
                &self.rows,
                self.dropped + row,
                EventKind::Current,
                self.rows.times[self.dropped + row],
            );
        }
        batch
    }

    fn is_row(&self, i: usize, other: &Batch, j: usize) -> bool {
        let i = self.dropped + i;
        self.rows.times[i] == other.times[j]
            && self.rows.columns.iter().zip(&other.columns).all(|(a, b)| are_identical(a, i, b, j))
    }

    fn hash(&self, i: usize) -> u64 {
        let i = self.dropped + i;
        let mut hasher = Xxh3::new();
        self.rows.times[i].hash(&mut hasher);
        self.rows.columns.iter().for_each(|column| hash(column, i, &mut hasher));
        hasher.finish()
    }

    /// Returns the rows that only `self` has and those that only `other` has, in order. Repeated rows are
    /// counted.
    fn difference(&self, other: &Self) -> (Vec<usize>, Vec<usize>) {
        let is = |i: usize, j: usize| self.is_row(i, &other.rows, other.dropped + j);
        let least = self.len().min(other.len());
        let start = (0..least).take_while(|i| is(*i, *i)).count();
        let (own_end, other_end) = (self.len(), other.len());
        let end = (0..least - start).take_while(|i| is(own_end - 1 - i, other_end - 1 - i)).count();
        let mut unmatched: HashMap<u64, Vec<usize>> = HashMap::new();
        for i in start..own_end - end {
            unmatched.entry(self.hash(i)).or_default().push(i);
        }
        let mut added = Vec::new();
        for j in start..other_end - end {
            let equal = unmatched.get_mut(&other.hash(j));
            let found = equal.and_then(|rows| {
                let place = rows.iter().position(|i| is(*i, j))?;
                Some(rows.remove(place))
            });
            if found.is_none() {
                added.push(j);
            }
        }
        let mut retracted: Vec<usize> = unmatched.into_values().flatten().collect();
        retracted.sort_unstable();
        (retracted, added)
    }
}

/// A correction of the emitted output.
#[derive(Default)]
pub(super) struct OutputCorrection {
    retracted: Vec<(String, Batch)>,
    added: Vec<(String, Batch)>,
    failures: Vec<(String, EvalError)>,
}

impl OutputCorrection {
    /// Emits the correction at clock `now`.
    pub(super) fn emit(self, now: i64, sink: &mut dyn RetractionHandler) {
        for (stream, mut rows) in self.retracted {
            rows.end_chunk(now);
            sink.retracted(&stream, &rows);
        }
        for (stream, mut rows) in self.added {
            rows.end_chunk(now);
            sink.events(&stream, &rows);
        }
        self.failures.iter().for_each(|(query, failure)| sink.failure(query, failure));
    }
}

/// Records the output of an app, and passes it on if there is a receiver.
pub(super) struct RecordingOutput<'a> {
    outputs: &'a mut EmittedRows,
    to: Option<&'a mut dyn RetractionHandler>,
}

impl<'a> RecordingOutput<'a> {
    pub(super) fn of(outputs: &'a mut EmittedRows, to: Option<&'a mut dyn RetractionHandler>) -> Self {
        Self { outputs, to }
    }
}

impl OutputHandler for RecordingOutput<'_> {
    fn events(&mut self, stream: &str, events: &Batch) {
        if let Some(rows) = self.outputs.stream_rows(stream) {
            rows.push(events);
        }
        if let Some(to) = &mut self.to {
            to.events(stream, events);
        }
    }

    /// Ignores the events sent: the sender has them already.
    fn sent(&mut self, _stream: &str, _events: &Batch) {}

    fn emission(&mut self, query: &str, emission: &Batch) {
        if let Some(to) = &mut self.to {
            to.emission(query, emission);
        }
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.outputs.record_failure(query, failure);
        if let Some(to) = &mut self.to {
            to.failure(query, failure);
        }
    }

    fn failed_events(&mut self, stream: &str, events: &Batch, kept: bool) {
        if let Some(to) = &mut self.to {
            to.failed_events(stream, events, kept);
        }
    }
}

/// Receives the output of the committed app, which makes emitted rows final. Each stream has the order of the
/// first emission.
pub(super) struct ConfirmingOutput<'a> {
    pub(super) emitted: &'a mut EmittedRows,
    /// The output that was not emitted before, and all rows of its stream after it.
    pub(super) not_emitted: &'a mut EmittedRows,
}

impl OutputHandler for ConfirmingOutput<'_> {
    fn events(&mut self, stream: &str, events: &Batch) {
        let (Some(put_out), Some(ahead)) =
            (self.emitted.stream_rows(stream), self.not_emitted.stream_rows(stream))
        else {
            return;
        };
        for row in 0..events.len() {
            if ahead.len() == 0 && put_out.len() > 0 && put_out.is_row(0, events, row) {
                put_out.drop_front(1);
            } else {
                ahead.push_row(events, row);
            }
        }
    }

    fn sent(&mut self, _stream: &str, _events: &Batch) {}

    fn emission(&mut self, _query: &str, _emission: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        let key = (query.to_owned(), failure.to_string());
        match self.emitted.failures.get_mut(&key) {
            Some(1) => drop(self.emitted.failures.remove(&key)),
            Some(count) => *count -= 1,
            None => self.not_emitted.record_failure(query, failure),
        }
    }
}

/// Returns whether two values of columns of one type are identical. Floating-point numbers are compared by
/// their bits.
fn are_identical(a: &Column, i: usize, b: &Column, j: usize) -> bool {
    match (a.is_null(i), b.is_null(j)) {
        (true, true) => return true,
        (false, false) => {}
        _ => return false,
    }
    match (a.data(), b.data()) {
        (Data::Bool(a), Data::Bool(b)) => a[i] == b[j],
        (Data::Int(a), Data::Int(b)) => a[i] == b[j],
        (Data::Long(a), Data::Long(b)) => a[i] == b[j],
        (Data::Float(a), Data::Float(b)) => a[i].to_bits() == b[j].to_bits(),
        (Data::Double(a), Data::Double(b)) => a[i].to_bits() == b[j].to_bits(),
        (Data::Str(a), Data::Str(b)) => a.get(i) == b.get(j),
        (Data::Object(a), Data::Object(b)) => Key(a[i].clone()) == Key(b[j].clone()),
        _ => false,
    }
}

fn hash(column: &Column, i: usize, hasher: &mut Xxh3) {
    column.is_null(i).hash(hasher);
    if column.is_null(i) {
        return;
    }
    match column.data() {
        Data::Bool(v) => v[i].hash(hasher),
        Data::Int(v) => v[i].hash(hasher),
        Data::Long(v) => v[i].hash(hasher),
        Data::Float(v) => v[i].to_bits().hash(hasher),
        Data::Double(v) => v[i].to_bits().hash(hasher),
        Data::Str(v) => v.get(i).hash(hasher),
        Data::Object(v) => v[i].to_string().hash(hasher),
    }
}

/// Copies a value so that no other owner can change it.
pub(super) fn deep_copy(value: &Value) -> Value {
    match value {
        Value::Object(OpaqueValue::List(list)) => {
            Value::Object(OpaqueValue::list(list.lock().iter().map(deep_copy).collect()))
        }
        Value::Object(OpaqueValue::Map(map)) => {
            let copy =
                map.lock().iter().map(|(key, value)| (Key(deep_copy(&key.0)), deep_copy(value))).collect();
            Value::Object(OpaqueValue::map(copy))
        }
        Value::Object(OpaqueValue::Set(set)) => {
            let copy = set.lock().iter().map(|(key, count)| (Key(deep_copy(&key.0)), *count)).collect();
            Value::Object(OpaqueValue::Set(Arc::new(parking_lot::Mutex::new(copy))))
        }
        other => other.clone(),
    }
}
