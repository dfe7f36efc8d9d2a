//! The streams of what is taken back: `MeansRetracted` of `Means`, with the same fields.
//!
//! They exist wherever late events correct what was emitted, as streams like any other: stored, asked with
//! SQL, subscribed to, read by rules and by the queries of other files.

use std::sync::Arc;

use tidemill_flow::plan::AppPlan;
use tidemill_lang::Diagnostic;
use tidemill_types::StreamSchema;

use super::compile::{engine_streams, written_streams};
use super::runtime::UnitOutput;
use super::{OutputMapping, Unit};

/// Returns the name of the stream of what is taken back of a stream.
pub fn retraction_stream(stream: &str) -> String {
    format!("{stream}Retracted")
}

/// Adds these streams for what a file writes.
///
/// Errors: one of that name is there and is another.
pub fn declare(
    plan: &AppPlan,
    declared: &mut Vec<Arc<StreamSchema>>,
) -> std::result::Result<(), Vec<Diagnostic>> {
    if plan.corrected.is_none() {
        return Ok(());
    }
    let mut wrong = Vec::new();
    let written: Vec<&str> = written_streams(plan).collect();
    for stream in engine_streams(plan).filter(|stream| written.contains(&stream.name.as_str())) {
        let Some(of) = declared.iter().find(|s| s.name == stream.name) else { continue };
        let name = retraction_stream(&stream.name);
        let companion =
            StreamSchema { name: name.clone(), id: vec![], time: None, ..StreamSchema::clone(of) };
        let taken = |span| {
            Diagnostic::error(
                "E0108",
                span,
                format!("`{name}` is reserved for retractions of `{}`", stream.name),
            )
        };
        if let Some(own) = plan.catalog.find(&name) {
            let span = plan.catalog.streams()[own].span;
            wrong.push(
                taken(span).help("give this stream another name; to read the retractions, use another file"),
            );
            continue;
        }
        match declared.iter().find(|s| s.name == name) {
            None => declared.push(Arc::new(companion)),
            Some(known) if known.fields == companion.fields => {}
            Some(_) => wrong.push(
                taken(stream.span)
                    .note(format!(
                        "rules or another file declare `{name}` with other fields than those of `{}`",
                        stream.name
                    ))
                    .help("declare it with the same fields, or not at all"),
            ),
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

impl Unit {
    /// Returns the mapping of an output of the unit.
    pub fn output(&self, out: &UnitOutput) -> Option<&OutputMapping> {
        if out.retracted { self.retractions.get(&out.stream) } else { self.outputs.get(&out.stream) }
    }

    /// The streams of what it takes back, in order.
    pub fn retracts(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.retractions.keys().map(|stream| retraction_stream(stream)).collect();
        names.sort();
        names
    }
}
