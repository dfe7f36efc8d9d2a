//! Evaluation context for conditions that a report evaluates again.

use crate::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, EvalContext, Expr, Frame, StoreRef, TableSearch};

/// Read-only evaluation context. Delegates to the app except for random values: drawing one advances the
/// generator, and a report must not change later output.
pub(crate) struct ReadOnlyContext<'a>(pub &'a dyn EvalContext);

impl EvalContext for ReadOnlyContext<'_> {
    fn any_row(
        &self,
        table: usize,
        slot: usize,
        condition: &Expr,
        frame: &Frame<'_>,
    ) -> Result<bool, EvalError> {
        self.0.any_row(table, slot, condition, frame)
    }

    fn find(
        &self,
        table: usize,
        search: &TableSearch,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        self.0.find(table, search, frame, visit)
    }

    fn search(
        &self,
        place: StoreRef,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        self.0.search(place, slot, condition, frame, visit)
    }

    fn buckets(
        &self,
        aggregation: usize,
        read: &BucketQuery,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        self.0.buckets(aggregation, read, slot, condition, frame, visit)
    }
}
