//! Pending output of a rate limiter: events in order that may be replaced or removed.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::value::{Key, Value};
use crate::snapshot::{CHUNK_ROWS, Error, Reader, RowLocation, SnapshotWriter};
use crate::store::{RowId, RowStore, SEGMENT_ROWS};

/// Events by position. For n pending events, replacing or removing one, or updating the aggregates of its
/// group, costs O(log n).
pub(super) struct PendingOutput {
    rows: RowStore,
    /// Pending events by position.
    order: BTreeMap<u64, PendingEvent>,
    /// Position of the next event.
    next: u64,
    groups: HashMap<Arc<str>, PendingGroup>,
    /// True for a column that shows the newest value of the group in all events of the group; empty if no
    /// column does.
    aggregates: Vec<bool>,
    /// Secondary index from the hash of an event's contents to its positions. Built lazily:
    /// first-in-first-out removal never needs it.
    index: Option<HashMap<u64, VecDeque<u64>>>,
    hasher: DefaultHashBuilder,
}

struct PendingEvent {
    seq: RowId,
    kind: EventKind,
    group: Arc<str>,
}

struct PendingGroup {
    /// Number of its pending events.
    count: u64,
    /// Position of the event that was added last.
    place: u64,
    /// Row with the newest values of the aggregates.
    newest: RowId,
}

impl PendingOutput {
    /// Creates an empty list. `aggregates`: whether each column shows the newest value of its group; empty
    /// for none.
    pub(super) fn new(types: Vec<FieldType>, mut aggregates: Vec<bool>) -> Self {
        if !aggregates.contains(&true) {
            aggregates.clear();
        }
        Self {
            rows: RowStore::new(types),
            order: BTreeMap::new(),
            next: 0,
            groups: HashMap::new(),
            aggregates,
            index: None,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds an event in the position of its group's event, or at the end if the group has none.
    pub(super) fn replace(&mut self, input: &Batch, row: usize) {
        let seq = self.rows.append(input, row..row + 1);
        let place = self.groups.get(input.group(row)).map(|group| group.place);
        match place.and_then(|place| self.order.get_mut(&place)) {
            Some(entry) => (entry.seq, entry.kind) = (seq, input.kinds[row]),
            None => self.push(seq, input.kinds[row], input.group(row)),
        }
        self.evict_unneeded();
    }

    /// Adds an event at the end.
    pub(super) fn add(&mut self, input: &Batch, row: usize) {
        let seq = self.rows.append(input, row..row + 1);
        let place = self.next;
        self.push(seq, EventKind::Current, input.group(row));
        if self.index.is_some() {
            let hash = self.hash(&input.columns, row, input.group(row));
            self.index.iter_mut().for_each(|index| index.entry(hash).or_default().push_back(place));
        }
        self.evict_unneeded();
    }

    /// Returns the number of pending events.
    pub(super) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    /// Returns whether an event of the group is pending.
    pub(super) fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    fn push(&mut self, seq: RowId, kind: EventKind, group: &str) {
        let name = match self.groups.get_key_value(group) {
            Some((name, _)) => name.clone(),
            None => Arc::from(group),
        };
        let place = self.next;
        self.next += 1;
        let group = self.groups.entry(name.clone()).or_insert(PendingGroup { count: 0, place, newest: seq });
        (group.count, group.place, group.newest) = (group.count + 1, place, seq);
        self.order.insert(place, PendingEvent { seq, kind, group: name });
    }

    /// Removes the event of the group.
    pub(super) fn remove_group(&mut self, group: &str) {
        if let Some(group) = self.groups.remove(group) {
            self.order.remove(&group.place);
        }
    }

    /// Removes the first event that equals this one, aggregates aside. The remaining events of the group take
    /// the aggregates of this one.
    pub(super) fn remove(&mut self, input: &Batch, row: usize) {
        let name = input.group(row);
        if let Some(place) = self.find(input, row)
            && let Some(entry) = self.order.remove(&place)
        {
            self.remove_at(place, &entry);
        }
        if !self.aggregates.is_empty() && self.groups.contains_key(name) {
            let seq = self.rows.append(input, row..row + 1);
            if let Some(group) = self.groups.get_mut(name) {
                group.newest = seq;
            }
        }
        self.evict_unneeded();
    }

    fn remove_at(&mut self, place: u64, entry: &PendingEvent) {
        if let Some(mut index) = self.index.take() {
            let (columns, row) = self.rows.row(entry.seq);
            let hash = self.hash(columns, row, &entry.group);
            if let Some(places) = index.get_mut(&hash) {
                // nearly always the first one
                if let Some(at) = places.iter().position(|known| *known == place) {
                    places.remove(at);
                }
                if places.is_empty() {
                    index.remove(&hash);
                }
            }
            self.index = Some(index);
        }
        if let Some(group) = self.groups.get_mut(&entry.group) {
            group.count -= 1;
            if group.count == 0 {
                self.groups.remove(&entry.group);
            }
        }
    }

    /// Returns the first position of an event that equals this one.
    fn find(&mut self, input: &Batch, row: usize) -> Option<u64> {
        let group = input.group(row);
        let (first, entry) = self.order.first_key_value()?;
        if self.is_equal(entry, input, row, group) {
            return Some(*first);
        }
        if self.index.is_none() {
            let mut index: HashMap<u64, VecDeque<u64>> = HashMap::with_capacity(self.order.len());
            for (place, entry) in &self.order {
                let (columns, row) = self.rows.row(entry.seq);
                index.entry(self.hash(columns, row, &entry.group)).or_default().push_back(*place);
            }
            self.index = Some(index);
        }
        let places = self.index.as_ref()?.get(&self.hash(&input.columns, row, group))?;
        let is_it =
            |place: &&u64| self.order.get(*place).is_some_and(|e| self.is_equal(e, input, row, group));
        places.iter().find(is_it).copied()
    }

    fn is_plain(&self, column: usize) -> bool {
        !self.aggregates.get(column).copied().unwrap_or(false)
    }

    fn is_equal(&self, entry: &PendingEvent, input: &Batch, row: usize, group: &str) -> bool {
        let (columns, at) = self.rows.row(entry.seq);
        let mut pairs = columns.iter().zip(&input.columns).enumerate();
        *entry.group == *group
            && pairs.all(|(c, (a, b))| !self.is_plain(c) || Key(a.get(at)) == Key(b.get(row)))
    }

    /// Hashes an event; equal events have equal hashes.
    fn hash(&self, columns: &[Column], row: usize, group: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        group.hash(&mut hasher);
        for (_, column) in columns.iter().enumerate().filter(|(c, _)| self.is_plain(*c)) {
            match column.get(row) {
                Value::Null => hasher.write_u8(0),
                Value::Bool(b) => b.hash(&mut hasher),
                Value::Int(n) => n.hash(&mut hasher),
                Value::Long(n) => n.hash(&mut hasher),
                Value::Float(n) => n.to_bits().hash(&mut hasher),
                Value::Double(n) => n.to_bits().hash(&mut hasher),
                Value::Str(text) => text.hash(&mut hasher),
                Value::Object(object) => object.to_string().hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    /// Evicts rows that no event refers to. Cost: amortized constant per row that arrived.
    fn evict_unneeded(&mut self) {
        if self.rows.rows() <= 2 * (self.order.len() as u64 + self.groups.len() as u64 + SEGMENT_ROWS) {
            return;
        }
        let newest = self.groups.values().map(|group| group.newest).filter(|_| !self.aggregates.is_empty());
        let mut kept: Vec<RowId> = self.order.values().map(|entry| entry.seq).chain(newest).collect();
        kept.sort_unstable();
        kept.dedup();
        self.rows.retain_only(&kept);
    }

    /// Appends all events to `out` and removes them.
    pub(super) fn drain_into(&mut self, out: &mut Batch) {
        self.copy_into(false, out);
        self.order.clear();
        self.groups.clear();
        self.index = None;
        self.rows.evict_below(self.rows.next_id());
    }

    /// Appends all events to `out` in order; with `one_each`, only the first one of each group.
    pub(super) fn copy_into(&self, one_each: bool, out: &mut Batch) {
        let mut seen: HashSet<&str> = HashSet::new();
        for entry in self.order.values().filter(|entry| !one_each || seen.insert(&entry.group)) {
            let (own, row) = self.rows.row(entry.seq);
            let newest = self.groups.get(&entry.group).filter(|_| !self.aggregates.is_empty());
            let (shared, newest) = newest.map_or((own, row), |group| self.rows.row(group.newest));
            for (c, column) in out.columns.iter_mut().enumerate() {
                match self.is_plain(c) {
                    true => column.push_from(&own[c], row),
                    false => column.push_from(&shared[c], newest),
                }
            }
            out.times.push(self.rows.time(entry.seq));
            out.kinds.push(entry.kind);
        }
    }

    /// Saves the pending events and, if there are aggregates, the newest row of each group.
    pub(super) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let waiting: Vec<_> =
            self.order.values().map(|entry| (entry.seq, entry.kind, &entry.group)).collect();
        self.save_rows(&waiting, out)?;
        let newest = self.groups.iter().filter(|_| !self.aggregates.is_empty());
        let mut newest: Vec<_> =
            newest.map(|(name, group)| (group.newest, EventKind::Current, name)).collect();
        newest.sort_unstable_by_key(|(seq, ..)| *seq);
        self.save_rows(&newest, out)
    }

    fn save_rows(
        &self,
        rows: &[(RowId, EventKind, &Arc<str>)],
        out: &mut SnapshotWriter<'_>,
    ) -> Result<(), Error> {
        for chunk in rows.chunks(CHUNK_ROWS) {
            out.number(chunk.len() as u64)?;
            for (seq, kind, group) in chunk {
                out.signed(self.rows.time(*seq))?;
                out.kind(*kind)?;
                out.text(group)?;
            }
            let rows: Vec<RowLocation<'_>> = chunk.iter().map(|(seq, ..)| self.rows.row(*seq)).collect();
            out.rows(self.rows.types(), &rows)?;
        }
        out.number(0)
    }

    /// Replaces the content by a saved one.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let mut fresh = Self::new(self.rows.types().to_vec(), std::mem::take(&mut self.aggregates));
        while let Some(batch) = fresh.chunk(from)? {
            let first = fresh.rows.append(&batch, 0..batch.len());
            for (row, seq) in (0..batch.len()).zip(first..) {
                fresh.push(seq, batch.kinds[row], &batch.groups[row]);
            }
        }
        while let Some(batch) = fresh.chunk(from)? {
            let first = fresh.rows.append(&batch, 0..batch.len());
            for (name, seq) in batch.groups.iter().zip(first..) {
                let group = fresh.groups.get_mut(name.as_str());
                group
                    .ok_or_else(|| from.damaged(format!("the group `{name}` has no pending event")))?
                    .newest = seq;
            }
        }
        *self = fresh;
        Ok(())
    }

    fn chunk(&self, from: &mut Reader<'_>) -> Result<Option<Batch>, Error> {
        let count = from.number_up_to(CHUNK_ROWS)?;
        if count == 0 {
            return Ok(None);
        }
        let mut batch = Batch::default();
        for _ in 0..count {
            batch.times.push(from.signed()?);
            batch.kinds.push(from.kind()?);
            batch.groups.push(from.text()?);
        }
        batch.columns = from.rows(self.rows.types(), count)?;
        Ok(Some(batch))
    }
}

#[cfg(test)]
mod tests;
