//! Partitions and agents: deploy, recover, run, checkpoint, stop.
//!
//! The engine asks pure modules (rules, document operators) what to do and does the I/O around them. How an event
//! travels and why nothing is lost or doubled: `docs/rfcs/0001-spine.md`.

mod api;
pub mod dedupe;
pub mod entry;
mod settings;

pub use api::{
    Analytics, BodyFormat, CollectionInfo, EmittedEvent, EventSelector, Health, LedgerCounts, Metric, MetricKind,
    RowError, RuleInfo, SendOptions, SendReply, StreamInfo,
};
pub use settings::{Settings, parse_bytes};
pub use tidemill_log::Durability;
