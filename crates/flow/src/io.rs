//! `@source` and `@sink`: what streams are connected to.
//!
//! The only transport in here is `inMemory`: topics inside an app. Others come with the engine.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::Annotation;
use tidemill_types::did_you_mean;

use crate::catalog::Attributes;

/// The transports that there are.
const TRANSPORTS: [&str; 1] = ["inMemory"];
/// The mappers that there are.
const MAPPERS: [&str; 1] = ["passThrough"];

/// Where events of a topic go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The topic.
    pub topic: String,
    /// The stream.
    pub stream: usize,
}

/// Where events of a stream go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// The stream.
    pub stream: usize,
    /// How they are spread over the topics.
    pub strategy: Strategy,
    /// The topics.
    pub topics: Vec<String>,
}

/// How a sink spreads events over its topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Each event goes to all of them.
    Broadcast,
    /// Each event goes to the next one.
    RoundRobin,
    /// Events with one value of this column go to the same one.
    Partitioned(usize),
}

/// The sources before a stream. Errors: an unknown transport or mapper, a missing topic.
pub fn sources(annotations: &[Annotation], stream: usize) -> Result<Vec<Source>, Diagnostic> {
    let of = annotations.iter().filter(|a| a.is("source"));
    of.map(|a| {
        transport(a, "source")?;
        mapper(a)?;
        Ok(Source { topic: topic(a)?, stream })
    })
    .collect()
}

/// The sinks behind a stream. Errors: as for [`sources`], and unknown ways to spread events.
pub fn sinks(
    annotations: &[Annotation],
    stream: usize,
    attributes: &Attributes,
) -> Result<Vec<Sink>, Diagnostic> {
    let of = annotations.iter().filter(|a| a.is("sink"));
    of.map(|a| {
        transport(a, "sink")?;
        mapper(a)?;
        match a.nested().find(|n| n.is("distribution")) {
            None => Ok(Sink { stream, strategy: Strategy::Broadcast, topics: vec![topic(a)?] }),
            Some(distribution) => {
                let to = distribution.nested().filter(|n| n.is("destination"));
                let topics = to.map(topic).collect::<Result<Vec<_>, _>>()?;
                Ok(Sink { stream, strategy: strategy(distribution, attributes)?, topics })
            }
        }
    })
    .collect()
}

fn transport(annotation: &Annotation, what: &str) -> Result<(), Diagnostic> {
    let Some(ty) = annotation.element("type") else {
        return Err(Diagnostic::error("F0601", annotation.span, format!("a {what} needs a type"))
            .expected(TRANSPORTS.map(|t| format!("type='{t}'"))));
    };
    known(&TRANSPORTS, &ty.value.value, what, ty.span)
}

fn mapper(annotation: &Annotation) -> Result<(), Diagnostic> {
    let map = annotation.nested().find(|n| n.is("map"));
    match map.and_then(|m| m.element("type")) {
        None => Ok(()),
        Some(ty) => known(&MAPPERS, &ty.value.value, "mapper", ty.span),
    }
}

fn known(all: &[&str], name: &str, what: &str, span: tidemill_lang::Span) -> Result<(), Diagnostic> {
    match all.contains(&name) {
        true => Ok(()),
        false => {
            let hint = did_you_mean(name, all.iter().copied());
            Err(Diagnostic::error("F0602", span, format!("there is no {what} `{name}`{hint}")))
        }
    }
}

fn topic(annotation: &Annotation) -> Result<String, Diagnostic> {
    annotation.element("topic").map(|t| t.value.value.clone()).ok_or_else(|| {
        Diagnostic::error("F0603", annotation.span, "`inMemory` needs a topic").expected(["topic='…'"])
    })
}

fn strategy(distribution: &Annotation, attributes: &Attributes) -> Result<Strategy, Diagnostic> {
    let named = distribution.element("strategy");
    let name = named.map_or("", |s| s.value.value.as_str());
    match name {
        "broadcast" => Ok(Strategy::Broadcast),
        "roundRobin" => Ok(Strategy::RoundRobin),
        "partitioned" => {
            let key = distribution.element("partitionKey");
            let column = key.and_then(|k| attributes.iter().position(|(name, _)| *name == k.value.value));
            column.map(Strategy::Partitioned).ok_or_else(|| {
                let span = key.map_or(distribution.span, |k| k.span);
                Diagnostic::error("F0604", span, "`partitionKey` is to be an attribute of the stream")
            })
        }
        _ => {
            let hint = did_you_mean(name, ["broadcast", "partitioned", "roundRobin"]);
            let span = named.map_or(distribution.span, |s| s.span);
            Err(Diagnostic::error("F0605", span, format!("there is no strategy `{name}`{hint}")))
        }
    }
}
