//! How many rows the batches of a query have.
//!
//! A constant becomes a column as soon as it is selected: one value for each row of a batch. 8,192 rows of a text of 1
//! MiB would be 8 GiB, so queries with large constants, or with thousands of columns, work in smaller batches.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Constants below this are not worth counting.
const SMALL: usize = 256;
/// What a column of numbers takes per row, with its share of what is computed from it.
const COLUMN: usize = 16;

/// Rows per batch, such that a batch of the widest operator of `plan` takes about `bytes` at most.
pub(crate) fn rows_per_batch(plan: &LogicalPlan, usual: usize, bytes: usize) -> Result<usize> {
    let mut constants = 0_usize;
    let mut columns = 0_usize;
    plan.apply_with_subqueries(|plan| {
        columns = columns.max(plan.schema().fields().len());
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Literal(value, _) if value.size() > SMALL => {
                        constants = constants.saturating_add(value.size());
                    }
                    // the values of a list are compared one by one
                    Expr::InList(_) => return Ok(TreeNodeRecursion::Jump),
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let row = constants.saturating_add(columns.saturating_mul(COLUMN));
    Ok(bytes.checked_div(row).map_or(usual, |rows| rows.clamp(1, usual)))
}
