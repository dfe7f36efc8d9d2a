//! `@late(policy='correct', allowed='1 min')`: late events correct emitted output.
//!
//! The annotation of a stream applies to the whole app, because its queries share a clock and state. The
//! engine implements the other policies.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Annotation, App, Definition, StreamDefinition};

use crate::compile::annotations::time;
use crate::compile::compiler::not_repeatable;

/// Source and sink type that only connects streams within an app.
const INSIDE: &str = "inMemory";

/// Returns how far behind the app's time a correcting event may be, in milliseconds; `None` if the policy is
/// not used.
///
/// Errors: invalid annotations, and sources and sinks that cannot process events again.
pub(super) fn correction_span(app: &App) -> Result<Option<i64>, Vec<Diagnostic>> {
    let said = app.definitions.iter().filter_map(|definition| match definition {
        Definition::Stream(stream) => Some((stream, stream.annotations.iter().find(|a| a.is("late"))?)),
        _ => None,
    });
    let said: Vec<(&StreamDefinition, &Annotation)> = said.collect();
    let is_correct =
        |annotation: &Annotation| annotation.element("policy").is_some_and(|p| p.value.value == "correct");
    let mut wrong = Vec::new();
    let others = app.definitions.iter().filter(|definition| !matches!(definition, Definition::Stream(_)));
    for annotation in others.flat_map(Definition::annotations).filter(|a| a.is("late") && is_correct(a)) {
        let message = "`@late` is only allowed before a stream";
        wrong.push(
            Diagnostic::error("F0511", annotation.span, message)
                .help("put it before a stream that receives events; it applies to the whole file"),
        );
    }
    let Some((first, annotation)) = said.iter().find(|(_, annotation)| is_correct(annotation)) else {
        return if wrong.is_empty() { Ok(None) } else { Err(wrong) };
    };
    if app.annotation("playback").is_none() {
        let message = "`policy='correct'` needs event time: otherwise no event is late";
        wrong.push(Diagnostic::error("F0507", annotation.span, message).help("add `@app:playback`"));
    }
    let allowed = allowed(annotation);
    for element in said.iter().filter(|(_, a)| is_correct(a)).flat_map(|(_, a)| a.elements()) {
        if !element.has_key("policy") && !element.has_key("allowed") {
            let key = element.key.as_ref().map_or("", |key| key.value.as_str());
            let message = format!("`policy='correct'` has no element `{key}`");
            wrong.push(Diagnostic::error("F0508", element.span, message).expected(["allowed='1 min'"]));
        }
    }
    for (stream, other) in &said {
        let name = &stream.id.name.name;
        let differs = match (&allowed, self::allowed(other)) {
            _ if !is_correct(other) => format!("`{name}` cannot have another policy for late events"),
            (Ok(one), Ok(other)) if *one != other => {
                format!("`{name}` allows {other} ms, but `{}` allows {one} ms", first.id.name.name)
            }
            _ => continue,
        };
        wrong.push(
            Diagnostic::error("F0509", other.span, differs)
                .note("`policy='correct'` applies to the whole file: its queries share a clock")
                .help("put the same annotation before all these streams or before one of them only; or move the queries to another file"),
        );
    }
    wrong.extend(connections(app));
    match allowed {
        Ok(allowed) if wrong.is_empty() => return Ok(Some(allowed)),
        Ok(_) => {}
        Err(diagnostic) => wrong.push(diagnostic),
    }
    Err(wrong)
}

fn allowed(annotation: &Annotation) -> Result<i64, Diagnostic> {
    match annotation.element("allowed") {
        Some(element) => time(element),
        None => {
            let message = "`policy='correct'` needs `allowed`: how far behind the clock an event may be";
            Err(Diagnostic::error("F0508", annotation.span, message)
                .expected(["allowed='1 min'"])
                .note("events of this time span are kept in memory; the queries do not see later ones"))
        }
    }
}

/// Reports the sources and sinks through which reprocessed events would pass again.
fn connections(app: &App) -> impl Iterator<Item = Diagnostic> + '_ {
    let streams = app.definitions.iter().filter_map(|definition| match definition {
        Definition::Stream(stream) => Some(stream),
        _ => None,
    });
    let connections = streams.flat_map(|s| &s.annotations).filter(|a| a.is("source") || a.is("sink"));
    connections.filter_map(|annotation| {
        let ty = annotation.element("type").filter(|ty| ty.value.value != INSIDE)?;
        let kind = if annotation.is("source") { "source" } else { "sink" };
        let what = format!("a {kind} of type `{}` cannot process events again", ty.value.value);
        Some(not_repeatable(annotation.span, &what))
    })
}
