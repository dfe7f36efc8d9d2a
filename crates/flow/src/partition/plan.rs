//! What a partition consists of.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::expr::Expr;
use crate::output_rate::OutputRatePlan;
use crate::query::{Handler, QueryPlan, Scheduler, Target};

/// A compiled partition.
#[derive(Clone)]
pub struct PartitionPlan {
    /// How the streams named behind `with` are cut by key; others reach all keys.
    pub keys: Vec<StreamKeys>,
    /// Its queries in order, for all keys.
    pub queries: Vec<Arc<QueryPlan>>,
    /// When idle keys are dropped.
    pub purge: Option<IdleKeyPurge>,
    /// For each stream the queries that read it, in order, and the port to which its events go.
    readers: BTreeMap<usize, Vec<(usize, usize)>>,
    /// The schedulers of the queries, in the order in which they are served.
    schedulers: Vec<(usize, Scheduler)>,
    /// For each query where its schedulers lie in that order.
    schedulers_by_query: Vec<std::ops::Range<usize>>,
}

/// How the events of a stream find their keys.
#[derive(Debug, Clone)]
pub struct StreamKeys {
    /// The stream.
    pub stream: usize,
    /// What is asked of each event, in order; it goes to every key that comes out.
    pub parts: Vec<KeyPart>,
}

/// What is asked of an event, which is slot [`INPUT`](crate::select::INPUT).
#[derive(Debug, Clone)]
pub enum KeyPart {
    /// The text of a value is the key; null is none.
    Value(Expr),
    /// A condition, and the key of those that satisfy it.
    Range(Expr, String),
}

/// When idle keys are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleKeyPurge {
    /// How often keys are looked at, milliseconds; the first time so long after the start of the app.
    pub interval: i64,
    /// A key that got no event for longer is dropped, milliseconds.
    pub idle: i64,
}

impl PartitionPlan {
    /// A partition of these queries.
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

    /// The streams that its queries read, inner ones as well.
    pub fn reads(&self) -> impl Iterator<Item = usize> + '_ {
        self.readers.keys().copied()
    }

    /// The queries that read a stream, in order, and the port to which its events go.
    pub fn readers(&self, stream: usize) -> &[(usize, usize)] {
        self.readers.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// The schedulers of its queries, in the order in which they are served: the query of each.
    pub fn schedulers(&self) -> &[(usize, Scheduler)] {
        &self.schedulers
    }

    /// Where the schedulers of a query lie in [`Self::schedulers`].
    pub fn schedulers_of(&self, query: usize) -> std::ops::Range<usize> {
        self.schedulers_by_query.get(query).cloned().unwrap_or_default()
    }

    /// Whether a query has to be there from a key's first event on: it may wait for silence, a beat or an instant that
    /// no event has asked for.
    pub(crate) fn starts_with_key(query: &QueryPlan) -> bool {
        query.schedulers().into_iter().any(|scheduler| match scheduler {
            Scheduler::Before | Scheduler::After | Scheduler::Rate => true,
            Scheduler::Input => query.state.is_some(),
            Scheduler::Right => false,
        })
    }

    /// The key, where the partition is no more than `group by` with that key in front: there is one value key, all
    /// queries read the stream that it is taken of or inner streams, and none of them has a window, a pattern, a join,
    /// a handler with a state or a rate of time, so that no key ever acts without an event of its own; no key is dropped either. The key looks
    /// at the event as slot [`INPUT`](crate::select::INPUT), as `group by` does.
    ///
    /// Who runs it so has to keep: chunks are cut wherever the key changes; an event goes through all queries, depth
    /// first, before the next cut; rates of events count for each key; a null key drops the event.
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
