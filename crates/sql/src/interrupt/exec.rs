//! An operator whose batches ask the budget of the statement first.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{CardinalityEffect, InvariantLevel, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
    RecordBatchStream, SendableRecordBatchStream,
};
use futures::{Stream, StreamExt};

use super::PAIRS_MAX;
use crate::execution::deadline;
use crate::execution::work::Work;
use crate::hot::copy_rows;
use crate::output::batch_bytes;

/// Time for which a task keeps its thread while others wait.
const SLICE: Duration = Duration::from_millis(10);

/// Bytes of a row from which on it is wide.
const WIDE: usize = 512;

/// Treatment of the rows by a wrapper.
#[derive(Debug, Clone)]
pub(super) enum Rows {
    All,
    /// Adds up how many there are.
    Counted(Arc<AtomicUsize>),
    /// Hands them on in pieces that make at most [`PAIRS_MAX`] pairs with as many rows as were counted.
    InPieces(Arc<AtomicUsize>),
    /// Copies wide rows into batches of as many as a batch of the statement may have: sources of memory hand on batches of any
    /// size, and operators count the whole memory of a slice.
    Cut,
    /// Reserves memory for all of them, because the operator above keeps them, until the scan is dropped.
    Held,
}

/// Wrapper of an operator, which shows itself as that operator.
#[derive(Debug)]
pub(super) struct InterruptibleExec {
    inner: Arc<dyn ExecutionPlan>,
    rows: Rows,
}

impl InterruptibleExec {
    pub fn new(inner: Arc<dyn ExecutionPlan>, rows: Rows) -> Self {
        Self { inner, rows }
    }

    fn again(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { inner, rows: self.rows.clone() })
    }
}

impl DisplayAs for InterruptibleExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(t, f)
    }
}

impl ExecutionPlan for InterruptibleExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn check_invariants(&self, check: InvariantLevel) -> Result<()> {
        self.inner.check_invariants(check)
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.inner.input_distribution_requirements()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.inner.required_input_ordering()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.inner.benefits_from_input_partitioning()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.again(self.inner.clone().replace_children(children, options)?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        use datafusion::physical_plan::execution_plan::ChildrenPropertiesMode;
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.again(self.inner.clone().reset_state()?))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.again(self.inner.with_new_state(state)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if let Rows::Counted(count) = &self.rows {
            count.store(0, Ordering::Relaxed);
        }
        let work = context.session_config().get_extension::<Work>();
        let most = context.session_config().batch_size();
        let consumer = MemoryConsumer::new(format!("WindowAggExec[{partition}]"));
        let held = matches!(self.rows, Rows::Held).then(|| consumer.register(context.memory_pool()));
        let inner = self.inner.execute(partition, context)?;
        // a plan without work is one of a test, or of a change of rows
        let Some(work) = work else { return Ok(inner) };
        Ok(Box::pin(InterruptibleStream { inner, work, rows: self.rows.clone(), rest: None, held, most }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner.cardinality_effect()
    }
}

struct InterruptibleStream {
    inner: SendableRecordBatchStream,
    work: Arc<Work>,
    rows: Rows,
    /// Rest of a batch that is handed on in pieces.
    rest: Option<RecordBatch>,
    held: Option<MemoryReservation>,
    /// Rows of a batch.
    most: usize,
}

thread_local! {
    /// When the thread last let other tasks go first.
    static YIELDED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns whether the thread's time slice is over, and begins the next one if it is.
fn is_over() -> bool {
    let now = Instant::now();
    let over = YIELDED.get().is_none_or(|before| now.saturating_duration_since(before) >= SLICE);
    if over {
        YIELDED.set(Some(now));
    }
    over
}

impl InterruptibleStream {
    /// Returns the next copy of rows of the batch that is left.
    fn copied(&mut self) -> Option<Result<RecordBatch>> {
        let batch = self.rest.take()?;
        let rows = batch.num_rows();
        if rows <= self.most || batch_bytes(&batch) / rows < WIDE {
            return Some(Ok(batch));
        }
        self.rest = Some(batch.slice(self.most, rows - self.most));
        Some(copy_rows(batch.schema_ref(), batch.columns(), 0..self.most))
    }

    /// Returns the next piece of the batch that is left.
    fn piece(&mut self, count: &AtomicUsize) -> Option<RecordBatch> {
        let batch = self.rest.take()?;
        let most = (PAIRS_MAX / count.load(Ordering::Relaxed).max(1)).max(1);
        if batch.num_rows() <= most {
            return Some(batch);
        }
        self.rest = Some(batch.slice(most, batch.num_rows() - most));
        Some(batch.slice(0, most))
    }
}

impl Stream for InterruptibleStream {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        // a task of the operator above runs on another thread than the statement
        let _entered = this.work.budget().enter();
        if let Err(ended) = deadline::check() {
            return Poll::Ready(Some(Err(ended)));
        }
        if is_over() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let rows = this.rows.clone();
        if let Rows::InPieces(count) = &rows
            && let Some(piece) = this.piece(count)
        {
            return Poll::Ready(Some(Ok(piece)));
        }
        if matches!(rows, Rows::Cut)
            && let Some(piece) = this.copied()
        {
            return Poll::Ready(Some(piece));
        }
        let next = this.inner.poll_next_unpin(cx);
        let Poll::Ready(Some(Ok(batch))) = next else { return next };
        match &rows {
            Rows::All => Poll::Ready(Some(Ok(batch))),
            Rows::Cut => {
                this.rest = Some(batch);
                Poll::Ready(this.copied())
            }
            Rows::Held => {
                // the operator joins them to one batch in the end, which holds them a second time
                let bytes = batch_bytes(&batch).saturating_mul(2);
                let held = this.held.as_ref().map_or(Ok(()), |held| held.try_grow(bytes));
                Poll::Ready(Some(held.map(|()| batch)))
            }
            Rows::Counted(count) => {
                count.fetch_add(batch.num_rows(), Ordering::Relaxed);
                Poll::Ready(Some(Ok(batch)))
            }
            Rows::InPieces(count) => {
                this.rest = Some(batch);
                Poll::Ready(this.piece(count).map(Ok))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl RecordBatchStream for InterruptibleStream {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}
