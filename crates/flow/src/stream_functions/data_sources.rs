//! Data sources that calls of `rdbms:query` and `rdbms:cud` name.

use std::collections::BTreeMap;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Call, ExprKind, Literal, Query};

use super::calls;
use crate::compile::compiler::call_name;
use crate::registry::left_open;

/// Returns warnings for calls in a query that name a data source which is not among the known ones.
pub(crate) fn unknown_data_sources<V>(query: &Query, known: &BTreeMap<String, V>) -> Vec<Diagnostic> {
    let unknown = |call: &Call| {
        let first = call.args.list().first()?;
        let ExprKind::Literal(Literal::Text(name)) = &first.kind else { return None };
        let is_database = ["rdbms:query", "rdbms:cud"].contains(&call_name(call).as_str());
        (is_database && !known.contains_key(name)).then(|| {
            let error =
                Diagnostic::error("F0607", first.span, format!("app.toml has no datasource `{name}`"));
            left_open(
                error.help(format!("write `[datasources.{name}]` with url, username, password in app.toml")),
            )
        })
    };
    calls(query).filter_map(unknown).collect()
}
