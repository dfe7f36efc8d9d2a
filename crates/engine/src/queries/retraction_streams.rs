//! The streams of what is taken back: `MeansRetracted` of `Means`, with the same fields.
//!
//! They are there wherever late events correct what was put out, as streams like any other: stored, asked with SQL,
//! subscribed to, read by rules and by the queries of other files.

use std::sync::Arc;

use tidemill_flow::plan::AppPlan;
use tidemill_lang::Diagnostic;
use tidemill_types::{Result, StreamSchema};

use super::cascade::{Cascade, DEPTH_MAX};
use super::compile::{engine_streams, written_streams};
use super::runtime::UnitOutput;
use super::{OutputMapping, Unit};

/// What the stream of what is taken back of a stream is called.
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
                format!("`{name}` is for what is taken back of `{}`", stream.name),
            )
        };
        if let Some(own) = plan.catalog.find(&name) {
            let span = plan.catalog.streams()[own].span;
            wrong.push(
                taken(span)
                    .help("give this stream another name; to read what is taken back, use another file"),
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
    /// How what comes out of it goes on.
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

impl Cascade<'_> {
    /// Works late events in. What is corrected may lead to events that are late in turn, where files read each other.
    pub(super) fn apply_corrections(&mut self) -> Result<()> {
        let queries = self.queries;
        let corrected = |unit: &usize| queries.units[*unit].plan.corrected.is_some();
        let units: Vec<usize> = (0..queries.units.len()).filter(corrected).collect();
        for _ in 0..DEPTH_MAX {
            let mut changed = false;
            for unit in &units {
                let mut out = Vec::new();
                self.state.query_state.get_mut().apply_corrections(queries, *unit, &mut out);
                changed |= !out.is_empty();
                self.propagate(*unit, out, 1)?;
            }
            if !changed {
                return Ok(());
            }
        }
        let problem =
            format!("corrections lead to further ones more than {DEPTH_MAX} times: is there a loop?");
        let file = units.first().map_or("", |unit| queries.file_name(*unit));
        self.state.query_state.get_mut().count_failure(file, "late events", &problem);
        Ok(())
    }
}
