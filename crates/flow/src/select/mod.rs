//! The select clause: which events of a chunk are emitted.
//!
//! | | emitted for a chunk |
//! | --- | --- |
//! | no aggregates, no group by | every event |
//! | aggregates | the last event |
//! | group by | the last event of each group |
//!
//! In each case only events of a wanted kind that satisfy `having`.

mod accumulators;
mod columns;
mod groups;
mod input;
mod min_max;
mod row;
mod sliding;
mod sums;
mod why;

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Serialize, Serializer};
use smallvec::SmallVec;
use tidemill_types::FieldType;

use accumulators::GroupAccumulators;
use columns::ReferencedColumns;

pub(crate) use columns::{COLUMNAR_ROWS_MIN, FailedChunks};
use groups::{GroupKeys, GroupValues};
pub(crate) use input::{InputRows, SelectorInput};
pub(crate) use row::RowSelect;

use crate::columns::batch::{Batch, EventKind, EventRow};
use crate::columns::column::{Column, Data};
use crate::columns::value::{self, Value};
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Expr, Frame, Node};
use crate::registry::AggregateCall;
use crate::snapshot::{self, SnapshotWriter};

/// Event kinds that a query emits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputEvents {
    /// Events that arrived.
    pub current: bool,
    /// Events that left a window.
    pub expired: bool,
}

impl OutputEvents {
    fn has(self, kind: EventKind) -> bool {
        match kind {
            EventKind::Current => self.current,
            EventKind::Expired => self.expired,
            EventKind::Reset => false,
        }
    }
}

/// A compiled select clause.
#[derive(Clone)]
pub struct SelectPlan {
    /// Name and expression of each output column, then the hidden expressions that only `order by` uses.
    pub items: Vec<(String, Expr)>,
    /// Number of hidden expressions at the end of `items`.
    pub hidden: usize,
    /// Aggregates in `items` and `having`.
    pub aggregates: Vec<AggregateCall>,
    /// Expressions whose values identify a group.
    pub group_by: Vec<Expr>,
    /// Condition that an output must satisfy.
    pub having: Option<Expr>,
    /// Output columns to sort by; true for descending.
    pub order_by: Vec<(usize, bool)>,
    /// Number of rows to skip at the beginning of each emission.
    pub offset: usize,
    /// Maximum number of rows of an emission.
    pub limit: Option<usize>,
    /// Event kinds to emit.
    pub output_events: OutputEvents,
    /// True if every event is emitted, regardless of aggregates and groups.
    pub every_event: bool,
}

impl SelectPlan {
    /// Returns the types of the output columns.
    pub fn types(&self) -> Vec<FieldType> {
        self.outputs().iter().map(|(_, expr)| expr.ty).collect()
    }

    /// Returns the output columns, without the hidden expressions.
    pub fn outputs(&self) -> &[(String, Expr)] {
        &self.items[..self.items.len() - self.hidden]
    }

    /// Removes `order by`, for emissions of a single row.
    pub(crate) fn without_order(&mut self) {
        self.items.truncate(self.outputs().len());
        (self.hidden, self.order_by) = (0, vec![]);
    }

    /// Returns whether only the last event of a chunk is emitted, or the last one of each group.
    fn last_only(&self) -> bool {
        !(self.every_event || self.group_by.is_empty() && self.aggregates.is_empty())
    }
}

/// Selector of a query: evaluates its select clause and owns the state of its aggregates.
pub struct Selector {
    plan: Arc<SelectPlan>,
    groups: GroupValues,
    /// State of each aggregate, by group.
    accumulators: Vec<GroupAccumulators>,
    /// Aggregate values after the event being processed: one row.
    values: Vec<Column>,
    /// True if the output names the group of each row, for the operators after the selector.
    names_groups: bool,
    /// True if all expressions and aggregates can be evaluated column by column.
    columnar: bool,
    referenced: ReferencedColumns,
    /// Column that contains the group ids if they were looked up before.
    group_column: Option<usize>,
    /// An earlier output batch, kept to reuse its memory.
    spare: Option<Batch>,
}

/// A candidate for the output of a chunk.
struct OutputRow {
    row: Vec<Value>,
    kind: EventKind,
    time: i64,
    group: u32,
}

impl Selector {
    /// Creates a selector in its initial state. `leaving`: whether events expire individually, not only by
    /// resets. `names_groups`: whether the output names the group of each row.
    ///
    /// `group_column` is the column of a window that contains the group ids: see [`Self::groups_of`]. `None`
    /// if they are not stored there.
    pub fn new(
        plan: Arc<SelectPlan>,
        leaving: bool,
        names_groups: bool,
        group_column: Option<usize>,
    ) -> Self {
        let values = plan.aggregates.iter().map(|a| Column::new(a.ty)).collect();
        let totals: Vec<GroupAccumulators> =
            plan.aggregates.iter().map(|a| GroupAccumulators::new(a, leaving)).collect();
        let columnar = plan.is_columnar() && totals.iter().all(GroupAccumulators::is_typed);
        let used = plan.referenced_columns();
        let groups = GroupValues::default();
        let mut selector = Self {
            plan,
            groups,
            accumulators: totals,
            values,
            names_groups,
            columnar,
            referenced: used,
            group_column,
            spare: None,
        };
        if selector.plan.group_by.is_empty() {
            selector.accumulators.iter_mut().for_each(|t| t.grow(1));
        }
        selector
    }

    /// Returns the compiled clause.
    pub fn plan(&self) -> &SelectPlan {
        &self.plan
    }

    /// Processes `input` and returns the output of each chunk as a chunk; chunks without output are omitted.
    ///
    /// Errors: the first failure of an expression; changes of the aggregates are not undone.
    pub fn process(&mut self, input: &Batch, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let mut failed = FailedChunks::new();
        let out = self.select(&SelectorInput::batch(input), host, &mut failed);
        match failed.into_iter().next() {
            None => Ok(Batch { input_chunks: vec![], ..out }),
            Some((_, failure)) => Err(failure),
        }
    }

    /// Processes one chunk and appends its output; appends nothing on an error.
    pub(crate) fn chunk<'r>(
        &mut self,
        rows: impl Iterator<Item = EventRow<'r>> + Clone,
        clock: i64,
        host: &dyn EvalContext,
        out: &mut Batch,
    ) -> Result<(), EvalError> {
        let plan = &self.plan;
        let arranged = !plan.order_by.is_empty() || plan.offset > 0 || plan.limit.is_some();
        let one = || rows.clone().filter(|row| plan.output_events.has(row.kind)).nth(1).is_none();
        if !arranged && (!plan.last_only() || one()) {
            return self.emit_chunk_in_place(rows, clock, host, out);
        }
        let candidates = self.candidates(rows, clock, host)?;
        for candidate in self.order_and_limit(candidates) {
            for (column, value) in out.columns.iter_mut().zip(candidate.row) {
                column.push(value);
            }
            out.times.push(candidate.time);
            out.kinds.push(candidate.kind);
            if self.names_groups && !self.plan.group_by.is_empty() {
                out.groups.push(candidate.group.to_string());
            }
        }
        out.end_chunk(clock);
        Ok(())
    }

    /// Processes one chunk whose wanted events are all emitted in order, and appends the output.
    fn emit_chunk_in_place<'r>(
        &mut self,
        rows: impl Iterator<Item = EventRow<'r>>,
        clock: i64,
        host: &dyn EvalContext,
        out: &mut Batch,
    ) -> Result<(), EvalError> {
        let before = out.len();
        for row in rows {
            if let Err(failure) = self.emit_row_in_place(row, clock, host, out) {
                out.truncate(before);
                return Err(failure);
            }
        }
        out.end_chunk(clock);
        Ok(())
    }

    fn emit_row_in_place(
        &mut self,
        EventRow { kind, time, columns, row }: EventRow<'_>,
        clock: i64,
        host: &dyn EvalContext,
        out: &mut Batch,
    ) -> Result<(), EvalError> {
        if kind == EventKind::Reset {
            self.accumulators.iter_mut().for_each(GroupAccumulators::reset);
            return Ok(());
        }
        let source = Some((columns, row));
        let frame = Frame { rows: &[source], time, now: clock, host };
        let group = self.group_id(columns, row);
        self.aggregate(group, kind, &frame)?;
        if !self.plan.output_events.has(kind) {
            return Ok(());
        }
        let place = out.len();
        let aggregates = Some((self.values.as_slice(), 0));
        let frame = Frame { rows: &[source, aggregates], time, now: clock, host };
        for (column, (_, item)) in out.columns.iter_mut().zip(&self.plan.items) {
            item.eval_into(&frame, column)?;
        }
        if let Some(having) = &self.plan.having {
            let output = Some((out.columns.as_slice(), place));
            let frame = Frame { rows: &[source, aggregates, output], time, now: clock, host };
            if !having.is_true(&frame)? {
                out.truncate(place);
                return Ok(());
            }
        }
        out.times.push(time);
        out.kinds.push(kind);
        if self.names_groups && !self.plan.group_by.is_empty() {
            out.groups.push(group.to_string());
        }
        Ok(())
    }

    fn candidates<'r>(
        &mut self,
        rows: impl Iterator<Item = EventRow<'r>>,
        clock: i64,
        host: &dyn EvalContext,
    ) -> Result<Vec<OutputRow>, EvalError> {
        let last_only = self.plan.last_only();
        let mut found: Vec<OutputRow> = Vec::new();
        // index of each group's candidate in `found`
        let mut places: HashMap<u32, usize> = HashMap::new();
        for EventRow { kind, time, columns, row } in rows {
            if kind == EventKind::Reset {
                self.accumulators.iter_mut().for_each(GroupAccumulators::reset);
                continue;
            }
            let source = Some((columns, row));
            let frame = Frame { rows: &[source], time, now: clock, host };
            let group = self.group_id(columns, row);
            self.aggregate(group, kind, &frame)?;
            if !self.plan.output_events.has(kind) {
                continue;
            }
            let aggregates = Some((self.values.as_slice(), 0));
            let frame = Frame { rows: &[source, aggregates], time, now: clock, host };
            let values =
                self.plan.items.iter().map(|(_, x)| x.eval(&frame)).collect::<Result<Vec<_>, _>>()?;
            if let Some(having) = &self.plan.having {
                let output = one_row(&self.plan.items, &values);
                let frame = Frame { rows: &[source, aggregates, Some((&output, 0))], time, now: clock, host };
                if !having.is_true(&frame)? {
                    continue;
                }
            }
            let candidate = OutputRow { row: values, kind, time, group };
            if !last_only {
                found.push(candidate);
            } else if let Some(place) = places.get(&candidate.group) {
                found[*place] = candidate;
            } else {
                places.insert(candidate.group, found.len());
                found.push(candidate);
            }
        }
        Ok(found)
    }

    /// Returns the id of the group of the event at `row` of these columns.
    fn group_id(&mut self, columns: &[Column], row: usize) -> u32 {
        if self.plan.group_by.is_empty() {
            return 0;
        }
        if let Some(column) = self.group_column
            && let Data::Int(ids) = columns[column].data()
        {
            return ids[row].cast_unsigned();
        }
        self.find_group_id(columns, row)
    }

    /// Computes the group id from the `group by` values.
    fn find_group_id(&mut self, columns: &[Column], row: usize) -> u32 {
        let Self { plan, groups, .. } = self;
        let column = |x: &Expr| match x.node {
            Node::Column { column, .. } => columns.get(column),
            _ => None,
        };
        let by = plan.group_by.as_slice();
        let alone = if let [x] = by { column(x) } else { None };
        let group = match alone.map(|of| (of, of.data())) {
            Some((of, Data::Str(texts))) => groups.id_of_string(of, texts, row),
            _ => {
                let values = by.iter().map(|x| column(x).map_or(Value::Null, |c| c.get(row)));
                groups.id_of_values(values, by.len() == 1)
            }
        };
        self.grow();
        group
    }

    fn grow(&mut self) {
        let groups = self.groups.len();
        self.accumulators.iter_mut().for_each(|t| t.grow(groups));
    }

    /// Updates the aggregates of the event's group and reads their values.
    fn aggregate(&mut self, group: u32, kind: EventKind, frame: &Frame<'_>) -> Result<(), EvalError> {
        let calls = self.accumulators.iter_mut().zip(&self.plan.aggregates).zip(&mut self.values);
        for ((total, call), value) in calls {
            let args =
                call.args.iter().map(|a| a.eval(frame)).collect::<Result<SmallVec<[Value; 2]>, _>>()?;
            total.update(group as usize, kind, &args)?;
            value.truncate(0);
            value.push(total.value_after(group as usize, kind, args.first()));
        }
        Ok(())
    }

    /// Applies order, offset and limit to one emission.
    fn order_and_limit(&self, mut found: Vec<OutputRow>) -> Vec<OutputRow> {
        let plan = &self.plan;
        if !plan.order_by.is_empty() {
            // runs of current and of expired events are sorted separately
            for run in found.chunk_by_mut(|a, b| a.kind == b.kind) {
                run.sort_by(|a, b| order(&plan.order_by, |c| a.row[c].clone(), |c| b.row[c].clone()));
            }
        }
        if plan.offset > 0 {
            found.drain(..plan.offset.min(found.len()));
        }
        found.truncate(plan.limit.unwrap_or(usize::MAX));
        found
    }

    /// Lets the next [`Self::save`] share groups and aggregates, if there are at least `groups_min` groups.
    pub(crate) fn share(&mut self, groups_min: usize) {
        if self.groups.len() >= groups_min {
            self.groups.share();
            self.accumulators.iter_mut().for_each(GroupAccumulators::share);
        }
    }

    /// Saves the groups and the states of the aggregates by group.
    ///
    /// Errors: writing failed.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), snapshot::Error> {
        let count = if self.plan.group_by.is_empty() { 1 } else { self.groups.len() };
        if out.is_freezing()
            && self.groups.keys().is_shared()
            && let Some(totals) =
                self.accumulators.iter().map(GroupAccumulators::frozen).collect::<Option<Vec<_>>>()
        {
            let groups = self.groups.keys().clone();
            return out.defer(move |out| {
                out.json(&SavedGroups { groups: &groups, totals: SavedTotals { totals: &totals, count } })
            });
        }
        out.json(&SavedGroups {
            groups: self.groups.keys(),
            totals: SavedTotals { totals: &self.accumulators, count },
        })
    }

    /// Restores saved groups and states.
    pub fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError> {
        let wrong = || EvalError::state("the saved selector state does not match this query");
        self.groups = GroupValues::restored(&state["groups"])?;
        let groups = if self.plan.group_by.is_empty() { 1 } else { self.groups.len() };
        let totals =
            state["totals"].as_array().filter(|t| t.len() == self.accumulators.len()).ok_or_else(wrong)?;
        for (total, saved) in self.accumulators.iter_mut().zip(totals) {
            total.grow(groups);
            let saved = saved.as_array().filter(|s| s.len() == groups).ok_or_else(wrong)?;
            for (group, saved) in saved.iter().enumerate() {
                total.restore(group, saved)?;
            }
        }
        Ok(())
    }
}

/// State of a selector as it is saved.
#[derive(Serialize)]
struct SavedGroups<'a> {
    groups: &'a GroupKeys,
    totals: SavedTotals<'a>,
}

/// States of the aggregates, each of `count` groups.
struct SavedTotals<'a> {
    totals: &'a [GroupAccumulators],
    count: usize,
}

impl Serialize for SavedTotals<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        /// States of one aggregate.
        struct Total<'a>(&'a GroupAccumulators, usize);

        impl Serialize for Total<'_> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let Self(total, count) = self;
                to.collect_seq((0..*count).map(|group| total.save(group)))
            }
        }

        to.collect_seq(self.totals.iter().map(|total| Total(total, self.count)))
    }
}

fn one_row(items: &[(String, Expr)], values: &[Value]) -> Vec<Column> {
    let columns = items.iter().zip(values).map(|((_, expr), value)| {
        let mut column = Column::new(expr.ty);
        column.push(value.clone());
        column
    });
    columns.collect()
}

/// Compares two outputs by the columns `by`; `a` and `b` return the values of a column. Nulls are last,
/// whether ascending or descending.
fn order(by: &[(usize, bool)], a: impl Fn(usize) -> Value, b: impl Fn(usize) -> Value) -> Ordering {
    for (column, down) in by {
        let (x, y) = (a(*column), b(*column));
        let ordering = match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if *down => compare(&y, &x),
            (false, false) => compare(&x, &y),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

/// Compares strings by UTF-16 code units, false before true, numbers by value.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Str(a), Value::Str(b)) => a.encode_utf16().cmp(b.encode_utf16()),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        _ => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => value::order(a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN)),
        },
    }
}
