//! Runtime of an app according to its `@late` annotation.

use std::io::{Read, Write};
use std::sync::Arc;

use tidemill_connect::StoreMonitor;
use tidemill_types::{Error, Offset, PartitionId};

use super::{CorrectingRuntime, LateEvent, RetractionHandler};
use crate::catalog::StoreOpener;
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::explain::QueryReport;
use crate::plan::AppPlan;
use crate::runtime::{AppRuntime, StreamBatch};
use crate::snapshot::{self, FrozenState, RestoreMode, SHARED_ROWS_MIN};

/// An app runtime, with corrections if the app asks for them.
pub enum AppRunner {
    /// Late events are processed as they arrive.
    Plain(Box<AppRuntime>),
    /// Late events [correct](CorrectingRuntime) earlier output.
    Correcting(Box<CorrectingRuntime>),
}

impl AppRunner {
    /// Creates an app that has not started.
    pub fn new(plan: Arc<AppPlan>) -> Self {
        match plan.corrected {
            None => Self::Plain(Box::new(AppRuntime::new(plan))),
            Some(allowed) => Self::Correcting(Box::new(CorrectingRuntime::new(plan, allowed))),
        }
    }

    /// Seeds random values: see [`AppRuntime::seed`]. A correcting app has no random values.
    pub fn seed(&mut self, text: &str) {
        if let Self::Plain(app) = self {
            app.seed(text);
        }
    }

    /// Opens the stores of tables in other systems: see [`AppRuntime::open_stores`]. A correcting app has none.
    ///
    /// Errors: those of [`AppRuntime::open_stores`].
    pub fn open_stores(&mut self, writer: &str, monitor: &Arc<StoreMonitor>) -> Result<(), Error> {
        match self {
            Self::Plain(runtime) => runtime.open_stores(writer, monitor),
            Self::Correcting(_) => Ok(()),
        }
    }

    /// Opens the tables whose store is part of the program: see [`AppRuntime::open_own_stores`].
    ///
    /// Errors: those of `open`.
    pub fn open_own_stores(&mut self, open: &mut StoreOpener<'_>) -> Result<(), Error> {
        match self {
            Self::Plain(runtime) => runtime.open_own_stores(open),
            Self::Correcting(_) => Ok(()),
        }
    }

    /// Says which record of a log is processed next: see [`AppRuntime::set_record`].
    pub fn set_record(&mut self, partition: PartitionId, offset: Offset) {
        if let Self::Plain(app) = self {
            app.set_record(partition, offset);
        }
    }

    /// Returns the app runtime for inspection.
    pub fn app(&self) -> &AppRuntime {
        match self {
            Self::Plain(app) => app,
            Self::Correcting(app) => app.app(),
        }
    }

    /// Returns the clock, milliseconds.
    pub fn now(&self) -> i64 {
        match self {
            Self::Plain(app) => app.now(),
            Self::Correcting(app) => app.clock().unwrap_or_default(),
        }
    }

    /// Starts the app at `now`.
    pub fn start(&mut self, now: i64, sink: &mut dyn RetractionHandler) {
        match self {
            Self::Plain(app) => app.start(now, sink),
            Self::Correcting(app) => app.start(now, sink),
        }
    }

    /// Starts the app at `now`, the time of its first event. A correcting app starts later, with its earliest
    /// event.
    pub fn start_with_event(&mut self, now: i64, sink: &mut dyn RetractionHandler) {
        if let Self::Plain(app) = self {
            app.start(now, sink);
        }
    }

    /// Advances the clock.
    pub fn advance(&mut self, to: i64, sink: &mut dyn RetractionHandler) {
        match self {
            Self::Plain(app) => app.advance(to, sink),
            Self::Correcting(app) => app.advance(to, sink),
        }
    }

    /// Sends events to a stream as one chunk: see [`AppRuntime::send`]. A correcting app takes each event as
    /// a chunk of its own. Returns the events that came too late, which are ignored.
    ///
    /// Errors: the events do not fit the stream; the buffer of a correcting app is full.
    pub fn send(
        &mut self,
        stream: usize,
        columns: Vec<Column>,
        times: Vec<i64>,
        sink: &mut dyn RetractionHandler,
    ) -> Result<Vec<LateEvent>, EvalError> {
        match self {
            Self::Plain(app) => app.send(stream, columns, times, sink).map(|()| vec![]),
            Self::Correcting(app) => app.send_batch(vec![StreamBatch { stream, columns, times }], None, sink),
        }
    }

    /// Sends events, each as a chunk of its own. Returns the events that came too late, which are ignored.
    ///
    /// Errors: as for [`AppRunner::send`]; no event is taken then.
    pub fn send_batch(
        &mut self,
        parts: Vec<StreamBatch>,
        order: Option<&[u16]>,
        sink: &mut dyn RetractionHandler,
    ) -> Result<Vec<LateEvent>, EvalError> {
        match self {
            Self::Plain(app) => app.send_batch(parts, order, sink).map(|()| vec![]),
            Self::Correcting(app) => app.send_batch(parts, order, sink),
        }
    }

    /// Applies late events: see [`CorrectingRuntime::apply_corrections`].
    pub fn apply_corrections(&mut self, sink: &mut dyn RetractionHandler) -> Result<(), EvalError> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Correcting(app) => app.apply_corrections(sink),
        }
    }

    /// Runs an on-demand query. Errors: it does not parse or compile, or fails.
    pub fn on_demand(&mut self, query: &str) -> Result<Batch, EvalError> {
        match self {
            Self::Plain(app) => app.on_demand(query),
            Self::Correcting(app) => app.on_demand(query),
        }
    }

    /// Returns the time at which something is due without an event: see [`AppRuntime::next_due`].
    pub fn next_due(&self) -> Option<i64> {
        self.app().next_due()
    }

    /// Skips triggers after downtime: see [`AppRuntime::skip_triggers`]. A correcting app skips none, because
    /// its clock is that of its events.
    pub fn skip_triggers(&mut self, to: i64, standstill: i64) {
        if let Self::Plain(app) = self {
            app.skip_triggers(to, standstill);
        }
    }

    /// Reports why a query emits nothing: see [`AppRuntime::why`].
    ///
    /// Errors: those of [`AppRuntime::why`].
    pub fn why(&self, query: &str, key: Option<&str>) -> tidemill_types::Result<QueryReport> {
        self.app().why(query, key)
    }

    /// Writes the state.
    ///
    /// Errors: writing failed; corrections are pending.
    pub fn save(&self, out: &mut dyn Write) -> Result<(), snapshot::Error> {
        match self {
            Self::Plain(app) => app.save(out),
            Self::Correcting(app) => app.save(out),
        }
    }

    /// Returns the state, to be written while the app continues: see [`AppRuntime::freeze`].
    ///
    /// Errors: those of [`Self::save`].
    pub fn freeze(&mut self) -> Result<FrozenState, snapshot::Error> {
        self.freeze_sharing(SHARED_ROWS_MIN)
    }

    /// Returns the state as [`Self::freeze`] does, with other elements shared: see [`AppRuntime::freeze_sharing`].
    ///
    /// Errors: those of [`Self::save`].
    pub fn freeze_sharing(&mut self, rows_min: usize) -> Result<FrozenState, snapshot::Error> {
        match self {
            Self::Plain(app) => app.freeze_sharing(rows_min),
            Self::Correcting(app) => app.freeze_sharing(rows_min),
        }
    }

    /// Saves keys of partitions for the state that was frozen last: see [`AppRuntime::save_keys`].
    pub fn save_keys(&mut self, count: usize) -> bool {
        match self {
            Self::Plain(app) => app.save_keys(count),
            Self::Correcting(app) => app.save_keys(count),
        }
    }

    /// Restores a state: see [`AppRuntime::restore`]. A correcting app resumes exactly, whatever `resume` is,
    /// because its clock is that of its events.
    ///
    /// Errors: reading failed, or the state is damaged or of another app.
    pub fn restore(&mut self, input: &mut dyn Read, resume: RestoreMode) -> Result<(), snapshot::Error> {
        match self {
            Self::Plain(app) => app.restore(input, resume),
            Self::Correcting(app) => app.restore(input),
        }
    }
}
