//! `sort(n, attribute [, 'asc' | 'desc'] …)`: the first `n` events in an order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::build::arity;
use super::waits::more;
use super::{Context, Look, MakeWindow, Needs, Parameter, Source, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};
use crate::value::{Value, order};

const SORTABLE: &[FieldType] =
    &[FieldType::Int, FieldType::Long, FieldType::Float, FieldType::Double, FieldType::String];

pub(super) fn build(parameters: &[Parameter], _: &Source<'_>) -> Result<MakeWindow, String> {
    arity(parameters, 2..=usize::MAX, "sort(n, attribute [, 'asc' | 'desc'] …)")?;
    let n = parameters[0].count("the length")?;
    let mut order: SmallVec<[Column; 2]> = SmallVec::new();
    let mut rest = parameters[1..].iter().peekable();
    while let Some(attribute) = rest.next() {
        let column = attribute.column("what is sorted by", SORTABLE)?;
        let mut descending = false;
        if let Some(direction) = rest.next_if(|p| p.expr.as_const().is_some()) {
            let text = direction.constant_text("the direction")?;
            descending = text.eq_ignore_ascii_case("desc");
            if !descending && !text.eq_ignore_ascii_case("asc") {
                return Err(format!("the direction is to be 'asc' or 'desc', not `{}`", direction.text));
            }
        } else if let Some(next) = rest.peek() {
            let (one, other) = (&attribute.text, &next.text);
            return Err(format!("between `{one}` and `{other}` has to stand 'asc' or 'desc'"));
        }
        order.push(Column { column, descending });
    }
    Ok(Arc::new(move || {
        Box::new(Sort { n, order: order.clone(), entries: BTreeSet::new(), overflowed: false })
    }))
}

#[derive(Clone, Copy)]
struct Column {
    column: usize,
    descending: bool,
}

/// In so many pieces a saved window is taken back.
const RESTORED_PIECES: usize = 16;

/// When more than `n` are held the last one in order leaves, among equals the newest.
struct Sort {
    n: u64,
    order: SmallVec<[Column; 2]>,
    entries: BTreeSet<Entry>,
    /// Until more than `n` came they are held in the order of their arrival.
    overflowed: bool,
}

#[derive(Serialize, Deserialize)]
struct State {
    rows: Vec<Seq>,
    overflowed: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    key: SmallVec<[Part; 1]>,
    seq: Seq,
}

/// A value to sort by, turned round for descending order.
#[derive(Debug)]
struct Part {
    value: Value,
    descending: bool,
}

impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        let ordering = match (&self.value, &other.value) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Long(a), Value::Long(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => order(f64::from(*a), f64::from(*b)),
            (Value::Double(a), Value::Double(b)) => order(*a, *b),
            // by UTF-16 code units, as in the reference
            (Value::Str(a), Value::Str(b)) => a.encode_utf16().cmp(b.encode_utf16()),
            // a column has values of one type, and none of others
            _ => Ordering::Equal,
        };
        if self.descending { ordering.reverse() } else { ordering }
    }
}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Part {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.seq.cmp(&other.seq))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Sort {
    fn entry(&self, seq: Seq, rows: &RowStore) -> Result<Entry, Failure> {
        let mut key = SmallVec::new();
        for Column { column, descending } in &self.order {
            let value = rows.value(seq, *column);
            if value.is_null() {
                return Err(Failure("null has no place in the order of the sort window".into()));
            }
            key.push(Part { value, descending: *descending });
        }
        Ok(Entry { key, seq })
    }
}

impl Window for Sort {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        // The reference notices a null when it sorts, and then fails at every later event. Here the chunk with the
        // null fails and is not held.
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

    fn goes_by_clock(&self) -> bool {
        false
    }

    fn held(&self) -> Vec<Seq> {
        let mut rows = self.scattered();
        if !self.overflowed {
            rows.sort_unstable();
        }
        rows
    }

    fn needs(&self) -> Needs {
        Needs::scattered(self.entries.len())
    }

    fn scattered(&self) -> Vec<Seq> {
        self.entries.iter().map(|entry| entry.seq).collect()
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let held = self.entries.len() as u64;
        let waits_for = match self.n.saturating_sub(held) {
            0 => "more events: it is full, and with the next the last in its order leaves".to_owned(),
            n => format!("{} until it is full; nothing leaves before", more(n, "events")),
        };
        Waits::new(held, look.between(self.scattered().into_iter()), waits_for).of(self.n)
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&State { rows: self.scattered(), overflowed: self.overflowed })
    }

    fn restore(&mut self, from: &mut Reader<'_>, rows: &RowStore) -> Result<(), Error> {
        let state: State = from.state()?;
        if !state.rows.iter().all(|seq| rows.has(*seq)) {
            return Err(from.damaged("the window holds rows that are not there"));
        }
        // a set that is made of many at once needs a list of them beside it: so piece by piece
        let piece = (state.rows.len() / RESTORED_PIECES).max(1024);
        self.entries.clear();
        for rows_of_piece in state.rows.chunks(piece) {
            let entries = rows_of_piece.iter().map(|seq| self.entry(*seq, rows)).collect::<Result<_, _>>();
            let mut entries: BTreeSet<Entry> = entries.map_err(|e| from.damaged(e.0))?;
            self.entries.append(&mut entries);
        }
        self.overflowed = state.overflowed;
        Ok(())
    }
}
