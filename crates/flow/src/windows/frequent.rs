//! `frequent(n [, attribute …])`: the newest event of each of the `n` most frequent keys, by the counts of
//! Misra and Gries.
//!
//! Source: J. Misra, D. Gries, "Finding repeated elements", 1982.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::build::arity;
use super::key::KeyEncoder;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{RetainedRows, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus};

pub(super) fn build(parameters: &[Parameter], source: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=usize::MAX, "frequent(n [, attribute …])")?;
    let n = parameters[0].count("the number of keys")?;
    let keys = KeyEncoder::of_attributes(&parameters[1..], source)?;
    Ok(Arc::new(move || Box::new(Frequent { n, keys: keys.clone(), counts: HashMap::new(), entered: 0 })))
}

struct Frequent {
    n: u64,
    keys: KeyEncoder,
    counts: HashMap<Box<str>, KeyCount>,
    /// Number of keys that ever entered; numbers them in order of entry.
    entered: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct KeyCount {
    count: u64,
    /// The key's newest event.
    seq: RowId,
    /// Order of entry of the key.
    entered: u64,
}

impl Frequent {
    /// Decrements the count of every key and evicts the keys whose count reaches zero, in order of entry.
    fn decrement_counts(&mut self, context: &mut WindowContext<'_>) {
        let mut leaving: Vec<KeyCount> = vec![];
        self.counts.retain(|_, count| {
            count.count -= 1;
            if count.count == 0 {
                leaving.push(*count);
            }
            count.count > 0
        });
        leaving.sort_unstable_by_key(|count| count.entered);
        for count in leaving {
            context.out.expired(count.seq, context.now);
        }
    }

    fn in_order(&self) -> Vec<(&str, KeyCount)> {
        let mut all: Vec<_> = self.counts.iter().map(|(key, count)| (&**key, *count)).collect();
        all.sort_unstable_by_key(|(_, count)| count.entered);
        all
    }
}

impl Window for Frequent {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            if let Some(count) = self.counts.get_mut(self.keys.encode(seq, context)?) {
                count.count += 1;
                count.seq = seq;
            } else {
                if self.counts.len() as u64 >= self.n {
                    self.decrement_counts(context);
                    if self.counts.len() as u64 >= self.n {
                        continue;
                    }
                }
                let key = self.keys.encode(seq, context)?.into();
                self.counts.insert(key, KeyCount { count: 1, seq, entered: self.entered });
                self.entered += 1;
            }
            context.out.current(seq, context.rows.time(seq));
        }
        context.out.end_chunk();
        Ok(())
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows(&self) -> Vec<RowId> {
        self.in_order().into_iter().map(|(_, count)| count.seq).collect()
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::sparse(self.counts.len())
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        self.counts.values().map(|count| count.seq).collect()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let between = look.time_range(self.counts.values().map(|count| count.seq));
        let keys = self.counts.len() as u64;
        let waits_for = match keys < self.n {
            true => "events",
            false => "events of the keys that it counts: those of others only make their counts less",
        };
        WindowStatus::new(keys, between, waits_for).of(self.n)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.in_order())
    }

    // Siddhi 5.1 saves only the counts, not the events; here both are restored
    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let counts: Vec<(Box<str>, KeyCount)> = from.state()?;
        self.entered = counts.last().map_or(0, |(_, count)| count.entered + 1);
        self.counts = counts.into_iter().collect();
        Ok(())
    }
}
