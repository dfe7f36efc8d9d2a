//! The interface of scalar functions.

use std::fmt;
use std::sync::Arc;

use tidemill_types::FieldType;

use super::EvalContext;
use crate::columns::column::{Column, Data};
use crate::columns::value::Value;
use crate::eval_error::EvalError;

/// Argument at compile time.
#[derive(Debug, Clone)]
pub struct ArgumentType {
    /// Type of the argument.
    pub ty: FieldType,
    /// Value of the argument, if it is constant.
    pub constant: Option<Value>,
}

/// Context of a function call.
#[derive(Clone, Copy)]
pub struct FunctionContext<'a> {
    /// Current time of the app, in milliseconds since 1970.
    pub now: i64,
    /// Timestamp of the event, in milliseconds since 1970.
    pub time: i64,
    /// Access to the app.
    pub host: &'a dyn EvalContext,
}

impl FunctionContext<'_> {
    /// Returns 64 random bits; they differ between calls, and replaying the input yields them again.
    pub fn random(&self) -> u64 {
        self.host.random_u64(self.time)
    }
}

/// Argument of a batched function call.
#[derive(Debug, Clone, Copy)]
pub enum ColumnarValue<'a> {
    /// One value per row.
    Array(&'a Column),
    /// One value for all rows.
    Scalar(&'a Value),
}

impl<'a> ColumnarValue<'a> {
    /// Returns the value of `row` as a string; `None` if it is null or not a string.
    #[inline]
    pub fn text(self, row: usize) -> Option<&'a str> {
        match self {
            Self::Scalar(value) => value.as_str(),
            Self::Array(column) if column.is_null(row) => None,
            Self::Array(column) => match column.data() {
                Data::Str(texts) => Some(texts.get(row)),
                _ => None,
            },
        }
    }

    /// Returns whether no value is null.
    pub fn has_no_nulls(self) -> bool {
        match self {
            Self::Scalar(value) => !value.is_null(),
            Self::Array(column) => !column.nulls().contains(&true),
        }
    }
}

/// Scalar function.
pub trait Function: fmt::Debug + Send + Sync {
    /// Evaluates the function for one row. Errors: the event cannot be processed.
    fn call(&self, args: &[Value], state: &FunctionContext<'_>) -> Result<Value, EvalError>;

    /// Evaluates the function for `rows` rows, with the results of [`Function::call`] for each. `None` if
    /// these arguments are not supported or some row fails; the caller then falls back to row at a time.
    ///
    /// Worth implementing if it avoids [`Value`]s, for example by reading a string column in place.
    fn call_batch(&self, _args: &[ColumnarValue<'_>], _rows: usize) -> Option<Column> {
        None
    }

    /// Returns whether results depend on the order of all calls, as those of random functions do. An app then
    /// processes events row at a time.
    fn depends_on_order(&self) -> bool {
        false
    }
}

/// Function bound to a call site, and the type of its result.
pub type BoundFunction = (Arc<dyn Function>, FieldType);
