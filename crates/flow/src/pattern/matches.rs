//! Completed matches.

use tidemill_types::FieldType;

use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Node};
use crate::select::{self, Selector};

/// Completed matches, in order of completion, in groups that are emitted as one chunk each.
#[derive(Debug, Clone, Default)]
pub struct PatternMatches {
    /// The columns that the selection reads, one row per match, without chunks.
    pub batch: Batch,
    /// End row of each group.
    pub group_ends: Vec<u32>,
    /// Clock of each group.
    pub group_clocks: Vec<i64>,
}

impl PatternMatches {
    /// Closes the groups of the matches added since the last call, which one event or timer completed: one
    /// group if `together`, otherwise one per match.
    pub(super) fn end_event(&mut self, clock: i64, together: bool) {
        let (before, end) = (self.group_ends.last().copied().unwrap_or(0), self.batch.len() as u32);
        self.group_ends.extend(group_ends(before, end, together));
        self.group_clocks.resize(self.group_ends.len(), clock);
    }

    /// Iterates over the groups: their rows and clock.
    pub fn groups(&self) -> impl Iterator<Item = (std::ops::Range<usize>, i64)> + '_ {
        let starts = std::iter::once(0).chain(self.group_ends.iter().map(|end| *end as usize));
        starts
            .zip(&self.group_ends)
            .zip(&self.group_clocks)
            .map(|((start, end), clock)| (start..*end as usize, *clock))
    }

    /// Applies a selection. The selector processes each match as a chunk of its own; the output of a group is
    /// one chunk.
    ///
    /// Errors: those of the selection.
    pub fn select(mut self, selector: &mut Selector, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let plan = selector.plan();
        // every match yields one row
        let all =
            plan.having.is_none() && plan.offset == 0 && plan.limit != Some(0) && plan.output_events.current;
        if all && is_projection(plan) {
            let columns = std::mem::take(&mut self.batch.columns);
            let columns = project(plan, columns);
            return Ok(Batch {
                columns,
                chunk_ends: self.group_ends,
                chunk_clocks: self.group_clocks,
                ..self.batch
            });
        }
        if all {
            self.batch.chunk_ends = (1..=self.batch.len() as u32).collect();
            for (end, clock) in self.group_ends.iter().zip(&self.group_clocks) {
                self.batch.chunk_clocks.resize(*end as usize, *clock);
            }
            let out = selector.process(&self.batch, host)?;
            return Ok(Batch { chunk_ends: self.group_ends, chunk_clocks: self.group_clocks, ..out });
        }
        let mut out = Batch::new(plan.types());
        for (rows, clock) in self.groups() {
            let mut one = Batch::new(self.batch.columns.iter().map(Column::ty));
            for row in rows {
                one.push_row(&self.batch, row, self.batch.kinds[row], self.batch.times[row]);
                one.end_chunk(clock);
            }
            let selected = selector.process(&one, host)?;
            (0..selected.len())
                .for_each(|i| out.push_row(&selected, i, selected.kinds[i], selected.times[i]));
            out.end_chunk(clock);
        }
        Ok(out)
    }
}

/// Returns the ends of the groups for the matches from `before` to `end`: one group if `together`, else one
/// per match.
pub(super) fn group_ends(before: u32, end: u32, together: bool) -> impl Iterator<Item = u32> {
    let first = if together { end.max(before + 1) } else { before + 1 };
    first..=end
}

/// Returns whether the selection only reorders columns.
fn is_projection(plan: &select::SelectPlan) -> bool {
    let column = |node: &Node| matches!(node, Node::Column { slot: crate::expr::INPUT, .. });
    plan.aggregates.is_empty() && plan.group_by.is_empty() && plan.items.iter().all(|(_, x)| column(&x.node))
}

/// Returns the columns in the order of the items. A column is copied only if a later item needs it, too.
fn project(plan: &select::SelectPlan, mut columns: Vec<Column>) -> Vec<Column> {
    let of = |i: usize| match plan.items[i].1.node {
        Node::Column { column, .. } => column,
        _ => i,
    };
    let items = plan.items.len();
    if items == columns.len() && (0..items).all(|i| of(i) == i) {
        return columns;
    }
    let one = |i: usize| match (i + 1..items).any(|later| of(later) == of(i)) {
        true => columns[of(i)].clone(),
        false => std::mem::replace(&mut columns[of(i)], Column::new(FieldType::Bool)),
    };
    (0..items).map(one).collect()
}
