//! Output of the sinks `@sink(type='log')`: lines that wait until someone prints them.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_flow::Batch;
use tidemill_flow::io::LogSink;

/// Most bytes of lines that wait.
const BYTES_MAX: usize = 8 << 20;

/// Lines on their way from the owners of partitions to the thread that prints them.
///
/// Owners never wait: what does not fit into 8 MiB is dropped and counted. Until somebody has asked for the lines they
/// go to `tracing` as well, where an application that embeds the engine finds them.
#[derive(Default)]
pub struct LogLines {
    state: Mutex<LineBuffer>,
    changed: Condvar,
}

#[derive(Default)]
struct LineBuffer {
    taken: bool,
    waiting: LogBatch,
}

/// Lines to print.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LogBatch {
    /// Whole lines, each with its end.
    pub text: String,
    /// Lines behind them for which there was no room.
    pub dropped: u64,
}

impl LogBatch {
    /// Returns whether there is nothing to print and nothing to report.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.dropped == 0
    }
}

impl LogLines {
    /// Adds the lines of events.
    pub(super) fn write(&self, log: &LogSink, events: &Batch) {
        if !log.is_shown_by_default() {
            return log.trace(events);
        }
        // outside the lock: other owners write, too
        let mut text = String::new();
        for row in 0..events.len() {
            text.push_str(&log.line(events, row));
            text.push('\n');
        }
        let mut state = self.state.lock();
        if !state.taken {
            log.trace(events);
        }
        // a line behind dropped ones is dropped, too, so that what is missing is missing in one place
        if state.waiting.dropped > 0 || state.waiting.text.len() + text.len() > BYTES_MAX {
            state.waiting.dropped += events.len() as u64;
        } else {
            state.waiting.text.push_str(&text);
        }
        self.changed.notify_one();
    }

    /// Takes what waits; when there is nothing, waits for it up to `timeout`.
    pub fn take(&self, timeout: Duration) -> LogBatch {
        let mut state = self.state.lock();
        state.taken = true;
        if state.waiting.is_empty() {
            self.changed.wait_for(&mut state, timeout);
        }
        std::mem::take(&mut state.waiting)
    }
}
