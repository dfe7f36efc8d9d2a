//! Checkpointing of output rate limiters.

use super::OutputRateLimiter;
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::window::TimerQueue;

impl OutputRateLimiter {
    /// Saves the state to a checkpoint.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.batch(&self.buffered)?;
        self.pending.save(out)?;
        out.number(self.groups.len() as u64)?;
        for (group, n) in &self.groups {
            out.text(group)?;
            out.signed(*n)?;
        }
        out.number(self.count)?;
        self.timers.save(out)
    }

    /// Restores a saved state.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let types: Vec<_> = self.buffered.columns.iter().map(crate::Column::ty).collect();
        self.buffered = from.batch(&types)?;
        self.pending.restore(from)?;
        self.groups.clear();
        for _ in 0..from.number()? {
            let group = from.text()?;
            self.groups.insert(group, from.signed()?);
        }
        self.count = from.number()?;
        self.timers = TimerQueue::restored(from)?;
        Ok(())
    }
}
