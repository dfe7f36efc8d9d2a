//! Named windows: windows that queries insert into, read like streams, and search.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind};
use crate::eval_error::EvalError;
use crate::explain::{InputText, WindowReport};
use crate::select::OutputEvents;
use crate::window::WindowConstructor;
use crate::window_operator::WindowOperator;

/// A compiled named window.
#[derive(Clone)]
pub struct NamedWindowPlan {
    /// Id of the stream by which queries read the window's output.
    pub stream: usize,
    /// Column types.
    pub columns: Vec<FieldType>,
    /// Constructor of the window.
    pub make: WindowConstructor,
    /// Event kinds that the window's readers receive.
    pub output: OutputEvents,
    /// Source text, for reports.
    pub source_text: Arc<InputText>,
}

/// Runtime state of a named window.
pub struct NamedWindow {
    plan: NamedWindowPlan,
    pub(crate) operator: WindowOperator,
}

impl NamedWindow {
    /// Creates a window without rows.
    pub fn new(plan: NamedWindowPlan) -> Self {
        let held = WindowOperator::new(&plan.make, &plan.columns, plan.output.expired, true);
        Self { plan, operator: held }
    }

    /// Sets the maximum number of buffered rows.
    pub fn with_rows_max(mut self, rows_max: usize) -> Self {
        self.operator.set_rows_max(rows_max);
        self
    }

    /// Returns the compiled window.
    pub fn plan(&self) -> &NamedWindowPlan {
        &self.plan
    }

    /// Reports the buffered rows and what the window waits for, with the clock at `now`.
    pub(crate) fn why(&self, now: i64) -> WindowReport {
        self.operator.why(&self.plan.source_text, now)
    }

    /// Inserts events, all as current events, and returns the output for the window's readers.
    pub fn insert(&mut self, events: &Batch) -> Result<Batch, EvalError> {
        let mut out = self.operator.empty();
        for (rows, clock) in events.chunks() {
            self.operator.process_chunk(events, None, rows, clock, &mut out)?;
        }
        Ok(self.filter_output(&out))
    }

    /// Fires the next timer if it is due at `now` and returns the output for the window's readers; `None` if
    /// none is due.
    pub fn fire_timer(&mut self, now: i64) -> Option<Result<Batch, EvalError>> {
        let out = self.operator.fire_timer(now)?;
        Some(out.map(|out| self.filter_output(&out)))
    }

    /// Processes an instant of the window's schedule and returns the output for its readers.
    pub fn fire_schedule(&mut self, at: i64) -> Result<Batch, EvalError> {
        let out = self.operator.fire_schedule(at)?;
        Ok(self.filter_output(&out))
    }

    /// Returns the events of the kinds that readers receive. Resets are never passed on.
    fn filter_output(&self, out: &Batch) -> Batch {
        let mut passed = self.operator.empty();
        for (rows, clock) in out.chunks() {
            for row in rows {
                let kind = out.kinds[row];
                let goes = match kind {
                    EventKind::Current => self.plan.output.current,
                    EventKind::Expired => self.plan.output.expired,
                    EventKind::Reset => false,
                };
                if goes {
                    passed.push_row(out, row, kind, out.times[row]);
                }
            }
            passed.end_chunk(clock);
        }
        passed
    }
}
