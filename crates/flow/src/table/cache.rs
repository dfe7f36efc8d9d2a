//! Cache of rows that were read from another system: `@cache(size='100', policy='LRU')`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::{CacheConfig, CachePolicy};
use crate::columns::column::Column;

/// Results of searches by their conditions and parameters.
#[derive(Debug)]
pub(super) struct RowCache {
    config: CacheConfig,
    entries: HashMap<String, Entry>,
    rows: usize,
    /// Counts reads, for the policy.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    columns: Arc<Vec<Column>>,
    read_at: i64,
    added: u64,
    used: u64,
    uses: u64,
}

impl RowCache {
    pub fn new(config: CacheConfig) -> Self {
        Self { config, entries: HashMap::new(), rows: 0, clock: 0 }
    }

    /// Returns what a search found before, unless it is too old at `now`, milliseconds.
    pub fn get(&mut self, search: &str, now: i64) -> Option<Arc<Vec<Column>>> {
        self.clock += 1;
        let retention = self.config.retention_ms;
        let entry = self.entries.get_mut(search)?;
        if retention.is_some_and(|ms| now.saturating_sub(entry.read_at) >= ms) {
            self.remove(search);
            return None;
        }
        entry.used = self.clock;
        entry.uses += 1;
        Some(entry.columns.clone())
    }

    /// Keeps what a search found. Results that have no room at all are not kept.
    pub fn put(&mut self, search: String, columns: Arc<Vec<Column>>, now: i64) {
        // a search without a row takes room, too
        let rows = cost(&columns);
        if rows > self.config.rows_max {
            return;
        }
        self.remove(&search);
        while self.rows + rows > self.config.rows_max && self.evict() {}
        self.clock += 1;
        self.rows += rows;
        let entry = Entry { columns, read_at: now, added: self.clock, used: self.clock, uses: 1 };
        self.entries.insert(search, entry);
    }

    /// Forgets everything: the rows changed.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.rows = 0;
    }

    fn remove(&mut self, search: &str) {
        if let Some(entry) = self.entries.remove(search) {
            self.rows -= cost(&entry.columns);
        }
    }

    /// Forgets the entry that the policy chooses; returns whether there was one.
    fn evict(&mut self) -> bool {
        let order = |entry: &Entry| match self.config.policy {
            CachePolicy::Fifo => (entry.added, 0),
            CachePolicy::Lru => (entry.used, 0),
            CachePolicy::Lfu => (entry.uses, entry.added),
        };
        let first =
            self.entries.iter().min_by_key(|(_, entry)| order(entry)).map(|(search, _)| search.clone());
        first.map(|search| self.remove(&search)).is_some()
    }
}

fn cost(columns: &[Column]) -> usize {
    columns.first().map_or(1, Column::len).max(1)
}

#[cfg(test)]
mod tests {
    use tidemill_types::FieldType;

    use super::*;
    use crate::columns::value::Value;

    fn columns(n: i64) -> Arc<Vec<Column>> {
        let mut column = Column::new(FieldType::Long);
        column.push(Value::Long(n));
        Arc::new(vec![column])
    }

    /// Reads `a` twice and `b` once, then adds `c` to a cache of two rows. Returns which remain.
    fn remaining(policy: CachePolicy) -> String {
        let mut cache = RowCache::new(CacheConfig { rows_max: 2, policy, retention_ms: None });
        for (number, search) in (0..).zip(["a", "b"]) {
            cache.put(search.into(), columns(number), 0);
        }
        for search in ["a", "a", "b"] {
            assert!(cache.get(search, 0).is_some());
        }
        cache.put("c".into(), columns(2), 0);
        ["a", "b", "c"].into_iter().filter(|search| cache.get(search, 0).is_some()).collect()
    }

    #[test]
    fn the_policy_chooses_what_goes() {
        assert_eq!(remaining(CachePolicy::Fifo), "bc");
        assert_eq!(remaining(CachePolicy::Lru), "bc");
        assert_eq!(remaining(CachePolicy::Lfu), "ac");
    }

    #[test]
    fn old_rows_are_read_again() {
        let config = CacheConfig { rows_max: 9, policy: CachePolicy::Lru, retention_ms: Some(100) };
        let mut cache = RowCache::new(config);
        cache.put("a".into(), columns(1), 1000);
        assert!(cache.get("a", 1099).is_some());
        assert!(cache.get("a", 1100).is_none());
        cache.put("a".into(), columns(1), 1100);
        cache.clear();
        assert!(cache.get("a", 1100).is_none());
    }
}
