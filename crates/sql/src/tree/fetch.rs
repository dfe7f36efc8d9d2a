//! `FETCH FIRST n ROWS ONLY` is `LIMIT n`.

use datafusion::logical_expr::sqlparser::ast::{Expr, Fetch, LimitClause, Query, Value};

/// Replaces `FETCH` of a query.
///
/// Errors: why it cannot be a limit.
pub(super) fn replace(query: &mut Query) -> Result<(), &'static str> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return Ok(()) };
    if with_ties || percent {
        return Err(
            "FETCH … WITH TIES and PERCENT are not supported: write FETCH FIRST n ROWS ONLY, or a condition on rank()",
        );
    }
    let limit =
        quantity.unwrap_or_else(|| Expr::Value(Value::Number("1".to_owned(), false).with_empty_span()));
    let offset = match query.limit_clause.take() {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) if limit_by.is_empty() => offset,
        Some(_) => return Err("a query has LIMIT or FETCH, not both"),
    };
    query.limit_clause = Some(LimitClause::LimitOffset { limit: Some(limit), offset, limit_by: vec![] });
    Ok(())
}
