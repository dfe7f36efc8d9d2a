//! Streams that several files name: they have to mean the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_flow::plan::AppPlan;
use tidemill_lang::siddhi::ast::{App, Definition};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{FieldType, StreamSchema, did_you_mean};

/// The streams that a file defines, each with its `@key`. Errors: a key that is not an attribute, reserved
/// names.
pub fn stream_keys(app: &App) -> Result<BTreeMap<String, Option<String>>, Vec<Diagnostic>> {
    let mut keys = BTreeMap::new();
    let mut wrong = Vec::new();
    for definition in &app.definitions {
        let Definition::Stream(stream) = definition else { continue };
        let name = &stream.id.name;
        if name.name.starts_with("system.") {
            let message = format!("names that begin with `system.` belong to the system: `{}`", name.name);
            wrong.push(Diagnostic::error("E0105", name.span, message).help("choose another name"));
        }
        for attribute in stream.attributes.iter().filter(|a| a.name.name.starts_with('_')) {
            let message =
                format!("names that begin with `_` belong to the system: `{}`", attribute.name.name);
            wrong.push(Diagnostic::error("E0105", attribute.name.span, message).help("choose another name"));
        }
        let annotation = stream.annotations.iter().find(|a| a.is("key"));
        let Some(element) = annotation.and_then(|a| a.elements().next()) else {
            if let Some(annotation) = annotation {
                let what = Diagnostic::error("E0101", annotation.span, "a key is an attribute");
                wrong.push(what.expected(["@key('ATTRIBUTE')"]));
            }
            keys.insert(name.name.clone(), None);
            continue;
        };
        let key = &element.value.value;
        match stream.attributes.iter().find(|a| a.name.name == *key) {
            Some(a) if a.ty.ty != FieldType::Object => {}
            Some(_) => wrong.push(Diagnostic::error("E0101", element.span, "an object cannot be a key")),
            None => {
                let hint = did_you_mean(key, stream.attributes.iter().map(|a| a.name.name.as_str()));
                let message = format!("`{}` has no attribute `{key}`{hint}", name.name);
                wrong.push(Diagnostic::error("E0101", element.span, message));
            }
        }
        keys.insert(name.name.clone(), Some(key.clone()));
    }
    if wrong.is_empty() { Ok(keys) } else { Err(wrong) }
}

/// Checks that the streams of a file are what is declared elsewhere: each attribute is a field of the same
/// type (`long` for a `time`), and a key is the same key.
pub fn check_declared(
    app: &App,
    plan: &AppPlan,
    declared: &[Arc<StreamSchema>],
) -> Result<(), Vec<Diagnostic>> {
    let mut wrong = Vec::new();
    for stream in super::compile::engine_streams(plan) {
        let Some(schema) = declared.iter().find(|s| s.name == stream.name) else { continue };
        let place = StreamSite::of(app, &stream.name, stream.span);
        for (name, ty) in &stream.attributes {
            let span = place.attribute(name);
            let known = schema.fields.iter().map(|f| f.name.as_str());
            match schema.field_index(name).map(|i| schema.fields[i].ty) {
                None => {
                    let hint = did_you_mean(name, known);
                    let message = format!("`{}` is declared without a field `{name}`{hint}", schema.name);
                    wrong.push(Diagnostic::error("E0102", span, message).note(
                        "a stream that rules or another file declare has its fields; a query may leave some out",
                    ));
                }
                Some(declared) if is_compatible(declared, *ty) => {}
                Some(declared) => {
                    let message =
                        format!("`{name}` of `{}` is declared as {declared}, not as {ty}", schema.name);
                    let diagnostic = Diagnostic::error("E0103", span, message);
                    wrong.push(match declared {
                        FieldType::Time => diagnostic.help("a time is a long here: milliseconds since 1970"),
                        _ => diagnostic,
                    });
                }
            }
        }
        let key = schema.key.map(|i| schema.fields[i].name.as_str());
        if let Some((given, span)) = place.key
            && key != Some(given)
        {
            let declared = key.map_or("without a key".into(), |key| format!("with the key `{key}`"));
            let message = format!("`{}` is declared {declared}", schema.name);
            wrong.push(Diagnostic::error("E0101", span, message));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn is_compatible(declared: FieldType, attribute: FieldType) -> bool {
    declared == attribute || declared == FieldType::Time && attribute == FieldType::Long
}

/// Definition of a stream in a file.
struct StreamSite<'a> {
    span: Span,
    attributes: Vec<(&'a str, Span)>,
    key: Option<(&'a str, Span)>,
}

impl<'a> StreamSite<'a> {
    fn of(app: &'a App, stream: &str, written: Span) -> Self {
        let definition = app.definitions.iter().find_map(|d| match d {
            Definition::Stream(d) if d.id.name.name == stream => Some(d),
            _ => None,
        });
        let Some(definition) = definition else {
            return Self { span: written, attributes: vec![], key: None };
        };
        let key = definition.annotations.iter().find(|a| a.is("key")).and_then(|a| a.elements().next());
        Self {
            span: definition.span,
            attributes: definition.attributes.iter().map(|a| (a.name.name.as_str(), a.span)).collect(),
            key: key.map(|e| (e.value.value.as_str(), e.span)),
        }
    }

    fn attribute(&self, name: &str) -> Span {
        self.attributes.iter().find(|(known, _)| *known == name).map_or(self.span, |(_, span)| *span)
    }
}
