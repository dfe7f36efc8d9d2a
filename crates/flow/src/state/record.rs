//! Partial matches.

use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::{Reference, What, Which};
use crate::value::{Object, Value};

/// An event that a match holds.
#[derive(Debug)]
pub(super) struct Row {
    pub time: i64,
    pub values: Box<[Value]>,
}

/// A partial match. Several lists may hold the same one: both sides of a logical step, a count and the step behind it.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// The events by step.
    pub slots: Box<[Vec<Arc<Row>>]>,
    /// The time of the last event; -1 while there is none.
    pub time: i64,
    /// It ran out of time once already.
    pub expired: bool,
}

pub(super) type Shared = Arc<Mutex<Record>>;

impl Record {
    pub fn empty(steps: usize) -> Self {
        Self { slots: vec![Vec::new(); steps].into(), time: -1, expired: false }
    }

    /// What a reference reads of it.
    pub fn read(&self, reference: &Reference) -> Value {
        let chain = &self.slots[reference.step];
        let row = match reference.which {
            Which::Newest => chain.last(),
            Which::First(n) => chain.get(n),
            Which::Last(n) => chain.len().checked_sub(n + 1).map(|i| &chain[i]),
            Which::All => {
                let all = chain.iter().map(|row| row.read(reference.what)).collect();
                return Value::Object(Object::list(all));
            }
        };
        row.map_or(Value::Null, |row| row.read(reference.what))
    }
}

impl Row {
    /// Whether it stands for a side that is filled by silence.
    pub fn is_silence(&self) -> bool {
        self.values.is_empty()
    }

    /// What is asked of it; what a stream function adds inside a step is null, as in the reference.
    fn read(&self, what: What) -> Value {
        match what {
            What::Presence => Value::Bool(true),
            What::Time => Value::Long(self.time),
            What::Attribute(attribute) => self.values.get(attribute).cloned().unwrap_or_default(),
        }
    }
}
