//! Casts of times that keep the instant.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::logical_expr::Expr;

/// Returns the time below a cast to a finer unit, which keeps the instant.
pub(crate) fn without_time_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => match cast.field.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, tz)
                if tz.as_deref().is_none_or(|tz| tz == "UTC" || tz == "+00:00") =>
            {
                &cast.expr
            }
            _ => expr,
        },
        _ => expr,
    }
}
