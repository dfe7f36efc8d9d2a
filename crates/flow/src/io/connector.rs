//! Compilation of `@source` and `@sink` of connectors to other systems.

use std::path::PathBuf;
use std::sync::Arc;

use tidemill_connect::{
    Catalog, ConnectorConfig, ConnectorContext, Distribution, MapperConfig, NamedText, OnError, OptionError,
    OptionPlace,
};
use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{Field, StreamSchema};

use super::file_route::FileRoute;
use super::{DistributionStrategy, SINKS, SOURCES, file, one_of, strategy};
use crate::catalog::Attributes;
use crate::compile::annotations::{has_fault_stream, is_mapping};
use crate::registry::left_open;

/// Connection of a stream with another system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connector {
    /// Index of the stream.
    pub stream: usize,
    /// Incoming or outgoing, with the configuration.
    pub direction: ConnectorDirection,
}

/// Direction of a connector, with its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectorDirection {
    /// Events come in.
    In(ConnectorConfig),
    /// Events go out.
    Out(ConnectorSinkConfig),
}

/// Configuration of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorSinkConfig {
    /// One configuration for each destination.
    pub destinations: Vec<ConnectorConfig>,
    /// Strategy that selects the destinations of an event.
    pub strategy: DistributionStrategy,
    /// Handling of an event that the other side refuses.
    pub on_error: OnError,
}

impl ConnectorSinkConfig {
    /// Returns how events are distributed among the destinations; `None` if each gets all.
    pub fn distribution(&self) -> Option<Distribution> {
        match self.strategy {
            DistributionStrategy::Broadcast => None,
            DistributionStrategy::RoundRobin => Some(Distribution::RoundRobin),
            DistributionStrategy::Partitioned(column) => Some(Distribution::Partitioned(column)),
        }
    }
}

/// Stream that is connected.
pub struct ConnectedStream<'a> {
    /// Its index in the plan.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
    /// Its attributes.
    pub attributes: &'a Attributes,
}

/// Compiles the connectors of a stream. With `open`, a connector in which a value is to be filled in later is left out, and the
/// warning goes there.
///
/// Errors: an unknown type, wrong options of a connector or its mapper.
pub(crate) fn compile(
    annotations: &[Annotation],
    stream: &ConnectedStream<'_>,
    catalog: &Catalog,
    files: &FileRoute<'_>,
    mut open: Option<&mut Vec<Diagnostic>>,
) -> Result<Vec<Connector>, Diagnostic> {
    let mut connectors = vec![];
    for annotation in annotations {
        let own: &[&str] = match (annotation.is("source"), annotation.is("sink")) {
            (true, _) => &SOURCES,
            (_, true) => &SINKS,
            _ => continue,
        };
        let Some(kind) = annotation.element("type") else { continue };
        let is_elsewhere = match file::is_file(annotation) {
            true => !files.uses_connector(annotation)?,
            false => own.contains(&kind.value.value.as_str()),
        };
        if is_elsewhere {
            continue;
        }
        let context = ConnectorContext {
            name: stream.name.to_owned(),
            writer: String::new(),
            app: String::new(),
            schema: schema(stream),
            dir: PathBuf::new(),
            mapper: None,
            shares_partitions: false,
        };
        let direction = match annotation.is("source") {
            true => {
                let config = config(annotation, kind, None)?;
                let created = catalog.create_source(&config, &context).map(drop);
                if is_left_open(created, annotation, None, &mut open)? {
                    continue;
                }
                ConnectorDirection::In(config)
            }
            false => {
                let Some(config) = sink(annotation, kind, stream, catalog, &context, &mut open)? else {
                    continue;
                };
                if config.on_error == OnError::Stream && !has_fault_stream(annotations)? {
                    let message =
                        format!("`on.error='STREAM'` sends to `!{}`, which there is not", stream.name);
                    let span = annotation.element("on.error").map_or(annotation.span, |e| e.span);
                    return Err(Diagnostic::error("F0619", span, message).help(format!(
                        "write `@OnError(action='STREAM')` before `define stream {}`",
                        stream.name
                    )));
                }
                ConnectorDirection::Out(config)
            }
        };
        connectors.push(Connector { stream: stream.index, direction });
    }
    Ok(connectors)
}

/// Returns the events of a stream as connectors see them.
pub fn schema(stream: &ConnectedStream<'_>) -> Arc<StreamSchema> {
    let fields = stream.attributes.iter().map(|(name, ty)| Field::new(name.clone(), *ty)).collect();
    Arc::new(StreamSchema { name: stream.name.to_owned(), fields, key: None, id: vec![], time: None })
}

fn sink(
    annotation: &Annotation,
    kind: &AnnotationEntry,
    stream: &ConnectedStream<'_>,
    catalog: &Catalog,
    context: &ConnectorContext,
    open: &mut Option<&mut Vec<Diagnostic>>,
) -> Result<Option<ConnectorSinkConfig>, Diagnostic> {
    let on_error = match annotation.element("on.error") {
        None => OnError::default(),
        Some(action) => {
            OnError::parse(one_of(&OnError::ALL.map(|(name, _)| name), action)?).unwrap_or_default()
        }
    };
    let distribution = annotation.nested().find(|n| n.is("distribution"));
    let (strategy, parts) = match distribution {
        None => (DistributionStrategy::Broadcast, vec![None]),
        Some(distribution) => {
            let parts: Vec<_> = distribution.nested().filter(|n| n.is("destination")).map(Some).collect();
            if parts.is_empty() {
                let message = "a distribution needs at least one destination";
                return Err(
                    Diagnostic::error("F0606", distribution.span, message).expected(["@destination(…='…')"])
                );
            }
            (strategy(distribution, stream.attributes)?, parts)
        }
    };
    let mut destinations = vec![];
    for part in parts {
        let config = config(annotation, kind, part)?;
        let opened = catalog.open_sink(&config, context).map(drop);
        if is_left_open(opened, annotation, part, open)? {
            return Ok(None);
        }
        destinations.push(config);
    }
    Ok(Some(ConnectorSinkConfig { destinations, strategy, on_error }))
}

/// Returns whether a connector is left out because a value is to be filled in later, which is noted in `open`.
///
/// Errors: what is wrong with its options otherwise.
fn is_left_open(
    created: Result<(), OptionError>,
    annotation: &Annotation,
    destination: Option<&Annotation>,
    open: &mut Option<&mut Vec<Diagnostic>>,
) -> Result<bool, Diagnostic> {
    let Err(error) = created else { return Ok(false) };
    let wrong = diagnostic(&error, annotation, destination);
    match open {
        Some(warnings) if error.is_open => {
            warnings.push(left_open(wrong));
            Ok(true)
        }
        _ => Err(wrong),
    }
}

/// Collects what an annotation says, with the options of one destination.
fn config(
    annotation: &Annotation,
    kind: &AnnotationEntry,
    destination: Option<&Annotation>,
) -> Result<ConnectorConfig, Diagnostic> {
    let own = annotation.elements().filter(|e| !e.has_key("type") && !e.has_key("on.error"));
    let options = options(own.chain(destination.into_iter().flat_map(Annotation::elements)))?;
    let mut mapper = None;
    for nested in annotation.nested().filter(|n| !n.is("distribution") && !is_mapping(n)) {
        if !nested.is("map") || mapper.is_some() {
            let message = format!("`@{}` is not expected here", nested.name.name);
            return Err(Diagnostic::error("F0612", nested.span, message)
                .expected(["one @map(type='…')", "@distribution(…)"]));
        }
        mapper = Some(self::mapper(nested)?);
    }
    Ok(ConnectorConfig { kind: kind.value.value.clone(), options, mapper })
}

pub(super) fn mapper(map: &Annotation) -> Result<MapperConfig, Diagnostic> {
    let Some(kind) = map.element("type") else {
        return Err(Diagnostic::error("F0601", map.span, "a mapper needs a `type`").expected(["type='json'"]));
    };
    let mut config = MapperConfig {
        kind: kind.value.value.clone(),
        options: options(map.elements().filter(|e| !e.has_key("type")))?,
        ..MapperConfig::default()
    };
    let texts = |nested: &Annotation| -> Vec<NamedText> {
        let text = |e: &AnnotationEntry| NamedText {
            name: e.key.as_ref().map(|key| key.value.clone()),
            text: e.value.value.clone(),
        };
        nested.elements().map(text).collect()
    };
    for nested in map.nested() {
        match (nested.is("attributes"), nested.is("payload")) {
            (true, _) => config.attributes.extend(texts(nested)),
            (_, true) => config.payload.extend(texts(nested)),
            _ => {
                let message = format!("`@{}` is not expected in `@map`", nested.name.name);
                return Err(Diagnostic::error("F0612", nested.span, message)
                    .expected(["@attributes(…)", "@payload('…')"]));
            }
        }
    }
    Ok(config)
}

pub(crate) fn options<'e>(
    elements: impl Iterator<Item = &'e AnnotationEntry>,
) -> Result<Vec<(String, String)>, Diagnostic> {
    let option = |e: &AnnotationEntry| match &e.key {
        Some(key) => Ok((key.value.clone(), e.value.value.clone())),
        None => Err(Diagnostic::error("F0614", e.span, format!("`{}` has no name", e.value.value))
            .expected(["name='…'"])),
    };
    elements.map(option).collect()
}

/// Returns the diagnostic of an error, at the place that it names.
pub(crate) fn diagnostic(
    error: &OptionError,
    annotation: &Annotation,
    destination: Option<&Annotation>,
) -> Diagnostic {
    let map = annotation.nested().find(|n| n.is("map"));
    let nested = |name: &str| map.and_then(|map| map.nested().find(|n| n.is(name)));
    let option = |of: Option<&Annotation>, name: &str| -> Option<Span> { Some(of?.element(name)?.span) };
    let kind = annotation.element("type").map(|e| e.span);
    let found = match &error.place {
        OptionPlace::Connector => kind,
        OptionPlace::Option(name) => option(destination, name).or_else(|| option(Some(annotation), name)),
        OptionPlace::Mapper => option(map, "type").or(map.map(|map| map.span)),
        OptionPlace::MapperOption(name) => option(map, name),
        OptionPlace::Attribute(index) => {
            nested("attributes").and_then(|n| n.elements().nth(*index)).map(|element| element.span)
        }
        OptionPlace::Payload => nested("payload").map(|n| n.span),
    };
    let message = match &error.place {
        OptionPlace::Option(name) | OptionPlace::MapperOption(name) => format!("`{name}`: {}", error.message),
        _ => error.message.clone(),
    };
    Diagnostic::error("F0615", found.unwrap_or(annotation.span), message)
        .expected(error.expected.iter().cloned())
}
