//! Floats as they are written: the float `75.6` is the double `75.6`, not the one with the same bits behind it,
//! 75.5999984741211. So a key of several columns, whose values are put together as texts, is found by either.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::expr::{EvalError, Expr, Node};
use crate::registry::{Function, FunctionContext};
use crate::value::Value;

/// The double that is written as a float is.
pub(super) fn written_as_double(n: f32) -> f64 {
    n.to_string().parse().unwrap_or(f64::from(n))
}

/// Makes a double of an expression of type float: [`written_as_double`] of its value.
pub(super) fn read_as_double(x: &mut Expr) {
    let float = std::mem::replace(x, Expr::constant(Value::Null, FieldType::Double));
    *x = Expr { node: Node::Call(Arc::new(FloatToDouble), vec![float]), ty: FieldType::Double };
}

#[derive(Debug)]
struct FloatToDouble;

impl Function for FloatToDouble {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> Result<Value, EvalError> {
        Ok(match args {
            [Value::Float(n)] => Value::Double(written_as_double(*n)),
            _ => Value::Null,
        })
    }
}
