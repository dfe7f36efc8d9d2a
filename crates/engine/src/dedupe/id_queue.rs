//! A queue of ids that can be cloned without copying them.

use std::collections::VecDeque;
use std::sync::Arc;

/// Ids of one chunk: 16 KiB.
const CHUNK_IDS: usize = 1024;

/// Ids, oldest first. A clone shares the chunks: it costs a reference count for each 1,024 ids, and the next push copies
/// the last chunk.
#[derive(Debug, Clone, Default)]
pub struct IdQueue {
    /// All but the last are full.
    chunks: VecDeque<Arc<Vec<u128>>>,
    /// Ids at the start of the first chunk that were popped.
    popped: usize,
    len: usize,
}

impl IdQueue {
    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the newest id.
    pub fn push_back(&mut self, id: u128) {
        match self.chunks.back_mut().filter(|chunk| chunk.len() < CHUNK_IDS) {
            Some(chunk) => Arc::make_mut(chunk).push(id),
            None => self.chunks.push_back(Arc::new(vec![id])),
        }
        self.len += 1;
    }

    /// Removes the oldest id.
    pub fn pop_front(&mut self) -> Option<u128> {
        let chunk = self.chunks.front()?;
        let id = *chunk.get(self.popped)?;
        self.popped += 1;
        self.len -= 1;
        if self.popped == chunk.len() {
            self.chunks.pop_front();
            self.popped = 0;
        }
        Some(id)
    }

    /// Iterates over the ids, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u128> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter().copied()).skip(self.popped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_keep_their_ids() {
        let mut queue = IdQueue::default();
        let mut expected = VecDeque::new();
        let mut clones = Vec::new();
        for id in 0..5000_u128 {
            queue.push_back(id);
            expected.push_back(id);
            if id >= 1500 || id % 400 == 3 {
                assert_eq!(queue.pop_front(), expected.pop_front());
            }
            if id % 333 == 0 {
                clones.push((queue.clone(), expected.clone()));
            }
        }
        clones.push((queue.clone(), expected));
        for (queue, expected) in clones {
            assert_eq!(queue.len(), expected.len());
            assert!(queue.iter().eq(expected));
        }
        while queue.pop_front().is_some() {}
        assert_eq!((queue.len(), queue.iter().count()), (0, 0));
        queue.push_back(7);
        assert_eq!(queue.pop_front(), Some(7));
    }
}
