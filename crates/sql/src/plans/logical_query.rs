//! A query whose text is understood.

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;

use crate::catalog::QuerySnapshots;
use crate::events::OpenFiles;

/// A query whose text is understood, before it is optimized.
pub(crate) struct LogicalQuery {
    pub state: SessionState,
    pub plan: LogicalPlan,
    pub files: Arc<OpenFiles>,
    pub snapshots: Arc<QuerySnapshots>,
}
