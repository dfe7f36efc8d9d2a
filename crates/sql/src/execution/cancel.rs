//! `KILL QUERY id`: ends a statement that runs.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use tidemill_types::{Error, Result};

/// Returns the number of the statement that `text` cancels; `None` when it is another statement.
///
/// Errors: `Invalid` for a `KILL` that does not say which statement.
pub(crate) fn parse(text: &str) -> Option<Result<u64>> {
    let text = text.trim().trim_end_matches(';');
    let mut words = text.split_whitespace();
    let is = |word: Option<&str>, wanted: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    if !is(words.next(), "KILL") {
        return None;
    }
    let invalid = || {
        Error::invalid("expected KILL QUERY id: SELECT id, statement FROM system.statements lists the ids")
    };
    if !is(words.next(), "QUERY") {
        return Some(Err(invalid()));
    }
    let id = words.next().and_then(|id| id.parse::<u64>().ok());
    Some(id.filter(|_| words.next().is_none()).ok_or_else(invalid))
}

/// Returns the result of the statement: the number of the cancelled one.
pub(crate) fn result(id: u64) -> Result<RecordBatch> {
    let schema = Schema::new(vec![Field::new("cancelled", DataType::Int64, false)]);
    let ids = Int64Array::from(vec![i64::try_from(id).unwrap_or(i64::MAX)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids)])
        .map_err(|e| Error::internal("a number does not fit its column").with_source(e))
}
