//! Late events: what happens to those that are older than the clock of an app that goes by the events.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Annotation, App, Definition, StreamDefinition};
use tidemill_types::decode::Cell;
use tidemill_types::{Result, Timestamp, did_you_mean, event_json, row_value};

use super::cascade::Cascade;
use super::readable::Readable;
use super::{load, rows};

/// What happens to late events of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// How much older than the clock an event may be, milliseconds.
    pub allowed: i64,
    /// What happens to older ones.
    pub policy: LatePolicy,
}

/// See [`Late`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LatePolicy {
    /// The queries do not see them; `system.rejected` says so. They stay in their stream's table.
    Drop,
    /// They go to this stream of the same file instead.
    Stream(String),
    /// As with [`LatePolicy::Drop`]; the others correct what was put out.
    Correct,
}

/// The `@late` annotations of a file, by stream; `policy='correct'`, which holds for a whole file, is in its plan. Errors:
/// what is wrong with them.
pub fn of(app: &App) -> std::result::Result<BTreeMap<String, Late>, Vec<Diagnostic>> {
    let mut found = BTreeMap::new();
    let mut wrong = Vec::new();
    for definition in &app.definitions {
        let Definition::Stream(stream) = definition else { continue };
        let Some(annotation) = stream.annotations.iter().find(|a| a.is("late")) else { continue };
        match late(app, stream, annotation) {
            Ok(None) => {}
            Ok(Some(late)) => {
                found.insert(stream.id.name.name.clone(), late);
            }
            Err(diagnostic) => wrong.push(diagnostic),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

fn late(
    app: &App,
    stream: &StreamDefinition,
    annotation: &Annotation,
) -> std::result::Result<Option<Late>, Diagnostic> {
    if app.annotation("playback").is_none() {
        let message = "events are late only where the clock is that of the events";
        return Err(Diagnostic::error("E0106", annotation.span, message).help("add `@app:playback`"));
    }
    let allowed = match annotation.element("allowed") {
        Some(element) => load::time(element)?,
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
    Ok(Some(Late { allowed, policy }))
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

impl Cascade<'_> {
    /// Whether an event is too late for a unit; what its stream says about that is done.
    pub(super) fn is_late(
        &mut self,
        unit: usize,
        part: &Readable,
        row: usize,
        time: i64,
        depth: u32,
    ) -> Result<bool> {
        let queries = self.queries;
        let Some(stream) = part.stream else { return Ok(false) };
        let Some(late) = queries.units[unit].inputs.get(&stream).and_then(|i| i.late.as_ref()) else {
            return Ok(false);
        };
        let clock = self.state.flow.get_mut().now(unit);
        let Some(behind) = clock.map(|now| now - time).filter(|behind| *behind > late.allowed) else {
            return Ok(false);
        };
        let schema = &self.core.program.streams()[stream];
        match &late.policy {
            LatePolicy::Drop | LatePolicy::Correct => {
                self.too_late(unit, stream, &part.batch, row, behind, late.allowed);
            }
            LatePolicy::Stream(side) => {
                let Some(to) = self.core.program.stream_index(side) else { return Ok(false) };
                let target = &self.core.program.streams()[to];
                let cells = target.fields.iter().map(|f| match schema.field_index(&f.name) {
                    Some(i) => rows::cell_of(&row_value(&part.batch, i, row), f.ty),
                    None => Cell::Missing,
                });
                let cells = cells.collect();
                self.emit(None, to, cells, Timestamp(time.saturating_mul(1000)), depth + 1)?;
            }
        }
        Ok(true)
    }

    /// An event is left out by a unit: it came too far behind the clock, in milliseconds.
    pub(super) fn too_late(
        &mut self,
        unit: usize,
        stream: usize,
        batch: &RecordBatch,
        row: usize,
        behind: i64,
        allowed: i64,
    ) {
        let schema = &self.core.program.streams()[stream];
        let file = self.queries.name_of(unit);
        let reason = format!("{behind} ms behind the clock of {file}, which allows {allowed}");
        let event = serde_json::Value::from(event_json(schema, batch, row)).to_string();
        self.followed.late.push((stream, reason, event));
    }
}
