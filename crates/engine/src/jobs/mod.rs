//! Background jobs: flushes, consolidation, sinks, checkpoints, aggregate rules, expiry of documents, the watch on disk space.
//!
//! One dispatcher starts every job when it is due. Jobs of one queue never run at the same time, and each class of jobs
//! has its own threads, so that a slow aggregate rule delays no flush and a flush of one table delays no other table.

pub mod aggregate_rules;
pub mod checkpoint;
pub mod consolidation;
mod disk_space;
mod expiry;
pub mod flush;
pub mod record_watch;
pub mod retention;
mod scheduler;
pub mod shared_state;
pub mod sinks;
mod stores;
pub mod timers;

use std::num::NonZero;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_types::Result;

use crate::node::Node;
use crate::sinks::DeliverySink;
use scheduler::{Job, JobClass, Schedule};

/// Aggregate rules that run at the same time.
const RULES_AT_ONCE: usize = 2;
/// Interval between measurements of the free space of the disk.
const DISK_SPACE_INTERVAL: Duration = Duration::from_millis(50);
/// Interval of the search for files of tables that are no longer read.
const OLD_FILES_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the search for files of tables that a crash left behind.
const ORPHANS_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Interval of the search for expired events.
const RETENTION_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the search for expired documents.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// Sinks that are written at the same time.
const SINKS_AT_ONCE: usize = 4;
/// Interval at which a sink is written for which nothing waits: its file is opened, and a failure is noticed
/// to be over.
const SINK_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval of an aggregate rule.
const RULE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Starts the threads of the background jobs. They end when the engine stops.
///
/// Errors: `Unavailable` when a thread cannot be started.
pub fn start(node: &Arc<Node>) -> Result<Vec<JoinHandle<()>>> {
    scheduler::start(node, all(node), bound)
}

/// Returns how many jobs of a class run at the same time.
fn bound(class: JobClass) -> usize {
    match class {
        JobClass::Flush => std::thread::available_parallelism().map_or(1, NonZero::get),
        JobClass::Checkpoint | JobClass::Consolidation | JobClass::Watch => 1,
        JobClass::Rule => RULES_AT_ONCE,
        JobClass::Sink => SINKS_AT_ONCE,
    }
}

/// Returns work that one process does for all.
fn shared_work(run: impl Fn(&Node) + Send + Sync + 'static) -> Box<dyn Fn(&Node) + Send + Sync> {
    Box::new(move |node: &Node| {
        if node.does_shared_work() {
            run(node);
        }
    })
}

fn all(node: &Node) -> Vec<Job> {
    let settings = &node.app.deployment.settings;
    let flush_interval = settings.flush_interval.to_std();
    let mut jobs = Vec::new();
    for (index, (stream, _)) in node.app.tables.writable().enumerate() {
        jobs.push(Job {
            name: format!("flush of {}", stream.name),
            class: JobClass::Flush,
            schedule: Schedule {
                interval: flush_interval,
                is_early: Some(Box::new(move |node: &Node| flush::is_large(node, index))),
            },
            run: Box::new(move |node: &Node| flush::run(node, index)),
        });
    }
    for (index, (stream, _)) in node.app.tables.writable().enumerate() {
        jobs.push(Job {
            name: format!("consolidation of {}", stream.name),
            class: JobClass::Consolidation,
            schedule: Schedule::every(flush_interval),
            run: shared_work(move |node: &Node| consolidation::run(node, index)),
        });
    }
    for (index, (stream, _)) in node.app.tables.writable().enumerate() {
        let Some(ttl) = node.app.deployment.app.tables.get(&stream.name).and_then(|table| table.ttl) else {
            continue;
        };
        jobs.push(Job {
            name: format!("retention of {}", stream.name),
            class: JobClass::Consolidation,
            schedule: Schedule::every(RETENTION_INTERVAL),
            run: shared_work(move |node: &Node| retention::run(node, index, ttl)),
        });
    }
    jobs.push(Job {
        name: "old files".into(),
        class: JobClass::Consolidation,
        schedule: Schedule::every(OLD_FILES_INTERVAL),
        run: shared_work(consolidation::remove_old_files),
    });
    jobs.push(Job {
        name: "orphans".into(),
        class: JobClass::Consolidation,
        schedule: Schedule::every(ORPHANS_INTERVAL),
        run: shared_work(consolidation::sweep_orphans),
    });
    jobs.push(Job {
        name: "ids of events".into(),
        class: JobClass::Consolidation,
        schedule: Schedule::every(flush_interval),
        run: Box::new(checkpoint::merge_id_runs),
    });
    jobs.push(Job {
        name: "checkpoint".into(),
        class: JobClass::Checkpoint,
        schedule: Schedule::every(settings.checkpoint_interval.to_std()),
        run: Box::new(checkpoint::run),
    });
    jobs.push(Job {
        name: "lossy queries".into(),
        class: JobClass::Watch,
        schedule: Schedule::every(flush_interval),
        run: Box::new(crate::query_info::report_failures),
    });
    jobs.push(Job {
        name: "expiry".into(),
        class: JobClass::Watch,
        schedule: Schedule::every(EXPIRY_INTERVAL),
        run: Box::new(expiry::run),
    });
    jobs.push(Job {
        name: "disk space".into(),
        class: JobClass::Watch,
        schedule: Schedule::every(DISK_SPACE_INTERVAL),
        run: disk_space::job(),
    });
    if node.host.partition_ids().any(|id| node.app.deployment.queries.has_external_tables(id)) {
        jobs.push(Job {
            name: "stores".into(),
            class: JobClass::Watch,
            schedule: Schedule::every(SINK_INTERVAL),
            run: stores::job(),
        });
    }
    for (index, sink) in node.app.sinks.all().iter().enumerate() {
        jobs.push(Job {
            name: format!("sink {}", sink.name()),
            class: JobClass::Sink,
            schedule: Schedule {
                interval: SINK_INTERVAL,
                is_early: Some(Box::new(move |node: &Node| sinks::is_due(node, index))),
            },
            run: Box::new(move |node: &Node| sinks::run(node, index)),
        });
    }
    for (index, sink) in node.app.sinks.deliveries().iter().enumerate() {
        jobs.push(Job {
            name: format!("queue of sink {}", sink.name()),
            class: JobClass::Sink,
            schedule: Schedule {
                interval: SINK_INTERVAL,
                is_early: Some(Box::new(move |node: &Node| {
                    node.app.sinks.deliveries().get(index).is_some_and(DeliverySink::is_memory_full)
                })),
            },
            run: Box::new(move |node: &Node| sinks::store_if_full(node, index)),
        });
    }
    for (index, aggregate) in node.app.deployment.program.aggregates().iter().enumerate() {
        let Some(every) = aggregate.every else { continue };
        jobs.push(Job {
            name: format!("rule {}", aggregate.name),
            class: JobClass::Rule,
            schedule: Schedule::every(every.to_std().max(RULE_INTERVAL_MIN)),
            run: Box::new(move |node: &Node| aggregate_rules::run_scheduled(node, index)),
        });
    }
    jobs
}
