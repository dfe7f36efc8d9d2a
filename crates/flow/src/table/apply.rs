//! What events do to the rows of a table.

use hashbrown::HashSet;
use smallvec::SmallVec;

use super::key::{Cell, Code};
use super::rows::Place;
use super::{Action, EVENT, ROW, Search, Table, fit};
use crate::batch::Batch;
use crate::column::Column;
use crate::expr::{EvalError, Expr, Frame, NoContext, Node};
use crate::value::Value;

/// The columns of a row and what they are assigned.
type Assigned = SmallVec<[(usize, Value); 4]>;

/// An update by the primary key with columns of the event alone.
struct Keyed {
    /// The event's column that is the key.
    key: usize,
    /// The event's column for each of these columns of the table.
    set: SmallVec<[(usize, usize); 8]>,
}

impl Table {
    /// Each event in turn does `action`. `now` is the clock where a batch has no chunks.
    ///
    /// Errors: what an expression says, and that the table is full; what was done before stays.
    pub fn apply(&mut self, action: &Action, events: &Batch, now: i64) -> Result<(), EvalError> {
        self.apply_rows(action, events, now).map_err(|(_, failure)| failure)
    }

    /// The same; an error comes with the place of its event.
    pub fn apply_rows(
        &mut self,
        action: &Action,
        events: &Batch,
        now: i64,
    ) -> Result<(), (usize, EvalError)> {
        if let Action::Update { on, set, insert } = action
            && let Some(keyed) = self.keyed(on, set, events)
        {
            return self.update_by_key(&keyed, *insert, events);
        }
        let chained = matches!(action, Action::Update { set, .. } if is_chained(set));
        let mut chunk = 0;
        for i in 0..events.len() {
            while events.ends.get(chunk).is_some_and(|end| *end as usize <= i) {
                chunk += 1;
            }
            let now = events.clocks.get(chunk).copied().unwrap_or(now);
            let rows = [Some((events.columns.as_slice(), i))];
            let frame = Frame { rows: &rows, time: events.times[i], now, host: &NoContext };
            let done = match action {
                Action::Insert => self.insert_event(events, i),
                Action::Delete(on) => self.matching(on, &frame).map(|found| {
                    found.into_iter().for_each(|place| self.remove(place));
                    self.reclaim();
                }),
                Action::Update { on, set, insert } => {
                    self.matching(on, &frame).and_then(|found| match found.is_empty() && *insert {
                        true => self.insert_event(events, i),
                        false => self.assign_all(&found, set, chained, &frame),
                    })
                }
            };
            done.map_err(|failure| (i, failure))?;
        }
        Ok(())
    }

    /// The rows that are found, in the table's order.
    pub(super) fn matching(&self, on: &Search, frame: &Frame<'_>) -> Result<SmallVec<[Place; 4]>, EvalError> {
        let mut found = SmallVec::new();
        self.find(on, frame, &mut |place, _, _| {
            found.push(place);
            true
        })?;
        Ok(found)
    }

    /// Adds event `i`, whose columns are the table's.
    fn insert_event(&mut self, events: &Batch, i: usize) -> Result<(), EvalError> {
        self.add(|column| (&events.columns[column], i)).map(|_| ())
    }

    /// Assigns the values of an event to all rows that it found. Nothing changes when two rows would have one key then.
    fn assign_all(
        &mut self,
        found: &[Place],
        set: &[(usize, Expr)],
        chained: bool,
        event: &Frame<'_>,
    ) -> Result<(), EvalError> {
        let in_key = |column: &usize| self.key.as_ref().is_some_and(|key| key.columns().contains(column));
        if !set.iter().any(|(column, _)| in_key(column)) {
            return found.iter().try_for_each(|place| {
                let values = self.assigned(*place, set, chained, event)?;
                self.write(*place, &values, false);
                Ok(())
            });
        }
        let mut all: SmallVec<[(Place, Assigned); 4]> = SmallVec::new();
        for place in found {
            all.push((*place, self.assigned(*place, set, chained, event)?));
        }
        if !self.may_become(&all) {
            return Ok(());
        }
        if let Some(key) = &mut self.key {
            found.iter().for_each(|place| key.remove(&self.rows, *place));
        }
        all.iter().for_each(|(place, values)| self.write(*place, values, true));
        Ok(())
    }

    /// The values that a row is assigned, one after the other, each seeing those before it.
    fn assigned(
        &self,
        place: Place,
        set: &[(usize, Expr)],
        chained: bool,
        event: &Frame<'_>,
    ) -> Result<Assigned, EvalError> {
        // the row as it becomes, where later values look at earlier ones
        let mut row: Vec<Column> = Vec::new();
        if chained {
            let (columns, i) = self.rows.at(place);
            row.extend(columns.iter().map(|from| {
                let mut column = Column::new(from.ty());
                column.push_from(from, i);
                column
            }));
        }
        let mut values = Assigned::new();
        for (column, expr) in set {
            let seen = if chained { (row.as_slice(), 0) } else { self.rows.at(place) };
            let rows = [event.rows[EVENT], Some(seen)];
            let value =
                expr.eval(&Frame { rows: &rows, time: event.time, now: event.now, host: event.host })?;
            let value = fit(value, self.rows.types()[*column]);
            if chained {
                row[*column].set(0, &value);
            }
            values.push((*column, value));
        }
        Ok(values)
    }

    /// Writes values into a row; with `moves` its key was taken out before and is put in again.
    fn write(&mut self, place: Place, values: &[(usize, Value)], moves: bool) {
        let is_set = |column: usize| values.iter().any(|(c, _)| *c == column);
        let touched = |index: &&mut super::Index| is_set(index.column);
        self.indexes.iter_mut().filter(touched).for_each(|index| index.remove(&self.rows, place));
        for (column, value) in values {
            let (column, i) = self.rows.cell_mut(place, *column);
            column.set(i, value);
        }
        self.indexes.iter_mut().filter(touched).for_each(|index| index.insert(&self.rows, place));
        if moves && let Some(key) = &mut self.key {
            let code = key.code(|column| self.rows.cell(place, column));
            key.insert(code, &self.rows, place);
        }
    }

    /// Whether rows may take these values together: each has a key then that no other row has.
    fn may_become(&self, all: &[(Place, Assigned)]) -> bool {
        let Some(key) = &self.key else { return true };
        let changed: HashSet<Place> = all.iter().map(|(place, _)| *place).collect();
        let mut taken = HashSet::new();
        all.iter().all(|(place, values)| {
            let mut made: SmallVec<[(usize, Column); 2]> = SmallVec::new();
            for (column, value) in values.iter().filter(|(column, _)| key.columns().contains(column)) {
                let mut one = Column::new(self.rows.types()[*column]);
                one.push(value.clone());
                made.push((*column, one));
            }
            let cell = |column: usize| -> Cell<'_> {
                match made.iter().rev().find(|(c, _)| *c == column) {
                    Some((_, one)) => (one, 0),
                    None => self.rows.cell(*place, column),
                }
            };
            let free =
                || key.find(key.code(cell), &self.rows, cell).is_none_or(|other| changed.contains(&other));
            key.may_hold(cell) && free() && (all.len() == 1 || taken.insert(key.text(&cell)))
        })
    }

    /// The update, when a row is found by its key where it lies in the event, and takes columns of the event as they are.
    fn keyed(&self, on: &Search, set: &[(usize, Expr)], events: &Batch) -> Option<Keyed> {
        let [column] = self.key.as_ref()?.columns() else { return None };
        let [value] = on.exact_key()? else { return None };
        let from = |expr: &Expr, column: usize| match expr.node {
            Node::Column { slot: EVENT, column: from } => {
                (events.columns.get(from)?.ty() == self.rows.types()[column]).then_some(from)
            }
            _ => None,
        };
        let mut keyed = Keyed { key: from(value, *column)?, set: SmallVec::new() };
        for (to, expr) in set {
            let from = from(expr, *to)?;
            if to == column && from == keyed.key {
                continue;
            }
            if to == column || self.indexes.iter().any(|index| index.column == *to) {
                return None;
            }
            keyed.set.push((*to, from));
        }
        Some(keyed)
    }

    /// The events of a batch find their rows; then column after column is written.
    fn update_by_key(
        &mut self,
        keyed: &Keyed,
        insert: bool,
        events: &Batch,
    ) -> Result<(), (usize, EvalError)> {
        let column = &events.columns[keyed.key];
        let Some(key) = &self.key else { return Ok(()) };
        let codes: SmallVec<[Code; 16]> = (0..events.len()).map(|i| key.code(|_| (column, i))).collect();
        key.expect(&codes);
        // First all rows that may be those, then a look at their keys, then the values: so a processor waits for the
        // memory of many events at once.
        let likely: SmallVec<[Option<Place>; 16]> = codes.iter().map(|code| key.likely(*code)).collect();
        let mut found: SmallVec<[(u32, Place); 16]> = SmallVec::new();
        let mut done = Ok(());
        for (i, (code, likely)) in codes.into_iter().zip(likely).enumerate() {
            let cell = (column, i);
            let place = match &self.key {
                Some(key) if !column.is_null(i) => likely
                    .filter(|place| key.is_at(*place, code, &self.rows, cell))
                    .or_else(|| key.find(code, &self.rows, |_| cell)),
                _ => None,
            };
            match (place, insert) {
                (Some(place), _) => found.push((i as u32, place)),
                (None, true) => {
                    done = self.insert_event(events, i).map_err(|failure| (i, failure));
                    if done.is_err() {
                        break;
                    }
                }
                (None, false) => {}
            }
        }
        for (to, from) in &keyed.set {
            self.rows.set_from(*to, &found, &events.columns[*from]);
        }
        done
    }
}

/// Whether a value is computed from a column of the row that was assigned before it.
fn is_chained(set: &[(usize, Expr)]) -> bool {
    set.iter().enumerate().any(|(i, (_, expr))| {
        let mut sees = false;
        expr.walk(&mut |part| {
            if let Node::Column { slot: ROW, column } = part.node {
                sees |= set[..i].iter().any(|(assigned, _)| *assigned == column);
            }
        });
        sees
    })
}
