//! Statements that read.

use futures::StreamExt;
use tidemill_database::{EncodedReply, Format, QueryRequest, first_word};
use tidemill_types::{Error, Result};

use super::{ORIGIN, cut};
use crate::arguments::{PlanArguments, SqlArguments};
use crate::handler::ToolContext;

/// First words of statements that read.
const READING: [&str; 8] = ["SELECT", "WITH", "VALUES", "TABLE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN"];
/// First words of those that have a plan.
const PLANNED: [&str; 4] = ["SELECT", "WITH", "VALUES", "TABLE"];

/// Checks that a statement begins with one of these words.
///
/// Errors: `Invalid` for another one.
fn check_word(statement: &str, words: &[&str]) -> Result<()> {
    let word = first_word(statement.trim_start().trim_start_matches(['(', ' ', '\n']));
    if words.iter().any(|known| known.eq_ignore_ascii_case(word)) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "statements over MCP only read: expected one that begins with {}, found `{}`",
        words.join(", "),
        statement.trim().chars().take(40).collect::<String>()
    )))
}

/// Runs a statement with the caller's rights to read.
async fn run(context: &ToolContext, statement: String, format: Format) -> Result<EncodedReply> {
    let request = QueryRequest::new(statement, ORIGIN, context.principal.reading_only());
    context.database.query_encoded(request, format).await
}

/// Returns the columns and the first rows of a statement: a line of names and types, then a JSON object a line.
pub(crate) async fn query(context: ToolContext, arguments: SqlArguments) -> Result<String> {
    let SqlArguments { query, max_rows } = arguments;
    check_word(&query, &READING)?;
    let options = context.options.clone();
    let rows_max = max_rows.unwrap_or(options.rows);
    if !(1..=options.rows_max).contains(&rows_max) {
        return Err(Error::invalid(format!("max_rows = {rows_max}: expected 1 to {}", options.rows_max)));
    }
    let EncodedReply { columns, mut pieces, is_endless } = run(&context, query, Format::Ndjson).await?;
    if is_endless {
        return Err(Error::invalid(
            "a tool answers once, and the rows of tail() have no end: select from the stream itself",
        ));
    }
    let columns: Vec<String> =
        columns.iter().map(|column| format!("{} {}", column.name, column.type_name)).collect();
    let mut text = Vec::new();
    let (mut rows, mut end) = (0, 0);
    let mut is_cut = None;
    'pieces: while let Some(piece) = pieces.next().await {
        let from = text.len();
        text.extend_from_slice(&piece?);
        for (at, _) in text[from..].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            let line_end = from + at + 1;
            if rows == rows_max {
                is_cut = Some(format!(
                    "more rows follow: raise max_rows, up to {}, or select less",
                    options.rows_max
                ));
                break 'pieces;
            }
            if line_end > options.answer_bytes {
                let most = options.answer_bytes;
                is_cut =
                    Some(format!("more rows follow, beyond {most} bytes: select fewer or shorter columns"));
                break 'pieces;
            }
            (rows, end) = (rows + 1, line_end);
        }
        // a row that is longer than the answer may be
        if text.len() - end > options.answer_bytes {
            is_cut = Some(format!("the next row is longer than {} bytes", options.answer_bytes));
            break;
        }
    }
    // what is left of the statement ends here
    drop(pieces);
    text.truncate(end);
    let text = String::from_utf8(text).map_err(|e| Error::internal("rows are not UTF-8").with_source(e))?;
    let rest = is_cut.map_or(String::new(), |rest| format!(" ({rest})"));
    Ok(format!("columns: {}\n{text}{rows} rows{rest}\n", columns.join(", ")))
}

/// Returns the plan of a statement.
pub(crate) async fn plan(context: ToolContext, arguments: PlanArguments) -> Result<String> {
    check_word(&arguments.query, &PLANNED)?;
    let mut reply = run(&context, format!("EXPLAIN {}", arguments.query), Format::Table).await?;
    let mut text = Vec::new();
    while let Some(piece) = reply.pieces.next().await {
        text.extend_from_slice(&piece?);
        if text.len() > context.options.answer_bytes {
            break;
        }
    }
    Ok(cut(String::from_utf8_lossy(&text).into_owned(), context.options.answer_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_read_begin_well() {
        for good in
            ["select 1", " -- x\nWITH a AS (SELECT 1) SELECT * FROM a", "((select 1))", "Explain select 1"]
        {
            check_word(good, &READING).unwrap();
        }
        for bad in [
            "",
            "DELETE FROM a",
            "insert into a values (1)",
            "KILL QUERY 1",
            "UPDATE a SET b = 1",
            "selectx",
            "; select 1",
        ] {
            let error = check_word(bad, &READING).unwrap_err().to_string();
            assert!(error.contains("only read"), "{bad}: {error}");
        }
        assert!(check_word("explain analyze select 1", &PLANNED).is_err());
    }
}
