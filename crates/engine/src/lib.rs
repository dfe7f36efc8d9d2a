//! Partitions and agents: deploy, recover, run, checkpoint, stop.
//!
//! The engine asks pure modules (rules, document operators) what to do and does the I/O around them. How an event
//! travels and why nothing is lost or doubled: `docs/rfcs/0001-spine.md`.

mod admin;
mod api;
mod app;
mod appender;
mod apply;
mod changes;
mod checkpoint;
pub mod cluster;
mod commit;
mod connectors;
mod counters;
pub mod crash_points;
pub mod dedupe;
mod delivery;
mod deploy;
mod deployment;
mod digest;
mod directory;
mod document_parts;
pub mod document_tables;
mod documents;
mod engine;
pub mod entry;
mod host;
mod ingest;
mod jobs;
mod lifecycle;
mod node;
mod partition;
mod peers;
mod planted_bugs;
mod process;
pub mod queries;
mod query_info;
mod running_app;
mod shared_state;
#[cfg(feature = "sim")]
pub mod simulation;
mod sinks;
mod sources;
mod state;
mod subscribe;
mod tables;
pub mod testing;

pub use admin::backup::{BackupReport, RestoreReport, restore, take_stopped as backup_stopped};
pub use admin::connection_trial::{ConnectionTrial, try_connections};
pub use admin::growth::{ClusterLogs, GrowthReport};
pub use admin::verify::{Damage, KindSummary, Verification, verify_backup, verify_data};
pub use api::{
    Analytics, BodyFormat, CollectionInfo, EmittedEvent, EventSelector, Health, LedgerCounts, Metric,
    MetricKind, RowError, RuleInfo, SendOptions, SendReply, StreamInfo,
};
pub use app::connectors::AppConnector;
pub use app::settings::{
    ChangedQueries, EncryptionSettings, ListenProtocol, ListenSettings, MongoSettings, ServerSettings,
    Settings, SqlSettings, parse_bytes,
};
pub use app::{App, AppFile, DocumentsConfig, SourceConfig, SourceFormat, SourceKind, SummaryConfig};
pub use changes::{ChangeEvent, ChangePosition};
pub use commit::SessionWrite;
pub use counters::source_rejections::RejectionSummary;
pub use delivery::undelivered::{RetryOutcome, UndeliveredSelection};
pub use directory::datadir::deployed_app;
pub use directory::encryption::{KeyRotation, rotate_keys};
pub use directory::environment::{LocalLogProvider, LogProvider, OpenedLog};
pub use directory::partitioning::{HomeRule, Partitioning};
pub use documents::change_stream::{ChangeScope, ChangeStart, ChangeStream};
pub use documents::snapshot::DocumentSnapshot;
pub use documents::transaction::Transaction;
pub use documents::writes::DocumentWrite;
pub use engine::{
    DocumentCollection, Engine, EngineBuilder, Moment, OnDemandRows, OnDemandTarget, QueryWhy, SYSTEM_TABLES,
};
pub use lifecycle::report::StartupReport;
pub use peers::{FragmentRunner, PeerNodes};
pub use process::clock::{Clock, ManualClock, SystemClock};
pub use process::limits::ProcessLimits;
pub use process::open_apps::ProcessApp;
pub use process::services::Process;
pub use queries::compile::{CompiledApp, compile_app as compile, compile_app_for as compile_for};
pub use queries::{LogBatch, LogLines};
pub use query_info::QueryInfo;
pub use shared_state::TakeOver;
pub use sinks::SinkInfo;
pub use sinks::undelivered_event::UndeliveredEvent;
pub use state::set_aside::SetAsideRecord;
pub use subscribe::Tap;
pub use tidemill_log::Durability;
