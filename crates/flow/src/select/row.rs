//! The select clause over single rows, without columns.

use bumpalo::Bump;
use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::accumulators::GroupAccumulators;
use super::{SelectPlan, Selector};
use crate::columns::batch::EventKind;
use crate::columns::column::{Column, Data};
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{Expr, INPUT, Node, RowExpr, RowFrame, RowSource};

/// A select clause compiled for single rows.
pub(crate) struct RowSelect {
    items: Vec<RowExpr>,
    having: Option<RowExpr>,
    /// Arguments of each aggregate.
    args: Vec<SmallVec<[RowExpr; 1]>>,
    /// Input columns that identify the group.
    group_by: Vec<usize>,
}

impl RowSelect {
    /// Compiles a clause. `reads_state`: whether it reads rows that the query has stored. Errors: the reason why the
    /// clause needs batches.
    pub(crate) fn of(plan: &SelectPlan, reads_state: bool) -> Result<Self, &'static str> {
        if !plan.order_by.is_empty() || plan.offset > 0 || plan.limit.is_some() || plan.hidden > 0 {
            return Err("it sorts or limits its output");
        }
        let calls = "its selection calls functions or reads tables";
        let is_object = |expr: &Expr| {
            let mut reads = false;
            expr.walk(&mut |x| reads |= x.ty == FieldType::Object);
            reads
        };
        let items = plan.items.iter().map(|(_, expr)| expr);
        let args = plan.aggregates.iter().flat_map(|call| &call.args);
        if plan.aggregates.iter().any(|call| call.ty == FieldType::Object)
            || reads_state && items.chain(args).chain(&plan.having).any(is_object)
        {
            return Err("it stores or aggregates objects");
        }
        let column = |expr: &Expr| match expr.node {
            Node::Column { slot: INPUT, column } => Some(column),
            _ => None,
        };
        let arguments = |exprs: &Vec<Expr>| exprs.iter().map(RowExpr::of).collect::<Option<_>>();
        let having = plan.having.as_ref().map(|having| RowExpr::of(having).ok_or(calls)).transpose()?;
        Ok(Self {
            items: plan.items.iter().map(|(_, x)| RowExpr::of(x)).collect::<Option<_>>().ok_or(calls)?,
            having,
            args: plan.aggregates.iter().map(|a| arguments(&a.args)).collect::<Option<_>>().ok_or(calls)?,
            group_by: plan.group_by.iter().map(column).collect::<Option<_>>().ok_or(calls)?,
        })
    }

    /// Returns whether the clause neither aggregates, nor groups, nor drops rows.
    pub(crate) fn is_projection(&self) -> bool {
        self.args.is_empty() && self.group_by.is_empty() && self.having.is_none()
    }

    /// Returns the input column that an output column is a copy of; `None` if it is computed.
    pub(crate) fn input_of(&self, output: usize) -> Option<usize> {
        match self.items.get(output) {
            Some(RowExpr::Input(column)) => Some(*column),
            _ => None,
        }
    }

    /// Returns the output row of an input row; only for a [projection](Self::is_projection).
    #[inline]
    pub(crate) fn project<'a>(&'a self, input: &impl RowSource<'a>, arena: &'a Bump) -> &'a [ValueRef<'a>] {
        let frame = RowFrame::of_input(input);
        arena.alloc_slice_fill_with(self.items.len(), |i| self.items[i].value(&frame))
    }
}

impl Selector {
    /// Returns the group id of an event that is about to enter a window which stores group ids.
    #[inline]
    pub(crate) fn stored_group_of<'a>(
        &mut self,
        select: &RowSelect,
        input: &impl RowSource<'a>,
    ) -> Option<u32> {
        self.group_column?;
        Some(self.find_group_of(select, input))
    }

    /// Returns the group id that a window has stored with a row; `None` if it stores none.
    #[inline]
    pub(crate) fn stored_group_in(&self, columns: &[Column], row: usize) -> Option<u32> {
        match columns[self.group_column?].data() {
            Data::Int(ids) => Some(ids[row].cast_unsigned()),
            _ => None,
        }
    }

    /// Returns the group id of an event that no window has stored.
    #[inline]
    pub(crate) fn group_of<'a>(&mut self, select: &RowSelect, input: &impl RowSource<'a>) -> u32 {
        // without aggregates no state depends on the group
        if select.group_by.is_empty() || self.accumulators.is_empty() {
            return 0;
        }
        self.find_group_of(select, input)
    }

    #[inline]
    fn find_group_of<'a>(&mut self, select: &RowSelect, input: &impl RowSource<'a>) -> u32 {
        let known = self.groups.len();
        let group = match select.group_by[..] {
            [column] if let ValueRef::Str(text) = input.get(column) => self.groups.id_of_text(text),
            _ => {
                let values = select.group_by.iter().map(|column| input.get(*column));
                self.groups.id_of_refs(values, select.group_by.len() == 1)
            }
        };
        if self.groups.len() != known {
            self.grow();
        }
        group
    }

    /// Resets all aggregates.
    pub(crate) fn reset_aggregates(&mut self) {
        self.accumulators.iter_mut().for_each(GroupAccumulators::reset);
    }

    /// Adds an event to the aggregates of its group, or retracts it, without reading their values.
    ///
    /// Errors: an aggregate fails; those before it have changed.
    #[inline]
    pub(crate) fn accumulate_row<'a>(
        &mut self,
        select: &'a RowSelect,
        group: u32,
        kind: EventKind,
        input: &impl RowSource<'a>,
    ) -> Result<(), EvalError> {
        let frame = RowFrame::of_input(input);
        for (total, args) in self.accumulators.iter_mut().zip(&select.args) {
            total.update_by_row(group as usize, kind, args, &frame)?;
        }
        Ok(())
    }

    /// Processes a current event and returns its output row; `None` if `having` rejects it or the query emits no
    /// current events.
    ///
    /// Errors: an aggregate fails; those before it have changed.
    #[inline]
    pub(crate) fn select_row<'a>(
        &mut self,
        select: &'a RowSelect,
        group: u32,
        input: &impl RowSource<'a>,
        arena: &'a Bump,
    ) -> Result<Option<&'a [ValueRef<'a>]>, EvalError> {
        if select.args.is_empty() && select.having.is_none() && self.plan.output_events.current {
            return Ok(Some(select.project(input, arena)));
        }
        self.accumulate_row(select, group, EventKind::Current, input)?;
        if !self.plan.output_events.current {
            return Ok(None);
        }
        let frame = RowFrame::of_input(input);
        let totals = &self.accumulators;
        let aggregates = &*arena.alloc_slice_fill_with(totals.len(), |i| {
            let is_null = || select.args[i].first().is_none_or(|arg| arg.value(&frame).is_null());
            totals[i].value_after_row(group as usize, is_null, arena)
        });
        let frame = RowFrame { aggregates, ..frame };
        let output = &*arena.alloc_slice_fill_with(select.items.len(), |i| select.items[i].value(&frame));
        let passes = |having: &'a RowExpr| having.is_true(&RowFrame { output, ..frame });
        Ok(select.having.as_ref().is_none_or(passes).then_some(output))
    }
}
