//! Aggregate function for the value of a subquery that has one row at most.

use std::mem::size_of_val;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use tidemill_types::Error;

use crate::error::to_datafusion;

/// Name of the function.
pub(super) const SINGLE_VALUE: &str = "__single_value";

/// Returns the function. Without rows its value is null; a second row is an error.
pub(super) fn single_value() -> AggregateUDF {
    SingleValue { signature: Signature::any(1, Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        SINGLE_VALUE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(args.first().cloned().unwrap_or(DataType::Null))
    }

    fn return_field(&self, args: &[FieldRef]) -> Result<FieldRef> {
        let value = args.first().map_or_else(
            || Field::new(SINGLE_VALUE, DataType::Null, true),
            |field| field.as_ref().clone().with_name(SINGLE_VALUE).with_nullable(true),
        );
        Ok(value.into())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![
            args.return_field.as_ref().clone().with_name("value").with_nullable(true).into(),
            Field::new("rows", DataType::Int64, false).into(),
        ])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let value = ScalarValue::try_from(args.return_field.data_type())?;
        Ok(Box::new(OneRow { value, rows: 0 }))
    }
}

#[derive(Debug)]
struct OneRow {
    value: ScalarValue,
    rows: i64,
}

impl OneRow {
    fn check(&self) -> Result<()> {
        match self.rows {
            0 | 1 => Ok(()),
            _ => Err(to_datafusion(Error::invalid(
                "more than one row returned by a subquery used as an expression",
            ))),
        }
    }
}

impl Accumulator for OneRow {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return Ok(()) };
        if values.is_empty() {
            return Ok(());
        }
        // lengths of batches are far below
        self.rows += values.len() as i64;
        self.check()?;
        self.value = ScalarValue::try_from_array(values, 0)?;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Int64(Some(self.rows))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, rows] = states else { return Ok(()) };
        for (at, count) in rows.as_primitive::<Int64Type>().iter().enumerate() {
            if let Some(count @ 1..) = count {
                self.rows += count;
                self.check()?;
                self.value = ScalarValue::try_from_array(values, at)?;
            }
        }
        Ok(())
    }
}
