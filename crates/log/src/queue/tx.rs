//! Queue transactions.

use std::collections::HashMap;

use bytes::Bytes;
use tidemill_types::{Error, Offset, Result};

use super::batch;
use super::entry::{Items, NAME_BYTES_MAX, begin_put, finish_put, push_item};
use super::{Queues, state::State};
use crate::record::Durability;

/// A transaction on queues: its items become visible at [`Tx::commit`]. Dropping it discards them.
///
/// Bounds: `items_bytes_max` of the queues; the log's own limit for a group is checked at commit.
pub struct Tx {
    queues: Queues,
    /// One put entry per queue.
    sections: Vec<Section>,
    by_name: HashMap<Box<str>, usize>,
    /// Index of the section used last: most callers put many items to one queue.
    last: usize,
    bytes: usize,
}

struct Section {
    name: Box<str>,
    entry: Vec<u8>,
    count: u32,
}

impl Tx {
    pub(super) fn new(queues: Queues) -> Self {
        Self { queues, sections: Vec::new(), by_name: HashMap::new(), last: 0, bytes: 0 }
    }

    /// Adds an item at the end of queue `name`, creating the queue if needed.
    ///
    /// Errors: `Invalid` for an empty name or one above 255 bytes, `LimitReached` when the transaction alone
    /// exceeds `items_bytes_max`.
    pub fn put(&mut self, name: &str, item: &[u8]) -> Result<()> {
        let most = self.queues.inner.options.items_bytes_max;
        if self.bytes + item.len() > most {
            return Err(Error::limit(format!(
                "a transaction with {} bytes of items cannot take {} more, the limit is {most} (items_bytes_max): \
                 commit it in parts",
                self.bytes,
                item.len()
            )));
        }
        let section = self.section(name)?;
        push_item(&mut section.entry, item);
        section.count += 1;
        self.bytes += item.len() + 1;
        Ok(())
    }

    fn section(&mut self, name: &str) -> Result<&mut Section> {
        if self.sections.get(self.last).is_none_or(|s| &*s.name != name) {
            self.last = match self.by_name.get(name) {
                Some(i) => *i,
                None => self.add_section(name)?,
            };
        }
        Ok(&mut self.sections[self.last])
    }

    fn add_section(&mut self, name: &str) -> Result<usize> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a queue name has 1 to {NAME_BYTES_MAX} bytes, this one has {}",
                name.len()
            )));
        }
        let i = self.sections.len();
        self.sections.push(Section { name: name.into(), entry: begin_put(name), count: 0 });
        self.by_name.insert(name.into(), i);
        Ok(i)
    }

    /// Returns the number of items in the transaction.
    pub fn len(&self) -> u64 {
        self.sections.iter().map(|s| u64::from(s.count)).sum()
    }

    /// Returns whether the transaction has no items.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Makes all items visible atomically, with the given durability; then the transaction is empty again.
    /// Returns the number of items.
    ///
    /// Errors: `LimitReached` when the queues or the log are full, `Unavailable` when the disk is full or
    /// fails. The items then stay in the transaction, invisible to consumers, and the commit can be retried.
    /// Only if the process ends while the disk fails may the items of a failed commit be present after the
    /// next start.
    pub fn commit(&mut self, durability: Durability) -> Result<u64> {
        let count = self.len();
        if count == 0 {
            return Ok(0);
        }
        let (first, last) = self.write()?;
        if durability > Durability::Memory
            && let Err(e) = self.queues.inner.log.sync(self.queues.inner.partition, Offset(last), durability)
        {
            self.roll_back(first);
            return Err(e);
        }
        let mut state = self.queues.inner.state.lock();
        (first..=last).for_each(|origin| state.make_visible(origin));
        drop(state);
        self.sections.clear();
        self.by_name.clear();
        (self.last, self.bytes) = (0, 0);
        Ok(count)
    }

    /// Writes the entries as one group and adds them to the state as hidden; returns their first and last
    /// offset.
    fn write(&mut self) -> Result<(u64, u64)> {
        for section in &mut self.sections {
            finish_put(&mut section.entry, &section.name, section.count);
        }
        let inner = &self.queues.inner;
        let mut locked = inner.state.lock();
        let state: &mut State = &mut locked;
        let cost: usize = self.sections.iter().map(|s| batch::cost(s.entry.len(), s.count)).sum();
        let most = inner.options.items_bytes_max;
        if state.bytes() + cost > most {
            return Err(Error::limit(format!(
                "the queues hold {} bytes and cannot take {cost} more, the limit is {most} (items_bytes_max): \
                 acknowledge items first",
                state.bytes()
            )));
        }
        inner.write_rollbacks(state)?;
        let entries: Vec<Bytes> =
            self.sections.iter_mut().map(|s| Bytes::from(std::mem::take(&mut s.entry))).collect();
        let written = inner.log.write_owned(inner.partition, (inner.options.clock)(), entries.clone());
        let written = match written {
            Ok(written) => written,
            Err(e) => {
                self.sections.iter_mut().zip(entries).for_each(|(s, entry)| s.entry = entry.into());
                return Err(e);
            }
        };
        for ((origin, section), entry) in (written.first.0..).zip(&self.sections).zip(entries) {
            state.put(&section.name, origin, Items::of_put(entry, &section.name, section.count), true);
        }
        Ok((written.first.0, written.last.0))
    }

    fn roll_back(&mut self, first: u64) {
        let inner = &self.queues.inner;
        let mut state = inner.state.lock();
        for (origin, section) in (first..).zip(&mut self.sections) {
            if let Some(entry) = state.roll_back(origin) {
                // A copy: the log still holds the original.
                section.entry = entry.into();
            }
            inner.note_rollback(origin, section.count);
        }
        // If this write is rejected as well, it precedes the next write.
        let _ = inner.write_rollbacks(&state);
    }
}
