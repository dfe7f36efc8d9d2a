//! Named windows: windows that queries write like streams, read like streams, and search.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::batch::{Batch, EventKind};
use crate::explain::{InputText, WindowReport};
use crate::expr::EvalError;
use crate::select::OutputEvents;
use crate::window::WindowConstructor;
use crate::window_operator::WindowOperator;

/// A compiled named window.
#[derive(Clone)]
pub struct NamedWindowPlan {
    /// The stream as which queries know it: what it puts out.
    pub stream: usize,
    /// The types of its columns.
    pub columns: Vec<FieldType>,
    /// Makes the window.
    pub make: WindowConstructor,
    /// What its readers get.
    pub output: OutputEvents,
    /// What it says, for whoever asks.
    pub source_text: Arc<InputText>,
}

/// A named window at work.
pub struct NamedWindow {
    plan: NamedWindowPlan,
    pub(crate) operator: WindowOperator,
}

impl NamedWindow {
    /// A window without rows.
    pub fn new(plan: NamedWindowPlan) -> Self {
        let held = WindowOperator::new(&plan.make, &plan.columns, plan.output.expired, true);
        Self { plan, operator: held }
    }

    /// The same with another greatest number of rows.
    pub fn with_rows_max(mut self, rows_max: usize) -> Self {
        self.operator.set_rows_max(rows_max);
        self
    }

    /// What was compiled.
    pub fn plan(&self) -> &NamedWindowPlan {
        &self.plan
    }

    /// What it holds and waits for, with the clock at `now`.
    pub(crate) fn why(&self, now: i64) -> WindowReport {
        self.operator.why(&self.plan.source_text, now)
    }

    /// Events arrive, all of them as current ones: what its readers get.
    pub fn insert(&mut self, events: &Batch) -> Result<Batch, EvalError> {
        let mut out = self.operator.empty();
        for (rows, clock) in events.chunks() {
            self.operator.process_chunk(events, None, rows, clock, &mut out)?;
        }
        Ok(self.filter_output(&out))
    }

    /// What its readers get from its next timer that is due at `now`, if there is one.
    pub fn fire_timer(&mut self, now: i64) -> Option<Result<Batch, EvalError>> {
        let out = self.operator.fire_timer(now)?;
        Some(out.map(|out| self.filter_output(&out)))
    }

    /// What its readers get at an instant of its schedule.
    pub fn fire_schedule(&mut self, at: i64) -> Result<Batch, EvalError> {
        let out = self.operator.fire_schedule(at)?;
        Ok(self.filter_output(&out))
    }

    /// Without resets, which stay inside.
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
