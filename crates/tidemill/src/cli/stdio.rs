//! Printing functions of commands. `println!` and its relatives are redefined to use them, because those of
//! the standard library panic when the reader of the output has gone, as in `tidemill test … | head -1`.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code when standard output is closed, as shells report it for SIGPIPE: 128 + 13.
const CLOSED_EXIT_CODE: i32 = 141;

/// True if the process continues when standard output is closed.
static CONTINUE_WHEN_CLOSED: AtomicBool = AtomicBool::new(false);
/// Set once the closing has been reported.
static CLOSE_REPORTED: AtomicBool = AtomicBool::new(false);

/// Makes the process continue when standard output is closed: a server has more to do than to print.
pub fn continue_when_closed() {
    CONTINUE_WHEN_CLOSED.store(true, Ordering::Relaxed);
}

/// Standard output. When it is closed, the process exits quietly, or continues without it.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).or_else(|e| handle_closed(e).map(|()| bytes.len()))
    }

    // in one call, so that lines of several threads do not mix
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::stdout().write_all(bytes).or_else(handle_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().or_else(handle_closed)
    }
}

fn handle_closed(error: io::Error) -> io::Result<()> {
    if error.kind() != ErrorKind::BrokenPipe {
        return Err(error);
    }
    if !CONTINUE_WHEN_CLOSED.load(Ordering::Relaxed) {
        std::process::exit(CLOSED_EXIT_CODE);
    }
    if !CLOSE_REPORTED.swap(true, Ordering::Relaxed) {
        err(format_args!("standard output was closed; going on without it\n"));
    }
    Ok(())
}

/// Prints to standard output. Write errors, such as on a full disk, are reported on standard error.
pub fn out(text: Arguments<'_>) {
    if let Err(e) = Stdout.write_all(text.to_string().as_bytes()) {
        err(format_args!("error: standard output: {e}\n"));
    }
}

/// Prints to standard error. Write errors are ignored, because no other output is left.
pub fn err(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}
