//! Partial matches.

use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::{EventSelector, MatchReference, ReferenceKind};
use crate::columns::value::{OpaqueValue, Value};

/// An event of a match.
#[derive(Debug)]
pub(super) struct MatchedEvent {
    pub time: i64,
    pub values: Box<[Value]>,
}

/// A partial match. It can be in several lists: those of both sides of a logical step, or those of a counted
/// step and its next step.
#[derive(Debug, Clone)]
pub(super) struct PartialMatch {
    /// Events by step.
    pub slots: Box<[Vec<Arc<MatchedEvent>>]>,
    /// Time of the last event, milliseconds; -1 before the first one.
    pub time: i64,
    /// Set once the match has expired in one of its lists.
    pub expired: bool,
}

pub(super) type SharedMatch = Arc<Mutex<PartialMatch>>;

impl PartialMatch {
    pub fn empty(steps: usize) -> Self {
        Self { slots: vec![Vec::new(); steps].into(), time: -1, expired: false }
    }

    /// Reads the value of a reference.
    pub fn read(&self, reference: &MatchReference) -> Value {
        let chain = &self.slots[reference.step];
        let row = match reference.selector {
            EventSelector::Newest => chain.last(),
            EventSelector::First(n) => chain.get(n),
            EventSelector::Last(n) => chain.len().checked_sub(n + 1).map(|i| &chain[i]),
            EventSelector::All => {
                let all = chain.iter().map(|row| row.read(reference.kind)).collect();
                return Value::Object(OpaqueValue::list(all));
            }
        };
        row.map_or(Value::Null, |row| row.read(reference.kind))
    }
}

impl MatchedEvent {
    /// Returns whether this event stands for a side of a logical step that an absence filled.
    pub fn is_absence(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the value of `what`. Attributes that a stream function adds inside a step are null, as in
    /// Siddhi 5.1.
    fn read(&self, what: ReferenceKind) -> Value {
        match what {
            ReferenceKind::Presence => Value::Bool(true),
            ReferenceKind::Time => Value::Long(self.time),
            ReferenceKind::Attribute(attribute) => self.values.get(attribute).cloned().unwrap_or_default(),
        }
    }
}
