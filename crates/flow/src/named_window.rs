//! Named windows: windows that queries write like streams, read like streams, and search.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::batch::{Batch, Kind};
use crate::expr::Failure;
use crate::held::Held;
use crate::select::Wanted;
use crate::why::{SideWritten, WindowState};
use crate::window::MakeWindow;

/// A compiled named window.
#[derive(Clone)]
pub struct NamedWindowPlan {
    /// The stream as which queries know it: what it puts out.
    pub stream: usize,
    /// The types of its columns.
    pub columns: Vec<FieldType>,
    /// Makes the window.
    pub make: MakeWindow,
    /// What its readers get.
    pub output: Wanted,
    /// What it says, for whoever asks.
    pub written: Arc<SideWritten>,
}

/// A named window at work.
pub struct NamedWindow {
    plan: NamedWindowPlan,
    pub(crate) held: Held,
}

impl NamedWindow {
    /// A window without rows.
    pub fn new(plan: NamedWindowPlan) -> Self {
        let held = Held::new(&plan.make, &plan.columns, plan.output.expired, true);
        Self { plan, held }
    }

    /// The same with another greatest number of rows.
    pub fn with_rows_max(mut self, rows_max: usize) -> Self {
        self.held.set_rows_max(rows_max);
        self
    }

    /// What was compiled.
    pub fn plan(&self) -> &NamedWindowPlan {
        &self.plan
    }

    /// What it holds and waits for, with the clock at `now`.
    pub(crate) fn why(&self, now: i64) -> WindowState {
        self.held.why(&self.plan.written, now)
    }

    /// Events arrive, all of them as current ones: what its readers get.
    pub fn insert(&mut self, events: &Batch) -> Result<Batch, Failure> {
        let mut out = self.held.empty();
        for (rows, clock) in events.chunks() {
            self.held.arrive(events, None, rows, clock, &mut out)?;
        }
        Ok(self.wanted(&out))
    }

    /// What its readers get from its next timer that is due at `now`, if there is one.
    pub fn timer(&mut self, now: i64) -> Option<Result<Batch, Failure>> {
        let out = self.held.timer(now)?;
        Some(out.map(|out| self.wanted(&out)))
    }

    /// What its readers get at an instant of its schedule.
    pub fn instant(&mut self, at: i64) -> Result<Batch, Failure> {
        let out = self.held.instant(at)?;
        Ok(self.wanted(&out))
    }

    /// Without resets, which stay inside.
    fn wanted(&self, out: &Batch) -> Batch {
        let mut passed = self.held.empty();
        for (rows, clock) in out.chunks() {
            for row in rows {
                let kind = out.kinds[row];
                let goes = match kind {
                    Kind::Current => self.plan.output.current,
                    Kind::Expired => self.plan.output.expired,
                    Kind::Reset => false,
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
