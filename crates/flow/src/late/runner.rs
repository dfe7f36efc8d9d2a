//! An app as its text wants it to be run.

use std::io::{Read, Write};
use std::sync::Arc;

use crate::batch::Batch;
use crate::column::Column;
use crate::explain::QueryReport;
use crate::expr::EvalError;
use crate::plan::AppPlan;
use crate::runtime::AppRuntime;
use crate::snapshot::{self, RestoreMode};
use crate::stream_batch::StreamBatch;

use super::{CorrectingRuntime, LateEvent, RetractionHandler};

/// An app that corrects what it has put out, if its text says so, and otherwise one that does not.
pub enum AppRunner {
    /// Late events go in as they come.
    Plain(Box<AppRuntime>),
    /// Late events [correct](CorrectingRuntime) what was put out.
    Correcting(Box<CorrectingRuntime>),
}

impl AppRunner {
    /// An app that has not started.
    pub fn new(plan: Arc<AppPlan>) -> Self {
        match plan.corrected {
            None => Self::Plain(Box::new(AppRuntime::new(plan))),
            Some(allowed) => Self::Correcting(Box::new(CorrectingRuntime::new(plan, allowed))),
        }
    }

    /// Seeds random values: see [`AppRuntime::seed`]. An app that is corrected draws none.
    pub fn seed(&mut self, text: &str) {
        if let Self::Plain(app) = self {
            app.seed(text);
        }
    }

    /// The app, for who wants to look at it.
    pub fn app(&self) -> &AppRuntime {
        match self {
            Self::Plain(app) => app,
            Self::Correcting(app) => app.app(),
        }
    }

    /// The clock.
    pub fn now(&self) -> i64 {
        match self {
            Self::Plain(app) => app.now(),
            Self::Correcting(app) => app.clock().unwrap_or_default(),
        }
    }

    /// Starts it at `now`.
    pub fn start(&mut self, now: i64, sink: &mut dyn RetractionHandler) {
        match self {
            Self::Plain(app) => app.start(now, sink),
            Self::Correcting(app) => app.start(now, sink),
        }
    }

    /// Starts it at `now`, the time of its first event. One that is corrected starts with the event that turns out to be
    /// the first.
    pub fn start_with_event(&mut self, now: i64, sink: &mut dyn RetractionHandler) {
        if let Self::Plain(app) = self {
            app.start(now, sink);
        }
    }

    /// Moves the clock.
    pub fn advance(&mut self, to: i64, sink: &mut dyn RetractionHandler) {
        match self {
            Self::Plain(app) => app.advance(to, sink),
            Self::Correcting(app) => app.advance(to, sink),
        }
    }

    /// Hands events to a stream in one call, as one chunk: see [`AppRuntime::send`]. One that is corrected takes each by
    /// itself. Which came too late: they were left out.
    ///
    /// Errors: they do not fit the stream; an app that is corrected can keep no more.
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

    /// Hands events in, each by itself. Which came too late: they were left out.
    ///
    /// Errors: as for [`AppRunner::send`]; then none was taken.
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

    /// Works late events in: see [`CorrectingRuntime::apply_corrections`].
    pub fn apply_corrections(&mut self, sink: &mut dyn RetractionHandler) -> Result<(), EvalError> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Correcting(app) => app.apply_corrections(sink),
        }
    }

    /// Runs an on-demand query. Errors: that it cannot be read, or what failed.
    pub fn on_demand(&mut self, query: &str) -> Result<Batch, EvalError> {
        match self {
            Self::Plain(app) => app.on_demand(query),
            Self::Correcting(app) => app.on_demand(query),
        }
    }

    /// When something is due next without events: see [`AppRuntime::next_due`].
    pub fn next_due(&self) -> Option<i64> {
        self.app().next_due()
    }

    /// The clock is going on after it may have stood still: see [`AppRuntime::skip_triggers`]. Where it is that of the
    /// events, as in an app that is corrected, nothing is passed over.
    pub fn skip_triggers(&mut self, to: i64, standstill: i64) {
        if let Self::Plain(app) = self {
            app.skip_triggers(to, standstill);
        }
    }

    /// Why a query puts nothing out: see [`AppRuntime::why`].
    ///
    /// Errors: those of [`AppRuntime::why`].
    pub fn why(&self, query: &str, key: Option<&str>) -> tidemill_types::Result<QueryReport> {
        self.app().why(query, key)
    }

    /// Writes its state.
    ///
    /// Errors: writing failed.
    pub fn save(&self, out: &mut dyn Write) -> Result<(), snapshot::Error> {
        match self {
            Self::Plain(app) => app.save(out),
            Self::Correcting(app) => app.save(out),
        }
    }

    /// Takes a state back: see [`AppRuntime::restore`]. One that is corrected goes on exactly, whatever `resume` says: its clock
    /// is that of its events.
    ///
    /// Errors: reading failed, the state is damaged or one of another app.
    pub fn restore(&mut self, input: &mut dyn Read, resume: RestoreMode) -> Result<(), snapshot::Error> {
        match self {
            Self::Plain(app) => app.restore(input, resume),
            Self::Correcting(app) => app.restore(input),
        }
    }
}
