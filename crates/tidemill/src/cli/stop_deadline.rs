//! The end of a process that was asked to stop and does not, such as for a query or a record that does not end.

use std::io;
use std::process;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Maximum time of a stop after SIGTERM or SIGINT.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

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
