//! `$sort`, with the `$limit` behind it.

use tidemill_docs::{DocBytes, HeldMemory, Key, SortOrder, document_bytes};
use tidemill_types::budget;

use super::flow::{Chain, Flow, Receiver};
use crate::error::Result;

/// Bytes of an entry besides its key and its document.
const ENTRY_BYTES: usize = 24 + size_of::<Key>();
/// Entries that are kept at least before those behind the limit are dropped.
const ENTRIES_MIN: usize = 64;

/// Holds documents by their keys; with a limit, about twice as many as are wanted.
struct Sorting<'r> {
    order: &'r SortOrder,
    wanted: usize,
    /// Key, number and document: documents with equal keys stay in their order.
    entries: Vec<(Key, u64, DocBytes)>,
    count: u64,
    held: HeldMemory,
    next: Chain<'r>,
}

/// Returns the stage that passes documents on in an order, at least the first ones up to `limit`.
pub(super) fn sorting<'r>(order: &'r SortOrder, limit: Option<u64>, next: Chain<'r>) -> Chain<'r> {
    let wanted = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let held = HeldMemory::default();
    Box::new(Sorting { order, wanted, entries: Vec::new(), count: 0, held, next })
}

fn entry_bytes((key, _, document): &(Key, u64, DocBytes)) -> usize {
    ENTRY_BYTES + key.heap_bytes() + document_bytes(document)
}

impl Receiver for Sorting<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        budget::step()?;
        let entry = (self.order.key(&document), self.count, document);
        self.count += 1;
        self.held.add(entry_bytes(&entry))?;
        self.entries.push(entry);
        if self.entries.len() >= self.wanted.saturating_mul(2).max(ENTRIES_MIN) {
            self.entries.select_nth_unstable_by(self.wanted, |a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
            let freed = self.entries.drain(self.wanted..).map(|entry| entry_bytes(&entry)).sum();
            self.held.give_back(freed);
        }
        Ok(Flow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        budget::check()?;
        entries.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        budget::check()?;
        for (_, _, document) in entries.into_iter().take(self.wanted) {
            if self.next.push(document)?.is_break() {
                break;
            }
        }
        self.held = HeldMemory::default();
        self.next.finish()
    }
}
