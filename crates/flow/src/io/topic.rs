//! Topics of sinks, and the distribution of events over them.

use std::fmt::Write as _;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::AnnotationEntry;
use tidemill_types::did_you_mean;

use super::{DistributionStrategy, StreamSink};
use crate::catalog::Attributes;
use crate::columns::batch::Batch;

/// Template of a sink's topic or of a payload, with placeholders for attributes: `alarms/{{site}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTemplate(Vec<TopicPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TopicPart {
    Text(String),
    Column(usize),
}

impl TopicTemplate {
    /// Parses an option of a sink whose stream has these attributes. Errors: a placeholder names none of
    /// them.
    pub(super) fn parse(element: &AnnotationEntry, attributes: &Attributes) -> Result<Self, Diagnostic> {
        let mut parts = vec![];
        let mut rest = element.value.value.as_str();
        while let Some((text, behind)) = rest.split_once("{{")
            && let Some((name, behind)) = behind.split_once("}}")
        {
            let column = attributes.iter().position(|(known, _)| known == name).ok_or_else(|| {
                let hint = did_you_mean(name, attributes.iter().map(|(known, _)| known.as_str()));
                let message = format!("the stream has no attribute `{name}`{hint}");
                Diagnostic::error("F0609", element.span, message)
            })?;
            parts.extend([TopicPart::Text(text.to_owned()), TopicPart::Column(column)]);
            rest = behind;
        }
        parts.push(TopicPart::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Expands the template for event `row`.
    pub(super) fn of(&self, events: &Batch, row: usize) -> String {
        let mut topic = String::new();
        for part in &self.0 {
            match part {
                TopicPart::Text(text) => topic.push_str(text),
                // writing to a string cannot fail
                TopicPart::Column(column) => drop(write!(topic, "{}", events.columns[*column].get(row))),
            }
        }
        topic
    }
}

impl StreamSink {
    /// Distributes a batch of events over topics. Returns the topics, each with its rows in order.
    ///
    /// `turn` selects the topic for round robin.
    pub(crate) fn distribute(&self, events: &Batch, turn: usize) -> Vec<(String, Vec<usize>)> {
        let mut spread: Vec<(String, Vec<usize>)> = vec![];
        for topic in 0..self.topics.len() {
            for row in 0..events.len() {
                let chosen = match self.strategy {
                    DistributionStrategy::Broadcast => topic,
                    DistributionStrategy::RoundRobin => turn % self.topics.len(),
                    DistributionStrategy::Partitioned(column) => {
                        let key = events.columns[column].get(row).to_string();
                        tidemill_types::murmur2(key.as_bytes()) as usize % self.topics.len()
                    }
                };
                if chosen != topic {
                    continue;
                }
                let name = self.topics[topic].of(events, row);
                match spread.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, rows)) => rows.push(row),
                    None => spread.push((name, vec![row])),
                }
            }
        }
        spread
    }
}
