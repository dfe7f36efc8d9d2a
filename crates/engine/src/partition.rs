//! A partition: its door (append order), its inbox, its state, and the thread that owns it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex, RwLock};
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::apply::{self, ApplyReply};
use crate::apply_queue::{ApplyQueue, PendingRecord};
use crate::core::Core;
use crate::entry::{Encoder, Entry};
use crate::outbox::{Emission, Outbox, Replies};
use crate::queries::timer_thread;
use crate::state::PartitionState;

/// Records that the owner applies between two looks at the world.
const RECORDS_PER_BATCH: usize = 64;
/// How long the owner waits before it asks a failing disk again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A partition and everything it owns.
pub struct Partition {
    /// Its number.
    pub id: PartitionId,
    /// Held while a record is appended and put into the inbox, so that both have one order.
    append_state: Mutex<AppendState>,
    /// Records written but not applied.
    pub apply_queue: ApplyQueue,
    /// What it emitted for other partitions.
    pub outbox: Outbox,
    /// Held by the owner through a round, until what it emitted for other partitions is in the outbox: a checkpoint
    /// takes its image between rounds only.
    pub apply_lock: Mutex<()>,
    /// Documents, ledger and the rest. Written by the owner only.
    pub state: RwLock<PartitionState>,
    /// The offset after the last applied record.
    applied: AtomicU64,
    applied_changed: (Mutex<()>, Condvar),
    /// Set when a record could not be applied: nothing after it may be.
    failed: AtomicBool,
    /// When the queries that go by the machine's clock are due next, milliseconds; `i64::MAX` for never.
    pub next_timer: AtomicI64,
    /// When events came last, by the machine's clock, microseconds.
    pub last_event_time: AtomicI64,
}

#[derive(Default)]
struct AppendState {
    encoder: Encoder,
    last_time: Timestamp,
}

impl Partition {
    /// A partition in `state`.
    pub fn new(id: PartitionId, state: PartitionState, inbox_bytes: usize) -> Self {
        let applied = AtomicU64::new(state.next.0);
        Self {
            id,
            append_state: Mutex::default(),
            apply_queue: ApplyQueue::new(inbox_bytes),
            outbox: Outbox::new(inbox_bytes),
            apply_lock: Mutex::new(()),
            state: RwLock::new(state),
            applied,
            applied_changed: (Mutex::new(()), Condvar::new()),
            failed: AtomicBool::new(false),
            next_timer: AtomicI64::new(i64::MAX),
            last_event_time: AtomicI64::new(i64::MIN),
        }
    }

    /// The offset after the last applied record.
    pub fn applied(&self) -> Offset {
        Offset(self.applied.load(Ordering::Acquire))
    }

    /// Notes when its queries are due next.
    pub fn refresh_next_timer(&self, core: &Core) {
        if !core.queries.is_empty() {
            let due = self
                .state
                .read()
                .query_state
                .with_runtimes(|flow| timer_thread::next_timer(&core.queries, flow));
            self.next_timer.store(due, Ordering::Release);
        }
    }

    fn set_applied(&self, next: Offset) {
        let _guard = self.applied_changed.0.lock();
        self.applied.store(next.0, Ordering::Release);
        self.applied_changed.1.notify_all();
    }

    /// Waits until all records below `end` are applied.
    ///
    /// Errors: `Unavailable` when the partition stands still or the engine stops.
    pub fn wait_applied(&self, end: Offset, core: &Core) -> Result<()> {
        let mut guard = self.applied_changed.0.lock();
        while self.applied() < end {
            if self.failed.load(Ordering::Acquire) || core.is_stopping() {
                return Err(Error::unavailable(format!(
                    "partition {} has applied its log up to offset {} only, not to {end}",
                    self.id,
                    self.applied()
                )));
            }
            self.applied_changed.1.wait_for(&mut guard, RETRY_INTERVAL);
        }
        Ok(())
    }

    /// Appends `entry` to the log and hands it to the owner. Returns before it is durable.
    ///
    /// Errors: those of [`tidemill_log::Log::write`]; the entry is then nowhere.
    pub fn write(
        &self,
        core: &Core,
        entry: Entry,
        durability: Durability,
        reply: Option<Sender<Result<ApplyReply>>>,
    ) -> Result<Offset> {
        let mut door = self.append_state.lock();
        let bytes = door.encoder.encode(&entry)?;
        // times in one partition never go back, whatever the machine's clock does
        let time = core.clock.now().max(door.last_time);
        let appended = core.log.write(self.id, time, &[&bytes])?;
        door.last_time = time;
        core.disk_space.count_written(bytes.len());
        if matches!(entry, Entry::Events(_)) {
            self.last_event_time.store(time.0, Ordering::Release);
        }
        core.in_flight.add();
        let item =
            PendingRecord { offset: appended.last, time, durability, entry, bytes: bytes.len(), reply };
        if !self.apply_queue.push(item) {
            // it is in the log, and the next start applies it
            core.in_flight.done(1);
        }
        Ok(appended.last)
    }

    /// Applies one decoded record during recovery. `missing` tells whether the log that an emission belongs to lacks it.
    pub fn replay(
        &self,
        core: &Core,
        offset: Offset,
        time: Timestamp,
        entry: Entry,
        missing: &dyn Fn(&Emission) -> bool,
    ) -> Result<()> {
        let item =
            PendingRecord { offset, time, durability: Durability::Memory, entry, bytes: 0, reply: None };
        let round = apply::apply(core, self.id, &mut self.state.write(), vec![item])?;
        self.set_applied(offset.next());
        let emissions = round.emissions.into_iter().filter(missing).collect();
        self.enqueue_emissions(core, emissions, Replies::new());
        Ok(())
    }

    /// Hands emissions to the forwarder; the answers are given once those are sent.
    pub fn enqueue_emissions(&self, core: &Core, emissions: Vec<Emission>, replies: Replies) {
        if emissions.is_empty() {
            send_replies(replies);
        } else {
            core.in_flight.add();
            self.outbox.push(emissions, replies);
        }
    }

    /// The owner's life: take records, wait until they are durable, apply them, answer.
    pub fn run_owner(&self, core: &Core) {
        while let Some(items) = self.apply_queue.take(RECORDS_PER_BATCH) {
            self.process(core, items);
        }
    }

    /// Applies what waits in the inbox and sends on what that emitted, on the caller's thread, where the partition has no
    /// threads of its own. False when nothing waits.
    pub fn apply_pending(&self, core: &Core) -> bool {
        if self.apply_queue.depth().0 == 0 {
            return false;
        }
        let worked =
            self.apply_queue.take(RECORDS_PER_BATCH).map(|items| self.process(core, items)).is_some();
        while let Some(emissions) = self.outbox.peek() {
            if !self.send_emissions(core, emissions) {
                break;
            }
        }
        worked
    }

    fn process(&self, core: &Core, items: Vec<PendingRecord>) {
        let bytes: usize = items.iter().map(|i| i.bytes).sum();
        let n = items.len();
        if self.wait_durable(core, &items) {
            core.wait_for_tails();
            self.outbox.wait_for_room(|| core.is_stopping());
            self.apply_batch(core, items);
        }
        self.apply_queue.release(bytes);
        core.in_flight.done(n);
    }

    /// Durability goes by prefix: waiting for the last record that asked for the most covers all.
    ///
    /// False when the engine stops before the disk works again: the records stay in the log unapplied.
    fn wait_durable(&self, core: &Core, items: &[PendingRecord]) -> bool {
        let most = items.iter().map(|i| i.durability).max().unwrap_or(Durability::Memory);
        if most == Durability::Memory {
            return true;
        }
        let upto = items.iter().filter(|i| i.durability == most).map(|i| i.offset).max().unwrap_or_default();
        let durable = self.retry_until_stopped(core, self.id, || core.log.sync(self.id, upto, most));
        if !durable {
            tracing::error!(
                partition = self.id.0,
                "stopped before records were durable; they stay unapplied in the log"
            );
        }
        durable
    }

    fn apply_batch(&self, core: &Core, items: Vec<PendingRecord>) {
        let _round = self.apply_lock.lock();
        if self.failed.load(Ordering::Acquire) {
            // dropping the items drops their reply channels: who waits learns that there is no answer
            return;
        }
        let next = items.last().map_or(Offset(0), |i| i.offset.next());
        // a panic, as of a function that a program has registered, leaves the state half changed, as an error does
        let apply = || apply::apply(core, self.id, &mut self.state.write(), items);
        let result = catch_unwind(AssertUnwindSafe(apply)).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Error::internal(format!("a panic while a record was applied: {message}")))
        });
        match result {
            Ok(round) => {
                self.refresh_next_timer(core);
                self.set_applied(next);
                for (stream, batch) in round.published {
                    core.subscribers.publish(&stream, &batch);
                }
                self.enqueue_emissions(core, round.emissions, round.replies);
            }
            Err(e) => {
                self.failed.store(true, Ordering::Release);
                core.disable_checkpoints();
                core.report_problem("apply", format!("partition {} stopped applying its log before offset {next}: {e}; nothing is lost, a restart replays it", self.id));
            }
        }
    }

    /// The forwarder's life: take what a round emitted, wait until its cause is on the disk, append it where it
    /// belongs. Ends when the engine stops; what is left is in the last checkpoint.
    pub fn run_forwarder(&self, core: &Core) {
        while let Some(emissions) = self.outbox.wait_front() {
            if !self.send_emissions(core, emissions) {
                return;
            }
        }
    }

    /// Sends what one round emitted. False when the engine stops before the disk works.
    fn send_emissions(&self, core: &Core, emissions: Vec<Emission>) -> bool {
        let cause = emissions.iter().map(Emission::cause).max().unwrap_or_default();
        if !self.retry_until_stopped(core, self.id, || core.log.sync(self.id, cause, Durability::Fsync)) {
            return false;
        }
        let mut offsets = Vec::with_capacity(emissions.len());
        for Emission { target, events } in emissions {
            let target = &core.partitions()[target.0 as usize];
            let entry = Entry::Events(events);
            let sent = self.retry_until_stopped(core, target.id, || {
                offsets.push(target.write(core, entry.clone(), Durability::Os, None)?);
                Ok(())
            });
            if !sent {
                return false;
            }
        }
        send_replies(self.outbox.mark_sent(offsets, &*core.log));
        core.in_flight.done(1);
        true
    }

    /// Repeats what a failing disk refuses, until it works or the engine stops; false for the latter.
    fn retry_until_stopped(
        &self,
        core: &Core,
        log: PartitionId,
        mut step: impl FnMut() -> Result<()>,
    ) -> bool {
        let mut failed = false;
        loop {
            match step() {
                Ok(()) => {
                    if failed {
                        core.clear_problem("log");
                    }
                    return true;
                }
                Err(_) if core.is_stopping() => return false,
                Err(e) => {
                    failed = true;
                    core.report_problem("log", format!("partition {log}: {e}"));
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
        }
    }
}

fn send_replies(replies: Replies) {
    for (reply, outcome) in replies {
        // a caller that no longer waits is no error
        let _ = reply.send(outcome);
    }
}

/// The threads of all partitions.
pub struct PartitionThreads {
    /// Each applies the log of one partition.
    pub owners: Vec<JoinHandle<()>>,
    /// Each appends what one partition emitted to the logs of the others.
    pub forwarders: Vec<JoinHandle<()>>,
}

/// Starts the owner thread and the forwarder thread of every partition.
pub fn start(core: &Arc<Core>) -> Result<PartitionThreads> {
    let owners = spawn_per_partition(core, "partition", Partition::run_owner)?;
    Ok(PartitionThreads {
        owners,
        forwarders: spawn_per_partition(core, "forward", Partition::run_forwarder)?,
    })
}

fn spawn_per_partition(
    core: &Arc<Core>,
    name: &str,
    body: fn(&Partition, &Core),
) -> Result<Vec<JoinHandle<()>>> {
    (0..core.partitions().len())
        .map(|p| {
            let core = core.clone();
            std::thread::Builder::new()
                .name(format!("{name}-{p}"))
                .spawn(move || body(&core.partitions()[p], &core))
                .map_err(|e| Error::unavailable("cannot start a thread for a partition").with_source(e))
        })
        .collect()
}
