//! Saving of the keys of a partition while events go on.
//!
//! Keys are too many to be saved while the owner waits, and a key is too small to share parts of it. So a checkpoint marks
//! all keys, in little time. Then its thread saves marked keys, some at a time, and the owner saves a marked key before it
//! changes it:
//!
//! ```text
//! key        1    2    3    4    5    6
//! mark            x         x    x    x
//! saved      ✓         ✓
//!                 ▲         ▲
//!                 │         └─ an event of key 4 arrives: the owner saves it, then processes the event
//!                 └─ the checkpoint saves it next
//! ```

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::instances::{Instance, KeyId, PartitionRuntime};
use crate::snapshot::{Error, SnapshotWriter};

/// Bytes of a buffer of saved keys: one buffer for all would be copied as it grows.
const BUFFER_BYTES: usize = 1 << 20;

/// Keys that are to be saved as they are, before they are changed.
pub(super) struct PendingKeys {
    /// For each index of an instance a bit, which is set until the instance is saved.
    marks: Vec<u64>,
    /// Index of the first instance that [`PartitionRuntime::save_keys`] has not come to.
    next: usize,
    /// Number of indexes that have a mark or had one.
    marked: usize,
    scratch: Vec<u8>,
    saved: Arc<Mutex<SavedKeys>>,
}

/// Saved keys of a partition, in any order.
#[derive(Default)]
pub(super) struct SavedKeys {
    buffers: Vec<Vec<u8>>,
    /// For each key its age, and its bytes as a buffer, the first byte and the number of bytes.
    keys: Vec<(u64, usize, usize, usize)>,
    /// Why a key could not be saved.
    failure: Option<String>,
    is_complete: bool,
}

impl SavedKeys {
    fn add(&mut self, sequence: u64, bytes: &[u8]) {
        if self.buffers.last().is_none_or(|buffer| buffer.capacity() - buffer.len() < bytes.len()) {
            self.buffers.push(Vec::with_capacity(BUFFER_BYTES.max(bytes.len())));
        }
        let number = self.buffers.len() - 1;
        let buffer = &mut self.buffers[number];
        self.keys.push((sequence, number, buffer.len(), bytes.len()));
        buffer.extend_from_slice(bytes);
    }

    /// Writes the keys, the oldest first.
    ///
    /// Errors: not all are saved, or one could not be.
    pub(super) fn write(&mut self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.clone()).into());
        }
        if !self.is_complete {
            return Err(io::Error::other("not all keys of a partition are saved yet").into());
        }
        self.keys.sort_unstable();
        self.keys
            .iter()
            .try_for_each(|(_, number, start, len)| out.bytes(&self.buffers[*number][*start..start + len]))
    }
}

impl PendingKeys {
    /// Takes the mark of an instance. Returns whether it had one.
    #[inline]
    fn take_mark(&mut self, at: usize) -> bool {
        let Some(word) = self.marks.get_mut(at / 64) else { return false };
        let mark = 1 << (at % 64);
        let is_marked = *word & mark != 0;
        *word &= !mark;
        is_marked
    }

    /// Saves an instance that is going to be changed, if it has a mark.
    #[inline]
    pub(super) fn save_before_change(&mut self, at: usize, instance: Option<&Instance>) {
        if self.take_mark(at)
            && let Some(instance) = instance
        {
            self.save(instance);
        }
    }

    #[cold]
    fn save(&mut self, instance: &Instance) {
        let mut out = SnapshotWriter::of_contents(std::mem::take(&mut self.scratch));
        let written = instance.write(&mut out);
        self.scratch = out.into_contents();
        let mut saved = self.saved.lock();
        match written {
            Ok(()) => saved.add(instance.sequence, &self.scratch),
            Err(failure) => saved.failure = Some(failure.to_string()),
        }
    }
}

/// Returns the state of a key that is going to be changed.
#[inline]
pub(super) fn instance_mut<'i>(
    instances: &'i mut [Option<Instance>],
    pending: &mut Option<Box<PendingKeys>>,
    KeyId(at): KeyId,
) -> Option<&'i mut Instance> {
    let instance = instances.get_mut(at as usize)?.as_mut()?;
    if let Some(pending) = pending {
        pending.save_before_change(at as usize, Some(instance));
    }
    Some(instance)
}

impl PartitionRuntime {
    /// Lets the next [`Self::save`] leave keys to [`Self::save_keys`], if there are at least `keys_min`; shares the states
    /// of fewer keys. The keys must have no objects, which are changed in place by any of their holders.
    pub(crate) fn share(&mut self, keys_min: usize, may_have_objects: bool) {
        self.pending = None;
        if may_have_objects {
            return;
        }
        if self.len() < keys_min {
            let queries =
                self.instances.iter_mut().flatten().flat_map(|key| key.queries.iter_mut().flatten());
            queries.for_each(|query| query.share(keys_min));
            return;
        }
        let marked = self.instances.len();
        let saved = SavedKeys { keys: Vec::with_capacity(self.len()), ..SavedKeys::default() };
        self.pending = Some(Box::new(PendingKeys {
            marks: vec![u64::MAX; marked.div_ceil(64)],
            next: 0,
            marked,
            scratch: vec![],
            saved: Arc::new(Mutex::new(saved)),
        }));
    }

    /// Returns where keys are saved that the last [`Self::share`] has marked.
    pub(super) fn saved_keys(&self) -> Option<Arc<Mutex<SavedKeys>>> {
        Some(self.pending.as_ref()?.saved.clone())
    }

    /// Saves at most `count` of the marked keys. Returns whether all are saved.
    pub(crate) fn save_keys(&mut self, count: usize) -> bool {
        let Some(pending) = &mut self.pending else { return true };
        let end = pending.marked.min(pending.next.saturating_add(count));
        while pending.next < end {
            pending.save_before_change(pending.next, self.instances[pending.next].as_ref());
            pending.next += 1;
        }
        if pending.next < pending.marked {
            return false;
        }
        pending.saved.lock().is_complete = true;
        self.pending = None;
        true
    }
}
