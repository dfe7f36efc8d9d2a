//! The end of a process by a signal: of one that starts, and of one that was asked to stop and does not, such as for a query
//! or a record that does not end.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{SignalKind, signal};

/// Maximum time of a stop after SIGTERM or SIGINT.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// Exit code of a process that a signal ends, without the number of the signal.
const SIGNAL_CODE: i32 = 128;

/// Start of a process, which SIGTERM and SIGINT end at once: what is acknowledged is in the log at any time. Without a
/// handler of its own, the first process of a container would ignore them.
pub struct Starting(Arc<AtomicBool>);

impl Starting {
    /// Begins the start.
    ///
    /// Errors: the signals cannot be received.
    pub fn begin() -> io::Result<Self> {
        let starting = Arc::new(AtomicBool::new(true));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, SIGNAL_CODE + signal, starting.clone())?;
        }
        Ok(Self(starting))
    }

    /// Ends the start: from now on the signals ask for a stop in order, see [`watch`].
    pub fn end(self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Ends the process some time after the first SIGTERM or SIGINT, whatever runs. What was acknowledged is in the log.
///
/// Errors: the signals cannot be received.
pub fn watch() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // a thread of its own: the threads of the runtime may all be busy
        let watch = thread::Builder::new().name("stop-deadline".into()).spawn(|| {
            thread::sleep(STOP_TIME_MAX);
            eprintln!(
                "error: not everything ended within {} s of the signal; the next start replays the log",
                STOP_TIME_MAX.as_secs()
            );
            process::exit(1);
        });
        if let Err(error) = watch {
            tracing::warn!(%error, "the end of the stop is not watched");
        }
    });
    Ok(())
}
