//! Streams, rules and queries.

use tidemill_access::{Action, Resource};
use tidemill_types::Result;

use super::{cut, on_engine};
use crate::arguments::NoArguments;
use crate::engine::NamedObject;
use crate::handler::ToolContext;

/// Returns the objects that the caller may read, one a line.
fn readable(context: &ToolContext, objects: &[NamedObject], resource: fn(&str) -> Resource<'_>) -> String {
    let may_read = |object: &&NamedObject| context.principal.can(Action::Read, &resource(&object.name));
    objects.iter().filter(may_read).map(|object| object.description.to_string() + "\n").collect()
}

/// Lists the streams that the caller may read.
pub(crate) async fn list_streams(context: ToolContext, _: NoArguments) -> Result<String> {
    let streams = on_engine(&context.engine, context.options.tool_timeout, |engine| engine.streams()).await?;
    let text = readable(&context, &streams, |name| Resource::stream(name));
    if text.is_empty() {
        return Ok("There are no streams that you may read.".to_owned());
    }
    Ok(cut(text, context.options.answer_bytes))
}

/// Lists the rules and queries that the caller may read.
pub(crate) async fn list_rules(context: ToolContext, _: NoArguments) -> Result<String> {
    let limit = context.options.tool_timeout;
    let all = on_engine(&context.engine, limit, |engine| Ok((engine.rules()?, engine.queries()?)));
    let (rules, queries) = all.await?;
    let rules = readable(&context, &rules, |name| Resource::rule(name));
    let text = rules + &readable(&context, &queries, |name| Resource::query(name));
    if text.is_empty() {
        return Ok("There are no rules and queries that you may read.".to_owned());
    }
    Ok(cut(text, context.options.answer_bytes))
}
