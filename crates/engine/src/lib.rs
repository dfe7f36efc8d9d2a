//! Partitions and agents: deploy, recover, run, checkpoint, stop.
//!
//! The engine asks pure modules (rules, document operators) what to do and does the I/O around them. How an event
//! travels and why nothing is lost or doubled: `docs/rfcs/0001-spine.md`.

mod again;
mod api;
mod app;
mod clock;
mod core;
pub mod crash_points;
mod datadir;
pub mod dedupe;
mod deploy;
mod documents;
mod engine;
pub mod entry;
mod environment;
mod host;
mod inbox;
mod ingest;
mod insight;
mod json_file;
mod maintain;
mod outbox;
mod partition;
mod private;
pub mod queries;
mod recover;
mod refused;
mod settings;
mod source;
mod space;
mod state;
mod subscribe;
pub mod testing;
mod transfers;
mod turn;
mod views;

pub use api::{
    Analytics, BodyFormat, CollectionInfo, EmittedEvent, EventSelector, Health, LedgerCounts, Metric,
    MetricKind, RowError, RuleInfo, SendOptions, SendReply, StreamInfo,
};
pub use app::{App, AppFile, DocumentsConfig, SourceConfig, SourceFormat, SourceKind, SummaryConfig};
pub use clock::{Clock, ManualClock, SystemClock};
pub use datadir::deployed;
pub use engine::Engine;
pub use environment::Environment;
pub use queries::load::Compiled;
pub use queries::{LogLines, LogText, QueryWhy};
pub use recover::{Report, compile, compile_for};
pub use refused::RefusedRows;
pub use settings::{ChangedQueries, ServerSettings, Settings, SqlSettings, parse_bytes};
pub use tidemill_log::Durability;
pub use views::SYSTEM_TABLES;
