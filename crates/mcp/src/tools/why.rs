//! What rules and queries did, and why.

use tidemill_access::{Action, Resource};
use tidemill_types::{Error, Result};

use super::{cut, on_engine};
use crate::arguments::WhyArguments;
use crate::handler::ToolContext;

/// Explains what a rule, or all rules, did with an event; or why a query emits nothing.
pub(crate) async fn why(context: ToolContext, arguments: WhyArguments) -> Result<String> {
    let WhyArguments { rule, event, query, file, key } = arguments;
    let (principal, options) = (&context.principal, &context.options);
    let text = match (query, event) {
        (Some(query), None) if rule.is_none() => {
            principal.may(Action::Read, &Resource::query(&query))?;
            on_engine(&context.engine, options.tool_timeout, move |engine| {
                engine.why_query(file.as_deref(), &query, key.as_deref())
            })
            .await?
        }
        (None, Some(event)) if file.is_none() && key.is_none() => {
            match &rule {
                Some(rule) => principal.may(Action::Read, &Resource::rule(rule))?,
                None => principal.may(Action::Read, &Resource::all_rules())?,
            }
            on_engine(&context.engine, options.tool_timeout, move |engine| {
                engine.why_rule(rule.as_deref(), &event)
            })
            .await?
        }
        _ => {
            return Err(Error::invalid(
                "expected `event`, and `rule` for one rule; or `query`, with `file` and `key` if it needs them",
            ));
        }
    };
    Ok(cut(text, options.answer_bytes))
}
