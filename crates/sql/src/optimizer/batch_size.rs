//! Batch size of a query, in rows.
//!
//! A selected constant becomes a column: one value per row of a batch. 8,192 rows of a 1 MiB string would
//! take 8 GiB, so queries with large constants or thousands of columns use smaller batches.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Bytes up to which a constant is ignored in the estimate.
const SMALL: usize = 256;
/// Estimated bytes per row of a numeric column, including its share of intermediate results.
const COLUMN: usize = 16;

/// Returns the number of rows per batch, from 1 to `usual`, with which a batch of the widest operator of
/// `plan` takes about `bytes` at most.
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
                    // the constants of an IN list are compared one at a time and never become columns
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
