//! Reports why a pattern does not match: the partial matches at its steps, and the condition that the last
//! event did not satisfy.

use tidemill_types::FieldType;

use super::conditions::{EVENT, MATCH};
use super::nfa::NfaMatcher;
use super::partial_match::PartialMatch;
use super::plan::{EventSelector, MatchReference, PatternPlan, ReferenceKind};
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::columns::row::Row;
use crate::columns::value::Value;
use crate::expr::{EvalContext, Expr, Frame, Node, conjuncts};

/// Status of a step.
#[derive(Debug, Clone)]
pub struct StepStatus {
    /// Reference of the step, such as `e1`, or the name of its stream.
    pub step: String,
    /// Number of partial matches that wait at the step.
    pub waiting: usize,
    /// Time at which a pending absence is complete, milliseconds.
    pub due: Option<i64>,
    /// The partial match that arrived last.
    pub newest: Option<PartialMatchStatus>,
    /// Why the last event offered to the step did not advance the newest match; in a sequence, why it broke
    /// the match. `None` if the event satisfied the conditions or no match was waiting.
    pub failed_condition: Option<FailedCondition>,
}

/// Status of a partial match.
#[derive(Debug, Clone)]
pub struct PartialMatchStatus {
    /// Time of its last event, milliseconds; `None` before the first event.
    pub time: Option<i64>,
    /// Number of events collected by the step at which the match waits.
    pub collected: usize,
    /// Values stored of its events, such as `e1.price`, by name.
    pub values: Vec<(String, Value)>,
}

/// A condition that an event did not satisfy.
#[derive(Debug, Clone)]
pub struct FailedCondition {
    /// Time of the event, milliseconds.
    pub time: i64,
    /// Source text of the condition.
    pub condition: String,
    /// Values that the condition reads, by name.
    pub values: Vec<(String, Value)>,
}

/// The event that was last offered to a step.
#[derive(Default)]
pub(super) struct LastEvent {
    /// One row; columns that no condition reads are empty.
    columns: Vec<Column>,
    time: i64,
    now: i64,
}

impl LastEvent {
    /// Copies the given columns of row `row`.
    pub fn record(&mut self, batch: &Batch, row: usize, now: i64, columns: impl Iterator<Item = usize>) {
        if self.columns.len() != batch.columns.len() {
            self.columns = batch.columns.iter().map(|c| Column::new(c.ty())).collect();
        }
        for column in columns {
            if let (Some(to), Some(from)) = (self.columns.get_mut(column), batch.columns.get(column)) {
                to.truncate(0);
                to.push_from(from, row);
            }
        }
        (self.time, self.now) = (batch.times[row], now);
    }

    /// Copies the given columns of a single event as [`Self::record`] does; `types` are those of all columns.
    #[inline]
    pub fn record_row(&mut self, row: Row<'_>, now: i64, types: &[FieldType], columns: &[usize]) {
        if self.columns.len() != row.values.len() {
            self.columns = types.iter().map(|ty| Column::new(*ty)).collect();
        }
        for column in columns {
            if let (Some(to), Some(from)) = (self.columns.get_mut(*column), row.values.get(*column)) {
                to.truncate(0);
                to.push_ref(from);
            }
        }
        (self.time, self.now) = (row.time, now);
    }

    /// Returns the first condition of step `i` that this event does not satisfy. `of_match` holds the step's
    /// references, one row.
    pub fn first_failed_condition(
        &self,
        plan: &PatternPlan,
        i: usize,
        of_match: &[Column],
        host: &dyn EvalContext,
    ) -> Option<FailedCondition> {
        if self.columns.is_empty() {
            return None;
        }
        let step = &plan.steps[i];
        let mut all = Vec::new();
        step.filters.iter().for_each(|filter| conjuncts(filter, &mut all));
        let rows = [Some((self.columns.as_slice(), 0)), Some((of_match, 0))];
        let frame = Frame { rows: &rows, time: self.time, now: self.now, host };
        let place = all.iter().position(|condition| !matches!(condition.is_true(&frame), Ok(true)))?;
        let written = step.filter_texts.get(place).cloned();
        Some(FailedCondition {
            time: self.time,
            condition: written.unwrap_or_else(|| format!("condition {} of the step", place + 1)),
            values: referenced_values(plan, i, all[place], &frame),
        })
    }
}

fn referenced_values(
    plan: &PatternPlan,
    i: usize,
    condition: &Expr,
    frame: &Frame<'_>,
) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    condition.walk(&mut |expr| {
        let name = match expr.node {
            Node::Column { slot: EVENT, column } => attribute(plan, i, column),
            Node::Column { slot: MATCH, column } => {
                plan.steps[i].references.get(column).map_or_else(String::new, |r| name_of(plan, r))
            }
            _ => return,
        };
        if !found.iter().any(|(known, _)| *known == name) {
            found.push((name, expr.eval(frame).unwrap_or_default()));
        }
    });
    found
}

fn attribute(plan: &PatternPlan, step: usize, column: usize) -> String {
    let name = plan.names.get(step).and_then(|names| names.attributes.get(column));
    name.map_or_else(|| format!("attribute {column}"), |(name, _)| name.clone())
}

pub(super) fn step_name(plan: &PatternPlan, step: usize) -> String {
    plan.names.get(step).map_or_else(|| format!("step {}", step + 1), |names| names.name().to_owned())
}

/// Formats a reference as it is written: `e1.price`, `e1[last].price`.
pub(super) fn name_of(plan: &PatternPlan, reference: &MatchReference) -> String {
    let step = step_name(plan, reference.step);
    let which = match reference.selector {
        EventSelector::Newest | EventSelector::All => String::new(),
        EventSelector::First(n) => format!("[{n}]"),
        EventSelector::Last(0) => "[last]".into(),
        EventSelector::Last(n) => format!("[last - {n}]"),
    };
    match reference.kind {
        ReferenceKind::Presence => format!("{step}{which}"),
        ReferenceKind::Time => format!("eventTimestamp({step}{which})"),
        ReferenceKind::Attribute(column) => {
            format!("{step}{which}.{}", attribute(plan, reference.step, column))
        }
    }
}

impl NfaMatcher {
    pub(super) fn inspect(&self, host: &dyn EvalContext) -> Vec<StepStatus> {
        (0..self.steps.len()).map(|i| self.inspect_step(i, host)).collect()
    }

    fn inspect_step(&self, i: usize, host: &dyn EvalContext) -> StepStatus {
        let (plan, step) = (&self.plan, &self.steps[i]);
        let newest = step
            .new_matches
            .back()
            .or(step.waiting.back())
            .map(|record| self.partial_match(i, &record.lock()));
        // matches that the last event was offered to and did not advance; they are older than the event
        let offered = step.broken_match.as_ref().or(step.waiting.back());
        let refused = offered.and_then(|record| {
            let record = record.lock();
            let columns = plan.steps[i].references.iter().map(|reference| {
                let mut column = Column::new(reference.ty);
                column.push(record.read(reference));
                column
            });
            step.last_event.first_failed_condition(plan, i, &columns.collect::<Vec<_>>(), host)
        });
        StepStatus {
            step: step_name(plan, i),
            waiting: step.new_matches.len() + step.waiting.len(),
            due: step.timers.next_due(),
            newest,
            failed_condition: refused,
        }
    }

    fn partial_match(&self, i: usize, record: &PartialMatch) -> PartialMatchStatus {
        let mut values: Vec<(String, Value)> = Vec::new();
        let read = self.plan.steps.iter().flat_map(|step| &step.references);
        for reference in read.chain(&self.plan.columns) {
            let name = name_of(&self.plan, reference);
            let there = !record.slots[reference.step].is_empty();
            if there && !values.iter().any(|(known, _)| *known == name) {
                values.push((name, record.read(reference)));
            }
        }
        let collected = record.slots[i].len();
        PartialMatchStatus { time: (record.time != -1).then_some(record.time), collected, values }
    }
}
