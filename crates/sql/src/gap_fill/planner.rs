//! Physical planning of gap filling: the range becomes numbers.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, UserDefinedLogicalNode, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use tidemill_types::Error;

use super::buckets::{Buckets, Step};
use super::exec::{FillSpec, GapFillExec};
use super::invalid;
use super::node::{BoundSide, FillRange, GapFill};
use crate::asof::AsofPlanner;
use crate::times::date_bin;

/// DataFusion's planner, which also plans gap filling and ASOF joins.
#[derive(Debug)]
pub(crate) struct GapFillQueryPlanner {
    /// Maximum number of rows that one operator adds.
    pub rows_max: usize,
}

#[async_trait]
impl QueryPlanner for GapFillQueryPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let gaps = GapFillPlanner { rows_max: self.rows_max };
        let planner =
            DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(gaps), Arc::new(AsofPlanner)]);
        planner.create_physical_plan(plan, session).await
    }
}

struct GapFillPlanner {
    rows_max: usize,
}

#[async_trait]
impl ExtensionPlanner for GapFillPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<GapFill>() else { return Ok(None) };
        let [input] = inputs else { return internal_err!("gap filling has one input") };
        let evaluate = |expr: &Expr| evaluate(expr, planner, session, context);
        let time = input.schema().field(node.bucket).data_type().clone();
        if !matches!(time, DataType::Timestamp(TimeUnit::Microsecond, _)) {
            return internal_err!("the buckets to fill are {time}");
        }
        let range = Range { range: &node.range, time };
        let buckets = range.buckets(&evaluate)?;
        let count = buckets.count_estimate();
        if count > self.rows_max as u64 {
            return Err(too_many(&format!("{count} buckets for each group"), self.rows_max));
        }
        let spec = FillSpec {
            bucket: node.bucket,
            keys: node.keys.clone(),
            fills: node.fills.clone(),
            buckets,
            rows_max: self.rows_max,
        };
        Ok(Some(Arc::new(GapFillExec::new(input.clone(), Arc::new(spec))?)))
    }
}

/// Returns the error for a range with too many buckets.
pub(super) fn too_many(what: &str, rows_max: usize) -> DataFusionError {
    DataFusionError::External(Box::new(Error::limit(format!(
        "filling gaps would add {what}, the limit is {rows_max} rows (`sql.gap_rows_max`): choose a longer interval or a \
         shorter range of time"
    ))))
}

/// Returns the value of a constant expression.
fn evaluate(
    expr: &Expr,
    planner: &dyn PhysicalPlanner,
    session: &dyn Session,
    context: &PhysicalPlanningContext,
) -> Result<ScalarValue> {
    let expr = planner.create_physical_expr(expr, &DFSchema::empty(), session, context)?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    match expr.evaluate(&row)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0),
    }
}

struct Range<'r> {
    range: &'r FillRange,
    /// Type of the buckets.
    time: DataType,
}

impl Range<'_> {
    fn buckets(&self, evaluate: &dyn Fn(&Expr) -> Result<ScalarValue>) -> Result<Buckets> {
        let step = step(&evaluate(&self.range.interval)?)?;
        let (mut from, mut last) = (None::<i64>, None::<i64>);
        for bound in &self.range.bounds {
            let Some(time) = self.bound(&evaluate(&bound.expr)?, bound.side)? else { continue };
            match bound.side.is_lower() {
                true => from = from.max(Some(time)),
                false => last = Some(last.map_or(time, |known| known.min(time))),
            }
        }
        let (Some(from), Some(last)) = (from, last) else {
            return Err(invalid(
                "the range to fill has a bound that is null: compare the time with a constant time",
            ));
        };
        let bucket = |time: i64| -> Result<i64> {
            let time = ScalarValue::Int64(Some(time)).cast_to(&self.time)?;
            let mut args = vec![self.range.interval.clone(), lit(time)];
            args.extend(self.range.origin.clone());
            match evaluate(&date_bin().call(args))?.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(Some(start)) => Ok(start),
                _ => Err(invalid(
                    "a bound of the range to fill has no bucket: write a time between the years 1 and 9999",
                )),
            }
        };
        if from > last {
            return Ok(Buckets { first: from, last, step });
        }
        self.check_origin(step, evaluate)?;
        Ok(Buckets { first: bucket(from)?, last: bucket(last)?, step })
    }

    /// Returns the first or the last time that satisfies a bound, in microseconds; `None` for null.
    fn bound(&self, value: &ScalarValue, side: BoundSide) -> Result<Option<i64>> {
        let ScalarValue::TimestampMicrosecond(Some(time), _) = value.cast_to(&self.time)? else {
            return Ok(None);
        };
        Ok(match side {
            BoundSide::From | BoundSide::To => Some(time),
            BoundSide::After => time.checked_add(1),
            BoundSide::Before => time.checked_sub(1),
        })
    }

    /// Checks that months after the origin begin on the same day of the month.
    fn check_origin(&self, step: Step, evaluate: &dyn Fn(&Expr) -> Result<ScalarValue>) -> Result<()> {
        let (Step::Months(_), Some(origin)) = (step, &self.range.origin) else { return Ok(()) };
        let part = datafusion::functions::datetime::date_part().call(vec![lit("day"), origin.clone()]);
        match evaluate(&part)?.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(day)) if day <= 28 => Ok(()),
            _ => Err(invalid("buckets of months need an origin on day 1 to 28, for example '2000-01-01'")),
        }
    }
}

/// Returns the distance of two buckets.
fn step(interval: &ScalarValue) -> Result<Step> {
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = interval else {
        return Err(invalid("the interval of the buckets to fill is null: write one, for example '1 hour'"));
    };
    let nanos = i128::from(interval.days) * 86_400_000_000_000 + i128::from(interval.nanoseconds);
    match (interval.months, nanos) {
        (months, 0) if months > 0 => Ok(Step::Months(months)),
        (0, nanos) if nanos > 0 => match i64::try_from(nanos / 1_000) {
            Ok(width) if nanos % 1_000 == 0 => Ok(Step::Fixed(width)),
            Ok(_) => Err(invalid(
                "the interval of the buckets to fill has nanoseconds, and times have microseconds: write a longer one",
            )),
            Err(_) => Err(invalid("the interval of the buckets to fill is too long: write a shorter one")),
        },
        (months, _) if months > 0 => Err(invalid(
            "an interval of months cannot have days or shorter parts as well: write, for example, '1 month'",
        )),
        _ => Err(invalid(
            "the interval of the buckets to fill must be longer than zero: write, for example, '1 hour'",
        )),
    }
}
