//! State of a correcting app: `docs/formats/flow-state.md`.
//!
//! The speculative app is not part of it, because it results from the committed one and the buffered input.
//! The emitted rows are part of it, because a later version of the program might compute others; the
//! difference is a correction.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::columns::batch::Batch;
use crate::runtime::AppRuntime;
use crate::snapshot::{CHUNK_ROWS, Error, FrozenState, Reader, RestoreMode, RowLocation, SnapshotWriter};

use super::CorrectingRuntime;
use super::buffer::{InputBuffer, InputKind};
use super::outputs::EmittedRows;

/// State outside the other sections.
#[derive(Serialize, Deserialize)]
struct SavedCorrection {
    clock: Option<i64>,
    /// Set once the committed app was started.
    begun: bool,
    /// Query, message and count of each failure.
    failures: Vec<(String, String, u64)>,
}

/// Tags of buffered input; an event has `EVENTS` plus the index of its stream.
const CLOCK: u64 = 0;
const CHANGE: u64 = 1;
const EVENTS: u64 = 2;

impl CorrectingRuntime {
    /// Writes the state. Cost: proportional to its size.
    ///
    /// Errors: writing failed; corrections are pending (see [`Self::apply_corrections`]).
    pub fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        let mut to = SnapshotWriter::new(out)?;
        self.write_corrections(&mut to)?;
        to.finish()?;
        self.committed.save(out)
    }

    /// Returns the state, to be written while the app continues: see [`AppRuntime::freeze_sharing`]. What is buffered is copied
    /// here.
    ///
    /// Errors: corrections are pending.
    pub fn freeze_sharing(&mut self, rows_min: usize) -> Result<FrozenState, Error> {
        let mut to = SnapshotWriter::freezing();
        self.write_corrections(&mut to)?;
        Ok(to.into_frozen()?.then(self.committed.freeze_sharing(rows_min)?))
    }

    /// Saves keys of partitions for the state that was frozen last: see [`AppRuntime::save_keys`].
    pub fn save_keys(&mut self, count: usize) -> bool {
        self.committed.save_keys(count)
    }

    fn write_corrections(&self, to: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if self.corrections_pending {
            return Err(Error::Io(io::Error::other(
                "cannot save: late events are pending (call `apply_corrections` first)",
            )));
        }
        to.section("corrections")?;
        to.text(&self.plan.text)?;
        let failures = self.emitted.failures.iter();
        to.json(&SavedCorrection {
            clock: self.clock,
            begun: self.committed_started,
            failures: failures.map(|((query, why), count)| (query.clone(), why.clone(), *count)).collect(),
        })?;
        to.section("kept")?;
        self.buffer.save(to)?;
        to.section("put out")?;
        self.emitted.streams.iter().try_for_each(|rows| to.batch(&rows.batch()))
    }

    /// Restores a state that an app of the same text has written. It replaces the current state.
    ///
    /// Errors: reading failed, or the state is damaged or of another app. The app is unchanged then.
    pub fn restore(&mut self, input: &mut dyn Read) -> Result<(), Error> {
        let mut from = Reader::new(input)?;
        from.section("corrections")?;
        crate::runtime::check_same_app(&from.text()?, &self.plan.text)?;
        let saved: SavedCorrection = from.json()?;
        let mut fresh =
            Self::new(self.plan.clone(), self.allowed_lateness).with_commit_step(self.commit_step);
        (fresh.clock, fresh.committed_started) = (saved.clock, saved.begun);
        from.section("kept")?;
        fresh.buffer.restore(&mut from)?;
        from.section("put out")?;
        for rows in &mut fresh.emitted.streams {
            let batch: Batch = from.batch(&rows.types())?;
            rows.push(&batch);
        }
        from.finish()?;
        fresh.committed.restore(input, RestoreMode::Exactly)?;
        let failures = saved.failures.into_iter().map(|(query, why, count)| ((query, why), count));
        fresh.emitted.failures = failures.collect();
        fresh.rebuild_speculative()?;
        *self = fresh;
        Ok(())
    }

    /// Rebuilds the speculative app from the committed one.
    fn rebuild_speculative(&mut self) -> Result<(), Error> {
        let mut outputs = EmittedRows::new(&self.plan.catalog);
        let mut app = AppRuntime::new(self.plan.clone());
        if self.committed_started {
            let mut state = Vec::new();
            self.committed.save(&mut state)?;
            app.restore(&mut state.as_slice(), RestoreMode::Exactly)?;
            self.committed_state = Some(state);
        }
        self.speculative_started = self.committed_started || self.buffer.first_time().is_some();
        self.replay_buffered(&mut app, &mut outputs);
        self.corrections_pending = !self.emitted.is_same(&outputs);
        self.speculative = app;
        Ok(())
    }
}

impl InputBuffer {
    fn save(&self, to: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        to.number(self.entries.len() as u64)?;
        let mut rows: Vec<Vec<RowLocation<'_>>> = self.stores.iter().map(|_| vec![]).collect();
        for entry in &self.entries {
            to.signed(entry.time)?;
            match &entry.kind {
                InputKind::Clock => to.number(CLOCK)?,
                InputKind::Change(query) => {
                    to.number(CHANGE)?;
                    to.text(query)?;
                }
                InputKind::Event { stream, row } => {
                    to.number(EVENTS + u64::from(*stream))?;
                    rows[*stream as usize].push(self.stores[*stream as usize].at(*row));
                }
            }
        }
        for (store, rows) in self.stores.iter().zip(&rows) {
            for chunk in rows.chunks(CHUNK_ROWS) {
                to.rows(&store.types, chunk)?;
            }
        }
        Ok(())
    }

    /// Appends the saved entries.
    fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let mut counts = vec![0_usize; self.stores.len()];
        for _ in 0..from.number()? {
            let time = from.signed()?;
            let what = match from.number()? {
                CLOCK => InputKind::Clock,
                CHANGE => InputKind::Change(from.text()?.into()),
                kind => {
                    let stream = (kind - EVENTS) as usize;
                    let Some(count) = counts.get_mut(stream) else {
                        return Err(
                            from.damaged(format!("an event refers to stream {stream}, which does not exist"))
                        );
                    };
                    *count += 1;
                    InputKind::Event { stream: stream as u32, row: *count as u64 - 1 }
                }
            };
            self.push(time, what);
        }
        for (store, count) in self.stores.iter_mut().zip(counts) {
            for start in (0..count).step_by(CHUNK_ROWS) {
                let rows = CHUNK_ROWS.min(count - start);
                let columns = from.rows(&store.types, rows)?;
                for row in 0..rows {
                    store.push(&columns, row);
                }
            }
        }
        Ok(())
    }
}
