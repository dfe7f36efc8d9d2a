//! State of the queues: a function of the log's entries and of the items handed out since opening. Pure.

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
    /// Origins of the batches by the offset of the record that holds them.
    places: BTreeMap<u64, u64>,
    /// Memory cost of all batches in bytes.
    bytes: usize,
    /// Bytes of unacknowledged items.
    live_bytes: u64,
    /// Bytes written to the log since its start.
    written_bytes: u64,
}

/// Unacknowledged items of a batch, by index.
pub(super) struct PendingItems {
    pub queue: Arc<str>,
    pub origin: u64,
    pub items: Vec<(u32, Bytes)>,
}

#[derive(Default)]
struct Queue {
    /// Origins of batches from which items can be taken.
    ready: BTreeSet<u64>,
    /// Items that were taken and returned.
    returned: BTreeSet<ItemId>,
    batches: usize,
    live: u64,
}

impl State {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of items of queue `name` that are not acknowledged.
    pub(super) fn live(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, |q| q.live)
    }

    /// Returns the names of the queues with unacknowledged items, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.queues.keys().map(|n| n.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the offset of the record that holds the oldest items.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.places.keys().next().copied()
    }

    /// Returns the bytes of the log from the oldest items on, and the bytes of all unacknowledged items.
    pub(super) fn pinned_and_live_bytes(&self) -> (u64, u64) {
        let oldest = self.places.values().next().and_then(|origin| self.batches.get(origin));
        (oldest.map_or(0, |b| self.written_bytes - b.written_before), self.live_bytes)
    }

    /// Applies the entry of the record at `offset`.
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

    /// Adds the items that the record `origin` put.
    pub(super) fn put(&mut self, name: &str, origin: u64, items: Items, is_hidden: bool) {
        let entry_bytes = items.entry_bytes();
        let mut batch = Batch::new(self.name(name), origin, origin, self.written_bytes, items);
        batch.is_hidden = is_hidden;
        self.insert(origin, batch);
        self.count_written(entry_bytes);
    }

    /// Counts an entry that was written to the log.
    pub(super) fn count_written(&mut self, entry_bytes: usize) {
        self.written_bytes += entry_bytes as u64;
    }

    /// Makes the batch `origin` visible: its commit has the requested durability.
    pub(super) fn make_visible(&mut self, origin: u64) {
        if let Some(batch) = self.batches.get_mut(&origin) {
            batch.is_hidden = false;
            if let Some(queue) = self.queues.get_mut(&batch.queue) {
                queue.ready.insert(origin);
            }
        }
    }

    /// Removes the batch `origin` of a failed commit and returns its entry.
    pub(super) fn roll_back(&mut self, origin: u64) -> Option<Bytes> {
        self.remove(origin).map(Batch::into_bytes)
    }

    /// Takes up to `max` items, returned ones first.
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

    /// Returns a taken item to its queue. Returns false if the item is not taken or was already returned.
    pub(super) fn return_item(&mut self, id: ItemId) -> bool {
        let Some(batch) = self.batches.get_mut(&id.origin) else {
            return false;
        };
        batch.is_taken(id.index) && self.queues.get_mut(&batch.queue).is_some_and(|q| q.returned.insert(id))
    }

    /// Returns the items among `ids` that are not acknowledged, as runs.
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

    /// Acknowledges items; ignores those that no longer exist.
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

    /// Returns the unacknowledged items of the oldest batch. `None` while it waits for its commit.
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

    /// Replaces a batch by its moved version; returned items stay returned.
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
