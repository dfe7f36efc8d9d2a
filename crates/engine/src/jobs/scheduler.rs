//! Starts jobs when they are due, on the engine's clock.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use tidemill_types::Result;

use crate::node::Node;
use crate::process::spawn::spawn;

/// Interval at which the dispatcher looks for jobs that may run before their interval has passed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Kind of work of a job: jobs of different classes run on different threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobClass {
    /// Writes a table to the object store.
    Flush,
    /// Merges tablets and deletes old ones.
    Consolidation,
    /// Writes checkpoints.
    Checkpoint,
    /// Runs SQL.
    Rule,
    /// Looks at something and returns soon.
    Watch,
    /// Writes a sink.
    Sink,
}

impl JobClass {
    const ALL: [Self; 6] =
        [Self::Flush, Self::Consolidation, Self::Checkpoint, Self::Rule, Self::Watch, Self::Sink];
}

/// Returns whether a job should run before its interval has passed.
pub type EarlyCheck = Box<dyn Fn(&Node) -> bool + Send + Sync>;

/// When a job runs. The interval begins when the job ends.
pub struct Schedule {
    /// Time between two runs.
    pub interval: Duration,
    /// Check for an early run.
    pub is_early: Option<EarlyCheck>,
}

impl Schedule {
    /// Returns a schedule that runs a job at an interval.
    pub fn every(interval: Duration) -> Self {
        Self { interval, is_early: None }
    }
}

/// A recurring job. Two runs of one job never overlap. A job reports its own failures.
pub struct Job {
    /// Name for logs and threads.
    pub name: String,
    /// Class.
    pub class: JobClass,
    /// When it runs.
    pub schedule: Schedule,
    /// Runs it once.
    pub run: Box<dyn Fn(&Node) + Send + Sync>,
}

/// State of a job between dispatcher and workers.
struct JobState {
    job: Job,
    /// Monotonic time of the next run; `None` while it is running or waits for a thread.
    due: Mutex<Option<Duration>>,
}

impl JobState {
    fn is_due(&self, node: &Node, now: Duration) -> bool {
        let due = *self.due.lock();
        let early = || self.job.schedule.is_early.as_ref().is_some_and(|is_early| is_early(node));
        due.is_some_and(|due| due <= now || early())
    }

    fn run(&self, node: &Node) {
        tracing::trace!(job = self.job.name, "runs");
        (self.job.run)(node);
        *self.due.lock() = Some(node.host.clock.monotonic() + self.job.schedule.interval);
    }
}

/// Starts the dispatcher, and for each class as many worker threads as `bound` says.
pub fn start(
    node: &Arc<Node>,
    jobs: Vec<Job>,
    bound: impl Fn(JobClass) -> usize,
) -> Result<Vec<JoinHandle<()>>> {
    let start = node.host.clock.monotonic();
    let jobs: Vec<Arc<JobState>> = jobs
        .into_iter()
        .map(|job| {
            let due = Mutex::new(Some(start + job.schedule.interval));
            Arc::new(JobState { job, due })
        })
        .collect();
    let (mut threads, mut queues) = (Vec::new(), Vec::new());
    for class in JobClass::ALL {
        let of_class = jobs.iter().filter(|state| state.job.class == class).count();
        let (sender, receiver) = unbounded();
        queues.push(sender);
        for worker in 0..bound(class).min(of_class) {
            let (node, receiver) = (node.clone(), receiver.clone());
            let name = format!("{class:?}-{worker}").to_lowercase();
            threads.push(spawn(name, move || work(&node, &receiver))?);
        }
    }
    let node = node.clone();
    threads.push(spawn("jobs".into(), move || dispatch(&node, &jobs, &queues))?);
    Ok(threads)
}

/// Runs the jobs that the dispatcher sends, until it ends. Jobs that wait when the engine stops are not run.
fn work(node: &Node, queue: &Receiver<Arc<JobState>>) {
    while let Ok(state) = queue.recv() {
        if node.host.is_stopping() {
            return;
        }
        state.run(node);
        node.host.notifier.notify();
    }
}

fn dispatch(node: &Node, jobs: &[Arc<JobState>], queues: &[Sender<Arc<JobState>>]) {
    let mut signals = 0;
    while !node.host.is_stopping() {
        let now = node.host.clock.monotonic();
        for state in jobs.iter().filter(|state| state.is_due(node, now)) {
            *state.due.lock() = None;
            // the workers end after the dispatcher only, so somebody receives it
            let _ = queues[state.job.class as usize].send(state.clone());
        }
        let next = jobs.iter().filter_map(|state| *state.due.lock()).min();
        let poll = now + POLL_INTERVAL;
        let deadline = next.map_or(poll, |next| next.min(poll));
        node.host.notifier.wait_until(&mut signals, &*node.host.clock, deadline);
    }
}
