//! Late events: what happens to those that are older than the clock of an app that goes by the events.

use std::collections::BTreeMap;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Annotation, App, Definition, StreamDefinition};
use tidemill_types::did_you_mean;

use super::compile;

/// Rule for late events of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateRule {
    /// Time by which an event may be older than the clock, in milliseconds.
    pub allowed: i64,
    /// Policy for older events.
    pub policy: LatePolicy,
}

/// See [`LateRule`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LatePolicy {
    /// The queries do not see them; `system.rejected` says so. They stay in their stream's table.
    Drop,
    /// They go to this stream of the same file instead.
    Stream(String),
    /// As with [`LatePolicy::Drop`]; the others correct what was emitted.
    Correct,
}

/// The `@late` annotations of a file, by stream; `policy='correct'`, which holds for a whole file, is in its plan. Errors:
/// what is wrong with them.
pub fn late_rules(app: &App) -> std::result::Result<BTreeMap<String, LateRule>, Vec<Diagnostic>> {
    let mut found = BTreeMap::new();
    let mut wrong = Vec::new();
    for definition in &app.definitions {
        let Definition::Stream(stream) = definition else { continue };
        let Some(annotation) = stream.annotations.iter().find(|a| a.is("late")) else { continue };
        match parse_late_rule(app, stream, annotation) {
            Ok(None) => {}
            Ok(Some(late)) => {
                found.insert(stream.id.name.name.clone(), late);
            }
            Err(diagnostic) => wrong.push(diagnostic),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn parse_late_rule(
    app: &App,
    stream: &StreamDefinition,
    annotation: &Annotation,
) -> std::result::Result<Option<LateRule>, Diagnostic> {
    if app.annotation("playback").is_none() {
        let message = "events are late only where the clock is that of the events";
        return Err(Diagnostic::error("E0106", annotation.span, message).help("add `@app:playback`"));
    }
    let allowed = match annotation.element("allowed") {
        Some(element) => compile::time_option(element)?,
        None => 0,
    };
    let Some(policy) = annotation.element("policy") else {
        return Err(Diagnostic::error("E0106", annotation.span, "`@late` needs a policy").expected([
            "policy='drop'",
            "policy='stream'",
            "policy='correct'",
        ]));
    };
    let policy = match policy.value.value.as_str() {
        "drop" => LatePolicy::Drop,
        "stream" => LatePolicy::Stream(side_stream(app, stream, annotation)?),
        "correct" => return Ok(None),
        other => {
            let hint = did_you_mean(other, ["drop", "stream", "correct"]);
            let message = format!("there is no policy `{other}`{hint}");
            return Err(Diagnostic::error("E0106", policy.span, message));
        }
    };
    Ok(Some(LateRule { allowed, policy }))
}

/// The stream that late events go to: `stream='Name'`, defined with the same attributes.
fn side_stream(
    app: &App,
    stream: &StreamDefinition,
    annotation: &Annotation,
) -> std::result::Result<String, Diagnostic> {
    let Some(element) = annotation.element("stream") else {
        let message = "the policy `stream` needs the name of a stream";
        return Err(Diagnostic::error("E0106", annotation.span, message).expected(["stream='NAME'"]));
    };
    let name = &element.value.value;
    let other = app.definitions.iter().find_map(|d| match d {
        Definition::Stream(d) if d.id.name.name == *name => Some(d),
        _ => None,
    });
    let attributes = |d: &StreamDefinition| -> Vec<(String, tidemill_types::FieldType)> {
        d.attributes.iter().map(|a| (a.name.name.clone(), a.ty.ty)).collect()
    };
    match other {
        Some(other) if attributes(other) == attributes(stream) => Ok(name.clone()),
        _ => {
            let message = format!("`{name}` is not defined with the attributes of `{}`", stream.id.name.name);
            Err(Diagnostic::error("E0106", element.span, message))
        }
    }
}
