//! Printing of the output of `@sink(type='log')` of a running app.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill::Engine;
use tidemill_engine::{LogBatch, LogLines};

use super::stdio::Stdout;

/// Interval at which the thread checks whether to stop.
const PAUSE: Duration = Duration::from_millis(50);

/// Thread that prints lines as they arrive.
pub struct LogSinks {
    lines: Arc<LogLines>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl LogSinks {
    /// Starts the thread.
    pub fn start(engine: &Engine) -> std::io::Result<Self> {
        let (lines, stopping) = (engine.log_lines(), Arc::new(AtomicBool::new(false)));
        let (from, end) = (lines.clone(), stopping.clone());
        let thread = std::thread::Builder::new().name("log-sinks".into()).spawn(move || {
            while !end.load(Ordering::Acquire) {
                print(&from.take(PAUSE));
            }
        })?;
        Ok(Self { lines, stopping, thread })
    }

    /// Stops the thread and prints the remaining lines, once the engine has stopped.
    pub fn finish(self) {
        self.stopping.store(true, Ordering::Release);
        // a panic of the thread has already been reported
        let _ = self.thread.join();
        print(&self.lines.take(Duration::ZERO));
    }
}

fn print(lines: &LogBatch) {
    let written = Stdout.write_all(lines.text.as_bytes()).and_then(|()| Stdout.flush());
    if let Err(e) = written {
        eprintln!("error: standard output: {e}; lines of @sink(type='log') are lost");
    }
    if lines.dropped > 0 {
        eprintln!(
            "warning: {} lines of @sink(type='log') were left out: standard output took the ones before too slowly",
            lines.dropped
        );
    }
}
