//! Patterns of `LIKE … ESCAPE` that are not constant.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

use crate::tree::with_backslashes;

/// Name of the function.
pub(crate) const LIKE_PATTERN: &str = "__like_pattern";

/// Returns the function that makes the backslash the escape character of a pattern. Its second argument is the one that it has,
/// empty for none.
pub(super) fn like_pattern() -> Arc<ScalarUDF> {
    let convert = |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let [patterns, escapes] = arrays.as_slice() else {
            return exec_err!("{LIKE_PATTERN} takes two texts");
        };
        let both = patterns.as_string::<i32>().iter().zip(escapes.as_string::<i32>());
        let converted = both.map(|(pattern, escape)| {
            let (Some(pattern), Some(escape)) = (pattern, escape) else { return Ok(None) };
            match with_backslashes(pattern, escape.chars().next()) {
                Some(converted) => Ok(Some(converted)),
                None => exec_err!("the pattern '{pattern}' ends with its escape character"),
            }
        });
        Ok(ColumnarValue::Array(Arc::new(converted.collect::<Result<StringArray>>()?) as ArrayRef))
    };
    let texts = vec![DataType::Utf8, DataType::Utf8];
    Arc::new(create_udf(LIKE_PATTERN, texts, DataType::Utf8, Volatility::Immutable, Arc::new(convert)))
}
