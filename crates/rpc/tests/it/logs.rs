//! Log lines of all tests of the process.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock};

static LINES: Mutex<Vec<u8>> = Mutex::new(vec![]);

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep log lines.
pub fn keep() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Lines).finish();
        tracing::subscriber::set_global_default(subscriber).expect("there is one test binary");
    });
}

/// Returns whether a log line has all of these texts. Tests that look for lines have nodes with names of their own.
pub fn has_line(texts: &[&str]) -> bool {
    let lines = LINES.lock().unwrap();
    String::from_utf8_lossy(&lines).lines().any(|line| texts.iter().all(|text| line.contains(text)))
}
