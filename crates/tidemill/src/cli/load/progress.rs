//! Progress of a load: bytes and rows.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill::types::BadRow;

use super::inputs::Input;

/// Characters of a refused row that are shown.
const ROW_CHARS_MAX: usize = 300;
/// Columns of the bar.
const BAR: usize = 24;

/// Counts and shows what was loaded.
pub struct LoadProgress {
    start: Instant,
    shown: Instant,
    terminal: bool,
    /// Bytes of all inputs; `None` if an input does not say.
    total: Option<u64>,
    /// Bytes read, before decompression.
    bytes: Arc<AtomicU64>,
    /// Bytes of the inputs that have ended.
    ended: u64,
    input: String,
    input_bytes: Option<u64>,
    inputs: usize,
    rows: u64,
    rejected: u64,
    /// Set once a refused row of the input was shown.
    rejection_is_shown: bool,
}

impl LoadProgress {
    /// Starts counting.
    pub fn new(inputs: &[Input]) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            shown: now,
            terminal: std::io::stderr().is_terminal(),
            total: inputs.iter().map(Input::bytes).sum(),
            bytes: Arc::default(),
            ended: 0,
            input: String::new(),
            input_bytes: None,
            inputs: 0,
            rows: 0,
            rejected: 0,
            rejection_is_shown: false,
        }
    }

    /// Returns the counter of bytes that the reader of an input adds to.
    pub fn bytes(&self) -> Arc<AtomicU64> {
        self.bytes.clone()
    }

    /// Begins an input, without its first `start` rows.
    pub fn begin_input(&mut self, input: &Input, start: u64) {
        self.input = input.to_string();
        self.rejection_is_shown = false;
        self.input_bytes = input.bytes();
        self.inputs += 1;
        if !self.terminal && start == 0 {
            eprintln!("{}", self.input);
        }
    }

    /// Ends an input. A Parquet file is not read from its first to its last byte, so it counts now.
    pub fn end_input(&mut self) {
        self.ended += self.input_bytes.unwrap_or_default();
        let read = self.bytes.load(Ordering::Relaxed);
        self.bytes.store(read.max(self.ended), Ordering::Relaxed);
    }

    /// Returns whether no row was read.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 && self.rejected == 0
    }

    /// Returns whether rows were refused.
    pub fn has_rejections(&self) -> bool {
        self.rejected > 0
    }

    /// Adds rows, and shows the progress, at most twice a second on a terminal and every five seconds elsewhere. The first
    /// refused row of each input is shown with its place and reason.
    pub fn add(&mut self, rows: u64, rejected: &[BadRow]) {
        self.rows += rows;
        self.rejected += rejected.len() as u64;
        if let Some(bad) = rejected.first()
            && !std::mem::replace(&mut self.rejection_is_shown, true)
        {
            if self.terminal {
                eprint!("\r\x1b[K");
            }
            eprintln!("{}", rejection(&self.input, bad));
        }
        let pause = if self.terminal { Duration::from_millis(500) } else { Duration::from_secs(5) };
        if self.shown.elapsed() < pause {
            return;
        }
        self.shown = Instant::now();
        let bytes = self.bytes.load(Ordering::Relaxed);
        let line = progress_line(bytes, self.total, self.rows, self.rejected, self.start.elapsed());
        match self.terminal {
            true => {
                eprint!("\r\x1b[K{line}, {}", self.input);
                let _ = std::io::stderr().flush();
            }
            false => eprintln!("{line}"),
        }
    }

    /// Shows the whole.
    pub fn finish(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let files = if self.inputs == 1 { "file" } else { "files" };
        println!(
            "{} rows of {} {files} loaded in {seconds:.1} s: {:.0} rows/s",
            self.rows,
            self.inputs,
            self.rows as f64 / seconds.max(1e-9)
        );
        if self.rejected > 0 {
            let (rows, were) = if self.rejected == 1 { ("row", "was") } else { ("rows", "were") };
            println!(
                "{} {rows} {were} refused; all of them with their reasons: SELECT * FROM system.rejected",
                self.rejected
            );
        }
    }
}

/// Returns file, line, reason and beginning of a refused row.
fn rejection(input: &str, bad: &BadRow) -> String {
    let place = match bad.origin.line {
        Some(line) => format!("line {line}"),
        None => format!("row {}", bad.origin.number + 1),
    };
    let row = match bad.text.char_indices().nth(ROW_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &bad.text[..end]),
        None => bad.text.clone(),
    };
    let row = if row.is_empty() { row } else { format!("\n  {}", row.trim_end().replace('\n', "\n  ")) };
    format!("{input}, {place}: refused: {}{row}", bad.message)
}

/// Returns a bar with bytes and rows; without a bar if the total is not known.
fn progress_line(bytes: u64, total: Option<u64>, rows: u64, rejected: u64, elapsed: Duration) -> String {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let rate = rows as f64 / elapsed.as_secs_f64().max(1e-9);
    let part = match total.filter(|total| *total > 0) {
        Some(total) => {
            let share = (bytes as f64 / total as f64).min(1.0);
            let full = (share * BAR as f64) as usize;
            let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR - full));
            format!("[{bar}] {:3.0} %, {:.1} of {:.1} MB", share * 100.0, megabytes(bytes), megabytes(total))
        }
        None => format!("{:.1} MB", megabytes(bytes)),
    };
    let refused = if rejected == 0 { String::new() } else { format!(", {rejected} refused") };
    format!("{part}, {rows} rows, {rate:.0} rows/s{refused}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_row_is_shown_with_its_place() {
        let origin = tidemill::types::RowOrigin { number: 1, line: Some(3), offset: Some(20) };
        let bad = BadRow::new(origin, Some("T"), "expected long", b"B,x\nC");
        assert_eq!(rejection("/a.csv", &bad), "/a.csv, line 3: refused: expected long\n  B,x\n  C");
        let bad = BadRow::new(tidemill::types::RowOrigin::of_row(1), None, "too large", b"");
        assert_eq!(rejection("/a.parquet", &bad), "/a.parquet, row 2: refused: too large");
    }

    #[test]
    fn the_line_shows_bytes_and_rows() {
        let second = Duration::from_secs(1);
        assert_eq!(
            progress_line(2_500_000, Some(10_000_000), 5000, 0, second),
            "[######------------------]  25 %, 2.5 of 10.0 MB, 5000 rows, 5000 rows/s"
        );
        assert_eq!(progress_line(1_000_000, None, 7, 2, second), "1.0 MB, 7 rows, 7 rows/s, 2 refused");
        assert!(progress_line(20, Some(10), 0, 0, second).contains("100 %"));
    }
}
