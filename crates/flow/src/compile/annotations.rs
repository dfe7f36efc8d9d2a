//! Validation of annotations.

use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry, AppAnnotation, ExprKind};
use tidemill_lang::{Diagnostic, FileId, SourceFile, siddhi};

use crate::io::one_of;

/// Returns diagnostics for the annotations of an app; unknown annotations are ignored.
pub fn check_app(annotations: &[AppAnnotation]) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let name = &annotation.name.name;
        if annotations[..i].iter().any(|a| a.name.name.eq_ignore_ascii_case(name)) {
            wrong.push(Diagnostic::error(
                "F0501",
                annotation.span,
                format!("duplicate annotation `@app:{name}`"),
            ));
        }
        if name.eq_ignore_ascii_case("async") {
            wrong.push(
                Diagnostic::error("F0502", annotation.span, "`@app:async` is not supported for a whole app")
                    .help("put `@async(buffer.size='1024')` before a stream"),
            );
        }
        if name.eq_ignore_ascii_case("playback") {
            wrong.extend(playback(annotation));
        }
    }
    wrong
}

fn playback(annotation: &AppAnnotation) -> Option<Diagnostic> {
    let unknown = annotation.elements.iter().find(|e| !e.has_key("idle.time") && !e.has_key("increment"));
    if let Some(element) = unknown {
        let key = element.key.as_ref().map_or("", |k| k.value.as_str());
        return Some(
            Diagnostic::error("F0503", element.span, format!("`@app:playback` has no element `{key}`"))
                .expected(["idle.time", "increment"]),
        );
    }
    if let Some(wrong) =
        annotation.elements.iter().find_map(|element| crate::compile::annotations::time(element).err())
    {
        return Some(wrong);
    }
    let both = annotation.element("idle.time").is_some() == annotation.element("increment").is_some();
    (!both).then(|| {
        Diagnostic::error(
            "F0504",
            annotation.span,
            "`idle.time` and `increment` need each other: give both or neither",
        )
    })
}

/// Returns the annotation with this name; `None` if it is absent.
///
/// Errors: there are two, or an element occurs twice.
pub fn at_most_one<'a>(
    annotations: &'a [Annotation],
    name: &str,
) -> Result<Option<&'a Annotation>, Diagnostic> {
    let mut found = annotations.iter().filter(|a| a.is(name));
    let Some(first) = found.next() else { return Ok(None) };
    if let Some(second) = found.next() {
        let message = format!("duplicate annotation `@{}`", second.name.name);
        return Err(Diagnostic::error("F0513", second.span, message).note_at(first.span, "first given here"));
    }
    let keys: Vec<_> = first.elements().filter_map(|element| element.key.as_ref()).collect();
    let is_again = |i: &usize| keys[..*i].iter().any(|key| key.value.eq_ignore_ascii_case(&keys[*i].value));
    match (0..keys.len()).find(is_again) {
        None => Ok(Some(first)),
        Some(i) => {
            Err(Diagnostic::error("F0513", keys[i].span, format!("duplicate element `{}`", keys[i].value)))
        }
    }
}

/// Returns whether failed events of a stream go to a fault stream. Errors: an unknown action.
pub fn has_fault_stream(annotations: &[Annotation]) -> Result<bool, Diagnostic> {
    let Some(on_error) = at_most_one(annotations, "OnError")? else { return Ok(false) };
    let actions = ["LOG", "STREAM", "STORE"];
    let Some(action) = on_error.element("action") else {
        return Err(Diagnostic::error("F0508", on_error.span, "`@OnError` needs an `action`")
            .expected(actions.map(|action| format!("action='{action}'"))));
    };
    Ok(one_of(&actions, action)? == "STREAM")
}

/// Checks `@async` before a stream. Errors: a known element that is not a whole number above 0.
pub fn check_stream(annotations: &[Annotation]) -> Result<(), Diagnostic> {
    if let Some(annotation) = at_most_one(annotations, "async")? {
        for element in annotation.elements() {
            let key = element.key.as_ref().map_or("", |k| k.value.as_str());
            let known = ["buffer.size", "workers", "batch.size.max"];
            if !known.iter().any(|k| key.eq_ignore_ascii_case(k)) {
                continue;
            }
            let text = &element.value.value;
            if text.trim().parse::<u32>().map_or(true, |n| n == 0) {
                let message = format!("`{key}` must be a whole number above 0, found `{text}`");
                return Err(Diagnostic::error("F0506", element.value.span, message));
            }
        }
    }
    Ok(())
}

/// Returns warnings for `@payload` and `@attributes` beside `@map`, which other systems ignore.
pub fn misplaced_mappings(annotations: &[Annotation]) -> impl Iterator<Item = Diagnostic> + '_ {
    let connections = annotations.iter().filter(|a| a.is("source") || a.is("sink"));
    let misplaced = connections.flat_map(|a| a.nested().filter(|n| is_mapping(n)));
    misplaced.map(|nested| {
        let message = format!("`@{}` has no effect outside of `@map`", nested.name.name);
        Diagnostic::warning("F0620", nested.span, message).help("move it into the parentheses of `@map(…)`")
    })
}

/// Returns whether an annotation belongs into `@map`.
pub(crate) fn is_mapping(annotation: &Annotation) -> bool {
    annotation.is("payload") || annotation.is("attributes")
}

/// Parses a duration in an annotation; returns milliseconds, above 0.
pub(crate) fn time(element: &AnnotationEntry) -> Result<i64, Diagnostic> {
    let text = &element.value.value;
    let read = siddhi::parse_expression(&SourceFile::new(FileId(0), "time", text));
    match read.map(|expr| expr.kind) {
        Ok(ExprKind::Time(time)) if time.ms > 0 => Ok(time.ms),
        _ => Err(Diagnostic::error("F1006", element.span, format!("`{text}` is not a duration above 0"))
            .help("write a duration such as '10 sec' or '1 hour 30 min'")),
    }
}
