//! Contracts between the engine and the outside: a [`Source`] brings events in, a [`Sink`] takes events out.
//!
//! A connector (files today) implements one of these traits and knows nothing of the engine. The engine
//! drives it on a thread of the connector's own, splits and appends what a source returns, and remembers how
//! far it came.
//!
//! **No event is lost or doubled.** A source counts its input in *positions*: numbers that never decrease,
//! that mean the same row on every reading, and from which it can continue. The engine writes the position of
//! a batch into the log together with the batch's events, so after a crash it opens the source at the
//! position that the log has. A sink reports the position that it has made durable; the engine stores it
//! together with the log offsets of the events written so far, and opens the sink at that position, which
//! discards what was written after it.

mod merge;
mod sink;
mod source;

pub use merge::MergedSource;
pub use sink::{Sink, SinkPosition};
pub use source::{Source, SourceBatch};

/// Health of a connector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ConnectorHealth {
    /// It works.
    #[default]
    Working,
    /// It works, or tries to, but someone should look at it; the text says what is wrong and what helps.
    Degraded(String),
}
