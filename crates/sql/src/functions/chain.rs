//! A long chain of operators as one function call: `a + b - c …` becomes `operators('+-…', a, b, c, …)`.
//!
//! The tree of a chain is as deep as the chain is long, and planning time grows with the square of the depth.
//! The function has all operands as its arguments. It applies the operators from left to right, each with the
//! operand and result types that the operator has by itself, so results do not change.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};

/// Name of the function.
pub(crate) const CHAIN: &str = "operators";

/// Operators that may be in a chain, each with its letter.
const OPERATORS: [(char, Operator); 6] = [
    ('+', Operator::Plus),
    ('-', Operator::Minus),
    ('*', Operator::Multiply),
    ('/', Operator::Divide),
    ('%', Operator::Modulo),
    ('|', Operator::StringConcat),
];

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct OperatorChain {
    signature: Signature,
}

impl Default for OperatorChain {
    fn default() -> Self {
        Self { signature: Signature::variadic_any(Volatility::Immutable) }
    }
}

fn operators(text: Option<&ScalarValue>) -> Result<Vec<Operator>> {
    let Some(Some(text)) = text.and_then(ScalarValue::try_as_str) else {
        return exec_err!("`{CHAIN}` takes the operators as text first: {CHAIN}('+-', a, b, c)");
    };
    let operator = |letter| OPERATORS.iter().find(|(l, _)| *l == letter).map(|(_, op)| *op);
    match text.chars().map(operator).collect() {
        Some(all) => Ok(all),
        None => exec_err!("`{CHAIN}` knows the operators + - * / % and | for ||, not `{text}`"),
    }
}

/// Returns the types to which `operator` coerces these operands, and the type of its result.
fn types(left: &DataType, operator: Operator, right: &DataType) -> Result<(DataType, DataType, DataType)> {
    let coercer = BinaryTypeCoercer::new(left, &operator, right);
    let (wanted_left, wanted_right) = coercer.get_input_types()?;
    let result = BinaryTypeCoercer::new(&wanted_left, &operator, &wanted_right).get_result_type()?;
    Ok((wanted_left, wanted_right, result))
}

/// Evaluates `left operator right` for `rows` rows.
fn apply(
    left: ColumnarValue,
    operator: Operator,
    right: &ColumnarValue,
    rows: usize,
) -> Result<ColumnarValue> {
    let (wanted_left, wanted_right, _) = types(&left.data_type(), operator, &right.data_type())?;
    let operands = [left.cast_to(&wanted_left, None)?, right.cast_to(&wanted_right, None)?];
    let (mut fields, mut columns) = (vec![], vec![]);
    let mut exprs: Vec<Arc<dyn PhysicalExpr>> = vec![];
    for operand in operands {
        exprs.push(match operand {
            ColumnarValue::Scalar(value) => Arc::new(Literal::new(value)),
            ColumnarValue::Array(array) => {
                fields.push(Field::new("operand", array.data_type().clone(), true));
                columns.push(array);
                Arc::new(Column::new("operand", columns.len() - 1))
            }
        });
    }
    let [left, right] = exprs.as_slice() else { return internal_err!("an operator has two operands") };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
    BinaryExpr::new(left.clone(), operator, right.clone()).evaluate(&batch)
}

impl ScalarUDFImpl for OperatorChain {
    fn name(&self) -> &str {
        CHAIN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of `{CHAIN}` follows from its operators")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let operators = operators(args.scalar_arguments.first().copied().flatten())?;
        let [_, first, others @ ..] = args.arg_fields else {
            return exec_err!("`{CHAIN}` takes operands after the operators");
        };
        if others.len() != operators.len() {
            return exec_err!("`{CHAIN}` takes one operand more than operators");
        }
        let mut ty = first.data_type().clone();
        for (operator, right) in operators.into_iter().zip(others) {
            ty = types(&ty, operator, right.data_type())?.2;
        }
        Ok(Arc::new(Field::new(CHAIN, ty, true)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(text), first, others @ ..] = args.args.as_slice() else {
            return exec_err!("`{CHAIN}` takes the operators as text first");
        };
        let mut value = first.clone();
        for (operator, right) in operators(Some(text))?.into_iter().zip(others) {
            value = apply(value, operator, right, args.number_rows)?;
        }
        Ok(value)
    }
}
