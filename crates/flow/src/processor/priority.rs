//! `#priority:time(key, priority, timeout)`: the last event of each key, whose priority falls by one after each timeout
//! until it is 0.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use crate::aggregators::state::{decode, encode};
use crate::columns::batch::EventKind;
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

/// Keys with a priority above 0 that one processor keeps.
const KEYS_MAX: usize = 10_000_000;

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let form = "priority:time(key, priority, timeout)";
    let [key, priority, timeout] = args else {
        return Err(format!("expected {form}, found {} parameters", args.len()));
    };
    if key.ty == FieldType::Object {
        return Err(format!("{form}: the key cannot be an object"));
    }
    if !matches!(priority.ty, FieldType::Int | FieldType::Long) {
        return Err(format!("{form}: the priority must be an int or a long, found {}", priority.ty.name()));
    }
    let timeout = timeout.constant.as_ref().and_then(Value::as_i64).filter(|t| *t > 0);
    let timeout =
        timeout.ok_or_else(|| format!("{form}: the timeout must be a constant time such as `1 sec`"))?;
    let added = vec![("priorityKey".to_owned(), key.ty), ("currentPriority".to_owned(), FieldType::Long)];
    let made = move || Priorities { timeout, keys: BTreeMap::new(), order: BTreeSet::new() };
    Ok((Arc::new(move || Box::new(made())), added))
}

struct Priorities {
    /// Milliseconds.
    timeout: i64,
    keys: BTreeMap<Key, Entry>,
    /// When the priority of each key falls next.
    order: BTreeSet<(i64, Key)>,
}

struct Entry {
    /// The last event, without the added attributes.
    event: ProcessorEvent,
    priority: i64,
    due: i64,
}

impl Priorities {
    fn put(&mut self, key: Key, entry: Entry) {
        self.order.insert((entry.due, key.clone()));
        self.keys.insert(key, entry);
    }
}

fn told(event: &ProcessorEvent, time: i64, key: &Key, priority: i64) -> ProcessorEvent {
    let mut values = event.values.clone();
    values.extend([key.0.clone(), Value::Long(priority)]);
    ProcessorEvent { time, kind: EventKind::Current, values }
}

impl StreamProcessor for Priorities {
    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        if event.kind != EventKind::Current {
            return Ok(());
        }
        let key = match args.first() {
            None | Some(Value::Null) => return Err(EvalError::null("priority:time: the key")),
            Some(key) => Key(key.clone()),
        };
        let added = args.get(1).and_then(Value::as_i64);
        let added = added.ok_or_else(|| EvalError::null("priority:time: the priority"))?;
        let known = self.keys.remove(&key);
        if let Some(known) = &known {
            self.order.remove(&(known.due, key.clone()));
        } else if self.keys.len() >= KEYS_MAX {
            return Err(EvalError::limit("priority:time", KEYS_MAX, "keys"));
        }
        let priority = known.map_or(0, |known| known.priority).saturating_add(added);
        out.push(told(&event, event.time, &key, priority));
        if priority > 0 {
            self.put(key, Entry { event, priority, due: now.saturating_add(self.timeout) });
        }
        Ok(())
    }

    fn due(&self) -> Option<i64> {
        self.order.first().map(|(due, _)| *due)
    }

    fn on_timer(&mut self, now: i64, out: &mut Vec<ProcessorEvent>) {
        while let Some((due, key)) = self.order.pop_first() {
            if due > now {
                self.order.insert((due, key));
                return;
            }
            let Some(mut entry) = self.keys.remove(&key) else { continue };
            entry.priority -= 1;
            entry.due = due.saturating_add(self.timeout);
            out.push(told(&entry.event, due, &key, entry.priority));
            if entry.priority > 0 {
                self.put(key, entry);
            }
        }
    }

    fn save(&self) -> Json {
        let entries = self.keys.iter().map(|(key, entry)| {
            let values: Vec<Json> = entry.event.values.iter().map(encode).collect();
            (encode(&key.0), entry.event.time, values, entry.priority, entry.due)
        });
        json!(entries.collect::<Vec<_>>())
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = || EvalError::state("the saved state does not match priority:time");
        let saved = Vec::<(Json, i64, Vec<Json>, i64, i64)>::deserialize(state).map_err(|_| wrong())?;
        (self.keys, self.order) = (BTreeMap::new(), BTreeSet::new());
        for (key, time, values, priority, due) in saved {
            let key = Key(decode(&key).ok_or_else(wrong)?);
            let values = values.iter().map(decode).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
            let event = ProcessorEvent { time, kind: EventKind::Current, values };
            self.put(key, Entry { event, priority, due });
        }
        Ok(())
    }
}
