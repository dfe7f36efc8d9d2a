//! Copies that a log asks of its topic. Pure.

use std::fmt;
use std::str::FromStr;

use tidemill_types::{Error, Result, did_you_mean};

/// Copies that a topic must have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TopicRequirements {
    /// As many as there are: for one node, whose operator decides what the loss of a broker may cost.
    #[default]
    Any,
    /// Acknowledged records survive the loss of any broker: two copies or more, `min.insync.replicas` of two or more, and no elections of
    /// brokers that lack records.
    ///
    /// A topic with two copies takes no records while one of the two brokers is away. Nothing acknowledged is lost then; with
    /// `min.insync.replicas=1` it could be. Three copies have neither.
    Replicated,
    /// One copy is accepted, for trials: what is acknowledged is lost with the broker. Topics with more are checked as `Replicated` ones.
    UnsafeSingleBroker,
}

impl TopicRequirements {
    const ALL: [Self; 3] = [Self::Any, Self::Replicated, Self::UnsafeSingleBroker];

    /// Returns the name in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Replicated => "replicated",
            Self::UnsafeSingleBroker => "unsafe_single_broker",
        }
    }

    /// Returns whether a topic with so many copies must keep acknowledged records when a broker is lost.
    pub(crate) fn needs_copies(self, copies: usize) -> bool {
        match self {
            Self::Any => false,
            Self::Replicated => true,
            Self::UnsafeSingleBroker => copies > 1,
        }
    }
}

impl fmt::Display for TopicRequirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TopicRequirements {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            Error::invalid(format!(
                "option requirements = `{text}`: expected {}{}",
                names.join(", "),
                did_you_mean(text, names)
            ))
        })
    }
}
