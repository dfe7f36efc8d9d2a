//! Results as texts that do not depend on how a system writes numbers and times, sorted unless the statement has an order.

use arrow::array::Array;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_sql::Sql;

use super::random::Statement;
use crate::fixture;

/// Rows of a result.
pub type Rows = Vec<Vec<String>>;

const NULL: &str = "NULL";

/// Returns rows in the order in which they are compared.
pub fn arranged(mut rows: Rows, statement: &Statement) -> Rows {
    if !statement.ordered {
        rows.sort();
    }
    rows
}

/// Returns a cell in its canonical form: numbers with nine digits, times in microseconds, `t` and `f`.
pub fn cell(text: Option<&str>) -> String {
    let Some(text) = text else { return NULL.to_owned() };
    match text {
        "true" | "t" => return "t".to_owned(),
        "false" | "f" => return "f".to_owned(),
        _ => {}
    }
    if let Some(micros) = micros(text) {
        return format!("@{micros}");
    }
    match text.parse::<f64>() {
        Ok(0.0) => "0".to_owned(),
        Ok(number) => format!("{number:.8e}"),
        Err(_) => format!("'{text}'"),
    }
}

/// Returns the microseconds of `2026-01-05 09:00:00.5+00`, `2026-01-05T09:00:00.5Z` or `2026-01-05`.
fn micros(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 10 || bytes[4] != b'-' || bytes[7] != b'-' || !bytes[..4].iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    let text = text.trim_end_matches("+00").trim_end_matches('Z').replace(' ', "T");
    let text = if text.len() == 10 { format!("{text}T00:00:00") } else { text };
    arrow::compute::kernels::cast_utils::string_to_timestamp_nanos(&text).ok().map(|nanos| nanos / 1_000)
}

pub fn outline(rows: &Rows) -> String {
    let shown: Vec<String> = rows.iter().take(12).map(|row| format!("({})", row.join(", "))).collect();
    format!("{} rows: {}", rows.len(), shown.join(" "))
}

/// Runs a statement. Errors are texts that begin with their kind.
pub async fn run(sql: &Sql, statement: &Statement) -> Result<Rows, String> {
    let failed = |e: tidemill_types::Error| format!("{}: {e}", e.kind().name());
    let request = fixture::request_of_session(&statement.text);
    let result = sql.run(request).await.map_err(failed)?.collect().await.map_err(failed)?;
    let options = FormatOptions::default().with_display_error(true);
    let mut rows = vec![];
    for batch in &result.batches {
        let columns: Vec<_> =
            batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
        for n in 0..batch.num_rows() {
            let cells = columns.iter().zip(batch.columns()).map(|(formatter, column)| {
                let is_null = column.is_null(n) || column.data_type() == &arrow::datatypes::DataType::Null;
                let text = (!is_null).then(|| formatter.value(n).to_string());
                cell(text.as_deref())
            });
            rows.push(cells.collect());
        }
    }
    Ok(arranged(rows, statement))
}

/// Returns a line of the record: a statement, its result here and in PostgreSQL.
pub fn as_json(
    statement: &Statement,
    result: &Result<Rows, String>,
    expected: &Result<Rows, String>,
) -> String {
    let mut line = serde_json::json!({ "sql": statement.text, "ordered": statement.ordered });
    let mut add = |result: &Result<Rows, String>, rows: &str, error: &str| match result {
        Ok(found) => line[rows] = serde_json::json!(found),
        Err(why) => line[error] = serde_json::json!(why),
    };
    add(result, "rows", "error");
    add(expected, "postgresql_rows", "postgresql_error");
    line.to_string()
}
