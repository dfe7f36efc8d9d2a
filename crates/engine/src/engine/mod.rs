//! The engine as its callers see it.

mod aggregations;
mod builder;
mod collection;
mod documents;
mod gather;
mod metrics;
mod moment;
mod on_demand;
mod rules;
mod set_aside;
mod sources;
mod streams;
mod system_tables;
mod tables;
mod undelivered;
mod why_query;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::RecordBatch;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use tidemill_types::{DecodedRows, Error, ErrorKind, Offset, PartitionId, Result, StreamSchema};

use crate::admin::backup;
use crate::admin::backup::BackupReport;
use crate::api::{Analytics, BodyFormat, Health, SendOptions, SendReply};
use crate::app::App;
use crate::cluster::{self, ClusterNode, ClusterStatus};
use crate::directory::datadir::DataDir;
use crate::ingest::sending;
use crate::jobs::shared_state;
use crate::lifecycle::report::StartupReport;
use crate::lifecycle::threads::EngineThreads;
use crate::lifecycle::transfers;
use crate::node::Node;
use crate::peers::{FragmentRunner, PeerNodes};
use crate::process::open_apps::AppPlace;
use crate::process::services::Process;
use crate::sinks::DeliverySink;
use crate::subscribe::Tap;
use crate::{jobs, query_info};

pub use builder::EngineBuilder;
pub use collection::DocumentCollection;
pub use moment::Moment;
pub use on_demand::{OnDemandRows, OnDemandTarget};
pub use system_tables::SYSTEM_TABLES;
pub use why_query::QueryWhy;

/// Areas of problems with which writes are rejected or not applied.
const WRITE_PROBLEM_AREAS: [&str; 4] = ["apply", "disk", "log", cluster::REFUSED_AREA];
/// Maximum time that a stop waits for appended records to be applied.
const STOP_WAIT: Duration = Duration::from_secs(4);

/// Time that a node of a cluster has to load its partitions.
const LOAD_WAIT: Duration = Duration::from_secs(60);
/// Interval at which a start looks whether they are loaded.
const LOAD_POLL: Duration = Duration::from_millis(10);

/// A running engine on one data directory.
pub struct Engine {
    node: Arc<Node>,
    threads: EngineThreads,
    /// Its part in a cluster, if it is a node of one.
    cluster: Option<Arc<ClusterNode>>,
    /// The other nodes, if they call each other.
    peers: Option<Arc<PeerNodes>>,
    /// Until it is stopped.
    opened: Mutex<Option<OpenedDirectory>>,
    /// Report of the recovery.
    pub recovery: StartupReport,
}

/// A data directory that no other engine opens, with its app's place in the process.
struct OpenedDirectory {
    _data: DataDir,
    _place: Option<AppPlace>,
}

impl Engine {
    /// Returns a builder of an engine on `dir`.
    pub fn builder(dir: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(dir.as_ref())
    }

    /// Opens `dir` with `app`, or with the app deployed there, on the machine's clock and disk; see
    /// [`EngineBuilder::open`].
    ///
    /// Errors: those of [`EngineBuilder::open`].
    pub fn open(dir: &Path, app: Option<App>) -> Result<Self> {
        let builder = Self::builder(dir);
        app.into_iter().fold(builder, EngineBuilder::app).open()
    }

    /// Returns the process that the engine was opened in with others; `None` for an engine that has its own.
    pub fn process(&self) -> Option<&Arc<Process>> {
        Some(&self.node.host.process).filter(|process| process.limits().is_some())
    }

    /// Waits until a node of a cluster is a member and has loaded its partitions, so that it can answer. A process that is alone has them.
    ///
    /// Errors: `Conflict` if the cluster refuses the node; `Unavailable` with the partition that could not be loaded in time, and the reason.
    fn wait_until_ready(&self) -> Result<()> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let host = &self.node.host;
        let deadline = host.clock.monotonic() + LOAD_WAIT;
        let check = || self.node.check_has(|id| cluster.applies(id));
        while let Err(missing) = cluster.check_member().and_then(|()| check()) {
            if missing.kind() == ErrorKind::Conflict {
                return Err(missing);
            }
            if host.clock.monotonic() >= deadline {
                let reason = host.health.problem_of_any_subject("cluster").unwrap_or_default();
                return Err(Error::unavailable(format!(
                    "after {} s, {missing} {reason}",
                    LOAD_WAIT.as_secs()
                )));
            }
            host.clock.sleep(LOAD_POLL);
        }
        Ok(())
    }

    /// Sets the SQL that aggregate rules run through.
    pub fn set_analytics(&self, analytics: Arc<dyn Analytics>) {
        if self.node.app.analytics.set(analytics).is_err() {
            tracing::warn!("the engine has SQL already; the second one is not used");
        }
    }

    /// Sets what executes fragments of the statements of other nodes. Without nodes that call each other, nothing calls it.
    pub fn answer_fragments(&self, runner: FragmentRunner) {
        if let Some(peers) = &self.peers {
            peers.answer_fragments(runner);
        }
    }

    /// Returns the other nodes of the cluster, which execute fragments of statements; `None` for a process that is alone, and where nodes do not
    /// call each other.
    pub fn peers(&self) -> Option<&Arc<PeerNodes>> {
        self.peers.as_ref()
    }

    /// Starts reading the documents and sources of the app, each from where it stopped.
    pub fn start_sources(&self) -> Result<()> {
        self.threads.start_sources(&self.node)
    }

    /// Waits until all sources have ended, their rows are applied and what sinks have to write is written, or until the
    /// engine stops. A sink that fails is reported by [`Self::health`].
    pub fn wait_idle(&self) {
        self.threads.join_sources();
        self.node.host.in_flight.wait_until_drained_or(|| self.node.host.is_stopping());
        if let Err(e) = jobs::sinks::flush_all(&self.node) {
            tracing::debug!(error = %e, "a sink has events to write");
        }
        // events that a sink could not deliver are records again
        self.node.host.in_flight.wait_until_drained_or(|| self.node.host.is_stopping());
    }

    /// Returns whether sources are still being read.
    pub fn sources_running(&self) -> bool {
        self.threads.sources_running()
    }

    /// Returns the cluster that this process is a node of, as the node sees it; `None` for one that is alone.
    pub fn cluster_status(&self) -> Option<ClusterStatus> {
        let host = &self.node.host;
        let boot = tidemill_cluster::BootTime(host.clock.boot().as_micros() as u64);
        self.cluster.as_ref().map(|cluster| cluster.status(host.partition_ids(), boot))
    }

    /// The deployed app.
    pub fn app(&self) -> &App {
        &self.node.app.deployment.app
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.node.host.dir
    }

    /// The stream called `name`.
    ///
    /// Errors: `NotFound` with the names there are.
    pub fn stream_schema(&self, name: &str) -> Result<&Arc<StreamSchema>> {
        self.node.app.deployment.stream(name)
    }

    /// Sends a request body with events of `stream`: valid rows are applied, the others are returned with their reasons and
    /// stored in `system.rejected`.
    ///
    /// Errors: `NotFound` for an unknown stream, `Invalid` for a body that is not of `format`; `LimitReached` and
    /// `Unavailable` when the rows are not accepted now.
    pub fn send_json(
        &self,
        stream: &str,
        body: &[u8],
        format: BodyFormat,
        options: &SendOptions,
    ) -> Result<SendReply> {
        sending::send_json(&self.node, stream, body, format, options)
    }

    /// Sends a batch of events and returns when it is as durable as `options` say. Its columns are fields of the stream, in
    /// any order; fields without a column are null. The engine adds the event time and splits the rows by partition.
    ///
    /// Errors: as [`Self::send_json`]; `Invalid` for columns that do not fit, as in
    /// [`tidemill_files::events_from_columns`].
    pub fn send_batch(&self, stream: &str, batch: RecordBatch, options: &SendOptions) -> Result<SendReply> {
        sending::send_batch(&self.node, stream, batch, options)
    }

    /// Sends rows of one or several streams of the app, which the caller has decoded, and returns when they are as durable as `options`
    /// say. Rejected rows are returned with their reasons; those that name a stream of the app are stored in `system.rejected`.
    ///
    /// Errors: `LimitReached` and `Unavailable` when the rows are not accepted now.
    pub fn send_rows(&self, rows: DecodedRows, options: &SendOptions) -> Result<SendReply> {
        sending::send_rows(&self.node, rows, options)
    }

    /// Batches of `stream` as they are applied from now on.
    ///
    /// Errors: `NotFound` for an unknown stream.
    pub fn subscribe(&self, stream: &str) -> Result<Receiver<RecordBatch>> {
        self.stream_schema(stream)?;
        self.check_follows_all()?;
        Ok(self.node.app.subscribers.subscribe(stream))
    }

    /// Returns events of a stream that are stored from now on, with the columns of its table, as far as the caller has time
    /// for them: what it is too slow for is skipped and counted.
    ///
    /// Errors: `NotFound` for an unknown stream.
    pub fn tap(&self, stream: &str) -> Result<Tap> {
        self.node.app.deployment.stream(stream)?;
        self.check_follows_all()?;
        Ok(self.node.app.subscribers.tap(stream))
    }

    /// Returns the offset after the last record that is applied here, for each partition.
    pub fn applied_offsets(&self) -> Vec<(PartitionId, Offset)> {
        self.node.owned.replicas().iter().map(|partition| (partition.id, partition.applied())).collect()
    }

    /// Checks that events of all partitions are applied here.
    fn check_follows_all(&self) -> Result<()> {
        self.node.check_has(|_| true).map_err(|e| {
            e.context("events are followed as they are applied, which this node cannot do for all of them (--replicas 2)")
        })
    }

    /// Flushes tails into tablets now, and looks which queries lose events.
    pub fn flush(&self) -> Result<()> {
        query_info::report_failures(&self.node);
        jobs::flush::flush(&self.node)
    }

    /// Takes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> {
        jobs::checkpoint::checkpoint(&self.node)
    }

    /// Copies the data directory, as it is at one moment, to the new directory `to`, while events are taken in and queries
    /// answered.
    ///
    /// Errors: `Invalid` for a directory that has content, and when the log is not in files; `Conflict` while another backup
    /// is being taken; `Corrupt` naming a damaged file; `Unavailable`. Nothing is left at `to` then.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport> {
        backup::take(&self.node, to.as_ref())
    }

    /// Problems of the app's sources: a file that is missing or broken off, documents that were refused.
    pub fn source_problems(&self) -> Vec<String> {
        self.node.host.health.source_problems()
    }

    /// Adds the problems of a part of the process that the engine does not know, such as a listener, to [`Self::health`] and
    /// `system.problems`. `watch` is asked each time and must be quick; it replaces one that was given for the same area.
    pub fn watch_problems(
        &self,
        area: &'static str,
        watch: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) {
        self.node.host.health.watch(area, Box::new(watch));
    }

    /// Rows of sources that were refused since the start, by source and stream.
    pub fn source_rejections(&self) -> Vec<crate::counters::source_rejections::RejectionSummary> {
        self.node.app.source_rejections.summaries()
    }

    /// Returns the sinks to other systems and what became of their events.
    pub fn sinks(&self) -> Vec<crate::sinks::SinkInfo> {
        self.node.app.sinks.deliveries().iter().map(DeliverySink::info).collect()
    }

    /// Returns the lines of the sinks `@sink(type='log')`, for the caller to print; they are dropped when no
    /// one takes them.
    pub fn log_lines(&self) -> Arc<crate::queries::LogLines> {
        self.node.app.deployment.queries.log_lines.clone()
    }

    /// Events applied since the start, emitted ones included.
    pub fn events_applied(&self) -> u64 {
        self.node.app.counts.applied.load(Ordering::Relaxed)
    }

    /// Returns the health of the engine. Room on the disk is judged now, as it is for a write: the thread
    /// that looks for room may be busy with a slow store.
    pub fn health(&self) -> Health {
        health_of(&self.node, &self.recovery.warnings)
    }

    /// Returns whether the engine is stopping or has stopped.
    pub fn is_stopping(&self) -> bool {
        self.node.host.is_stopping()
    }

    /// Stops in order: sources, senders, owners, then a last flush and checkpoint. A second call does nothing.
    ///
    /// Errors: when the last flush or checkpoint failed; nothing acknowledged is lost, the next start replays it.
    pub fn stop(&self) -> Result<()> {
        if self.opened.lock().is_none() {
            return Ok(());
        }
        let stop = || {
            self.threads.stop_with_checkpoint(&self.node, STOP_WAIT)?;
            // without a last checkpoint the next process needs what is on this machine only
            shared_state::publish_all(&self.node)?;
            self.node.host.partition_store.release()
        };
        // the last owner of an engine may be a task, whose thread must not wait for the object store
        let stopped = match tokio::runtime::Handle::try_current() {
            Err(_) => stop(),
            Ok(_) => std::thread::scope(|scope| {
                scope.spawn(stop).join().unwrap_or_else(|_| Err(Error::internal("the stop panicked")))
            }),
        };
        self.opened.lock().take();
        stopped
    }

    /// Stops at once, without the last flush and checkpoint: the next start replays the log, as after a crash.
    pub fn abandon(&self) {
        if self.threads.stop(&self.node, Duration::ZERO) {
            self.node.host.disable_checkpoints();
            // the log's own writers may still bring records to the disk; it makes no difference to what was promised
            let _ = self.node.host.log.close();
            self.node.host.changes.close();
            self.opened.lock().take();
        }
    }
}

/// Returns the health of an engine, see [`Engine::health`]. `warnings` are those of its recovery.
fn health_of(node: &Node, warnings: &[String]) -> Health {
    match node.host.check_disk_space() {
        Ok(()) => node.host.health.clear_problem("disk"),
        Err(e) => node.host.health.report_problem("disk", e.to_string()),
    }
    let mut problems = warnings.to_vec();
    problems.extend(node.host.health.problems());
    problems.extend(query_info::rule_problems(node));
    let aside = node.host.set_aside.all();
    problems.extend(aside.iter().map(crate::state::set_aside::SetAsideRecord::problem));
    problems.extend(transfers::find_duplicated(node));
    problems.extend(node.contradicting_documents());
    let log_problem = node.host.log.problem();
    let blocked =
        log_problem.is_some() || WRITE_PROBLEM_AREAS.iter().any(|area| node.host.health.has_problem(area));
    problems.extend(log_problem.map(|problem| format!("log: {problem}")));
    Health { ready: !node.host.is_stopping() && !blocked, problems }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            tracing::error!(error = %e, "the last checkpoint failed; the next start replays the log");
        }
    }
}
