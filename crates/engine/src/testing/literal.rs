//! SiddhiQL that inserts rows of tests into a table.

use serde_json::{Map, Value as Json};
use tidemill_types::FieldType;

use super::Stored;

/// Returns the on-demand query that inserts a row into a table.
///
/// Errors: a description of the problem with the row.
pub(super) fn insert(table: &Stored, row: &Map<String, Json>) -> Result<String, String> {
    let column = |(name, ty): &(String, FieldType)| match row.get(name) {
        Some(value) => Ok(format!("{} as `{name}`", literal(name, *ty, value)?)),
        None => {
            let all: Vec<&str> = table.attributes.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("a row of `{}` needs all of {}: `{name}` is missing", table.name, all.join(", ")))
        }
    };
    let columns = table.attributes.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("select {} insert into `{}`", columns.join(", "), table.name))
}

fn literal(name: &str, ty: FieldType, value: &Json) -> Result<String, String> {
    let wrong = || format!("`{name}`: expected {ty}, found {value}");
    Ok(match (ty, value) {
        (FieldType::Bool, Json::Bool(b)) => b.to_string(),
        // the minimum of each integer type has no literal: its digits without the sign overflow
        (FieldType::Int, Json::Number(n)) => match n.as_i64().and_then(|n| i32::try_from(n).ok()) {
            Some(n) => format!("({n})"),
            None => return Err(wrong()),
        },
        (FieldType::Long, Json::Number(n)) => format!("({}L)", n.as_i64().ok_or_else(wrong)?),
        (FieldType::Float, Json::Number(n)) => format!("({:?}f)", n.as_f64().ok_or_else(wrong)?),
        (FieldType::Double, Json::Number(n)) => format!("({:?}d)", n.as_f64().ok_or_else(wrong)?),
        (FieldType::String, Json::String(text)) => quoted(text).ok_or_else(|| {
            format!("`{name}`: a text with all of ', \" and \"\"\" cannot be put into a table by a test")
        })?,
        _ => return Err(wrong()),
    })
}

/// Quotes a string for SiddhiQL, which has no escapes; `None` if no kind of quote fits.
fn quoted(text: &str) -> Option<String> {
    let line = !text.contains(['\n', '\r']);
    let quote = [("'", line), ("\"", line), ("\"\"\"", !text.ends_with('"'))];
    let (quote, _) = quote.into_iter().find(|(quote, fits)| *fits && !text.contains(quote))?;
    Some(format!("{quote}{text}{quote}"))
}
