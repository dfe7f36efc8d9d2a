//! Partial matches.

use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::{EventSelector, MatchReference, ReferenceKind};
use crate::value::{Object, Value};

/// An event that a match holds.
#[derive(Debug)]
pub(super) struct MatchedEvent {
    pub time: i64,
    pub values: Box<[Value]>,
}

/// A partial match. Several lists may hold the same one: both sides of a logical step, a count and the step behind it.
#[derive(Debug, Clone)]
pub(super) struct PartialMatch {
    /// The events by step.
    pub slots: Box<[Vec<Arc<MatchedEvent>>]>,
    /// The time of the last event; -1 while there is none.
    pub time: i64,
    /// It ran out of time once already.
    pub expired: bool,
}

pub(super) type SharedMatch = Arc<Mutex<PartialMatch>>;

impl PartialMatch {
    pub fn empty(steps: usize) -> Self {
        Self { slots: vec![Vec::new(); steps].into(), time: -1, expired: false }
    }

    /// What a reference reads of it.
    pub fn read(&self, reference: &MatchReference) -> Value {
        let chain = &self.slots[reference.step];
        let row = match reference.selector {
            EventSelector::Newest => chain.last(),
            EventSelector::First(n) => chain.get(n),
            EventSelector::Last(n) => chain.len().checked_sub(n + 1).map(|i| &chain[i]),
            EventSelector::All => {
                let all = chain.iter().map(|row| row.read(reference.kind)).collect();
                return Value::Object(Object::list(all));
            }
        };
        row.map_or(Value::Null, |row| row.read(reference.kind))
    }
}

impl MatchedEvent {
    /// Whether it stands for a side that is filled by silence.
    pub fn is_absence(&self) -> bool {
        self.values.is_empty()
    }

    /// What is asked of it; what a stream function adds inside a step is null, as in the reference.
    fn read(&self, what: ReferenceKind) -> Value {
        match what {
            ReferenceKind::Presence => Value::Bool(true),
            ReferenceKind::Time => Value::Long(self.time),
            ReferenceKind::Attribute(attribute) => self.values.get(attribute).cloned().unwrap_or_default(),
        }
    }
}
