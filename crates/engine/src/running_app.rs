//! An app at work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_types::{Offset, PartitionId};

use crate::api::Analytics;
use crate::counters::source_rejections::SourceRejections;
use crate::counters::{AggregateCounts, EngineCounters};
use crate::deployment::Deployment;
use crate::host::Host;
use crate::sinks::SinkSet;
use crate::subscribe::Subscribers;
use crate::tables::TableSet;

/// Interval at which an owner checks whether a full tail or sink has been written.
const TAIL_POLL: Duration = Duration::from_millis(5);

/// A deployment with its tables, sinks and counters. It lives from a deploy to the next one.
pub struct RunningApp {
    /// Deployed app.
    pub deployment: Arc<Deployment>,
    /// By partition, the first record that belongs to the app.
    first_offsets: Vec<Offset>,
    /// Tables of its streams.
    pub tables: TableSet,
    /// Sinks; none for an engine in memory.
    pub sinks: SinkSet,
    /// In-process readers of streams.
    pub subscribers: Subscribers,
    /// SQL, once it is set.
    pub analytics: OnceLock<Arc<dyn Analytics>>,
    /// Runs of aggregate rules, by name.
    pub aggregates: Mutex<BTreeMap<String, AggregateCounts>>,
    /// Counters.
    pub counts: EngineCounters,
    /// Rejected rows of sources.
    pub source_rejections: SourceRejections,
    /// Rules that were logged as failing.
    pub failing_rules: Mutex<BTreeSet<String>>,
    sources_stopping: AtomicBool,
    /// Number of the next batch that is sent.
    next_batch: AtomicU64,
}

impl RunningApp {
    /// Creates an app whose tables and sinks are open.
    pub fn new(deployment: Arc<Deployment>, tables: TableSet, sinks: SinkSet) -> Self {
        Self {
            deployment,
            first_offsets: Vec::new(),
            tables,
            sinks,
            subscribers: Subscribers::default(),
            analytics: OnceLock::new(),
            aggregates: Mutex::default(),
            counts: EngineCounters::default(),
            source_rejections: SourceRejections::default(),
            failing_rules: Mutex::default(),
            sources_stopping: AtomicBool::new(false),
            next_batch: AtomicU64::new(0),
        }
    }

    /// Sets the first record of each partition that belongs to the app; those before it belong to the app before it.
    pub fn with_first_offsets(self, first_offsets: Vec<Offset>) -> Self {
        Self { first_offsets, ..self }
    }

    /// Returns the first record of a partition that belongs to the app.
    pub fn first_offset(&self, partition: PartitionId) -> Offset {
        self.first_offsets.get(partition.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the number of the first of so many batches that are sent. Streams that are spread over partitions have another one in each.
    pub fn number_batches(&self, batches: usize) -> u64 {
        self.next_batch.fetch_add(batches as u64, Ordering::Relaxed)
    }

    /// Asks sources to end after their current chunk.
    pub fn set_sources_stopping(&self) {
        self.sources_stopping.store(true, Ordering::Release);
    }

    /// Returns whether sources are asked to end.
    pub fn sources_stopping(&self) -> bool {
        self.sources_stopping.load(Ordering::Acquire)
    }

    /// Returns whether as many rows are in no file yet as memory allows.
    pub fn tails_full(&self) -> bool {
        self.full_tails().is_some()
    }

    /// Returns the limit that the rows which are in no file yet have reached, as a sentence.
    fn full_tails(&self) -> Option<String> {
        let settings = &self.deployment.settings;
        let (table, bytes, all) = self.tables.pending();
        let limit = settings.tail_bytes();
        if bytes >= limit {
            return Some(format!(
                "{bytes} bytes of table `{table}` are in no file yet (tail_bytes = {limit})"
            ));
        }
        let limit = settings.unflushed_bytes();
        (all >= limit)
            .then(|| format!("{all} bytes of all tables are in no file yet (unflushed_bytes = {limit})"))
    }

    /// Returns why records are not applied at the moment, with the error of the tables' store; `None` when nothing keeps
    /// them from it.
    pub fn applying_waits_for(&self, host: &Host) -> Option<String> {
        let full = self.full_tails()?;
        Some(match host.health.problem_of_any_subject("tables") {
            Some(problem) => format!("{full}; writing them fails: {problem}"),
            None => format!("{full}; they are being written"),
        })
    }

    /// Returns why records are not applied until the tables' store works again; `None` while it works.
    pub fn applying_is_blocked_by(&self, host: &Host) -> Option<String> {
        host.health.problem_of_any_subject("tables").and_then(|_| self.applying_waits_for(host))
    }

    /// Waits while tails are full, so that memory stays bounded while the object store is unavailable.
    pub fn wait_for_tails(&self, host: &Host) {
        while !host.is_stopping()
            && let Some(full) = self.full_tails()
        {
            // the bytes change all the time, and a line is logged when the text changes
            let limit = full.split_once('(').map_or(full.as_str(), |(_, limit)| limit.trim_end_matches(')'));
            host.health.report_wait("tables", format!("applying waits until rows are flushed: {limit}"));
            host.notifier.notify();
            host.clock.sleep(TAIL_POLL);
        }
    }

    /// Waits while a sink has as many rows to write as memory allows. Why it does not write them is on the health board.
    pub fn wait_for_sinks(&self, host: &Host) {
        while !host.is_stopping() && self.sinks.is_full() {
            host.notifier.notify();
            host.clock.sleep(TAIL_POLL);
        }
    }
}
