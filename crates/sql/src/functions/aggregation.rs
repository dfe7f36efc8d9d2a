//! `aggregation('Volumes', 'hours')`: the buckets of an aggregation of SiddhiQL at one granularity.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use tidemill_types::Error;

use crate::Tables;
use crate::error::to_datafusion;

/// Name of the function.
pub(crate) const AGGREGATION: &str = "aggregation";

/// Longest bucket, a leap year: how much later than the last start a range ends, so that no bucket is cut.
const BUCKET_MS_MAX: i64 = 366 * 86_400_000;

/// The function.
pub(crate) struct AggregationFunction(pub Arc<dyn Tables>);

impl std::fmt::Debug for AggregationFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AggregationFunction")
    }
}

impl TableFunctionImpl for AggregationFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (name, per) = names(args.exprs())?;
        let schema = self.0.aggregation_schema(&name, &per).map_err(to_datafusion)?;
        let source = AggregationSource { tables: self.0.clone(), name, per, schema };
        Ok(Arc::new(AggregationTable(Arc::new(source))))
    }
}

/// Returns the name of the aggregation and the granularity.
fn names(args: &[Expr]) -> Result<(String, String)> {
    match args {
        [Expr::Literal(ScalarValue::Utf8(Some(name)), _), Expr::Literal(ScalarValue::Utf8(Some(per)), _)] => {
            Ok((name.clone(), per.clone()))
        }
        _ => Err(to_datafusion(Error::invalid(
            "aggregation takes two texts, the name of an aggregation and a granularity: for example \
             aggregation('Volumes', 'hours')",
        ))),
    }
}

/// An aggregation at a granularity.
struct AggregationSource {
    tables: Arc<dyn Tables>,
    name: String,
    per: String,
    schema: SchemaRef,
}

impl std::fmt::Debug for AggregationSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "aggregation('{}', '{}')", self.name, self.per)
    }
}

#[derive(Debug)]
struct AggregationTable(Arc<AggregationSource>);

#[async_trait]
impl TableProvider for AggregationTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Returns `Inexact` for all filters: bounds of the bucket's start narrow what is read.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let within = within(filters, self.0.schema.field(0).name());
        let buckets = Arc::new(ScannedBuckets { source: self.0.clone(), within });
        let schema = self.0.schema.clone();
        let scan = StreamingTableExec::try_new(schema, vec![buckets], projection, [], false, limit)?;
        Ok(Arc::new(scan))
    }
}

/// Returns a range of milliseconds since 1970 that has every bucket, as a whole, whose start satisfies the filters. It may
/// have other buckets, and parts of those that begin outside of the filters' bounds.
fn within(filters: &[Expr], start: &str) -> Range<i64> {
    let mut range = i64::MIN..i64::MAX;
    for filter in filters.iter().flat_map(split_conjunction) {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { continue };
        let (op, constant) = match (left.as_ref(), right.as_ref()) {
            (Expr::Column(column), Expr::Literal(constant, _)) if column.name == start => (*op, constant),
            (Expr::Literal(constant, _), Expr::Column(column)) if column.name == start => match op.swap() {
                Some(op) => (op, constant),
                None => continue,
            },
            _ => continue,
        };
        let Some(ms) = milliseconds(constant) else { continue };
        if matches!(op, Operator::Eq | Operator::Gt | Operator::GtEq) {
            range.start = range.start.max(ms);
        }
        if matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq) {
            range.end = range.end.min(ms.saturating_add(1).saturating_add(BUCKET_MS_MAX));
        }
    }
    // SiddhiQL does not accept an empty range
    range.end = range.end.max(range.start.saturating_add(1));
    range
}

/// Returns the millisecond of a constant time.
fn milliseconds(constant: &ScalarValue) -> Option<i64> {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    match constant.cast_to(&micros).ok()? {
        ScalarValue::TimestampMicrosecond(Some(micros), _) => Some(micros.div_euclid(1_000)),
        _ => None,
    }
}

/// The buckets that a scan reads.
#[derive(Debug)]
struct ScannedBuckets {
    source: Arc<AggregationSource>,
    within: Range<i64>,
}

impl PartitionStream for ScannedBuckets {
    fn schema(&self) -> &SchemaRef {
        &self.source.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (source, within) = (self.source.clone(), self.within.clone());
        let rows = async move {
            // it may wait for the owner of the aggregation, and for the store that has its buckets
            let read = move || source.tables.aggregation_rows(&source.name, &source.per, &within);
            let rows = tokio::task::spawn_blocking(read).await;
            rows.map_err(|e| DataFusionError::External(Box::new(e)))?.map_err(to_datafusion)
        };
        Box::pin(RecordBatchStreamAdapter::new(self.source.schema.clone(), futures::stream::once(rows)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, ident, lit};

    use super::*;

    fn at(ms: i64) -> Expr {
        lit(ScalarValue::TimestampMicrosecond(Some(ms * 1_000), Some("UTC".into())))
    }

    #[test]
    fn bounds_of_the_start_select_whole_buckets() {
        let start = || ident("AGG_TIMESTAMP");
        let range = |filter: Expr| within(&[filter], "AGG_TIMESTAMP");
        assert_eq!(range(start().gt_eq(at(5))), 5..i64::MAX);
        assert_eq!(range(at(5).lt(start())), 5..i64::MAX);
        assert_eq!(range(start().lt(at(5))), i64::MIN..6 + BUCKET_MS_MAX);
        assert_eq!(range(start().eq(at(5)).and(col("n").gt(at(7)))), 5..6 + BUCKET_MS_MAX);
        assert_eq!(range(start().gt(at(5)).or(start().lt(at(5)))), i64::MIN..i64::MAX);
        let none = within(&[start().gt(at(BUCKET_MS_MAX * 3)), start().lt(at(5))], "AGG_TIMESTAMP");
        assert_eq!(none, BUCKET_MS_MAX * 3..BUCKET_MS_MAX * 3 + 1);
    }
}
