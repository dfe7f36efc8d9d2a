//! `sort(n, attribute [, 'asc' | 'desc'] …)`: the first `n` events in an order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::build::arity;
use crate::columns::value::{Value, order};
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    RetainedRows, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus, more,
};

const SORTABLE: &[FieldType] =
    &[FieldType::Int, FieldType::Long, FieldType::Float, FieldType::Double, FieldType::String];

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=usize::MAX, "sort(n, attribute [, 'asc' | 'desc'] …)")?;
    let n = parameters[0].count("the length")?;
    let mut order: SmallVec<[SortColumn; 2]> = SmallVec::new();
    let mut rest = parameters[1..].iter().peekable();
    while let Some(attribute) = rest.next() {
        let column = attribute.column("the attribute to sort by", SORTABLE)?;
        let mut descending = false;
        if let Some(direction) = rest.next_if(|p| p.expr.as_const().is_some()) {
            let text = direction.constant_text("the direction")?;
            descending = text.eq_ignore_ascii_case("desc");
            if !descending && !text.eq_ignore_ascii_case("asc") {
                return Err(format!("the direction must be 'asc' or 'desc', found `{}`", direction.text));
            }
        } else if let Some(next) = rest.peek() {
            let (one, other) = (&attribute.text, &next.text);
            return Err(format!("expected 'asc' or 'desc' between `{one}` and `{other}`"));
        }
        order.push(SortColumn { column, descending });
    }
    Ok(Arc::new(move || {
        Box::new(SortWindow { n, order: order.clone(), entries: BTreeSet::new(), overflowed: false })
    }))
}

#[derive(Clone, Copy)]
struct SortColumn {
    column: usize,
    descending: bool,
}

/// Number of pieces in which a saved window is restored.
const RESTORED_PIECES: usize = 16;

/// When more than `n` rows are buffered, evicts the last in order; among equals, the newest.
struct SortWindow {
    n: u64,
    order: SmallVec<[SortColumn; 2]>,
    entries: BTreeSet<SortEntry>,
    /// Set once a row was evicted; until then, [`Window::rows`] returns the rows in order of arrival.
    overflowed: bool,
}

#[derive(Serialize, Deserialize)]
struct State {
    rows: Vec<RowId>,
    overflowed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct SortEntry {
    key: SmallVec<[SortValue; 1]>,
    seq: RowId,
}

/// A value to sort by; its order is reversed if `descending`.
#[derive(Debug)]
struct SortValue {
    value: Value,
    descending: bool,
}

impl Ord for SortValue {
    fn cmp(&self, other: &Self) -> Ordering {
        let ordering = match (&self.value, &other.value) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Long(a), Value::Long(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => order(f64::from(*a), f64::from(*b)),
            (Value::Double(a), Value::Double(b)) => order(*a, *b),
            // by UTF-16 code units, as in Siddhi 5.1
            (Value::Str(a), Value::Str(b)) => a.encode_utf16().cmp(b.encode_utf16()),
            // not reached: a column has values of one type, and nulls were rejected
            _ => Ordering::Equal,
        };
        if self.descending { ordering.reverse() } else { ordering }
    }
}

impl PartialOrd for SortValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SortValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SortValue {}

impl Ord for SortEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.seq.cmp(&other.seq))
    }
}

impl PartialOrd for SortEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl SortWindow {
    fn entry(&self, seq: RowId, rows: &RowStore) -> Result<SortEntry, EvalError> {
        let mut key = SmallVec::new();
        for SortColumn { column, descending } in &self.order {
            let value = rows.value(seq, *column);
            if value.is_null() {
                return Err(EvalError::null("the attribute that the sort window sorts by"));
            }
            key.push(SortValue { value, descending: *descending });
        }
        Ok(SortEntry { key, seq })
    }
}

impl Window for SortWindow {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        // Siddhi 5.1 notices a null when it sorts, and then fails at every later event. Here the chunk with
        // the null fails and is not buffered.
        let entries = rows.map(|seq| self.entry(seq, context.rows)).collect::<Result<Vec<_>, _>>()?;
        for entry in entries {
            context.out.current(entry.seq, context.rows.time(entry.seq));
            self.entries.insert(entry);
            if self.entries.len() as u64 > self.n
                && let Some(last) = self.entries.pop_last()
            {
                self.overflowed = true;
                context.out.expired(last.seq, context.now);
            }
        }
        context.out.end_chunk();
        Ok(())
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows(&self) -> Vec<RowId> {
        let mut rows = self.sparse_rows();
        if !self.overflowed {
            rows.sort_unstable();
        }
        rows
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::sparse(self.entries.len())
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        self.entries.iter().map(|entry| entry.seq).collect()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let held = self.entries.len() as u64;
        let waits_for = match self.n.saturating_sub(held) {
            0 => "more events: it is full, and with the next the last in its order leaves".to_owned(),
            n => format!("{} until it is full; nothing leaves before", more(n, "events")),
        };
        WindowStatus::new(held, look.time_range(self.sparse_rows().into_iter()), waits_for).of(self.n)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&State { rows: self.sparse_rows(), overflowed: self.overflowed })
    }

    fn restore(&mut self, from: &mut Reader<'_>, rows: &RowStore) -> Result<(), Error> {
        let state: State = from.state()?;
        if !state.rows.iter().all(|seq| rows.has(*seq)) {
            return Err(from.damaged("the window refers to rows that do not exist"));
        }
        // `BTreeSet` collects into a list first; restoring in pieces bounds its size
        let piece = (state.rows.len() / RESTORED_PIECES).max(1024);
        self.entries.clear();
        for rows_of_piece in state.rows.chunks(piece) {
            let entries = rows_of_piece.iter().map(|seq| self.entry(*seq, rows)).collect::<Result<_, _>>();
            let mut entries: BTreeSet<SortEntry> = entries.map_err(|e| from.damaged(e.to_string()))?;
            self.entries.append(&mut entries);
        }
        self.overflowed = state.overflowed;
        Ok(())
    }
}
