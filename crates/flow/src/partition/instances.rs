//! The keys of a partition at work.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher as _;

use super::keys::Route;
use super::plan::{IdleKeyPurge, PartitionPlan};
use crate::batch::Batch;
use crate::explain::EventSamples;
use crate::expr::{EvalContext, EvalError};
use crate::query::{Query, QueryPlan, Scheduler};

/// A key of a partition. It means nothing once the key was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyId(pub(super) u32);

/// Never due.
pub(super) const NEVER: i64 = i64::MAX;

/// A partition at work.
///
/// A key costs about a hundred bytes besides its text and the queries that events have reached so far. What is due next
/// is found in logarithmic time; only events of streams that are not cut by key, instants of calendars, and looking for
/// idle keys go through all keys.
pub struct Partition {
    pub(super) plan: Arc<PartitionPlan>,
    /// The keys by their texts.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub(super) instances: Vec<Option<Instance>>,
    /// Places of keys that were dropped.
    free: Vec<u32>,
    /// How many keys there have been.
    keys_created: u64,
    /// For each scheduler the keys for which it has something, by the head of the key's queue, then by age.
    due: Vec<BTreeSet<(i64, u64, u32)>>,
    /// One of each query that goes by a calendar, to ask it for its instants.
    scheduled_queries: Vec<(usize, Query)>,
    /// When the app started.
    pub(super) start: i64,
    /// No key got its last event before.
    oldest_use: i64,
    /// For each query the events that its filters refused, of whatever key: a key has no room for one of its own.
    pub(super) samples: Box<[Option<Box<EventSamples>>]>,
}

/// What a key has of its own.
pub(super) struct Instance {
    pub name: Box<str>,
    /// How many keys were there before it.
    pub sequence: u64,
    /// The clock at its first event.
    pub started_at: i64,
    /// The clock at its last event.
    pub last_used: i64,
    /// Its queries, those that have begun.
    pub queries: Box<[Option<Box<Query>>]>,
    /// For each scheduler what [`Partition::due`] says of it.
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

fn start_query(plan: &Arc<QueryPlan>, now: i64) -> Box<Query> {
    let mut query = Query::new(plan.clone());
    query.start(now);
    Box::new(query)
}

impl Partition {
    /// A partition without keys.
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
            samples: notes,
        }
    }

    /// What was compiled.
    pub fn plan(&self) -> &Arc<PartitionPlan> {
        &self.plan
    }

    /// The app starts.
    pub fn start(&mut self, now: i64) {
        self.start = now;
        self.scheduled_queries.iter_mut().for_each(|(_, query)| query.start(now));
    }

    /// When the app started; 0 before.
    pub fn started(&self) -> i64 {
        self.start
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Its keys, the oldest first.
    pub fn keys(&self) -> Vec<KeyId> {
        let there =
            self.instances.iter().enumerate().filter_map(|(i, key)| Some((key.as_ref()?.sequence, i)));
        let mut keys: Vec<(u64, usize)> = there.collect();
        // places of dropped keys are taken again
        keys.sort_unstable();
        keys.into_iter().map(|(_, i)| KeyId(i as u32)).collect()
    }

    /// Where events of a stream go.
    pub fn route(&self, stream: usize, events: &Batch, now: i64, host: &dyn EvalContext) -> Route {
        self.plan.route(stream, events, now, host)
    }

    /// The key gets an event of its own; it begins with the first one. Errors: there are four billion keys.
    pub fn key_for_event(&mut self, name: &str, now: i64) -> Result<KeyId, EvalError> {
        if let Some(key) = self.find(name) {
            if let Some(instance) = &mut self.instances[key.0 as usize] {
                instance.last_used = now;
            }
            return Ok(key);
        }
        self.insert(Instance::new(name, now, &self.plan))
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, mut instance: Instance) -> Result<KeyId, EvalError> {
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                let at = u32::try_from(self.instances.len());
                let at = at.map_err(|_| EvalError("a partition has too many keys".into()))?;
                self.instances.push(None);
                at
            }
        };
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

    /// The key of this text.
    pub fn find(&self, name: &str) -> Option<KeyId> {
        let is_it = |at: &u32| self.instances[*at as usize].as_ref().is_some_and(|k| *k.name == *name);
        self.index.find(self.hasher.hash_one(name), is_it).copied().map(KeyId)
    }

    /// Events of one of its streams reach a query at `port`: what comes out. Errors: why they cannot be worked off.
    pub fn push(
        &mut self,
        key: KeyId,
        query: usize,
        port: usize,
        events: &Batch,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        let Some(Some(instance)) = self.instances.get_mut(key.0 as usize) else {
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

    /// Takes the first key whose queue at a scheduler has a head that is due at `now`: the one with the oldest head, of
    /// equal ones the oldest key. [`Self::fire_timer`] is to be called for it until nothing comes.
    pub fn pop_due(&mut self, scheduler: usize, now: i64) -> Option<KeyId> {
        let due = self.due.get_mut(scheduler)?;
        due.first().filter(|(at, ..)| *at <= now)?;
        let (_, _, at) = due.pop_first()?;
        if let Some(instance) = &mut self.instances[at as usize] {
            instance.next_due[scheduler] = NEVER;
        }
        Some(KeyId(at))
    }

    /// Runs the head of a key's queue at a scheduler, if it is due at `now`: the query, and what comes out.
    pub fn fire_timer(
        &mut self,
        key: KeyId,
        scheduler: usize,
        now: i64,
        host: &dyn EvalContext,
    ) -> Option<(usize, Result<Batch, EvalError>)> {
        let (query, of) = *self.plan.schedulers().get(scheduler)?;
        let instance = self.instances.get_mut(key.0 as usize)?.as_mut()?;
        let out = instance.queries[query].as_mut()?.fire_timer_of(of, now, host)?;
        self.update_due(key, query);
        Some((query, out))
    }

    /// When the next timer of a key is due.
    pub fn next_timer(&self) -> Option<i64> {
        self.due.iter().filter_map(|due| due.first()).map(|(at, ..)| *at).min()
    }

    /// The first instant later than `after` at which a query wants the clock to stop.
    pub fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.scheduled_queries.iter().filter_map(|(_, query)| query.next_scheduled(after)).min()
    }

    /// The queries that want the clock to stop at `at`.
    pub fn queries_scheduled_at(&self, at: i64) -> Vec<usize> {
        let of = self.scheduled_queries.iter().filter(|(_, query)| query.next_scheduled(at - 1) == Some(at));
        of.map(|(query, _)| *query).collect()
    }

    /// Such an instant was reached: what comes out of a query of a key.
    pub fn fire_schedule(
        &mut self,
        key: KeyId,
        query: usize,
        at: i64,
        host: &dyn EvalContext,
    ) -> Option<Result<Batch, EvalError>> {
        let instance = self.instances.get_mut(key.0 as usize)?.as_mut()?;
        let out = instance.queries[query].as_mut()?.fire_schedule(at, host);
        self.update_due(key, query);
        Some(out)
    }

    /// The first instant later than `now` at which keys are looked at and which makes a difference: one may be idle
    /// for too long, or something else is due at `due` and has to happen at an instant, not behind it.
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

    /// Drops the keys that got no event for longer than the idle period.
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
            self.instances[at] = None;
            self.free.push(at as u32);
        }
    }

    /// Notes when the schedulers of a key's query have something next.
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
