//! `#extrema:topK(value, k)`, `#extrema:bottomK(value, k)` and their batches by number or time: the most and the least
//! frequent values of an attribute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use crate::aggregators::state::{decode, encode};
use crate::columns::batch::EventKind;
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, Registry, StreamProcessor};

/// Maximum number of values that are reported.
const K_MAX: i64 = 1000;
/// Different values that one processor counts.
const VALUES_MAX: usize = 10_000_000;

/// Registers the processors.
pub(super) fn register(registry: &mut Registry) {
    for (prefix, top) in [("extrema:topK", true), ("extrema:bottomK", false)] {
        for (suffix, batch) in [("", None), ("LengthBatch", Some(false)), ("TimeBatch", Some(true))] {
            let name = format!("{prefix}{suffix}");
            let called = name.clone();
            registry.stream_processor(&name, move |args| build(&called, top, batch, args));
        }
    }
}

/// `batch` is `Some` if values are counted in batches: by time, if it is true.
fn build(
    name: &str,
    top: bool,
    batch: Option<bool>,
    args: &[ArgumentType],
) -> Result<BoundStreamProcessor, String> {
    let form = match batch {
        None => format!("{name}(value, k)"),
        Some(false) => format!("{name}(value, length, k)"),
        Some(true) => format!("{name}(value, time, k)"),
    };
    let constant = |i: usize| args.get(i).and_then(|a| a.constant.as_ref()).and_then(Value::as_i64);
    let (size, k) = match (batch, args.len()) {
        (None, 2) => (None, constant(1)),
        (Some(_), 3) => (Some(constant(1).filter(|n| *n > 0)), constant(2)),
        _ => return Err(format!("expected {form}, found {} parameters", args.len())),
    };
    let [value, ..] = args else { return Err(format!("expected {form}")) };
    if value.ty == FieldType::Object {
        return Err(format!("{form}: the value cannot be an object"));
    }
    let k = k.filter(|k| (1..=K_MAX).contains(k));
    let k = k.ok_or_else(|| format!("{form}: `k` must be a constant from 1 to {K_MAX}"))? as usize;
    let size = match size {
        None => None,
        Some(Some(size)) => Some(size),
        Some(None) => return Err(format!("{form}: the size of a batch must be a constant above 0")),
    };
    let label = if top { "top" } else { "bottom" };
    let added = (1..=k).flat_map(|i| {
        [(format!("{label}{i}Element"), value.ty), (format!("{label}{i}Frequency"), FieldType::Long)]
    });
    let batch = batch.zip(size).map(|(by_time, size)| Batch { by_time, size });
    let made = move || FrequentValues { top, k, batch, now: State::default(), by_count: BTreeSet::new() };
    Ok((Arc::new(move || Box::new(made())), added.collect()))
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    by_time: bool,
    /// Events or milliseconds.
    size: i64,
}

struct FrequentValues {
    top: bool,
    k: usize,
    batch: Option<Batch>,
    now: State,
    /// The values of `now.counts` by count, those of one count by the time of their last event.
    by_count: BTreeSet<(u64, u64, Key)>,
}

#[derive(Default)]
struct State {
    /// Count of each value, and its place among the values of this count: the number of its last event, by
    /// [`FrequentValues::order`].
    counts: BTreeMap<Key, (u64, u64)>,
    /// Events so far.
    events: u64,
    /// Events of the current batch.
    batched: i64,
    /// End of the current batch by time.
    ends: Option<i64>,
    /// The last output event.
    last: Option<ProcessorEvent>,
    /// The last event of the current batch.
    pending: Option<ProcessorEvent>,
}

#[derive(Serialize, Deserialize)]
struct SavedEvent {
    time: i64,
    values: Vec<Json>,
}

#[derive(Serialize, Deserialize)]
struct SavedCounts {
    counts: Vec<(Json, u64, u64)>,
    events: u64,
    batched: i64,
    ends: Option<i64>,
    last: Option<SavedEvent>,
    pending: Option<SavedEvent>,
}

impl FrequentValues {
    /// Counts an event that arrived, or one that left the window before.
    fn count(&mut self, value: Key, arrived: bool) -> Result<(), EvalError> {
        self.now.events += 1;
        let before = self.now.counts.get(&value).copied();
        if let Some((count, at)) = before {
            self.by_count.remove(&(count, at, value.clone()));
        } else if self.now.counts.len() >= VALUES_MAX {
            return Err(EvalError::limit("frequent values", VALUES_MAX, "different values"));
        }
        let (count, at) = before.unwrap_or_default();
        let (count, at) = match arrived {
            true => (count + 1, self.order(self.now.events)),
            false => (count.saturating_sub(1), at),
        };
        if count == 0 {
            self.now.counts.remove(&value);
        } else {
            self.by_count.insert((count, at, value.clone()));
            self.now.counts.insert(value, (count, at));
        }
        Ok(())
    }

    /// Among values of one count, the one of the latest event comes first.
    fn order(&self, at: u64) -> u64 {
        if self.top { at } else { u64::MAX - at }
    }

    /// Returns the values of the added attributes.
    fn result(&self) -> Vec<Value> {
        let told = |(count, _, value): &(u64, u64, Key)| {
            [value.0.clone(), Value::Long(i64::try_from(*count).unwrap_or(i64::MAX))]
        };
        let mut values: Vec<Value> = match self.top {
            true => self.by_count.iter().rev().take(self.k).flat_map(told).collect(),
            false => self.by_count.iter().take(self.k).flat_map(told).collect(),
        };
        values.resize(2 * self.k, Value::Null);
        values
    }

    /// Emits `event` with the result, after the last output as an expired event; nothing if the result is the same.
    fn emit(&mut self, mut event: ProcessorEvent, out: &mut Vec<ProcessorEvent>) {
        let result = self.result();
        let before =
            self.now.last.as_ref().and_then(|last| last.values.get(last.values.len() - result.len()..));
        let same = before
            .is_some_and(|before| before.iter().zip(&result).all(|(a, b)| Key(a.clone()) == Key(b.clone())));
        if same {
            return;
        }
        event.values.extend(result);
        if let Some(mut last) = self.now.last.replace(event.clone()) {
            (last.kind, last.time) = (EventKind::Expired, event.time);
            out.push(last);
        }
        event.kind = EventKind::Current;
        out.push(event);
    }

    fn end_batch(&mut self, out: &mut Vec<ProcessorEvent>) {
        if let Some(event) = self.now.pending.take() {
            self.emit(event, out);
        }
        self.now.counts.clear();
        self.by_count.clear();
        self.now.batched = 0;
    }
}

impl StreamProcessor for FrequentValues {
    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        let value = Key(args.first().cloned().unwrap_or_default());
        let arrived = event.kind == EventKind::Current;
        let Some(batch) = self.batch else {
            self.count(value, arrived)?;
            if arrived {
                self.emit(event, out);
            }
            return Ok(());
        };
        if !arrived {
            return Ok(());
        }
        if batch.by_time && self.now.ends.is_none() {
            self.now.ends = Some(now.saturating_add(batch.size));
        }
        self.count(value, true)?;
        self.now.batched += 1;
        self.now.pending = Some(event);
        if !batch.by_time && self.now.batched >= batch.size {
            self.end_batch(out);
        }
        Ok(())
    }

    fn due(&self) -> Option<i64> {
        self.now.ends
    }

    fn on_timer(&mut self, now: i64, out: &mut Vec<ProcessorEvent>) {
        let idle = self.now.pending.is_none();
        self.end_batch(out);
        let size = self.batch.map_or(1, |batch| batch.size);
        // after a batch without events the next one begins with its first event
        self.now.ends = self.now.ends.filter(|_| !idle).map(|end| {
            let missed = now.saturating_sub(end).div_euclid(size).max(0);
            end.saturating_add(size.saturating_mul(missed + 1))
        });
    }

    fn save(&self) -> Json {
        let event = |event: &ProcessorEvent| SavedEvent {
            time: event.time,
            values: event.values.iter().map(encode).collect(),
        };
        let now = &self.now;
        json!(SavedCounts {
            counts: now.counts.iter().map(|(key, (count, at))| (encode(&key.0), *count, *at)).collect(),
            events: now.events,
            batched: now.batched,
            ends: now.ends,
            last: now.last.as_ref().map(event),
            pending: now.pending.as_ref().map(event),
        })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = || EvalError::state("the saved state does not match these frequent values");
        let saved = SavedCounts::deserialize(state).map_err(|_| wrong())?;
        let event = |saved: Option<SavedEvent>| -> Option<Option<ProcessorEvent>> {
            let Some(saved) = saved else { return Some(None) };
            let values = saved.values.iter().map(decode).collect::<Option<Vec<_>>>()?;
            Some(Some(ProcessorEvent { time: saved.time, kind: EventKind::Current, values }))
        };
        let counts = saved.counts.iter().map(|(key, count, at)| Some((Key(decode(key)?), (*count, *at))));
        self.now = State {
            counts: counts.collect::<Option<_>>().ok_or_else(wrong)?,
            events: saved.events,
            batched: saved.batched,
            ends: saved.ends,
            last: event(saved.last).ok_or_else(wrong)?,
            pending: event(saved.pending).ok_or_else(wrong)?,
        };
        self.by_count = self.now.counts.iter().map(|(key, (count, at))| (*count, *at, key.clone())).collect();
        Ok(())
    }
}
