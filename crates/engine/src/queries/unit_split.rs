//! A file as two apps: what runs in every partition, and what runs in one.

use tidemill_flow::catalog::Catalog;
use tidemill_flow::io::file::is_file;
use tidemill_lang::Span;
use tidemill_lang::siddhi::ast::{
    Annotation, AnnotationArg, AnnotationEntry, App, Attribute, Definition, ExecutionElement, Ident, Query,
    Scope, StreamDefinition, StreamRef, Text, TypeName,
};

use super::placement::Placement;

/// Splits a file into the elements that run in every partition and those that run in one.
pub fn split_file(app: &App, placement: &Placement, catalog: &Catalog) -> [Option<App>; 2] {
    let is_everywhere = |i: usize| placement.elements.get(i).is_some_and(|p| p.partitioned);
    let elements = |everywhere: bool| -> Vec<ExecutionElement> {
        let all = app.elements.iter().zip(&placement.elements).enumerate();
        all.filter(|(i, _)| is_everywhere(*i) == everywhere)
            .map(|(_, (element, placed))| {
                with_query_names(element, placed.queries.iter().map(|(name, _)| name.as_str()))
            })
            .collect()
    };
    let (spread, together) = (elements(true), elements(false));
    if spread.is_empty() {
        return [None, Some(App { elements: together, ..app.clone() })];
    }
    // a stream that one part writes and the other reads has to be known in both
    let mut definitions = app.definitions.clone();
    definitions.extend(inferred_definitions(app, catalog));
    let streams = definitions.iter().filter_map(|definition| match definition {
        Definition::Stream(stream) => {
            let mut stream = stream.clone();
            stream.annotations.retain(|a| !is_connection(a));
            Some(Definition::Stream(stream))
        }
        Definition::Function(_) => Some(definition.clone()),
        _ => None,
    });
    let everywhere =
        App { elements: spread, definitions: streams.collect(), annotations: app.annotations.clone() };
    let stays = app.definitions.iter().any(|definition| match definition {
        Definition::Stream(stream) => stream.annotations.iter().any(is_connection),
        Definition::Function(_) => false,
        _ => true,
    });
    let one = (stays || !together.is_empty()).then(|| App { elements: together, definitions, ..app.clone() });
    [Some(everywhere), one]
}

/// Returns whether an annotation connects a stream with a topic or the log. Files are read and written
/// outside of the units.
fn is_connection(annotation: &Annotation) -> bool {
    (annotation.is("source") || annotation.is("sink")) && !is_file(annotation)
}

/// Definitions of the streams that queries define by writing them.
fn inferred_definitions<'a>(app: &'a App, catalog: &'a Catalog) -> impl Iterator<Item = Definition> + 'a {
    let span = Span::default();
    let ident = move |name: &str| Ident { name: name.to_owned(), span };
    let defined = |name: &str| app.definitions.iter().any(|d| d.name().name == name);
    let streams =
        catalog.streams().iter().filter(move |s| !s.name.starts_with(['#', '!']) && !defined(&s.name));
    streams.map(move |stream| {
        let attributes = stream.attributes.iter().map(|(name, ty)| Attribute {
            name: ident(name),
            ty: TypeName { ty: *ty, span },
            span,
        });
        Definition::Stream(StreamDefinition {
            annotations: vec![],
            id: StreamRef { name: ident(&stream.name), scope: Scope::App, span },
            attributes: attributes.collect(),
            span,
        })
    })
}

/// The element with the names that its queries have in the whole file.
fn with_query_names<'n>(
    element: &ExecutionElement,
    names: impl Iterator<Item = &'n str>,
) -> ExecutionElement {
    let mut element = element.clone();
    let queries = match &mut element {
        ExecutionElement::Query(query) => std::slice::from_mut(query.as_mut()),
        ExecutionElement::Partition(block) => block.queries.as_mut_slice(),
    };
    for (query, name) in queries.iter_mut().zip(names) {
        name_query(query, name);
    }
    element
}

fn name_query(query: &mut Query, name: &str) {
    if query.annotations.iter().any(|a| a.is("info") && a.element("name").is_some()) {
        return;
    }
    let span = query.span;
    let text = |value: &str| Text { value: value.to_owned(), span };
    let element = AnnotationEntry { key: Some(text("name")), value: text(name), span };
    query.annotations.push(Annotation {
        name: Ident { name: "info".into(), span },
        args: vec![AnnotationArg::Element(element)],
        span,
    });
}
