//! Saving and restoring the state of an app.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::AppRuntime;
use crate::aggregation::Aggregation;
use crate::snapshot::{Error, FrozenState, Reader, RestoreMode, SHARED_ROWS_MIN, SnapshotWriter};
use crate::table::Table;

/// State outside the elements of the app.
#[derive(Serialize, Deserialize)]
struct SavedAppState {
    now: i64,
    /// For each trigger, the time at which it fires next.
    triggers: Vec<Option<i64>>,
    /// Number of batches published by each round-robin sink.
    turns: std::collections::BTreeMap<usize, usize>,
    /// Position of the random number generator.
    draws: (u64, u64),
}

impl AppRuntime {
    /// Writes the state. Cost: proportional to its size; it is never copied as a whole.
    ///
    /// Errors: writing failed.
    pub fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        let mut out = SnapshotWriter::new(out)?;
        self.write_state(&mut out)?;
        out.finish()
    }

    /// Returns the state, to be written while the app continues. Rows of windows and tables, groups and buckets are shared with
    /// it, and copied where they change; keys of partitions follow with [`Self::save_keys`]; other state is copied here.
    ///
    /// Errors: a part cannot be written.
    pub fn freeze(&mut self) -> Result<FrozenState, Error> {
        self.freeze_sharing(SHARED_ROWS_MIN)
    }

    /// Returns the state as [`Self::freeze`] does. Elements with at least `rows_min` rows are shared, others are copied.
    ///
    /// Errors: a part cannot be written.
    pub fn freeze_sharing(&mut self, rows_min: usize) -> Result<FrozenState, Error> {
        self.stores.tables.iter_mut().for_each(|table| table.share(rows_min));
        self.stores.windows.iter_mut().for_each(|window| window.operator.share(rows_min));
        self.queries.iter_mut().for_each(|query| query.share(rows_min));
        let may_have_objects = self.plan.may_have_objects();
        self.stores.aggregations.iter_mut().for_each(|all| all.share(rows_min, may_have_objects));
        self.partitions.iter_mut().for_each(|partition| partition.share(rows_min, may_have_objects));
        let mut out = SnapshotWriter::freezing();
        self.write_state(&mut out)?;
        out.into_frozen()
    }

    /// Saves at most `count` keys of partitions for the state that was frozen last, which can be written when all are saved.
    /// Returns whether they are. Each key is in the state as it was at its moment: one that is changed meanwhile is saved
    /// before.
    pub fn save_keys(&mut self, count: usize) -> bool {
        self.partitions.iter_mut().all(|partition| partition.save_keys(count))
    }

    fn write_state(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.section("app")?;
        out.text(&self.plan.text)?;
        out.section("clock")?;
        let draws = self.stores.rng.position();
        let (triggers, turns) = (self.triggers.clone(), self.sink_turns.clone());
        out.json(&SavedAppState { now: self.now, triggers, turns, draws })?;
        for (table, name) in self.stores.tables.iter().zip(self.plan.table_names()) {
            out.section(&name)?;
            table.save(out)?;
        }
        for (window, name) in self.stores.windows.iter().zip(self.plan.window_names()) {
            out.section(&name)?;
            window.operator.save(out)?;
        }
        for (aggregation, name) in self.stores.aggregations.iter().zip(self.plan.aggregation_names()) {
            out.section(&name)?;
            aggregation.save(out)?;
        }
        for (query, name) in self.queries.iter().zip(self.plan.query_names()) {
            out.section(&name)?;
            query.save(out)?;
        }
        for (partition, number) in self.partitions.iter().zip(1..) {
            out.section(&format!("partition {number}"))?;
            partition.save(out)?;
        }
        // last, and only if there are any: an app without models writes what it wrote before there were models
        if !self.stores.models.is_empty() {
            out.section("models")?;
            out.json(&self.stores.models.save())?;
        }
        Ok(())
    }

    /// Restores a state that an app of the same text has written. It replaces the current state. To resume
    /// [exactly](RestoreMode::Exactly) the app need not have been started.
    ///
    /// Errors: reading failed, or the state is damaged or of another app. The app is unchanged then.
    pub fn restore(&mut self, input: &mut dyn Read, resume: RestoreMode) -> Result<(), Error> {
        let mut fresh = Self::new(self.plan.clone());
        let mut from = Reader::new(input)?;
        from.section("app")?;
        check_same_app(&from.text()?, &self.plan.text)?;
        from.section("clock")?;
        let saved: SavedAppState = from.json()?;
        if saved.triggers.len() != self.triggers.len() {
            return Err(from.damaged(format!("the number of triggers is {}", saved.triggers.len())));
        }
        for (table, name) in fresh.stores.tables.iter_mut().zip(self.plan.table_names()) {
            from.section(&name)?;
            table.restore(&mut from)?;
        }
        for (window, name) in fresh.stores.windows.iter_mut().zip(self.plan.window_names()) {
            from.section(&name)?;
            window.operator.restore(&mut from)?;
        }
        let old = self.stores.aggregations.iter().map(Aggregation::next_purge);
        let aggregations = fresh.stores.aggregations.iter_mut().zip(old);
        for ((aggregation, purge), name) in aggregations.zip(self.plan.aggregation_names()) {
            from.section(&name)?;
            aggregation.restore(&mut from)?;
            if resume == RestoreMode::Restarted {
                aggregation.set_next_purge(purge);
            }
        }
        for (query, name) in fresh.queries.iter_mut().zip(self.plan.query_names()) {
            from.section(&name)?;
            query.restore(&mut from)?;
        }
        for ((partition, old), number) in fresh.partitions.iter_mut().zip(&self.partitions).zip(1..) {
            from.section(&format!("partition {number}"))?;
            partition.start(old.started());
            partition.restore(&mut from, resume)?;
        }
        if from.last_section("models")? {
            let models = from.json()?;
            fresh.stores.models.restore(models).map_err(|e| from.damaged(e.to_string()))?;
        }
        from.finish()?;
        fresh.sink_turns = saved.turns;
        fresh.stores.rng = self.stores.rng.restarted();
        fresh.stores.rng.set_position(saved.draws);
        (fresh.now, fresh.triggers) = match resume {
            RestoreMode::Exactly => (saved.now, saved.triggers),
            RestoreMode::Restarted => (self.now, std::mem::take(&mut self.triggers)),
        };
        fresh.restored_at = Some(fresh.now);
        for (fresh, old) in fresh.stores.tables.iter_mut().zip(&mut self.stores.tables) {
            if let (Table::External(fresh), Table::External(old)) = (fresh, old) {
                fresh.take_store(old);
            }
        }
        for (fresh, old) in fresh.stores.aggregations.iter_mut().zip(&mut self.stores.aggregations) {
            fresh.take_stores(old);
        }
        fresh.stores.statements = std::mem::take(&mut self.stores.statements);
        *self = fresh;
        Ok(())
    }
}

/// Checks that a state is one of this app, by their texts. Errors: the first line that differs.
pub(crate) fn check_same_app(saved: &str, here: &str) -> Result<(), Error> {
    if saved == here {
        return Ok(());
    }
    let (mut was, mut is) = (saved.lines(), here.lines());
    loop {
        let (was, is) = (was.next(), is.next());
        if was != is {
            let text = |line: Option<&str>| line.map_or("nothing".to_owned(), |l| format!("`{}`", l.trim()));
            return Err(Error::OtherApp(format!("it has {} where this app has {}", text(was), text(is))));
        }
        if was.is_none() {
            return Ok(());
        }
    }
}
