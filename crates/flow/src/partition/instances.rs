//! The keys of a partition and their query instances.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;

use super::keys::EventDestination;
use super::plan::{IdleKeyPurge, PartitionPlan};
use super::saving::{PendingKeys, instance_mut};
use crate::columns::batch::Batch;
use crate::eval_error::EvalError;
use crate::explain::EventSamples;
use crate::expr::EvalContext;
use crate::query::{Query, QueryPlan, Scheduler};

/// Handle of a key of a partition. Invalid after the key was purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyId(pub(super) u32);

/// Due time of a key without timers.
pub(super) const NEVER: i64 = i64::MAX;

/// Runtime of a `partition with` block.
///
/// A key costs about a hundred bytes in addition to its text and the queries that events have reached so far.
/// The next timer is found in logarithmic time. Only events of streams that are not partitioned, scheduled
/// instants and purging visit all keys.
pub struct PartitionRuntime {
    pub(super) plan: Arc<PartitionPlan>,
    /// Indexes into `instances`, by key text.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub(super) instances: Vec<Option<Instance>>,
    /// Indexes of purged keys, to be used again.
    free: Vec<u32>,
    /// Number of keys created so far.
    keys_created: u64,
    /// For each scheduler, the keys with a pending timer: due time of the key's next timer, age, index.
    due: Vec<BTreeSet<(i64, u64, u32)>>,
    /// One instance of each query with a calendar schedule, to compute its instants.
    scheduled_queries: Vec<(usize, Query)>,
    /// Start time of the app, milliseconds.
    pub(super) start: i64,
    /// Lower bound of the last event times of all keys.
    oldest_use: i64,
    /// The keys that a checkpoint has not saved yet.
    pub(super) pending: Option<Box<PendingKeys>>,
    /// For each query, the last events that its filters rejected, over all keys: storing them per key would
    /// need too much memory.
    pub(super) samples: Box<[Option<Box<EventSamples>>]>,
}

/// State of a key.
pub(super) struct Instance {
    pub name: Box<str>,
    /// Number of keys created before this one.
    pub sequence: u64,
    /// Clock at the key's first event.
    pub started_at: i64,
    /// Clock at the key's last event.
    pub last_used: i64,
    /// Query instances; `None` until an event reaches the query.
    pub queries: Box<[Option<Box<Query>>]>,
    /// For each scheduler, the due time in [`PartitionRuntime::due`], or `NEVER`.
    pub next_due: Box<[i64]>,
}

impl Instance {
    fn new(name: &str, now: i64, plan: &PartitionPlan) -> Self {
        let queries = plan.queries.iter().map(|query| {
            let at_once = PartitionPlan::starts_with_key(query);
            at_once.then(|| start_query(query, now))
        });
        let heads = vec![NEVER; plan.schedulers().len()].into();
        Self {
            name: name.into(),
            sequence: 0,
            started_at: now,
            last_used: now,
            queries: queries.collect(),
            next_due: heads,
        }
    }
}

pub(super) fn start_query(plan: &Arc<QueryPlan>, now: i64) -> Box<Query> {
    let mut query = Query::new(plan.clone());
    query.start(now);
    Box::new(query)
}

impl PartitionRuntime {
    /// Creates a partition without keys.
    pub fn new(plan: Arc<PartitionPlan>) -> Self {
        let made = plan.queries.iter().map(|query| Query::new(query.clone()));
        let calendars = made.enumerate().filter(|(_, query)| query.next_scheduled(0).is_some()).collect();
        let due = plan.schedulers().iter().map(|_| BTreeSet::new()).collect();
        let notes = plan.queries.iter().map(|_| None).collect();
        Self {
            plan,
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            instances: vec![],
            free: vec![],
            keys_created: 0,
            due,
            scheduled_queries: calendars,
            start: 0,
            oldest_use: NEVER,
            pending: None,
            samples: notes,
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Arc<PartitionPlan> {
        &self.plan
    }

    /// Starts the partition; called once when the app starts.
    pub fn start(&mut self, now: i64) {
        self.start = now;
        self.scheduled_queries.iter_mut().for_each(|(_, query)| query.start(now));
    }

    /// Returns the start time of the app, milliseconds; 0 before the start.
    pub fn started(&self) -> i64 {
        self.start
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the keys, oldest first.
    pub fn keys(&self) -> Vec<KeyId> {
        let there =
            self.instances.iter().enumerate().filter_map(|(i, key)| Some((key.as_ref()?.sequence, i)));
        let mut keys: Vec<(u64, usize)> = there.collect();
        // indexes of purged keys are used again
        keys.sort_unstable();
        keys.into_iter().map(|(_, i)| KeyId(i as u32)).collect()
    }

    /// Determines the keys to which events of a stream go.
    pub fn route(&self, stream: usize, events: &Batch, now: i64, host: &dyn EvalContext) -> EventDestination {
        self.plan.route(stream, events, now, host)
    }

    /// Returns the key for an event, creating it with its first event. Errors: there are 2^32 keys.
    pub fn key_for_event(&mut self, name: &str, now: i64) -> Result<KeyId, EvalError> {
        if let Some(key) = self.find(name) {
            if let Some(instance) = instance_mut(&mut self.instances, &mut self.pending, key) {
                instance.last_used = now;
            }
            return Ok(key);
        }
        self.insert(Instance::new(name, now, &self.plan))
    }

    /// Adds a new key.
    pub(super) fn insert(&mut self, mut instance: Instance) -> Result<KeyId, EvalError> {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                let at = u32::try_from(self.instances.len());
                let at = at.map_err(|_| EvalError::limit("partition", u32::MAX as usize, "keys"))?;
                self.instances.push(None);
                at
            }
        };
        if let Some(pending) = &mut self.pending {
            // the key that had the index is saved, and this one is later than the checkpoint
            pending.save_before_change(at as usize, None);
        }
        instance.sequence = self.keys_created;
        self.keys_created += 1;
        self.oldest_use = self.oldest_use.min(instance.last_used);
        let hash = self.hasher.hash_one(&*instance.name);
        self.instances[at as usize] = Some(instance);
        let (instances, hasher) = (&self.instances, &self.hasher);
        let hash_of = |at: &u32| instances[*at as usize].as_ref().map_or(0, |k| hasher.hash_one(&*k.name));
        self.index.insert_unique(hash, at, hash_of);
        (0..self.plan.queries.len()).for_each(|query| self.update_due(KeyId(at), query));
        Ok(KeyId(at))
    }

    /// Looks up a key by its text.
    pub fn find(&self, name: &str) -> Option<KeyId> {
        let is_it = |at: &u32| self.instances[*at as usize].as_ref().is_some_and(|k| *k.name == *name);
        self.index.find(self.hasher.hash_one(name), is_it).copied().map(KeyId)
    }

    /// Sends events to a query of a key at `port`. Returns the output. Errors: the events cannot be
    /// processed.
    pub fn push(
        &mut self,
        key: KeyId,
        query: usize,
        port: usize,
        events: &Batch,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        let Some(instance) = instance_mut(&mut self.instances, &mut self.pending, key) else {
            return Ok(Batch::default());
        };
        let plan = &self.plan.queries[query];
        let at_work = instance.queries[query].get_or_insert_with(|| start_query(plan, instance.started_at));
        if plan.before.is_empty() {
            let out = at_work.push(port, events, host);
            self.update_due(key, query);
            return out;
        }
        self.samples[query].get_or_insert_default().key = (key.0, instance.sequence);
        std::mem::swap(&mut at_work.stats.samples, &mut self.samples[query]);
        let out = at_work.push(port, events, host);
        std::mem::swap(&mut at_work.stats.samples, &mut self.samples[query]);
        self.update_due(key, query);
        out
    }

    /// Takes the first key with a timer of a scheduler that is due at `now`: the key with the earliest timer,
    /// the oldest one of several. The caller must call [`Self::fire_timer`] for it until that returns `None`.
    pub fn pop_due(&mut self, scheduler: usize, now: i64) -> Option<KeyId> {
        let due = self.due.get_mut(scheduler)?;
        due.first().filter(|(at, ..)| *at <= now)?;
        let (_, _, at) = due.pop_first()?;
        if let Some(instance) = &mut self.instances[at as usize] {
            instance.next_due[scheduler] = NEVER;
        }
        Some(KeyId(at))
    }

    /// Fires the next timer of a key at a scheduler if it is due at `now`. Returns the query and its output.
    pub fn fire_timer(
        &mut self,
        key: KeyId,
        scheduler: usize,
        now: i64,
        host: &dyn EvalContext,
    ) -> Option<(usize, Result<Batch, EvalError>)> {
        let (query, of) = *self.plan.schedulers().get(scheduler)?;
        let instance = instance_mut(&mut self.instances, &mut self.pending, key)?;
        let out = instance.queries[query].as_mut()?.fire_timer_of(of, now, host)?;
        self.update_due(key, query);
        Some((query, out))
    }

    /// Returns the due time of the next timer of any key.
    pub fn next_timer(&self) -> Option<i64> {
        self.due.iter().filter_map(|due| due.first()).map(|(at, ..)| *at).min()
    }

    /// Returns the first instant after `after` at which a query is scheduled to run.
    pub fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.scheduled_queries.iter().filter_map(|(_, query)| query.next_scheduled(after)).min()
    }

    /// Returns the queries that are scheduled to run at `at`.
    pub fn queries_scheduled_at(&self, at: i64) -> Vec<usize> {
        let of = self.scheduled_queries.iter().filter(|(_, query)| query.next_scheduled(at - 1) == Some(at));
        of.map(|(query, _)| *query).collect()
    }

    /// Runs a query of a key at a scheduled instant. Returns the output; `None` if the query has no instance.
    pub fn fire_schedule(
        &mut self,
        key: KeyId,
        query: usize,
        at: i64,
        host: &dyn EvalContext,
    ) -> Option<Result<Batch, EvalError>> {
        let instance = instance_mut(&mut self.instances, &mut self.pending, key)?;
        let out = instance.queries[query].as_mut()?.fire_schedule(at, host);
        self.update_due(key, query);
        Some(out)
    }

    /// Returns the first purge instant after `now` that can have an effect: a key may be idle for too long by
    /// then, or a timer is due at `due` and must fire at a purge instant, not after it.
    pub fn next_purge(&self, now: i64, due: Option<i64>) -> Option<i64> {
        let IdleKeyPurge { interval, idle } = self.plan.purge?;
        let dropped = self.oldest_use.checked_add(idle).and_then(|at| at.checked_add(1));
        let wake = due.unwrap_or(NEVER).min(dropped.unwrap_or(NEVER));
        if wake == NEVER {
            return None;
        }
        let wait = wake.max(now.checked_add(1)?).checked_sub(self.start)?.max(1);
        let rounds = wait / interval + i64::from(wait % interval > 0);
        rounds.checked_mul(interval)?.checked_add(self.start)
    }

    /// Purges the keys that got no event for longer than the idle period.
    pub fn purge(&mut self, now: i64) {
        let Some(IdleKeyPurge { idle, .. }) = self.plan.purge else { return };
        self.oldest_use = NEVER;
        for at in 0..self.instances.len() {
            let Some(instance) = &self.instances[at] else { continue };
            if now.saturating_sub(instance.last_used) <= idle {
                self.oldest_use = self.oldest_use.min(instance.last_used);
                continue;
            }
            for (due, head) in self.due.iter_mut().zip(&instance.next_due) {
                due.remove(&(*head, instance.sequence, at as u32));
            }
            let hash = self.hasher.hash_one(&*instance.name);
            if let Ok(entry) = self.index.find_entry(hash, |known| *known as usize == at) {
                entry.remove();
            }
            if let Some(pending) = &mut self.pending {
                pending.save_before_change(at, self.instances[at].as_ref());
            }
            self.instances[at] = None;
            self.free.push(at as u32);
        }
    }

    /// Updates the due times of the schedulers of a key's query.
    fn update_due(&mut self, key: KeyId, query: usize) {
        let Some(Some(instance)) = self.instances.get_mut(key.0 as usize) else { return };
        let Some(at_work) = &instance.queries[query] else { return };
        for scheduler in self.plan.schedulers_of(query) {
            let (_, of): (usize, Scheduler) = self.plan.schedulers()[scheduler];
            let head = at_work.next_timer_of(of).unwrap_or(NEVER);
            let known = &mut instance.next_due[scheduler];
            if *known != head {
                self.due[scheduler].remove(&(*known, instance.sequence, key.0));
                if head != NEVER {
                    self.due[scheduler].insert((head, instance.sequence, key.0));
                }
                *known = head;
            }
        }
    }
}
