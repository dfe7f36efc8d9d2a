//! Status report of a window.

use super::WindowOperator;
use crate::columns::value::format_time;
use crate::explain::{InputText, WindowReport};
use crate::window::StatusContext;

impl WindowOperator {
    /// Reports the buffered rows and what the window waits for, with the clock at `now`.
    pub(crate) fn why(&self, written: &InputText, now: i64) -> WindowReport {
        let mut waits = self.window.status(&StatusContext { rows: &self.rows, names: &written.names });
        if let Some(at) = self.window.next_scheduled(now) {
            waits.due = Some(at);
            waits.waits_for += &format!(", which is {}", format_time(at));
        }
        WindowReport { window: written.window.clone(), waits, rows_max: self.rows_max as u64 }
    }

    /// Returns the number of rows that joins find.
    pub(crate) fn visible_row_count(&self) -> u64 {
        self.window.rows_in_order().map_or_else(|| self.window.rows().len() as u64, |held| held.len())
    }
}
