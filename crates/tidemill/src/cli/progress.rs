//! Progress and summary of a run.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use tidemill::{Tidemill, output};

use super::rejections::{self, RejectionReporter};
use super::stdio::Stdout;

/// Longest time between two lines that are not on a terminal.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Progress display while sources are read.
pub struct Progress {
    start: Instant,
    shown: Option<Instant>,
    /// Time between two lines.
    pause: Duration,
    terminal: bool,
    events_before: u64,
    rejections: RejectionReporter,
}

impl Progress {
    /// Starts counting.
    pub fn new(tidemill: &Tidemill) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self {
            start: Instant::now(),
            shown: None,
            pause: if terminal { Duration::from_millis(500) } else { Duration::from_secs(5) },
            terminal,
            events_before: applied(tidemill),
            rejections: RejectionReporter::default(),
        }
    }

    /// Shows the progress: on a terminal twice a second; elsewhere after five seconds, and then each time after twice as
    /// long, because a source that does not end must not fill a log.
    pub fn tick(&mut self, tidemill: &Tidemill) {
        self.rejections.report_new(tidemill);
        if self.shown.unwrap_or(self.start).elapsed() < self.pause {
            return;
        }
        self.shown = Some(Instant::now());
        if !self.terminal {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        let (events, seconds) = (applied(tidemill) - self.events_before, self.start.elapsed().as_secs_f64());
        let line = if events == 0 {
            let collections = tidemill.engine().collections().unwrap_or_default();
            let documents: u64 = collections.iter().map(|c| c.documents).sum();
            format!("{documents} documents in {seconds:.1} s")
        } else {
            format!("{events} events in {seconds:.1} s, {:.0}/s", events as f64 / seconds)
        };
        if self.terminal {
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Prints the summary: events, rejected rows, rules, the app's own queries, the ledger, and suggested
    /// commands. A failed query is reported on standard error; the others still run. Returns false if a query
    /// failed or rows were rejected.
    pub fn summary(&mut self, tidemill: &Tidemill) -> anyhow::Result<bool> {
        // includes a source that ended since the last tick
        self.rejections.report_new(tidemill);
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        let engine = tidemill.engine();
        let (events, seconds) = (applied(tidemill) - self.events_before, self.start.elapsed().as_secs_f64());
        println!(
            "{events} events applied in {seconds:.1} s: {:.0} events/s",
            events as f64 / seconds.max(1e-9)
        );
        let any_refused = rejections::summary(tidemill);
        if engine.recovery.records > 0 {
            println!("recovered {} log records in {} ms", engine.recovery.records, engine.recovery.millis);
        }
        let rules = "SELECT rule, kind, fired, errors FROM system.rules ORDER BY kind DESC, fired DESC";
        let failed = "SELECT file, query, errors, lost, last_error FROM system.queries WHERE errors > 0";
        let ledger = "SELECT stream, received, stored, duplicate, rejected, balanced FROM system.ledger";
        let queries = engine.queries()?;
        let any_failed = queries.iter().any(|query| query.errors > 0);
        let failures = any_failed
            .then_some(("Queries that failed: events that are `lost` went to no fault stream", failed));
        let own = engine.app().summary.iter().map(|part| (part.title.as_str(), part.sql.as_str()));
        let parts = std::iter::once(("Rules fired", rules))
            .chain(failures)
            .chain(own)
            .chain([("Ledger: received = stored + duplicate + rejected", ledger)]);
        let mut good = !any_refused;
        for (title, query) in parts {
            match tidemill.summary(query) {
                Ok(rows) => {
                    println!("\n{title}");
                    super::ask::sql::write_rows(output::Format::Table, &rows, Stdout)?;
                }
                Err(e) => {
                    eprintln!("error: summary \"{title}\": {e}");
                    good = false;
                }
            }
        }
        for query in queries.iter().filter(|query| query.lost > 0) {
            eprintln!(
                "error: query `{}` of {} failed {} times and lost its events; the last time: {}",
                query.name,
                query.file,
                query.lost,
                query.last_error.as_deref().unwrap_or("unknown")
            );
        }
        if !engine.app().try_next.is_empty() {
            println!("\nTry next:");
            for command in &engine.app().try_next {
                println!("  {}", command.replace("${data_dir}", &engine.data_dir().display().to_string()));
            }
        }
        Ok(good)
    }
}

fn applied(tidemill: &Tidemill) -> u64 {
    tidemill.engine().events_applied()
}
