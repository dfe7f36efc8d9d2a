//! Conversion of floats to doubles by their decimal form: the float `75.6` becomes the double `75.6`, not
//! 75.5999984741211, the double with its exact value. Multi-column keys compare decimal strings, so that a
//! lookup by float or by double finds the row.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{Expr, Function, FunctionContext, Node};

/// Returns the double with the shortest decimal form of a float.
pub(super) fn written_as_double(n: f32) -> f64 {
    n.to_string().parse().unwrap_or(f64::from(n))
}

/// Wraps a float expression into the conversion [`written_as_double`].
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
