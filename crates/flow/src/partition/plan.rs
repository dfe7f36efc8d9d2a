//! Compiled form of partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::expr::Expr;
use crate::output_rate::OutputRatePlan;
use crate::processor::Handler;
use crate::query::{QueryPlan, Scheduler, Target};

/// A compiled partition.
#[derive(Clone)]
pub struct PartitionPlan {
    /// Partitioning of the streams named after `with`; events of other streams go to all keys.
    pub keys: Vec<StreamKeys>,
    /// The queries in order; all keys share them.
    pub queries: Vec<Arc<QueryPlan>>,
    /// When idle keys are purged; `None` if they are not.
    pub purge: Option<IdleKeyPurge>,
    /// For each stream, the queries that read it, in order, and the port to which its events go.
    readers: BTreeMap<usize, Vec<(usize, usize)>>,
    /// The schedulers of the queries, in the order in which they are served.
    schedulers: Vec<(usize, Scheduler)>,
    /// For each query, the range of its schedulers in `schedulers`.
    schedulers_by_query: Vec<std::ops::Range<usize>>,
}

/// Computation of the keys of a stream's events.
#[derive(Debug, Clone)]
pub struct StreamKeys {
    /// Index of the stream.
    pub stream: usize,
    /// Key expressions in order. An event goes to every key that one of them yields.
    pub parts: Vec<KeyPart>,
}

/// A key expression; the event is slot [`INPUT`](crate::expr::INPUT).
#[derive(Debug, Clone)]
pub enum KeyPart {
    /// The text of the value is the key; null yields none.
    Value(Expr),
    /// A condition, and the key of events that satisfy it.
    Range(Expr, String),
}

impl KeyPart {
    /// Returns the expression whose value decides the key.
    pub fn expr(&self) -> &Expr {
        match self {
            Self::Value(expr) | Self::Range(expr, _) => expr,
        }
    }
}

/// When idle keys are purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleKeyPurge {
    /// Interval of the purges, milliseconds, counted from the start of the app.
    pub interval: i64,
    /// Maximum idle time, milliseconds; a key without events for longer is purged.
    pub idle: i64,
}

impl PartitionPlan {
    /// Creates the plan of a partition with these queries.
    pub fn new(keys: Vec<StreamKeys>, queries: Vec<Arc<QueryPlan>>, purge: Option<IdleKeyPurge>) -> Self {
        let mut readers = BTreeMap::<usize, Vec<(usize, usize)>>::new();
        let (mut schedulers, mut served) = (vec![], vec![]);
        for (number, query) in queries.iter().enumerate() {
            for (stream, port) in query.reads() {
                readers.entry(stream).or_default().push((number, port));
            }
            let first = schedulers.len();
            schedulers.extend(query.schedulers().into_iter().map(|scheduler| (number, scheduler)));
            served.push(first..schedulers.len());
        }
        Self { keys, queries, purge, readers, schedulers, schedulers_by_query: served }
    }

    /// Returns the streams that the queries read, including inner ones.
    pub fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        self.readers.keys().copied()
    }

    /// Returns the queries that read a stream, in order, and the port to which its events go.
    pub fn readers(&self, stream: usize) -> &[(usize, usize)] {
        self.readers.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// Returns the schedulers of the queries with the query of each, in the order in which they are served.
    pub fn schedulers(&self) -> &[(usize, Scheduler)] {
        &self.schedulers
    }

    /// Returns the range of a query's schedulers in [`Self::schedulers`].
    pub fn schedulers_of(&self, query: usize) -> std::ops::Range<usize> {
        self.schedulers_by_query.get(query).cloned().unwrap_or_default()
    }

    /// Returns whether a query must be created with its key rather than by its first event: an absence, an
    /// output rate limiter or a scheduled instant may make it act without one.
    pub(crate) fn starts_with_key(query: &QueryPlan) -> bool {
        query.schedulers().into_iter().any(|scheduler| match scheduler {
            Scheduler::Before | Scheduler::After | Scheduler::Rate => true,
            Scheduler::Input => query.state.is_some(),
            Scheduler::Right => false,
        })
    }

    /// Returns the key if the partition is equivalent to `group by` with that key in front; `None` otherwise.
    ///
    /// It is equivalent if there is one value key; all queries read the stream of that key or inner streams;
    /// none of them has a window, a pattern, a join, a stateful handler or a rate limiter by time, so that no
    /// key acts without an event of its own; and no key is purged. The key reads the event as slot
    /// [`INPUT`](crate::expr::INPUT), as `group by` does.
    ///
    /// The caller must ensure that chunks are split wherever the key changes; that an event passes all
    /// queries, depth first, before the next chunk; that rate limiters count events per key; and that an
    /// event with a null key is dropped.
    pub fn as_group_by(&self) -> Option<&Expr> {
        let [StreamKeys { stream, parts }] = self.keys.as_slice() else { return None };
        let [KeyPart::Value(key)] = parts.as_slice() else { return None };
        let inner = |read: usize| {
            let written = |q: &Arc<QueryPlan>| matches!(q.target, Target::Inner(s) if s == read);
            self.queries.iter().any(written)
        };
        let plain = |q: &Arc<QueryPlan>| {
            let events = matches!(q.rate, None | Some(OutputRatePlan::Events(..)));
            let stateless = !q.before.iter().chain(&q.after).any(|h| matches!(h, Handler::Stateful(_)));
            events && stateless && q.state.is_none() && q.join.is_none() && q.window.is_none()
        };
        let fits = self.purge.is_none()
            && self.queries.iter().all(plain)
            && self.reads().all(|read| read == *stream || inner(read));
        fits.then_some(key)
    }
}
