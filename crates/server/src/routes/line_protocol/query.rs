//! The statement that clients of InfluxDB 1 send before they write.

use axum::Json;
use axum::extract::Query;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::errors::WriteErrorV1;
use crate::body::RequestBody;
use crate::error::ApiError;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatementParams {
    /// `CREATE DATABASE name`, here or as a form in the body.
    #[serde(default)]
    q: Option<String>,
}

/// Outcome of statements.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatementResults {
    results: Vec<StatementResult>,
}

/// Outcome of a statement without rows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatementResult {
    statement_id: u32,
}

/// Accept `CREATE DATABASE`, which Telegraf and clients of InfluxDB 1 send before they write. It has no effect.
///
/// Other statements are refused: SQL has the route `/api/v1/sql`.
#[utoipa::path(
    post, path = "/query", tag = "line protocol", operation_id = "createDatabaseV1", params(StatementParams),
    request_body(description = "The parameters as a form", content((String = "application/x-www-form-urlencoded"))),
    responses(
        (status = 200, description = "Accepted", body = StatementResults),
        (status = 400, description = "Another statement", body = WriteErrorV1),
    ),
)]
pub(crate) async fn create_database(
    uri: Uri,
    content: RequestBody,
) -> Result<Json<StatementResults>, ApiError> {
    let in_query = parameters(uri.query().unwrap_or_default())?;
    let text = std::str::from_utf8(&content.bytes).map_err(|_| ApiError::invalid("the form is not UTF-8"))?;
    let statement = match in_query.q {
        Some(statement) => Some(statement),
        None => parameters(text)?.q,
    };
    let statement = statement.ok_or_else(|| ApiError::invalid("missing required parameter \"q\""))?;
    if !is_create_database(&statement) {
        return Err(ApiError::invalid(
            "InfluxQL is not understood but for CREATE DATABASE: ask in SQL with POST /api/v1/sql",
        ));
    }
    Ok(Json(StatementResults { results: vec![StatementResult { statement_id: 0 }] }))
}

/// Parses a form. Other parameters, such as `db` and `p`, are for other statements.
fn parameters(form: &str) -> Result<StatementParams, ApiError> {
    let uri: Uri = Uri::builder().path_and_query(format!("/?{}", form.trim())).build().map_err(|_| {
        ApiError::invalid("the form is not percent-encoded: expected `q=CREATE%20DATABASE%20name`")
    })?;
    let parsed: Result<Query<StatementParams>, _> = Query::try_from_uri(&uri);
    parsed.map(|Query(found)| found).map_err(|e| ApiError::invalid(e.body_text()))
}

/// Returns whether a statement is `CREATE DATABASE` with one name and perhaps a clause behind it.
fn is_create_database(statement: &str) -> bool {
    let statement = statement.trim().trim_end_matches(';');
    let mut words = statement.split_ascii_whitespace();
    let is_word =
        |found: Option<&str>, word: &str| found.is_some_and(|found| found.eq_ignore_ascii_case(word));
    is_word(words.next(), "create")
        && is_word(words.next(), "database")
        && words.next().is_some()
        && !statement.contains(';')
}

#[cfg(test)]
mod tests {
    use super::is_create_database;

    #[test]
    fn one_statement_creates_a_database() {
        for good in [
            "CREATE DATABASE telegraf",
            " create database \"my db\" ;",
            "CREATE DATABASE a WITH DURATION 3d NAME b",
        ] {
            assert!(is_create_database(good), "{good}");
        }
        for bad in
            ["", "CREATE DATABASE", "DROP DATABASE a", "CREATE DATABASE a; DROP DATABASE b", "SHOW DATABASES"]
        {
            assert!(!is_create_database(bad), "{bad}");
        }
    }
}
