//! Partitions and agents: deploy, recover, run, checkpoint, stop.
//!
//! The engine asks pure modules (rules, document operators) what to do and does the I/O around them. How an event
//! travels and why nothing is lost or doubled: `docs/rfcs/0001-spine.md`.

mod api;
mod app;
mod app_connectors;
mod app_toml;
mod apply;
mod backlog;
mod backup;
mod change_stream;
mod changes;
mod checkpoint;
mod clock;
mod commit;
mod connection_trial;
mod connectors;
mod core;
mod counters;
pub mod crash_points;
mod current_record;
mod datadir;
pub mod dedupe;
mod delivery;
mod deploy;
mod deployment;
mod disk_files;
mod disk_space;
mod document_routing;
mod document_snapshot;
pub mod document_tables;
mod document_transaction;
mod document_writes;
mod documents;
mod encryption;
mod engine;
pub mod entry;
mod environment;
mod health;
mod ingest;
mod jobs;
mod json_file;
mod log_id;
mod notifier;
mod outbox;
mod partition;
mod planted_bugs;
mod private_files;
pub mod queries;
mod query_info;
mod record_watch;
mod recover;
mod reevaluation;
mod report;
mod sending;
mod services;
mod set_aside;
mod settings;
#[cfg(feature = "sim")]
pub mod simulation;
mod sinks;
mod source;
mod source_rejections;
mod spawn;
mod state;
mod subscribe;
mod tables;
mod tables_location;
pub mod testing;
mod threads;
mod timers;
mod transfers;
mod undelivered;
mod undelivered_event;
mod verify;
mod view;

pub use api::{
    Analytics, BodyFormat, CollectionInfo, EmittedEvent, EventSelector, Health, LedgerCounts, Metric,
    MetricKind, RowError, RuleInfo, SendOptions, SendReply, StreamInfo,
};
pub use app::{App, AppFile, DocumentsConfig, SourceConfig, SourceFormat, SourceKind, SummaryConfig};
pub use app_connectors::AppConnector;
pub use backup::{BackupReport, RestoreReport, restore, take_stopped as backup_stopped};
pub use change_stream::{ChangeScope, ChangeStart, ChangeStream};
pub use changes::{ChangeEvent, ChangePosition};
pub use clock::{Clock, ManualClock, SystemClock};
pub use commit::SessionWrite;
pub use connection_trial::{ConnectionTrial, try_connections};
pub use datadir::deployed_app;
pub use document_snapshot::DocumentSnapshot;
pub use document_transaction::Transaction;
pub use document_writes::DocumentWrite;
pub use encryption::{KeyRotation, rotate_keys};
pub use engine::{DocumentCollection, Engine, EngineBuilder, Moment, OnDemandRows, QueryWhy, SYSTEM_TABLES};
pub use environment::{LocalLogProvider, LogProvider, OpenedLog};
pub use queries::compile::{CompiledApp, compile_app as compile, compile_app_for as compile_for};
pub use queries::{LogBatch, LogLines};
pub use query_info::QueryInfo;
pub use report::StartupReport;
pub use set_aside::SetAsideRecord;
pub use settings::{
    ChangedQueries, EncryptionSettings, MongoSettings, ServerSettings, Settings, SqlSettings, parse_bytes,
};
pub use sinks::SinkInfo;
pub use source_rejections::RejectionSummary;
pub use subscribe::Tap;
pub use tidemill_log::Durability;
pub use undelivered::{RetryOutcome, UndeliveredSelection};
pub use undelivered_event::UndeliveredEvent;
pub use verify::{Damage, KindSummary, Verification, verify_backup, verify_data};
