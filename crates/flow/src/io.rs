//! `@source` and `@sink`: connections of streams.
//!
//! This module implements `inMemory` (topics inside an app) and the sink `log`, and compiles the annotations of
//! files and of connectors to other systems, which the caller that runs the app drives.

pub mod connector;
pub mod file;
mod file_route;
mod log;
mod mapped;
mod topic;

use tidemill_connect::Catalog;
use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::did_you_mean;

use self::connector::ConnectedStream;
use crate::catalog::Attributes;
use crate::registry::Connectors;

pub(crate) use file_route::FileRoute;
pub use log::LogSink;
pub(crate) use mapped::TopicMessage;
pub use mapped::{MessageReader, MessageWriter};
pub use topic::TopicTemplate;

/// Supported sources.
const SOURCES: [&str; 2] = ["inMemory", "file"];
/// Supported sinks.
const SINKS: [&str; 3] = ["inMemory", "log", "file"];
/// Mapper that hands over events as they are.
const PASS_THROUGH: &str = "passThrough";
/// Transports and mappers of other SiddhiQL systems; naming one is not reported as a typing error.
const KNOWN_ELSEWHERE: [&str; 33] = [
    "avro",
    "binary",
    "cdc",
    "csv",
    "email",
    "gcs",
    "googlepubsub",
    "grpc",
    "http",
    "http-call",
    "http-call-response",
    "http-request",
    "http-response",
    "http-service",
    "http-service-response",
    "jms",
    "json",
    "kafka",
    "keyvalue",
    "mqtt",
    "nats",
    "prometheus",
    "protobuf",
    "rabbitmq",
    "s3",
    "sqs",
    "sse",
    "tcp",
    "text",
    "websocket",
    "websocket-server",
    "websubhub",
    "xml",
];

/// Connection from a topic to a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSource {
    /// Topic name.
    pub topic: String,
    /// Index of the receiving stream.
    pub stream: usize,
    /// Mapper that makes events of messages; `None` if events come in as they are.
    pub mapper: Option<MessageReader>,
}

/// Connection from a stream to topics or the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSink {
    /// Index of the stream.
    pub stream: usize,
    /// Distribution of the events over the topics.
    pub strategy: DistributionStrategy,
    /// Destination topics; empty for a log sink.
    pub topics: Vec<TopicTemplate>,
    /// Log sink, if the events are logged instead of published.
    pub log: Option<LogSink>,
    /// Mapper that makes messages of the events; `None` if they are published as they are.
    pub mapper: Option<MessageWriter>,
}

/// Distribution of a sink's events over its topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistributionStrategy {
    /// Each event goes to all topics.
    Broadcast,
    /// Each batch goes to the next topic.
    RoundRobin,
    /// Events with equal values of this column go to one topic.
    Partitioned(usize),
}

/// Compiles the `inMemory` sources of a stream. Errors: an unknown transport or mapper, a missing topic.
pub fn sources(
    annotations: &[Annotation],
    stream: &ConnectedStream<'_>,
    connectors: &Connectors,
) -> Result<Vec<TopicSource>, Diagnostic> {
    let of = annotations.iter().filter(|a| a.is("source") && is_compiled_here(a, &SOURCES, connectors));
    of.map(|a| {
        transport(a, "source", &SOURCES, stream.name)?;
        let mapper = mapper(a, connectors)?
            .map(|(map, catalog)| MessageReader::compile(a, map, stream, catalog))
            .transpose()?;
        Ok(TopicSource { topic: topic(a)?.value.value.clone(), stream: stream.index, mapper })
    })
    .collect()
}

/// Compiles the `inMemory` and log sinks of a stream. Errors: as for [`sources`], and unknown distribution
/// strategies.
pub fn sinks(
    annotations: &[Annotation],
    stream: &ConnectedStream<'_>,
    app: Option<&str>,
    connectors: &Connectors,
) -> Result<Vec<StreamSink>, Diagnostic> {
    let of = annotations.iter().filter(|a| a.is("sink") && is_compiled_here(a, &SINKS, connectors));
    of.map(|a| {
        let ty = transport(a, "sink", &SINKS, stream.name)?;
        check_on_error(a)?;
        if ty == "log" {
            return Ok(StreamSink {
                stream: stream.index,
                strategy: DistributionStrategy::Broadcast,
                topics: vec![],
                log: Some(LogSink::of(a, stream, app, connectors)?),
                mapper: None,
            });
        }
        let mapper = mapper(a, connectors)?
            .map(|(map, catalog)| MessageWriter::compile(a, map, stream, catalog))
            .transpose()?;
        let attributes = stream.attributes;
        let to = |a: &Annotation| TopicTemplate::parse(topic(a)?, attributes);
        let (strategy, topics) = match a.nested().find(|n| n.is("distribution")) {
            None => (DistributionStrategy::Broadcast, vec![to(a)?]),
            Some(distribution) => {
                let destinations = distribution.nested().filter(|n| n.is("destination"));
                let topics = destinations.map(to).collect::<Result<Vec<_>, _>>()?;
                if topics.is_empty() {
                    let message = "a distribution needs at least one destination";
                    return Err(Diagnostic::error("F0606", distribution.span, message)
                        .expected(["@destination(topic='…')"]));
                }
                (strategy(distribution, attributes)?, topics)
            }
        };
        Ok(StreamSink { stream: stream.index, strategy, topics, log: None, mapper })
    })
    .collect()
}

/// Returns whether this module compiles an annotation, or refuses it: its type is among `own`, or no catalog
/// provides more types.
fn is_compiled_here(annotation: &Annotation, own: &[&str], connectors: &Connectors) -> bool {
    let is_own = || annotation.element("type").is_none_or(|ty| own.contains(&ty.value.value.as_str()));
    // with connections left out it does not matter what the settings would say
    let is_left_out = matches!(connectors, Connectors::Ignored(_)) && annotation.element("ref").is_some();
    !is_left_out && !file::is_file(annotation) && (matches!(connectors, Connectors::Refused) || is_own())
}

/// Returns the `type` of an annotation of the stream `name`. Errors: it is missing or unknown.
fn transport<'a>(
    annotation: &'a Annotation,
    what: &str,
    all: &[&str],
    name: &str,
) -> Result<&'a str, Diagnostic> {
    let Some(ty) = annotation.element("type") else {
        if let Some(of) = annotation.element("ref") {
            let message = format!("`ref` is not supported: there are no settings named `{}`", of.value.value);
            return Err(
                Diagnostic::error("F0607", of.span, message).help("write `type` and the options here")
            );
        }
        return Err(Diagnostic::error("F0601", annotation.span, format!("a {what} needs a `type`"))
            .expected(all.iter().map(|t| format!("type='{t}'"))));
    };
    check_known(all, &ty.value.value, what, ty.span).map_err(|unknown| {
        if KNOWN_ELSEWHERE.contains(&ty.value.value.as_str()) {
            unknown.help(match what {
                "source" => format!("remove `@source` and send events to POST /api/v1/streams/{name}"),
                _ => format!(
                    "remove `@sink`: the events are in the table events.\"{name}\"; `@sink(type='log')` prints them"
                ),
            })
        } else {
            unknown
        }
    })?;
    Ok(&ty.value.value)
}

/// Returns the `@map` of an annotation if it makes messages, with the catalog that has its mapper. Errors: it
/// has no type, or the catalog is missing.
fn mapper<'a>(
    annotation: &'a Annotation,
    connectors: &'a Connectors,
) -> Result<Option<(&'a Annotation, &'a Catalog)>, Diagnostic> {
    let Some(map) = annotation.nested().find(|n| n.is("map")) else { return Ok(None) };
    match (map.element("type"), connectors.catalog()) {
        (None, _) => Err(Diagnostic::error("F0601", map.span, "a mapper needs a `type`")
            .expected([format!("type='{PASS_THROUGH}'")])),
        (Some(ty), _) if ty.value.value.eq_ignore_ascii_case(PASS_THROUGH) => Ok(None),
        (Some(_), Some(catalog)) => Ok(Some((map, catalog))),
        (Some(ty), None) => check_known(&[PASS_THROUGH], &ty.value.value, "mapper", ty.span).map(|()| None),
    }
}

/// Checks that `name` is one of `all`. Errors: it is not; names similar or all known ones.
fn check_known(all: &[&str], name: &str, what: &str, span: Span) -> Result<(), Diagnostic> {
    if all.contains(&name) {
        return Ok(());
    }
    let message = match KNOWN_ELSEWHERE.contains(&name) {
        true => format!("the {what} `{name}` is not supported yet; supported: {}", all.join(", ")),
        false => format!("unknown {what} `{name}`{}", did_you_mean(name, all.iter().copied())),
    };
    Err(Diagnostic::error("F0602", span, message))
}

fn topic(annotation: &Annotation) -> Result<&AnnotationEntry, Diagnostic> {
    annotation.element("topic").ok_or_else(|| {
        Diagnostic::error("F0603", annotation.span, "`inMemory` needs a `topic`").expected(["topic='…'"])
    })
}

/// Checks `on.error`, the action on events that a sink fails to publish. The sinks here never fail to
/// publish.
fn check_on_error(annotation: &Annotation) -> Result<(), Diagnostic> {
    let is_it =
        |e: &&AnnotationEntry| e.key.as_ref().is_some_and(|k| k.value.eq_ignore_ascii_case("on.error"));
    let Some(action) = annotation.elements().find(is_it) else { return Ok(()) };
    one_of(&["LOG", "WAIT", "STREAM", "STORE"], action).map(drop)
}

/// Returns the action that an element names; case is ignored. Errors: it names none of `all`.
pub(crate) fn one_of(all: &[&'static str], action: &AnnotationEntry) -> Result<&'static str, Diagnostic> {
    let text = &action.value.value;
    all.iter().find(|known| text.eq_ignore_ascii_case(known)).copied().ok_or_else(|| {
        let hint = did_you_mean(text, all.iter().copied());
        Diagnostic::error("F0505", action.span, format!("unknown action `{text}`{hint}"))
    })
}

fn strategy(distribution: &Annotation, attributes: &Attributes) -> Result<DistributionStrategy, Diagnostic> {
    let Some(named) = distribution.element("strategy") else {
        let all = ["broadcast", "partitioned", "roundRobin"].map(|s| format!("strategy='{s}'"));
        return Err(
            Diagnostic::error("F0605", distribution.span, "a distribution needs a `strategy`").expected(all)
        );
    };
    match named.value.value.as_str() {
        "broadcast" => Ok(DistributionStrategy::Broadcast),
        "roundRobin" => Ok(DistributionStrategy::RoundRobin),
        "partitioned" => {
            let key = distribution.element("partitionKey");
            let column = key.and_then(|k| attributes.iter().position(|(name, _)| *name == k.value.value));
            column.map(DistributionStrategy::Partitioned).ok_or_else(|| {
                let span = key.map_or(distribution.span, |k| k.span);
                let name = key.map_or("", |k| k.value.value.as_str());
                let hint = did_you_mean(name, attributes.iter().map(|(name, _)| name.as_str()));
                let message = format!("`partitionKey` must be an attribute of the stream{hint}");
                Diagnostic::error("F0604", span, message)
            })
        }
        name => {
            let hint = did_you_mean(name, ["broadcast", "partitioned", "roundRobin"]);
            Err(Diagnostic::error("F0605", named.span, format!("unknown strategy `{name}`{hint}")))
        }
    }
}
