//! Application of table actions.

use hashbrown::HashSet;
use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::key::{CellRef, KeyProbe};
use super::rows::RowIndex;
use super::{EVENT, MemoryTable, ROW, TableAction, cast};
use crate::catalog;
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::columns::row::Row;
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{Expr, Frame, NoContext, Node, TableSearch};

/// Assigned columns of a row with their new values.
type Assignments = SmallVec<[(usize, Value); 4]>;

/// Update by a single-column primary key that assigns plain columns of the event.
pub(crate) struct KeyedUpdate {
    /// Column of the event with the key.
    key: usize,
    /// Pairs of a column of the table and the assigned column of the event.
    set: SmallVec<[(usize, usize); 8]>,
    /// True if the event is inserted if no row has the key.
    insert: bool,
}

impl KeyedUpdate {
    /// Returns the column of the event with the key.
    pub(crate) fn key_column(&self) -> usize {
        self.key
    }

    /// Returns the keyed form of an update that searches by a key column of the event and assigns columns of the event
    /// unchanged; `None` if the update needs the general path. `types` are those of the event's columns.
    pub(crate) fn of(
        table: &catalog::CatalogTable,
        on: &TableSearch,
        set: &[(usize, Expr)],
        insert: bool,
        types: &[FieldType],
    ) -> Option<Self> {
        let [column] = table.primary_key[..] else { return None };
        let [value] = on.exact_key()? else { return None };
        let from = |expr: &Expr, column: usize| match expr.node {
            Node::Column { slot: EVENT, column: from } => {
                (*types.get(from)? == table.attributes[column].1).then_some(from)
            }
            _ => None,
        };
        let mut keyed = Self { key: from(value, column)?, set: SmallVec::new(), insert };
        for (to, expr) in set {
            let from = from(expr, *to)?;
            if *to == column && from == keyed.key {
                continue;
            }
            if *to == column || table.indexes.contains(to) {
                return None;
            }
            keyed.set.push((*to, from));
        }
        Some(keyed)
    }
}

impl MemoryTable {
    /// Applies `action` for each event in order. `now` is the time for events of a batch without chunks.
    ///
    /// Errors: an expression fails, or the table is full; the error includes the row of the event, and earlier changes
    /// remain.
    pub fn apply_rows(
        &mut self,
        action: &TableAction,
        events: &Batch,
        now: i64,
    ) -> Result<(), (usize, EvalError)> {
        if let TableAction::Update { on, set, insert } = action
            && let types = events.columns.iter().map(Column::ty).collect::<SmallVec<[FieldType; 16]>>()
            && let Some(keyed) = KeyedUpdate::of(&self.plan, on, set, *insert, &types)
        {
            return self.update_by_key(&keyed, events);
        }
        let chained = matches!(action, TableAction::Update { set, .. } if reads_assigned_columns(set));
        let mut chunk = 0;
        for i in 0..events.len() {
            while events.chunk_ends.get(chunk).is_some_and(|end| *end as usize <= i) {
                chunk += 1;
            }
            let now = events.chunk_clocks.get(chunk).copied().unwrap_or(now);
            let rows = [Some((events.columns.as_slice(), i))];
            let frame = Frame { rows: &rows, time: events.times[i], now, host: &NoContext };
            let done = match action {
                TableAction::Insert => self.insert_event(events, i),
                TableAction::Delete(on) => self.matching_rows(on, &frame).map(|found| {
                    found.into_iter().for_each(|place| self.remove(place));
                    self.compact_if_sparse();
                }),
                TableAction::Update { on, set, insert } => {
                    self.matching_rows(on, &frame).and_then(|found| match found.is_empty() && *insert {
                        true => self.insert_event(events, i),
                        false => self.assign_all(&found, set, chained, &frame),
                    })
                }
            };
            done.map_err(|failure| (i, failure))?;
        }
        Ok(())
    }

    /// Returns the matching rows in table order.
    pub(super) fn matching_rows(
        &self,
        on: &TableSearch,
        frame: &Frame<'_>,
    ) -> Result<SmallVec<[RowIndex; 4]>, EvalError> {
        let mut found = SmallVec::new();
        self.find(on, frame, &mut |place, _, _| {
            found.push(place);
            true
        })?;
        Ok(found)
    }

    /// Inserts event `i`, which has the columns of the table.
    fn insert_event(&mut self, events: &Batch, i: usize) -> Result<(), EvalError> {
        self.insert_cells(|column| (&events.columns[column], i)).map(|_| ())
    }

    /// Assigns the values of an event to all rows in `found`. Changes nothing if two rows would get one key.
    fn assign_all(
        &mut self,
        found: &[RowIndex],
        set: &[(usize, Expr)],
        chained: bool,
        event: &Frame<'_>,
    ) -> Result<(), EvalError> {
        let in_key = |column: &usize| self.key.as_ref().is_some_and(|key| key.columns().contains(column));
        if !set.iter().any(|(column, _)| in_key(column)) {
            return found.iter().try_for_each(|place| {
                let values = self.compute_assignments(*place, set, chained, event)?;
                self.write_values(*place, &values, false);
                Ok(())
            });
        }
        let mut all: SmallVec<[(RowIndex, Assignments); 4]> = SmallVec::new();
        for place in found {
            all.push((*place, self.compute_assignments(*place, set, chained, event)?));
        }
        if !self.keys_stay_unique(&all) {
            return Ok(());
        }
        if let Some(key) = &mut self.key {
            found.iter().for_each(|place| key.remove(&self.rows, *place));
        }
        all.iter().for_each(|(place, values)| self.write_values(*place, values, true));
        Ok(())
    }

    /// Computes the assigned values of a row. If `chained`, an expression sees the values assigned before it.
    fn compute_assignments(
        &self,
        place: RowIndex,
        set: &[(usize, Expr)],
        chained: bool,
        event: &Frame<'_>,
    ) -> Result<Assignments, EvalError> {
        // a copy of the row that receives the assignments, because later expressions read earlier ones
        let mut row: Vec<Column> = Vec::new();
        if chained {
            let (columns, i) = self.rows.row(place);
            row.extend(columns.iter().map(|from| {
                let mut column = Column::new(from.ty());
                column.push_from(from, i);
                column
            }));
        }
        let mut values = Assignments::new();
        for (column, expr) in set {
            let seen = if chained { (row.as_slice(), 0) } else { self.rows.row(place) };
            let rows = [event.rows[EVENT], Some(seen)];
            let value =
                expr.eval(&Frame { rows: &rows, time: event.time, now: event.now, host: event.host })?;
            let value = cast(value, self.rows.types()[*column]);
            if chained {
                row[*column].set(0, &value);
            }
            values.push((*column, value));
        }
        Ok(values)
    }

    /// Writes values into a row. With `moves`, its key entry was removed before and is inserted again.
    fn write_values(&mut self, place: RowIndex, values: &[(usize, Value)], moves: bool) {
        let is_set = |column: usize| values.iter().any(|(c, _)| *c == column);
        let touched = |index: &&mut super::SecondaryIndex| is_set(index.column);
        self.indexes.iter_mut().filter(touched).for_each(|index| index.remove(&self.rows, place));
        for (column, value) in values {
            let (column, i) = self.rows.cell_mut(place, *column);
            column.set(i, value);
        }
        self.indexes.iter_mut().filter(touched).for_each(|index| index.insert(&self.rows, place));
        if moves && let Some(key) = &mut self.key {
            let code = key.probe(|column| self.rows.cell(place, column));
            key.insert(code, &self.rows, place);
        }
    }

    /// Returns whether the keys remain unique, and valid, if all rows take these values.
    fn keys_stay_unique(&self, all: &[(RowIndex, Assignments)]) -> bool {
        let Some(key) = &self.key else { return true };
        let changed: HashSet<RowIndex> = all.iter().map(|(place, _)| *place).collect();
        let mut taken = HashSet::new();
        all.iter().all(|(place, values)| {
            let mut made: SmallVec<[(usize, Column); 2]> = SmallVec::new();
            for (column, value) in values.iter().filter(|(column, _)| key.columns().contains(column)) {
                let mut one = Column::new(self.rows.types()[*column]);
                one.push(value.clone());
                made.push((*column, one));
            }
            let cell = |column: usize| -> CellRef<'_> {
                match made.iter().rev().find(|(c, _)| *c == column) {
                    Some((_, one)) => (one, 0),
                    None => self.rows.cell(*place, column),
                }
            };
            let free =
                || key.find(key.probe(cell), &self.rows, cell).is_none_or(|other| changed.contains(&other));
            key.may_hold(cell) && free() && (all.len() == 1 || taken.insert(key.text(&cell)))
        })
    }

    /// Prefetches the memory in which [`Self::write_row`] will look for a key.
    #[inline]
    pub(crate) fn prefetch_key(&self, key: &ValueRef<'_>) {
        if let Some(by) = &self.key {
            by.prefetch_value(key);
        }
    }

    /// Applies a keyed update for one event.
    ///
    /// Errors: the event would be inserted, and the table is full or refuses its key.
    #[inline]
    pub(crate) fn write_row(&mut self, keyed: &KeyedUpdate, event: Row<'_>) -> Result<(), EvalError> {
        let value = event.values[keyed.key];
        let place = match &self.key {
            Some(key) if !value.is_null() => key.find_value(key.probe_value(value), &self.rows, value),
            _ => None,
        };
        match place {
            Some(place) => {
                for (to, from) in &keyed.set {
                    let (column, row) = self.rows.cell_mut(place, *to);
                    column.set_ref(row, &event.values[*from]);
                }
                Ok(())
            }
            None if keyed.insert => self.insert_row(event.values),
            None => Ok(()),
        }
    }

    /// Inserts a row, which has the columns of the table and whose key does not exist, into a table with a key of one
    /// column.
    fn insert_row(&mut self, values: &[ValueRef<'_>]) -> Result<(), EvalError> {
        let Some(key) = &self.key else { return Ok(()) };
        let value = values[key.columns()[0]];
        self.check_key(key.may_be(value.is_null()))?;
        let code = key.probe_value(value);
        if key.find_value(code, &self.rows, value).is_some() {
            return Ok(());
        }
        self.check_capacity()?;
        let place = self.rows.push(|columns| {
            columns.iter_mut().zip(values).for_each(|(column, value)| column.push_ref(value));
        });
        if let Some(key) = &mut self.key {
            key.insert(code, &self.rows, place);
        }
        self.indexes.iter_mut().for_each(|index| index.insert(&self.rows, place));
        Ok(())
    }

    /// Applies a keyed update: looks up the rows of all events, then writes column by column.
    fn update_by_key(&mut self, keyed: &KeyedUpdate, events: &Batch) -> Result<(), (usize, EvalError)> {
        let column = &events.columns[keyed.key];
        let Some(key) = &self.key else { return Ok(()) };
        let codes: SmallVec<[KeyProbe; 16]> = (0..events.len()).map(|i| key.probe(|_| (column, i))).collect();
        key.prefetch(&codes);
        // Look up all candidate rows first, then verify their keys, then write the values: the processor
        // overlaps the memory accesses of many events.
        let likely: SmallVec<[Option<RowIndex>; 16]> =
            codes.iter().map(|code| key.likely_row(*code)).collect();
        let mut found: SmallVec<[(u32, RowIndex); 16]> = SmallVec::new();
        let mut done = Ok(());
        for (i, (code, likely)) in codes.into_iter().zip(likely).enumerate() {
            let cell = (column, i);
            let place = match &self.key {
                Some(key) if !column.is_null(i) => likely
                    .filter(|place| key.has_key(*place, code, &self.rows, cell))
                    .or_else(|| key.find(code, &self.rows, |_| cell)),
                _ => None,
            };
            match (place, keyed.insert) {
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

/// Returns whether an expression reads a column of the row that an earlier assignment writes.
pub(super) fn reads_assigned_columns(set: &[(usize, Expr)]) -> bool {
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
