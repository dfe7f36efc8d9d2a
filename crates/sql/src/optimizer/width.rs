//! Width of the rows that a plan reads, and what follows from it: rows per batch, and memory for readers of files.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::docs::DocsTable;
use crate::events::{EventsTable, RowWidth, TabletWidths};

/// Smallest and largest bytes of text that a batch should have.
const BATCH_BYTES: std::ops::RangeInclusive<usize> = 256 << 10..=8 << 20;
/// Part of `sql.memory_bytes` that a batch may take.
const BATCHES: usize = 128;

/// Returns the bytes that a batch should have at most, in a session with so much memory.
pub(crate) fn batch_bytes(memory_bytes: usize) -> usize {
    (memory_bytes / BATCHES).clamp(*BATCH_BYTES.start(), *BATCH_BYTES.end())
}

/// A scan of a plan.
type Scan = (Arc<dyn TableProvider>, Option<Vec<usize>>, Vec<Expr>);

/// Measures the rows of all tables that an optimized plan reads.
pub(crate) async fn of_plan(
    plan: &LogicalPlan,
    state: &SessionState,
    known: &TabletWidths,
) -> Result<RowWidth> {
    let mut scans: Vec<Scan> = vec![];
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            scans.push((provider, scan.projection.clone(), unnormalize_cols(scan.filters.clone())));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut width = RowWidth::default();
    for (provider, projection, filters) in scans {
        if let Some(events) = provider.downcast_ref::<EventsTable>() {
            width = width.max(events.measure(state, projection.as_ref(), &filters, known).await?);
        } else if let Some(documents) = provider.downcast_ref::<DocsTable>() {
            width = width.max(RowWidth { row_bytes: documents.row_bytes(), page_bytes: 0 });
        }
    }
    Ok(width)
}

/// Returns how many rows of this width a batch may have.
pub(crate) fn rows_per_batch(width: RowWidth, usual: usize, batch_bytes: usize) -> usize {
    batch_bytes.checked_div(width.row_bytes).map_or(usual, |rows| rows.clamp(1, usual))
}
