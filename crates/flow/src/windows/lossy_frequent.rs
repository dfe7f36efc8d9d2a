//! `lossyFrequent(support, error [, attribute …])`: the newest event of each key whose share of all events is
//! about `support`, by the lossy counting of Manku and Motwani.
//!
//! Source: G. S. Manku, R. Motwani, "Approximate frequency counts over data streams", 2002.

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
    arity(parameters, 1..=usize::MAX, "lossyFrequent(support, error [, attribute …])")?;
    let support = parameters[0].share("the support")?;
    let error = match parameters.get(1) {
        Some(error) => error.share("the error")?,
        // Siddhi 5.1 documents this default but fails here
        None => support / 10.0,
    };
    if error == 0.0 {
        return Err("the error must be above 0.0: otherwise no key is ever forgotten".into());
    }
    let keys = KeyEncoder::of_attributes(parameters.get(2..).unwrap_or_default(), source)?;
    let width = (1.0 / error).ceil();
    Ok(Arc::new(move || {
        let state = State { counts: HashMap::new(), total: 0 };
        Box::new(LossyFrequent { share: support - error, width, keys: keys.clone(), state })
    }))
}

struct LossyFrequent {
    /// Minimum share of all events that the key of an event must have for the event to be emitted.
    share: f64,
    /// Number of events per bucket; at the end of each bucket, infrequent keys are evicted.
    width: f64,
    keys: KeyEncoder,
    state: State,
}

struct State {
    counts: HashMap<Box<str>, KeyCount>,
    total: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct KeyCount {
    count: u64,
    /// Index of the bucket before the one in which the key entered.
    before: u64,
    /// The key's newest event, emitted or not.
    seq: RowId,
    /// Number of events up to and including the one with which the key entered; orders the keys.
    entered: u64,
}

impl LossyFrequent {
    fn end_bucket(&mut self, bucket: u64, context: &mut WindowContext<'_>) {
        let mut leaving: Vec<KeyCount> = vec![];
        self.state.counts.retain(|_, count| {
            let stays = count.count + count.before > bucket;
            if !stays {
                leaving.push(*count);
            }
            stays
        });
        leaving.sort_unstable_by_key(|count| count.entered);
        for count in leaving {
            context.out.expired(count.seq, context.now);
        }
    }

    fn in_order(&self) -> Vec<(&str, KeyCount)> {
        let mut all: Vec<_> = self.state.counts.iter().map(|(key, count)| (&**key, *count)).collect();
        all.sort_unstable_by_key(|(_, count)| count.entered);
        all
    }
}

impl Window for LossyFrequent {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            let key = self.keys.encode(seq, context)?;
            let state = &mut self.state;
            state.total += 1;
            let total = state.total as f64;
            let bucket = (total / self.width).ceil() as u64;
            let new = KeyCount { count: 0, before: bucket - 1, seq, entered: state.total };
            let count = state.counts.entry_ref(key).or_insert(new);
            count.count += 1;
            count.seq = seq;
            if count.count as f64 >= self.share * total {
                context.out.current(seq, context.rows.time(seq));
            }
            if total % self.width == 0.0 {
                self.end_bucket(bucket, context);
            }
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
        RetainedRows::sparse(self.state.counts.len())
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        self.state.counts.values().map(|count| count.seq).collect()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let between = look.time_range(self.state.counts.values().map(|count| count.seq));
        let least = self.share * self.state.total as f64;
        let waits_for =
            format!("events whose keys came {least:.1} times or more, of {} events", self.state.total);
        WindowStatus::new(self.state.counts.len() as u64, between, waits_for)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&(self.state.total, self.in_order()))
    }

    // Siddhi 5.1 loses the counts; here they are restored
    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (total, counts): (u64, Vec<(Box<str>, KeyCount)>) = from.state()?;
        self.state = State { counts: counts.into_iter().collect(), total };
        Ok(())
    }
}
