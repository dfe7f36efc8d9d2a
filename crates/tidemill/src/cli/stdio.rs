//! Where commands print. `println!` and its relatives mean these functions in the command line: those of the standard
//! library panic when whoever reads the output has seen enough, as in `tidemill test … | head -1`.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell shows for a command that ends because nobody reads its output: 128 + SIGPIPE.
const CLOSED_EXIT_CODE: i32 = 141;

/// Whether the process goes on when nobody reads its output.
static CONTINUE_WHEN_CLOSED: AtomicBool = AtomicBool::new(false);
/// Whether it was told that nobody does.
static CLOSE_REPORTED: AtomicBool = AtomicBool::new(false);

/// From now on a closed standard output does not end the process: a server has more to do than to print.
pub fn continue_when_closed() {
    CONTINUE_WHEN_CLOSED.store(true, Ordering::Relaxed);
}

/// Standard output. When it is closed, the process ends quietly, or goes on without it.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).or_else(|e| handle_closed(e).map(|()| bytes.len()))
    }

    // in one piece, so that lines of several threads do not mix
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

/// Prints to standard output. What cannot be written, as on a full disk, is told on standard error.
pub fn out(text: Arguments<'_>) {
    if let Err(e) = Stdout.write_all(text.to_string().as_bytes()) {
        err(format_args!("error: standard output: {e}\n"));
    }
}

/// Prints to standard error. There is nobody to tell when that fails.
pub fn err(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}
