//! A partition: its place in the log, its state, and the threads' loops that own it.

mod client;
mod commit;
mod failure;
mod latest_ends;
pub mod outbox;
mod owned;
mod progress;
mod reading;
mod role;
mod threads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow_array::RecordBatch;
use backon::{BlockingRetryable, ConstantBuilder};
use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex, RwLock};
use tidemill_log::{ConsumedRecord, Content, Durability, Subscription};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::appender::AttachedEntry;
use crate::apply;
use crate::apply::{Applied, ApplyReply, LogEntry};
use crate::changes::{ChangeGroup, RecordChanges, RecordGroup};
use crate::commit::{SharedCommit, TransactionId};
use crate::deployment::TableRef;
use crate::entry;
use crate::entry::{Emission, Entry};
use crate::host::Host;
use crate::partition::outbox::{Outbox, Replies};
use crate::planted_bugs::{PlantedBug, check_planted_failure, is_planted};
use crate::running_app::RunningApp;
use crate::state::PartitionState;
use crate::state::backlog::BacklogPermit;
use crate::state::current_record::CurrentRecord;
use crate::state::set_aside;
use crate::state::view::{PartitionView, PublishedCounters};
use commit::BlockedRecords;
use failure::panic_error;
use threads::PartitionThreads;

pub use client::{PartitionClient, PartitionPeers, PendingReply, TableName};
pub use latest_ends::LatestEnds;
pub use owned::OwnedPartitions;
pub use progress::{CollectionSize, PartitionProgress};
pub use role::ArrivedCauses;
pub use threads::OWNER_WAIT;

/// Maximum number of records that the owner applies before it publishes their effects.
const RECORDS_PER_BATCH: usize = 64;
/// Delay before a thread retries what a failing disk rejected.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A partition and everything it owns.
pub struct Partition {
    /// Id.
    pub id: PartitionId,
    host: Arc<Host>,
    app: Arc<RunningApp>,
    /// Subscription to its log, once it is recovered.
    subscription: OnceLock<Box<dyn Subscription>>,
    /// Emissions for other partitions.
    pub outbox: Outbox,
    /// Held by the owner while it applies a batch, until the batch's emissions are in the outbox: a checkpoint takes its
    /// image between batches only.
    pub apply_lock: Mutex<()>,
    /// State. Only the owner writes it, and holds the lock while it applies a batch: [`Self::view`] is for readers that
    /// must not wait.
    pub state: RwLock<PartitionState>,
    view: Arc<ArcSwap<PartitionView>>,
    /// Records that are durable and wait for the votes on a transaction before them. Only the owner uses them.
    waiting: Mutex<BlockedRecords>,
    /// Counters of rules and queries after the last applied batch.
    pub counters: PublishedCounters,
    /// Offset after the last applied record.
    applied: AtomicU64,
    applied_changed: (Mutex<()>, Condvar),
    /// Set when a record could not be applied: no record after it may be.
    failed: AtomicBool,
    /// The record that is being applied.
    pub current: CurrentRecord,
    /// Records below it were applied before in this process: when they are applied again, they rebuild the state and store nothing.
    effects_from: Offset,
    /// It answers when the records below it are applied.
    serves_from: Offset,
    /// Number of its owner among those that the partition had, see [`crate::commit::CommitBoard::applied`].
    owner: u64,
    /// Transactions in the state that it began with, which other participants have to apply before it answers.
    waits_for: Vec<TransactionId>,
    threads: Mutex<PartitionThreads>,
    /// Asks its loops and retries to end.
    stopping: AtomicBool,
    /// Another process owns it.
    standby: AtomicBool,
    /// When the next timer of queries on the machine's clock is due, in milliseconds; `i64::MAX` for never.
    pub next_timer: AtomicI64,
    /// Log time of the last events that were consumed, in microseconds.
    pub last_event_time: AtomicI64,
}

/// A record that the owner is about to apply.
struct PendingRecord {
    record: LogEntry,
    /// Durability that the record needs before it is applied.
    durability: Durability,
    /// Channel of the caller that waits for the outcome.
    reply: Option<Sender<Result<ApplyReply>>>,
    permit: Option<BacklogPermit>,
}

/// Effects of a batch of records that outlast the lock on the state.
#[derive(Default)]
struct BatchEffects {
    emissions: Vec<Emission>,
    /// Stored rows that subscribers want, by stream.
    published: Vec<(String, RecordBatch)>,
    /// Changes of documents that are kept.
    changes: Vec<RecordChanges>,
    replies: Replies,
}

impl Partition {
    /// Creates a partition in `state`; [`Self::start_consuming`] follows. The setting `inbox_bytes` bounds the records that wait to
    /// be applied, and the emissions that wait to be forwarded.
    pub fn new(state: PartitionState, host: Arc<Host>, app: Arc<RunningApp>) -> Self {
        let queue_bytes = app.deployment.settings.inbox_bytes() as usize;
        Self {
            id: state.partition,
            host,
            app,
            subscription: OnceLock::new(),
            outbox: Outbox::new(queue_bytes),
            apply_lock: Mutex::new(()),
            view: Arc::new(ArcSwap::from_pointee(PartitionView::new(&state, Offset(0)))),
            waiting: Mutex::default(),
            counters: PublishedCounters::of(&state),
            applied: AtomicU64::new(state.next.0),
            state: RwLock::new(state),
            applied_changed: (Mutex::new(()), Condvar::new()),
            failed: AtomicBool::new(false),
            current: CurrentRecord::default(),
            effects_from: Offset(0),
            serves_from: Offset(0),
            owner: 0,
            waits_for: Vec::new(),
            threads: Mutex::default(),
            stopping: AtomicBool::new(false),
            standby: AtomicBool::new(false),
            next_timer: AtomicI64::new(i64::MAX),
            last_event_time: AtomicI64::new(i64::MIN),
        }
    }

    /// Returns the partition as one that takes the place of `former` in this process. It shows nothing to readers before it has come as
    /// far as that one, and then all at once: also to those who still hold `former`.
    pub fn after(self, former: &Self) -> Self {
        let applied = former.applied();
        let (view, owner) = (former.view.clone(), former.owner);
        Self { effects_from: applied, serves_from: applied, owner, view, ..self }
    }

    /// Returns the partition as one of a new owner, that answers when the records below `end` are applied.
    pub fn serving_from(self, end: Offset) -> Self {
        let (owner, waits_for) = self.host.commits.take_over(self.id, self.applied());
        Self { serves_from: end, owner, waits_for, ..self }
    }

    /// Returns whether it has come as far as it has to before it answers.
    pub fn has_caught_up(&self) -> bool {
        let commits = &self.host.commits;
        let is_over = |id: &TransactionId| {
            if !commits.is_over(*id) {
                self.show_if_applied(*id);
            }
            commits.is_over(*id)
        };
        self.applied() >= self.serves_from && self.waits_for.iter().all(is_over)
    }

    /// Returns the offset after the last applied record.
    pub fn applied(&self) -> Offset {
        Offset(self.applied.load(Ordering::Acquire))
    }

    /// Returns whether it has stopped applying, as a record could not be applied: its state may be half changed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the documents and counts after the last applied batch, without waiting for the owner.
    pub fn view(&self) -> Arc<PartitionView> {
        self.view.load_full()
    }

    /// Calls `read` with what [`Self::view`] returns. Cheaper for a short read, as many threads do not count the same reference.
    pub fn with_view<T>(&self, read: impl FnOnce(&PartitionView) -> T) -> T {
        read(&self.view.load())
    }

    /// Shows the present state to readers of [`Self::view`]. It must be one after a whole record.
    pub fn publish(&self) {
        let state = self.state.read();
        if state.next < self.effects_from {
            return;
        }
        let view = Arc::new(PartitionView::new(&state, self.host.changes.end(self.id)));
        {
            let _one_moment = self.host.commits.lock_views();
            self.view.store(view);
        }
        self.host.changes.notify();
        self.counters.publish(&state);
    }

    /// Reads from the state when the next timer is due.
    pub fn refresh_next_timer(&self) {
        let queries = &self.app.deployment.queries;
        if !queries.is_empty() {
            let due = self.state.read().query_state.with_runtimes(|runtimes| runtimes.next_timer(queries));
            self.next_timer.store(due, Ordering::Release);
        }
    }

    /// Shows the records below `next` as applied, to sinks and to those who wait.
    fn show_applied(&self, next: Offset) {
        if next >= self.effects_from {
            self.app.sinks.set_applied(self.id, next);
        }
        let _guard = self.applied_changed.0.lock();
        self.applied.store(next.0, Ordering::Release);
        self.applied_changed.1.notify_all();
    }

    /// Waits until all records below `end` are applied.
    ///
    /// Errors: `Unavailable` when the partition has failed or the engine stops, and when applying has been blocked by the
    /// tables' store, or by a store of the app, for as long as senders wait.
    pub fn wait_applied(&self, end: Offset) -> Result<()> {
        self.wait_applied_with(end, self.app.deployment.settings.send_timeout.to_std())
    }

    /// Waits as [`Self::wait_applied`] does, for at most `patience` while applying is blocked.
    fn wait_applied_with(&self, end: Offset, patience: Duration) -> Result<()> {
        let mut blocked_since = None;
        let mut guard = self.applied_changed.0.lock();
        while self.applied() < end {
            if self.has_failed() || self.is_stopping() {
                return Err(Error::unavailable(format!(
                    "partition {} has applied its log up to offset {} only, not to {end}",
                    self.id,
                    self.applied()
                )));
            }
            let blocked_by = self.app.applying_is_blocked_by(&self.host);
            match blocked_by.or_else(|| self.waits_for_store()).or_else(|| self.waits_for_votes()) {
                None => blocked_since = None,
                Some(reason) => {
                    let now = self.host.clock.monotonic();
                    if now.saturating_sub(*blocked_since.get_or_insert(now)) >= patience {
                        return Err(Error::unavailable(format!(
                            "not all acknowledged events are applied yet, because {reason}. Ask again later; /readyz shows \
                             whether it is over"
                        )));
                    }
                }
            }
            self.applied_changed.1.wait_for(&mut guard, RETRY_INTERVAL);
        }
        Ok(())
    }

    /// Starts to consume the log after the last applied record, once.
    ///
    /// Errors: those of [`tidemill_log::Log::subscribe`].
    pub fn start_consuming(&self) -> Result<()> {
        let from = match is_planted(PlantedBug::SkipLog) {
            true => self.host.log.end(self.id),
            false => self.applied(),
        };
        let subscription = self.host.log.subscribe(self.id, from)?;
        let first_time = self.subscription.set(subscription).is_ok();
        debug_assert!(first_time, "a partition is consumed once");
        Ok(())
    }

    /// Stops consuming the log. Records that were not applied stay there, and their callers learn that no
    /// answer comes.
    pub fn stop_consuming(&self) {
        if let Some(subscription) = self.subscription.get() {
            subscription.close();
        }
    }

    /// Applies one decoded record during recovery; [`Self::publish`] follows the last one. `is_missing` says whether an emission is not in the log of its target.
    pub fn replay(&self, mut record: LogEntry, is_missing: &dyn Fn(&Emission) -> bool) -> Result<()> {
        let next = record.offset.next();
        if let Entry::Transaction(part) = &record.entry
            && !self.is_repeated(part)
            && let Some(commit) = SharedCommit::of(part)
        {
            record.decision = Some(self.replayed_decision(part, &commit, record.offset));
        }
        let offset = record.offset;
        let mut effects = BatchEffects::default();
        let applied = catch_unwind(AssertUnwindSafe(|| {
            self.apply_record(&mut self.state.write(), record, None, &mut effects)
        }));
        if let Err(error) = applied.unwrap_or_else(|panic| Err(panic_error(&*panic))) {
            return Err(match self.note_failed(&error) {
                Some(Ok(_)) => set_aside::noted(self.id, offset),
                Some(Err(not_noted)) => not_noted,
                // the watch noted it before
                None if self.host.set_aside.is_new(self.id, offset) => set_aside::noted(self.id, offset),
                None => error,
            });
        }
        for changes in &effects.changes {
            self.host.changes.append(self.id, changes)?;
        }
        self.show_applied(next);
        effects.emissions.retain(is_missing);
        self.enqueue_emissions(effects.emissions, Replies::new());
        Ok(())
    }

    /// Hands emissions to the forwarder, with the replies that wait until the emissions are forwarded.
    pub fn enqueue_emissions(&self, emissions: Vec<Emission>, replies: Replies) {
        if emissions.is_empty() {
            send_replies(replies);
        } else {
            if !self.is_standby() {
                self.host.in_flight.add(0);
            }
            send_replies(self.outbox.push(emissions, replies));
        }
    }

    /// Loop of the owner thread: consumes records, waits until they are durable, applies them, answers. Ends when the
    /// partition stops consuming.
    pub fn run_owner(&self) {
        let Some(subscription) = self.subscription.get() else { return };
        let mut consumed = None;
        // a log that cannot be reached is asked again; the engine's stop ends that
        while self.retry_until_stopped(self.id, || {
            consumed = match subscription.next(RECORDS_PER_BATCH) {
                Err(e) if !e.kind().is_retryable() => {
                    self.fail(self.applied(), &e);
                    None
                }
                next => next?,
            };
            Ok(())
        }) {
            let Some(records) = consumed.take() else { break };
            self.process(records);
            self.wait_for_votes();
        }
        // attachments are not taken any more
        subscription.close();
        self.forget_waiting();
    }

    /// Drops records that wait for votes, after the last step of the owner. Their callers learn that no answer comes.
    fn forget_waiting(&self) {
        self.host.part_replies.forget_partition(self.id);
        self.host.outcomes.forget(self.id);
        *self.waiting.lock() = BlockedRecords::default();
    }

    /// Applies records that wait in the log and forwards what they emit, on the caller's thread, for a partition without threads. Returns false if there were no records.
    pub fn apply_pending(&self) -> bool {
        let worked = self.apply_queued();
        while worked && self.forward_next() {}
        worked
    }

    /// Applies a batch of the records that wait in the log, on the caller's thread. Returns false if there were none.
    pub fn apply_queued(&self) -> bool {
        if self.waiting.lock().is_some() {
            return self.apply_waiting();
        }
        let records = self.subscription.get().map_or(Ok(Vec::new()), |s| s.poll(RECORDS_PER_BATCH));
        match records {
            Ok(records) if records.is_empty() => false,
            Ok(records) => {
                self.process(records);
                true
            }
            Err(e) if e.kind().is_retryable() => {
                self.host.health.report_problem("log", format!("partition {}: {e}", self.id));
                false
            }
            Err(e) => {
                self.fail(self.applied(), &e);
                false
            }
        }
    }

    /// Forwards the emissions of one batch on the caller's thread. Returns false if there were none, or if the engine stops.
    pub fn forward_next(&self) -> bool {
        self.outbox.peek().is_some_and(|emissions| self.send_emissions(emissions))
    }

    fn process(&self, records: Vec<ConsumedRecord>) {
        let next = records.first().map_or(Offset(0), |r| r.offset);
        let pending: Result<Vec<_>> = records.into_iter().map(|r| self.pending(r)).collect();
        let records = match pending {
            Ok(records) => records,
            Err(e) => return self.fail(next, &e),
        };
        if self.wait_durable(&records) {
            self.app.wait_for_tails(&self.host);
            self.app.wait_for_sinks(&self.host);
            self.outbox.wait_for_room(|| self.is_stopping());
            self.waiting.lock().records.extend(records);
            self.apply_waiting();
        }
    }

    /// Applies the waiting records up to a transaction whose votes are not all there. Returns whether it did anything.
    fn apply_waiting(&self) -> bool {
        let mut worked = false;
        loop {
            let batch = self.waiting.lock().take_free();
            if !batch.is_empty() {
                self.apply_batch(batch, None);
                worked = true;
            }
            if !self.step_commit() {
                return worked;
            }
            worked = true;
        }
    }

    /// Returns a record that is going to be applied, with the caller on this node that waits for it.
    fn pending(&self, consumed: ConsumedRecord) -> Result<PendingRecord> {
        let mut pending = self.decoded(consumed)?;
        if let Some(part) = pending.part().filter(|part| part.cause.is_some()) {
            pending.reply = self.host.part_replies.take(part.id, self.id);
        }
        if pending.reply.is_none() && self.host.outcomes.are_kept() && pending.record.entry.has_outcome() {
            let part = pending.part().map(|part| part.id);
            pending.reply = Some(self.host.outcomes.expect(self.id, pending.record.offset, part));
        }
        Ok(pending)
    }

    /// Decodes a record, unless this process appended it and handed the entry over.
    fn decoded(&self, consumed: ConsumedRecord) -> Result<PendingRecord> {
        let ConsumedRecord { offset, time, content, .. } = consumed;
        let record = |entry: Entry| {
            if matches!(entry, Entry::Events(_)) {
                self.last_event_time.store(time.0, Ordering::Release);
            }
            LogEntry { offset, time, entry, decision: None }
        };
        match content {
            Content::Attachment(attachment) => {
                let attached = attachment.downcast::<AttachedEntry>();
                let attached =
                    attached.map_err(|_| Error::internal("the log handed over a foreign attachment"))?;
                let AttachedEntry { entry, durability, reply, permit } = *attached;
                Ok(PendingRecord { record: record(entry), durability, reply, permit: Some(permit) })
            }
            Content::Payload(payload) => {
                let entry = entry::decode(&payload, &self.app.deployment.streams)
                    .map_err(|e| e.context(format!("partition {}, offset {offset}", self.id)))?;
                let durability = Durability::Memory;
                Ok(PendingRecord { record: record(entry), durability, reply: None, permit: None })
            }
        }
    }

    /// Waits until the records are as durable as their senders asked for. Durability is that of a prefix of the log, so it
    /// waits for the last record with the highest level. Returns false when the engine stops before the disk works again; the records then
    /// stay in the log unapplied.
    fn wait_durable(&self, records: &[PendingRecord]) -> bool {
        let most = records.iter().map(|r| r.durability).max().unwrap_or(Durability::Memory);
        if most == Durability::Memory {
            return true;
        }
        let of_most = records.iter().filter(|r| r.durability == most);
        let upto = of_most.map(|r| r.record.offset).max().unwrap_or_default();
        let sync = || self.host.log.sync(self.id, upto, most);
        let durable = self.retry_until_stopped(self.id, sync);
        if !durable {
            tracing::error!(
                partition = self.id.0,
                "stopped before records were durable; they stay unapplied in the log"
            );
        }
        durable
    }

    /// Applies records, and publishes their effects: together with the other participants if the record is that of `commit`.
    fn apply_batch(&self, mut records: Vec<PendingRecord>, commit: Option<&SharedCommit>) {
        // the records count as waiting until their emissions are in the outbox
        let _permits: Vec<_> = records.iter_mut().filter_map(|r| r.permit.take()).collect();
        let _applying = self.apply_lock.lock();
        if self.has_failed() {
            // dropping the records drops their reply channels, so their callers learn that no answer comes
            return;
        }
        let next = records.last().map_or(Offset(0), |r| r.record.offset.next());
        // a panic, as of a function that a program has registered, leaves the state half changed, as an error does
        let result = catch_unwind(AssertUnwindSafe(|| self.apply_records(records)));
        match result.unwrap_or_else(|panic| Err(panic_error(&*panic))) {
            Ok(mut effects) => {
                self.append_changes(std::mem::take(&mut effects.changes));
                match commit {
                    None => self.publish(),
                    Some(commit) => self.publish_together(commit),
                }
                self.refresh_next_timer();
                self.show_applied(next);
                for (stream, batch) in effects.published {
                    self.app.subscribers.publish(&stream, &batch);
                }
                self.enqueue_emissions(effects.emissions, effects.replies);
            }
            Err(e) => self.fail_at_record(next, &e),
        }
    }

    /// Appends changes to the change log. What a stopping engine cannot append its restart does.
    fn append_changes(&self, changes: Vec<RecordChanges>) {
        for changes in changes {
            self.retry_until_stopped(self.id, || self.host.changes.append(self.id, &changes));
        }
    }

    fn apply_records(&self, records: Vec<PendingRecord>) -> Result<BatchEffects> {
        let mut effects = BatchEffects::default();
        let mut state = self.state.write();
        for PendingRecord { record, reply, .. } in records {
            self.apply_record(&mut state, record, reply, &mut effects)?;
        }
        Ok(effects)
    }

    /// Applies a record and stores the rows that follow from it.
    fn apply_record(
        &self,
        state: &mut PartitionState,
        record: LogEntry,
        reply: Option<Sender<Result<ApplyReply>>>,
        effects: &mut BatchEffects,
    ) -> Result<()> {
        let (offset, time, kind) = (record.offset, state.time.max(record.time), record.entry.kind());
        self.host.commits.note_applied(time);
        let group = match (&record.entry, &record.decision) {
            (Entry::Transaction(part), Some(decision)) => Some(RecordGroup {
                group: ChangeGroup { offsets: decision.offsets.clone() },
                places: part.places.clone(),
            }),
            _ => None,
        };
        let begins_history = matches!(record.entry, Entry::CollectChanges);
        // what another system keeps must not come from a record that the log may lose
        let uses_external_tables = self.app.deployment.queries.has_external_tables(self.id);
        if uses_external_tables && self.host.log.durable(self.id) <= offset {
            let sync = || self.host.log.sync(self.id, offset, Durability::Fsync);
            if !self.retry_until_stopped(self.id, sync) {
                return Err(Error::unavailable("the engine stops"));
            }
        }
        let set_aside = self.host.set_aside.contains(self.id, offset);
        if set_aside && matches!(record.entry, Entry::Transaction(_)) {
            return Err(Error::invalid(format!(
                "record {offset} of partition {} could not be applied and cannot be set aside, as it is a part of a transaction",
                self.id
            )));
        }
        // one that waits for other systems is not watched
        let budget = self.current.begin(offset, self.host.clock.monotonic(), !uses_external_tables);
        let applied = {
            let _entered = budget.enter();
            apply::apply(&self.app.deployment, state, record, reply.is_some(), set_aside)?
        };
        if let Some(stop) = self.current.end() {
            return Err(Error::from(stop).context(format!("record {offset} of partition {}", self.id)));
        }
        if let Some(digest) = &state.digest {
            self.host.effect_digests.observe(self.id, offset, kind, digest.digest());
        }
        let Applied {
            rows,
            redelivered,
            delivered,
            emissions,
            events,
            document_error,
            set_aside,
            reply: outcome,
        } = applied;
        if let Some(entry) = set_aside {
            self.host.set_aside.keep_entry((self.id, offset), &entry)?;
        }
        if offset >= self.effects_from || is_planted(PlantedBug::RepeatEffects) {
            for (table, batch) in rows {
                self.store_rows(offset, table, batch, effects)?;
            }
            for (sink, batch) in redelivered {
                self.app.sinks.push_again(&sink, self.id, offset, &batch)?;
            }
            if let Some((sink, last)) = delivered {
                self.app.sinks.note_delivered(&sink, self.id, last)?;
            }
            self.app.counts.records.fetch_add(1, Ordering::Relaxed);
            self.app.counts.applied.fetch_add(events, Ordering::Relaxed);
        }
        check_planted_failure()?;
        effects.emissions.extend(emissions);
        if let Some((collection, error)) = document_error {
            self.host.health.report_source_problem(&collection, &error);
        }
        if begins_history {
            self.retry_until_stopped(self.id, || self.host.changes.open_partition(self.id).map(drop));
            effects.changes.extend(self.host.changes.begin(self.id, offset, time));
        }
        effects.changes.extend(self.host.changes.encode(
            self.id,
            (offset, time),
            group.as_ref(),
            &mut state.store,
        )?);
        effects.replies.extend(reply.zip(outcome));
        Ok(())
    }

    fn store_rows(
        &self,
        offset: Offset,
        table: TableRef,
        batch: RecordBatch,
        effects: &mut BatchEffects,
    ) -> Result<()> {
        let stream = &self.app.deployment.stream_of(table).name;
        if batch.num_rows() > 0 && self.app.subscribers.has_subscribers(stream) {
            effects.published.push((stream.clone(), batch.clone()));
        }
        self.app.sinks.push(table, self.id, offset, &batch)?;
        self.app.tables.get(table).push(self.id, offset, batch).map(|_| ())
    }

    /// Loop of the forwarder thread: takes the emissions of a batch, waits until their cause is on the disk, appends them to the
    /// logs of their partitions. Ends when the engine stops; emissions that are left are in the last
    /// checkpoint.
    pub fn run_forwarder(&self) {
        while let Some(emissions) = self.outbox.wait_front() {
            if !self.send_emissions(emissions) {
                return;
            }
        }
    }

    /// Forwards the emissions of a batch. Returns false when the engine stops before the disk works.
    fn send_emissions(&self, emissions: Vec<Emission>) -> bool {
        let cause = emissions.iter().map(Emission::cause).max().unwrap_or_default();
        let sync = || self.host.log.sync(self.id, cause, Durability::Fsync);
        let early = is_planted(PlantedBug::ForwardBeforeDurable);
        if !early && !self.retry_until_stopped(self.id, sync) {
            return false;
        }
        let mut offsets = Vec::with_capacity(emissions.len());
        for Emission { target, entry } in emissions {
            let sent = self.retry_until_stopped(target, || {
                // the target drops repetitions by their cause, so that an emission must not overtake an earlier one: the next is
                // sent when this one has its place
                let _before_or_after_a_cut = self.host.backups.forwarding.read();
                let ticket = self.host.append(target, entry.clone(), Durability::Os, None)?;
                offsets.push(ticket.wait_assigned()?.offset);
                Ok(())
            });
            if !sent {
                return false;
            }
        }
        send_replies(self.outbox.mark_sent(offsets, &*self.host.log));
        self.host.in_flight.done(1, 0);
        true
    }

    /// Repeats a step that a failing disk rejects, until it succeeds or the partition stops; returns false for the latter. `log` names
    /// the partition in the problem that it reports.
    fn retry_until_stopped(&self, log: PartitionId, step: impl FnMut() -> Result<()>) -> bool {
        let mut failed = false;
        let clock = self.host.clock.clone();
        let done = step
            .retry(ConstantBuilder::new().with_delay(RETRY_INTERVAL).without_max_times())
            .sleep(move |delay| clock.sleep(delay))
            .when(|_| !self.is_stopping())
            .notify(|e, _| {
                failed = true;
                self.host.health.report_problem("log", format!("partition {log}: {e}"));
            })
            .call()
            .is_ok();
        if failed && done {
            self.host.health.clear_problem("log");
        }
        done
    }

    /// Returns whether another process owns the partition.
    pub fn is_standby(&self) -> bool {
        self.standby.load(Ordering::Acquire)
    }

    /// Returns whether its loops and retries have to end, as it is closed or the engine stops.
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.host.is_stopping()
    }
}

fn send_replies(replies: Replies) {
    for (reply, outcome) in replies {
        // a caller that no longer waits is not an error
        let _ = reply.send(outcome);
    }
}
