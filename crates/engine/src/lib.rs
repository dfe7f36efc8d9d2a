//! Partitions and agents: deploy, recover, run, checkpoint, stop.
//!
//! The engine asks pure modules (rules, document operators) what to do and does the I/O around them. How an event
//! travels and why nothing is lost or doubled: `docs/rfcs/0001-spine.md`.

mod aggregate_rules;
mod api;
mod app;
mod apply;
mod apply_queue;
mod clock;
mod core;
pub mod crash_points;
mod datadir;
pub mod dedupe;
mod deploy;
mod disk_space;
mod documents;
mod engine;
pub mod entry;
mod environment;
mod ingest;
mod json_file;
mod maintenance;
mod outbox;
mod partition;
mod private_files;
pub mod queries;
mod recover;
mod reevaluation;
mod rule_context;
mod settings;
mod source;
mod source_rejections;
mod state;
mod subscribe;
mod system_tables;
pub mod testing;
mod transfers;

pub use api::{
    Analytics, BodyFormat, CollectionInfo, EmittedEvent, EventSelector, Health, LedgerCounts, Metric,
    MetricKind, RowError, RuleInfo, SendOptions, SendReply, StreamInfo,
};
pub use app::{App, AppFile, DocumentsConfig, SourceConfig, SourceFormat, SourceKind, SummaryConfig};
pub use clock::{Clock, ManualClock, SystemClock};
pub use datadir::deployed_app;
pub use engine::Engine;
pub use environment::Environment;
pub use queries::compile::CompiledApp;
pub use queries::{LogBatch, LogLines, QueryWhy};
pub use recover::{StartupReport, compile, compile_for};
pub use settings::{ChangedQueries, ServerSettings, Settings, SqlSettings, parse_bytes};
pub use source_rejections::RejectionSummary;
pub use system_tables::SYSTEM_TABLES;
pub use tidemill_log::Durability;
