//! Rows with a value that does not have the type of its field, and that is kept in `_extra`.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::BooleanBuffer;
use serde::de::IgnoredAny;
use tidemill_types::{Mismatch, StreamSchema, column};

/// Returns how many of the rows to `keep`, all if it is `None`, have such a value.
pub fn count(stream: &StreamSchema, batch: &RecordBatch, keep: Option<&BooleanBuffer>) -> u64 {
    let kept: Vec<&str> =
        stream.fields.iter().filter(|f| f.mismatch == Mismatch::Keep).map(|f| f.name.as_str()).collect();
    let extra = batch.column_by_name(column::EXTRA).and_then(|extra| extra.as_string_opt::<i32>());
    let Some(extra) = extra.filter(|extra| !kept.is_empty() && extra.null_count() < extra.len()) else {
        return 0;
    };
    let is_kept = |row: usize| keep.is_none_or(|keep| keep.value(row));
    let rows = extra.iter().enumerate().filter_map(|(row, text)| text.filter(|_| is_kept(row)));
    rows.filter(|text| has_field(text, &kept)).count() as u64
}

fn has_field(text: &str, names: &[&str]) -> bool {
    // a field in `_extra` is undeclared otherwise, so that the name of a declared one is that of a kept value
    let fields: HashMap<String, IgnoredAny> = serde_json::from_str(text).unwrap_or_default();
    names.iter().any(|name| fields.contains_key(*name))
}
