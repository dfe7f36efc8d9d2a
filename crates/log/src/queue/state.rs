//! What the queues hold: a function of the entries in the log, and of what was handed out since. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::ItemId;
use super::batch::Batch;
use super::entry::{Entry, ItemRun, Items};

/// All queues of one partition.
#[derive(Default)]
pub(super) struct State {
    queues: HashMap<Arc<str>, Queue>,
    /// By origin.
    batches: BTreeMap<u64, Batch>,
    /// Which record holds which origin's items.
    places: BTreeMap<u64, u64>,
    /// What all batches cost in memory.
    bytes: usize,
    /// Bytes of items that are still wanted.
    live_bytes: u64,
    /// Bytes that went into the log since its start.
    written_bytes: u64,
}

/// A batch's items that are still wanted, by their indexes.
pub(super) struct PendingItems {
    pub queue: Arc<str>,
    pub origin: u64,
    pub items: Vec<(u32, Bytes)>,
}

#[derive(Default)]
struct Queue {
    /// Origins of batches from which items can be taken.
    ready: BTreeSet<u64>,
    /// Items that were taken and given back.
    returned: BTreeSet<ItemId>,
    batches: usize,
    live: u64,
}

impl State {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Items of queue `name` that are not acknowledged.
    pub(super) fn live(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |q| q.live)
    }

    /// Queues with items that are not acknowledged.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.queues.keys().map(|n| n.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// The record that holds the oldest items.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.places.keys().next().copied()
    }

    /// Bytes of the log from the oldest items on, and how many of them are items that are still wanted.
    pub(super) fn pinned_and_live_bytes(&self) -> (u64, u64) {
        let oldest = self.places.values().next().and_then(|origin| self.batches.get(origin));
        (oldest.map_or(0, |b| self.written_bytes - b.written_before), self.live_bytes)
    }

    /// Takes over what the record at `offset` says.
    pub(super) fn apply(&mut self, offset: u64, entry_bytes: usize, entry: Entry) {
        match entry {
            Entry::Put { name, items } => {
                self.put(&name, offset, items, false);
            }
            Entry::Moved { name, origin, items } => {
                let before = self.written_bytes;
                match self.batches.get_mut(&origin).map(|old| old.moved(offset, before, items.clone())) {
                    Some(batch) => self.replace(origin, batch),
                    None => {
                        let batch = Batch::new(self.name(&name), origin, offset, before, items);
                        self.insert(origin, batch);
                    }
                }
                self.count_written(entry_bytes);
            }
            Entry::Ack(runs) => {
                self.finish(&runs);
                self.count_written(entry_bytes);
            }
        }
    }

    /// Items that the record `origin` put.
    pub(super) fn put(&mut self, name: &str, origin: u64, items: Items, is_hidden: bool) {
        let entry_bytes = items.entry_bytes();
        let mut batch = Batch::new(self.name(name), origin, origin, self.written_bytes, items);
        batch.is_hidden = is_hidden;
        self.insert(origin, batch);
        self.count_written(entry_bytes);
    }

    /// An entry of that size went into the log.
    pub(super) fn count_written(&mut self, entry_bytes: usize) {
        self.written_bytes += entry_bytes as u64;
    }

    /// The commit that put `origin` is as durable as its caller asked.
    pub(super) fn make_visible(&mut self, origin: u64) {
        if let Some(batch) = self.batches.get_mut(&origin) {
            batch.is_hidden = false;
            if let Some(queue) = self.queues.get_mut(&batch.queue) {
                queue.ready.insert(origin);
            }
        }
    }

    /// The commit that put `origin` failed: gives the entry back.
    pub(super) fn roll_back(&mut self, origin: u64) -> Option<Bytes> {
        self.remove(origin).map(Batch::into_bytes)
    }

    /// Hands out up to `max` items, those that were given back first.
    pub(super) fn take(&mut self, name: &str, max: usize) -> Vec<(ItemId, Bytes)> {
        let Some(queue) = self.queues.get_mut(name) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        while out.len() < max
            && let Some(id) = queue.returned.pop_first()
        {
            let item = self.batches.get_mut(&id.origin).and_then(|b| b.item(id.index));
            out.extend(item.map(|bytes| (id, bytes)));
        }
        while out.len() < max
            && let Some(origin) = queue.ready.first().copied()
        {
            let Some(batch) = self.batches.get_mut(&origin) else {
                queue.ready.remove(&origin);
                continue;
            };
            let room = max - out.len();
            out.reserve(room.min(batch.live() as usize));
            let before = out.len();
            out.extend(std::iter::from_fn(|| batch.take_next()).take(room));
            if out.len() - before < room {
                queue.ready.remove(&origin);
            }
        }
        out
    }

    /// Gives back a taken item; false when it is not a taken one.
    pub(super) fn return_item(&mut self, id: ItemId) -> bool {
        let Some(batch) = self.batches.get_mut(&id.origin) else {
            return false;
        };
        batch.is_taken(id.index) && self.queues.get_mut(&batch.queue).is_some_and(|q| q.returned.insert(id))
    }

    /// The runs of those among `ids` that are not acknowledged yet.
    pub(super) fn live_runs(&mut self, ids: &[ItemId]) -> Vec<ItemRun> {
        let mut sorted;
        let ids = if ids.is_sorted() {
            ids
        } else {
            sorted = ids.to_vec();
            sorted.sort_unstable();
            &sorted
        };
        let mut runs: Vec<ItemRun> = Vec::new();
        let mut batch: Option<(u64, &mut Batch)> = None;
        let mut batches = self.batches.iter_mut();
        for id in ids {
            while batch.as_ref().is_none_or(|(origin, _)| *origin < id.origin) {
                match batches.next() {
                    Some((origin, b)) => batch = Some((*origin, b)),
                    None => return runs,
                }
            }
            let is_live = batch.as_mut().is_some_and(|(o, b)| *o == id.origin && b.is_live(id.index));
            match runs.last_mut() {
                _ if !is_live => {}
                Some(r) if r.origin == id.origin && id.index < r.first + r.count => {}
                Some(r) if r.origin == id.origin && id.index == r.first + r.count => r.count += 1,
                _ => runs.push(ItemRun { origin: id.origin, first: id.index, count: 1 }),
            }
        }
        runs
    }

    /// Acknowledges items; those that are not there any more do not matter.
    pub(super) fn finish(&mut self, runs: &[ItemRun]) {
        for run in runs {
            let Some(batch) = self.batches.get_mut(&run.origin) else {
                continue;
            };
            self.live_bytes -= batch.live_bytes();
            let before = batch.live();
            for index in run.first..run.first.saturating_add(run.count).min(batch.index_end()) {
                if batch.finish(index)
                    && let Some(queue) = self.queues.get_mut(&batch.queue)
                    && !queue.returned.is_empty()
                {
                    queue.returned.remove(&ItemId { origin: run.origin, index });
                }
            }
            self.live_bytes += batch.live_bytes();
            if let Some(queue) = self.queues.get_mut(&batch.queue) {
                queue.live -= u64::from(before - batch.live());
            }
            if batch.live() == 0 {
                self.remove(run.origin);
            }
        }
    }

    /// The oldest batch, to be moved. `None` while it waits for its commit.
    pub(super) fn pending_items(&self) -> Option<PendingItems> {
        let origin = *self.places.values().next()?;
        let batch = self.batches.get(&origin).filter(|b| !b.is_hidden)?;
        Some(PendingItems { queue: Arc::clone(&batch.queue), origin, items: batch.live_items() })
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        match self.queues.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        }
    }

    fn insert(&mut self, origin: u64, batch: Batch) {
        if batch.live() == 0 {
            return;
        }
        let queue = self.queues.entry(Arc::clone(&batch.queue)).or_default();
        queue.batches += 1;
        queue.live += u64::from(batch.live());
        if !batch.is_hidden {
            queue.ready.insert(origin);
        }
        self.bytes += batch.cost();
        self.live_bytes += batch.live_bytes();
        self.places.insert(batch.at, origin);
        self.batches.insert(origin, batch);
    }

    /// Puts a moved batch in the place of the one that it was; what was given back stays so.
    fn replace(&mut self, origin: u64, batch: Batch) {
        let (live, bytes, live_bytes) = (u64::from(batch.live()), batch.cost(), batch.live_bytes());
        let (queue, at) = (Arc::clone(&batch.queue), batch.at);
        let Some(old) = self.batches.insert(origin, batch) else {
            return;
        };
        self.places.remove(&old.at);
        self.places.insert(at, origin);
        self.bytes = self.bytes - old.cost() + bytes;
        self.live_bytes = self.live_bytes - old.live_bytes() + live_bytes;
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.live = queue.live - u64::from(old.live()) + live;
        }
    }

    fn remove(&mut self, origin: u64) -> Option<Batch> {
        let batch = self.batches.remove(&origin)?;
        self.places.remove(&batch.at);
        self.bytes -= batch.cost();
        self.live_bytes -= batch.live_bytes();
        if let Some(queue) = self.queues.get_mut(&batch.queue) {
            queue.ready.remove(&origin);
            queue.batches -= 1;
            queue.live -= u64::from(batch.live());
            if queue.batches == 0 {
                self.queues.remove(&batch.queue);
            }
        }
        Some(batch)
    }
}
