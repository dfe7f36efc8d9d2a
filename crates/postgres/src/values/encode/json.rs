//! Columns of objects, and of lists of them, as JSON.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_json::writer::{EncoderOptions, make_encoder};
use arrow_schema::{Field, FieldRef};

use crate::error::{PgError, Result, code};

/// Returns the column as texts of JSON, with the nulls inside of objects.
pub(super) fn texts(column: &ArrayRef) -> Result<StringArray> {
    let field: FieldRef = Arc::new(Field::new("value", column.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, column.as_ref(), &options).map_err(|e| {
        PgError::not_supported(format!("a column of type {} has no JSON: {e}", column.data_type()))
    })?;
    let mut text = Vec::new();
    let mut out = StringBuilder::with_capacity(column.len(), 0);
    for row in 0..column.len() {
        if encoder.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        encoder.encode(row, &mut text);
        let text = std::str::from_utf8(&text);
        out.append_value(text.map_err(|e| PgError::new(code::INTERNAL, format!("JSON is not UTF-8: {e}")))?);
    }
    Ok(out.finish())
}
