//! Unique windows that emit events on arrival.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::super::key::KeyEncoder;
use crate::eval_error::EvalError;
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{RetainedRows, StatusContext, Window, WindowContext, WindowStatus};

/// Reason, other than a newer event of its key, for which an event is evicted.
#[derive(Clone, Copy)]
pub(super) enum EvictionBound {
    /// No other reason.
    None,
    /// Maximum number of keys; above 0. The key with the oldest event is evicted.
    Length(usize),
    /// Maximum age, in milliseconds.
    Age(i64),
}

/// Window of the newest event of each key.
pub(super) struct LatestPerKey {
    keys: KeyEncoder,
    limit: EvictionBound,
    by_key: HashMap<Arc<str>, RowId>,
    by_age: BTreeMap<RowId, Arc<str>>,
    /// Greatest timestamp for which a timer was scheduled; only a greater one schedules another.
    asked: i64,
}

impl LatestPerKey {
    pub(super) fn new(keys: KeyEncoder, limit: EvictionBound) -> Self {
        Self { keys, limit, by_key: HashMap::new(), by_age: BTreeMap::new(), asked: i64::MIN }
    }

    fn evict(&mut self, seq: RowId, context: &mut WindowContext<'_>) {
        if let Some(key) = self.by_age.remove(&seq) {
            self.by_key.remove(&key);
        }
        context.out.expired(seq, context.now);
    }

    fn evict_due(&mut self, context: &mut WindowContext<'_>) {
        let EvictionBound::Age(span) = self.limit else { return };
        while let Some((oldest, _)) = self.by_age.first_key_value() {
            let oldest = *oldest;
            if context.rows.time(oldest).saturating_add(span) > context.now {
                break;
            }
            self.evict(oldest, context);
        }
    }

    fn insert(&mut self, key: Arc<str>, seq: RowId) {
        self.by_key.insert(Arc::clone(&key), seq);
        self.by_age.insert(seq, key);
    }
}

impl Window for LatestPerKey {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            self.evict_due(context);
            let key = self.keys.encode(seq, context)?;
            let time = context.rows.time(seq);
            let key = match self.by_key.get_key_value(key) {
                Some((known, older)) => {
                    let (known, older) = (Arc::clone(known), *older);
                    self.evict(older, context);
                    known
                }
                None => Arc::from(key),
            };
            if let EvictionBound::Length(n) = self.limit
                && self.by_age.len() >= n
                && let Some((oldest, _)) = self.by_age.first_key_value()
            {
                self.evict(*oldest, context);
            }
            if let EvictionBound::Age(span) = self.limit
                && self.asked < time
            {
                self.asked = time;
                context.timers.schedule(time.saturating_add(span));
            }
            context.out.current(seq, time);
            self.insert(key, seq);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn on_timer(&mut self, _due: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        self.evict_due(context);
        context.out.end_chunk();
        Ok(())
    }

    fn rows(&self) -> Vec<RowId> {
        self.sparse_rows()
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::sparse(self.by_age.len())
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        self.by_age.keys().copied().collect()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let held = self.by_age.len() as u64;
        let ends =
            [self.by_age.first_key_value(), self.by_age.last_key_value()].map(|e| e.map(|(seq, _)| *seq));
        let between = look.time_range_of_ends(ends[0], ends[1]);
        match self.limit {
            EvictionBound::None => {
                WindowStatus::new(held, between, "events; one leaves with the next of its key")
            }
            EvictionBound::Length(n) => WindowStatus::sliding(held, n as u64, "keys", between),
            EvictionBound::Age(span) => {
                let due = between.map(|(oldest, _)| oldest.saturating_add(span));
                WindowStatus::time_eviction(held, between, due, "leaves")
            }
        }
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let rows: Vec<(RowId, &str)> = self.by_age.iter().map(|(seq, key)| (*seq, &**key)).collect();
        out.state(&(self.asked, rows))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (asked, rows): (i64, Vec<(RowId, String)>) = from.state()?;
        self.asked = asked;
        self.by_key.clear();
        self.by_age.clear();
        rows.into_iter().for_each(|(seq, key)| self.insert(key.into(), seq));
        Ok(())
    }
}

/// Window of the first event of each key; no event ever leaves.
pub(super) struct FirstPerKey {
    keys: KeyEncoder,
    seen: HashSet<Box<str>>,
    held: Vec<RowId>,
}

impl FirstPerKey {
    pub(super) fn new(keys: KeyEncoder) -> Self {
        Self { keys, seen: HashSet::new(), held: vec![] }
    }
}

impl Window for FirstPerKey {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            let key = self.keys.encode(seq, context)?;
            if !self.seen.contains(key) {
                self.seen.insert(key.into());
                context.out.current(seq, context.rows.time(seq));
                if context.searched {
                    self.held.push(seq);
                }
            }
        }
        context.out.end_chunk();
        Ok(())
    }

    fn rows(&self) -> Vec<RowId> {
        self.held.clone()
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::sparse(self.held.len())
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        self.held.clone()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let between = look.time_range(self.held.iter().copied());
        WindowStatus::new(
            self.seen.len() as u64,
            between,
            "events of keys that it has not seen; others are ignored",
        )
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let mut seen: Vec<&str> = self.seen.iter().map(|key| &**key).collect();
        seen.sort_unstable();
        out.state(&(seen, &self.held))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (seen, held): (Vec<Box<str>>, Vec<RowId>) = from.state()?;
        (self.seen, self.held) = (seen.into_iter().collect(), held);
        Ok(())
    }
}
