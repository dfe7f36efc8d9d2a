//! Input statistics of a query: counts, and sampled events for reports.

use super::{FailedConditionReport, InputText, NamedValue};
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::columns::row::Row;
use crate::expr::{EvalContext, Expr, Frame, Node, conjuncts};
use crate::processor::Handler;
use tidemill_types::FieldType;

/// Statistics of the input and output of a query.
#[derive(Default)]
pub(crate) struct InputStats {
    pub arrived: u64,
    pub passed: u64,
    pub emitted: u64,
    /// Clock of the last output.
    pub emitted_at: i64,
    /// Created with the first sampled event. In a partition, keys share the samples of the partition.
    pub samples: Option<Box<EventSamples>>,
}

/// Sampled events of a query, as far as conditions read them.
#[derive(Default)]
pub(crate) struct EventSamples {
    /// Current key in a partition: its index, and the number of keys created before it.
    pub key: (u32, u64),
    /// The last event that did not pass.
    pub rejected: SampledEvent,
    /// For each side of a join, the number of events that arrived, and the last one.
    pub sides: [(u64, SampledEvent); 2],
}

/// A sampled event.
#[derive(Default)]
pub(crate) struct SampledEvent {
    /// Columns that are stored; the others are empty.
    used_columns: Vec<usize>,
    /// One row.
    pub columns: Vec<Column>,
    pub time: i64,
    pub clock: i64,
    /// Key as in [`EventSamples::key`].
    pub key: (u32, u64),
}

impl SampledEvent {
    /// Returns whether an event was sampled.
    pub fn is_present(&self) -> bool {
        !self.columns.is_empty()
    }

    pub(crate) fn store(
        &mut self,
        input: &Batch,
        row: usize,
        key: (u32, u64),
        looks_at: impl FnOnce() -> Vec<usize>,
    ) {
        if self.columns.len() != input.columns.len() {
            self.columns = input.columns.iter().map(|c| Column::new(c.ty())).collect();
            self.used_columns = looks_at();
        }
        for column in &self.used_columns {
            if let (Some(to), Some(from)) = (self.columns.get_mut(*column), input.columns.get(*column)) {
                to.truncate(0);
                to.push_from(from, row);
            }
        }
        self.time = input.times[row];
        let chunk = input.chunk_ends.partition_point(|end| *end as usize <= row);
        self.clock = input.chunk_clocks.get(chunk).copied().unwrap_or(self.time);
        self.key = key;
    }
}

impl SampledEvent {
    /// Stores a single event as [`Self::store`] does; `types` are those of its columns.
    #[inline]
    pub(crate) fn store_row(
        &mut self,
        row: Row<'_>,
        clock: i64,
        types: &[FieldType],
        key: (u32, u64),
        looks_at: impl FnOnce() -> Vec<usize>,
    ) {
        if self.columns.len() != row.values.len() {
            self.columns = types.iter().map(|ty| Column::new(*ty)).collect();
            self.used_columns = looks_at();
        }
        for column in &self.used_columns {
            if let (Some(to), Some(from)) = (self.columns.get_mut(*column), row.values.get(*column)) {
                to.truncate(0);
                to.push_ref(from);
            }
        }
        (self.time, self.clock, self.key) = (row.time, clock, key);
    }
}

/// Returns the columns of slot `slot` that these expressions read.
pub(crate) fn referenced_columns<'e>(all: impl Iterator<Item = &'e Expr>, slot: usize) -> Vec<usize> {
    let mut columns = Vec::new();
    for expr in all {
        expr.walk(&mut |x| match x.node {
            Node::Column { slot: s, column } if s == slot && !columns.contains(&column) => {
                columns.push(column)
            }
            _ => {}
        });
    }
    columns
}

/// Returns the filters before any other handler, which can be evaluated again on a sampled event.
pub(crate) fn leading_filters(handlers: &[Handler]) -> impl Iterator<Item = &Expr> {
    handlers.iter().map_while(|handler| match handler {
        Handler::Filter(condition) => Some(condition),
        Handler::Function(..) | Handler::Stateful(_) => None,
    })
}

/// Returns the first condition of the leading filters that an event does not satisfy.
pub(crate) fn first_failed_condition(
    kept: &SampledEvent,
    handlers: &[Handler],
    written: &InputText,
    host: &dyn EvalContext,
) -> Option<FailedConditionReport> {
    if !kept.is_present() {
        return None;
    }
    let rows = [Some((kept.columns.as_slice(), 0))];
    let frame = Frame { rows: &rows, time: kept.time, now: kept.clock, host };
    for (number, filter) in leading_filters(handlers).enumerate() {
        let mut all = Vec::new();
        conjuncts(filter, &mut all);
        let Some(place) = all.iter().position(|condition| !matches!(condition.is_true(&frame), Ok(true)))
        else {
            continue;
        };
        let text = written.filters.get(number).and_then(|texts| texts.get(place)).cloned();
        return Some(FailedConditionReport {
            time: kept.time,
            key: None,
            condition: text.unwrap_or_else(|| format!("filter {}", number + 1)),
            values: named_values(all[place], 0, &written.names, "", &frame),
        });
    }
    None
}

/// Returns the values that an expression reads of the row in slot `slot`.
pub(crate) fn named_values(
    expr: &Expr,
    slot: usize,
    names: &[String],
    prefix: &str,
    frame: &Frame<'_>,
) -> Vec<NamedValue> {
    let mut found: Vec<NamedValue> = Vec::new();
    expr.walk(&mut |x| {
        let Node::Column { slot: s, column } = x.node else { return };
        let Some(name) = names.get(column).filter(|_| s == slot) else { return };
        let name = format!("{prefix}{name}");
        if !found.iter().any(|shown| shown.name == name) {
            found.push(NamedValue::new(name, &x.eval(frame).unwrap_or_default()));
        }
    });
    found
}
