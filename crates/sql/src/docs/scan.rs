//! Scan of a collection as a DataFusion data source.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::source::DataSource;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::Column;
use super::columns::Decoder;

/// Documents per partition: a collection with fewer than twice as many is scanned by one thread.
const DOCUMENTS_PER_PARTITION: usize = 4_096;

/// Bytes of documents that are decoded at once.
const BATCH_BYTES: usize = 2 << 20;

/// Data source that decodes the projected columns of the documents, batch by batch.
#[derive(Debug)]
pub(super) struct DocsScan {
    schema: SchemaRef,
    columns: Arc<[Column]>,
    documents: Arc<Vec<Bytes>>,
    partitions: usize,
}

impl DocsScan {
    pub fn new(
        schema: SchemaRef,
        columns: Arc<[Column]>,
        documents: Arc<Vec<Bytes>>,
        partitions: usize,
    ) -> Self {
        let partitions = partitions.min(documents.len() / DOCUMENTS_PER_PARTITION).max(1);
        Self { schema, columns, documents, partitions }
    }

    /// Returns the document indexes of one partition.
    fn range(&self, partition: usize) -> Range<usize> {
        let cut = |n: usize| self.documents.len() * n / self.partitions;
        cut(partition)..cut(partition + 1)
    }
}

/// Cuts documents into batches of at most `rows`, and of [`BATCH_BYTES`] where there is more than one.
fn cut(documents: &[Bytes], range: Range<usize>, rows: usize) -> Vec<Range<usize>> {
    let mut batches = vec![];
    let (mut start, mut bytes) = (range.start, 0_usize);
    for index in range.clone() {
        let full = index - start >= rows || bytes.saturating_add(documents[index].len()) > BATCH_BYTES;
        if full && index > start {
            batches.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes = bytes.saturating_add(documents[index].len());
    }
    if start < range.end {
        batches.push(start..range.end);
    }
    batches
}

impl DataSource for DocsScan {
    fn open(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition >= self.partitions {
            return internal_err!("partition {partition} of {}", self.partitions);
        }
        let documents = self.documents.clone();
        let decoder = Decoder::new(self.schema.clone(), &self.columns);
        let step = context.session_config().batch_size();
        let batches = stream::iter(cut(&documents, self.range(partition), step)).scan(decoder, {
            move |decoder, range| {
                let batch = decoder.decode(&documents[range]);
                futures::future::ready(Some(batch.map_err(Into::into)))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }

    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|f| f.name().as_str()).collect();
        write!(
            f,
            "documents={}, partitions={}, columns=[{}]",
            self.documents.len(),
            self.partitions,
            names.join(", ")
        )
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.partitions)
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new(self.schema.clone())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let rows = partition.map_or(self.documents.len(), |p| self.range(p).len());
        Ok(Arc::new(Statistics::new_unknown(&self.schema).with_num_rows(Precision::Exact(rows))))
    }

    fn with_fetch(&self, _: Option<usize>) -> Option<Arc<dyn DataSource>> {
        None
    }

    fn fetch(&self) -> Option<usize> {
        None
    }

    fn try_swapping_with_projection(&self, _: &ProjectionExprs) -> Result<Option<Arc<dyn DataSource>>> {
        Ok(None)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_state(&self, _: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn DataSource>> {
        None
    }
}
