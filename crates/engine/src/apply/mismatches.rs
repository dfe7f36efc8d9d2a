//! Rows with a value that does not have the type of its field, and that is kept in `_extra`.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::BooleanBuffer;
use serde::de::IgnoredAny;
use tidemill_types::{StreamSchema, column};

/// Returns how many of the rows to `keep`, all if it is `None`, have such a value.
pub fn count(stream: &StreamSchema, batch: &RecordBatch, keep: Option<&BooleanBuffer>) -> u64 {
    let extra = batch.column_by_name(column::EXTRA).and_then(|extra| extra.as_string_opt::<i32>());
    let Some(extra) = extra.filter(|extra| extra.null_count() < extra.len()) else { return 0 };
    let declared: Vec<String> =
        stream.fields.iter().map(|f| serde_json::Value::from(f.name.as_str()).to_string()).collect();
    let is_kept = |row: usize| keep.is_none_or(|keep| keep.value(row));
    let rows = extra.iter().enumerate().filter_map(|(row, text)| text.filter(|_| is_kept(row)));
    rows.filter(|text| has_field(text, stream, &declared)).count() as u64
}

/// Returns whether an object has a field of the stream; `declared` has the names of the fields in JSON. Declarations keep values of some
/// fields, and formats with types of their own those of all.
fn has_field(text: &str, stream: &StreamSchema, declared: &[String]) -> bool {
    // most undeclared fields have other names, so that the object need not be parsed
    if !declared.iter().any(|name| text.contains(name.as_str())) {
        return false;
    }
    // a field in `_extra` is undeclared otherwise, so that the name of a declared one is that of a kept value
    let fields: HashMap<String, IgnoredAny> = serde_json::from_str(text).unwrap_or_default();
    stream.fields.iter().any(|field| fields.contains_key(&field.name))
}
