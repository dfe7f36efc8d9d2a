//! Events that wait until the events before them are known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::aggregators::state::{decode, encode};
use crate::columns::batch::EventKind;
use crate::registry::ProcessorEvent;

/// Interval at which events are checked for their timeout, milliseconds.
const TICK_MS: i64 = 1000;

/// Events by sort key, each with the clock at its arrival; events of one key are in order of arrival.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    rows: BTreeMap<i64, Vec<(i64, ProcessorEvent)>>,
    /// Time from which the ticks count.
    started: i64,
    /// Time of the next tick.
    beat: Option<i64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedReorderBuffer {
    rows: Vec<(i64, i64, i64, bool, Vec<Json>)>,
    started: i64,
    beat: Option<i64>,
}

impl ReorderBuffer {
    pub(super) fn start(&mut self, now: i64) {
        self.started = now;
    }

    pub(super) fn add(&mut self, by: i64, row: ProcessorEvent, now: i64) {
        self.rows.entry(by).or_default().push((now, row));
        self.beat.get_or_insert_with(|| self.started + next_tick(now - self.started));
    }

    /// Releases the events with a sort key of at most `to`, in order. Returns the last sort key.
    pub(super) fn release(&mut self, to: i64, out: &mut Vec<ProcessorEvent>) -> Option<i64> {
        let rest = to.checked_add(1).map(|next| self.rows.split_off(&next)).unwrap_or_default();
        let gone = std::mem::replace(&mut self.rows, rest);
        let last = gone.last_key_value().map(|(by, _)| *by);
        out.extend(gone.into_values().flatten().map(|(_, row)| row));
        last
    }

    /// Returns the time of the next tick while events are buffered.
    pub(super) fn due(&self) -> Option<i64> {
        self.beat.filter(|_| !self.rows.is_empty())
    }

    /// Releases the events that were buffered for `timeout` or longer, in order. Returns the last sort key.
    pub(super) fn release_expired(
        &mut self,
        timeout: i64,
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Option<i64> {
        let mut last = None;
        self.rows.retain(|by, rows| {
            let old = rows.extract_if(.., |(arrived, _)| now.saturating_sub(*arrived) >= timeout);
            let before = out.len();
            out.extend(old.map(|(_, row)| row));
            if out.len() > before {
                last = Some(*by);
            }
            !rows.is_empty()
        });
        let next = self.started + next_tick(now + 1 - self.started);
        self.beat = (!self.rows.is_empty()).then_some(next);
        last
    }

    pub(super) fn save(&self) -> SavedReorderBuffer {
        let rows = self.rows.iter().flat_map(|(by, rows)| rows.iter().map(move |(at, row)| (*by, *at, row)));
        let saved = rows.map(|(by, at, row)| {
            (by, at, row.time, row.kind == EventKind::Expired, row.values.iter().map(encode).collect())
        });
        SavedReorderBuffer { rows: saved.collect(), started: self.started, beat: self.beat }
    }

    /// Restores a saved state; `None` if it cannot be read.
    pub(super) fn restore(&mut self, saved: &SavedReorderBuffer) -> Option<()> {
        let mut rows: BTreeMap<i64, Vec<(i64, ProcessorEvent)>> = BTreeMap::new();
        for (by, at, time, expired, values) in &saved.rows {
            let kind = if *expired { EventKind::Expired } else { EventKind::Current };
            let values = values.iter().map(decode).collect::<Option<Vec<_>>>()?;
            rows.entry(*by).or_default().push((*at, ProcessorEvent { time: *time, kind, values }));
        }
        *self = Self { rows, started: saved.started, beat: saved.beat };
        Some(())
    }
}

/// Returns the time of the first tick at `since` or later, but at least one interval. Both times count from
/// the start.
fn next_tick(since: i64) -> i64 {
    let beats = since.div_euclid(TICK_MS) + i64::from(since.rem_euclid(TICK_MS) > 0);
    beats.max(1) * TICK_MS
}
