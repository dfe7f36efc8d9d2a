//! Bounds of aggregate functions over windows.
//!
//! A window has a value for each row. Where the value is a list or a text that collects rows, as of `array_agg`, a partition
//! of n rows makes n² elements, which DataFusion allocates without a check. The loop over the rows of a partition is one
//! step, too, so the function asks the statement's budget for each row.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, ReversedUDAF, Signature,
};
use tidemill_types::{Error, budget};

use crate::error::to_datafusion;
use crate::execution::work::stopped;

/// Aggregate function over windows that checks the size of its results and otherwise delegates to `inner`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WindowedAggregate {
    pub inner: Arc<AggregateUDF>,
    pub bytes_max: usize,
}

impl WindowedAggregate {
    fn wrap(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        let (name, bytes_max) = (self.inner.name().to_owned(), self.bytes_max);
        Box::new(BoundedAccumulator { inner, name, bytes_max, rows: 0, bytes: 0 })
    }
}

impl AggregateUDFImpl for WindowedAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.inner().schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.inner().human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.inner().window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.inner().display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.inner().window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.inner().return_field(arg_fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner.inner().is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.wrap(self.inner.inner().accumulator(args)?))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.inner().state_fields(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.wrap(self.inner.inner().create_sliding_accumulator(args)?))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.inner().order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.inner().reverse_expr() {
            ReversedUDAF::Reversed(inner) => {
                let reversed = Self { inner, bytes_max: self.bytes_max };
                ReversedUDAF::Reversed(Arc::new(reversed.into()))
            }
            other => other,
        }
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(arg_types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.inner().is_descending()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.inner.inner().default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.inner().supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.inner().supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

/// Accumulator that counts what it is asked for.
#[derive(Debug)]
struct BoundedAccumulator {
    inner: Box<dyn Accumulator>,
    name: String,
    bytes_max: usize,
    /// Rows that were added.
    rows: usize,
    /// Bytes of all values that were returned.
    bytes: usize,
}

impl Accumulator for BoundedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        budget::step().map_err(stopped)?;
        self.rows += values.first().map_or(0, |column| column.len());
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        budget::step().map_err(stopped)?;
        let value = self.inner.evaluate()?;
        let is_small =
            matches!(&value, ScalarValue::Utf8(_) | ScalarValue::LargeUtf8(_) | ScalarValue::Utf8View(_))
                && value.size() < 64;
        if !is_small && (value.data_type().is_nested() || value.data_type().is_string()) {
            // where the whole partition has one value, it is asked for once and copied for each row
            self.bytes = self.bytes.saturating_add(value.size()).max(value.size().saturating_mul(self.rows));
            if self.bytes > self.bytes_max {
                return Err(to_datafusion(Error::limit(format!(
                    "`{}` would make more than {} bytes for the rows of one window (`sql.function_bytes`): each row has a value \
                     of its own. Use GROUP BY, or smaller partitions",
                    self.name, self.bytes_max
                ))));
            }
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        budget::step().map_err(stopped)?;
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}
