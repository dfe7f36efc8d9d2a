//! Statements that run in a session, and the last that have ended: `system.statements`, and how one is cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tidemill_types::{Error, Result, Timestamp};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Characters of a statement that are kept.
const TEXT_CHARS_MAX: usize = 1_000;
/// Statements that are kept after they have ended.
const ENDED_MAX: usize = 64;

/// What a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StatementPhase {
    /// Waits until fewer than `sql.queries_max` statements run.
    Waiting,
    /// Is being planned.
    Planning,
    /// Makes rows, or waits for the reader to take them.
    Running,
    /// Has ended with all of its rows.
    Done,
    /// Has ended with an error, or because its reader took no more rows.
    Failed,
    /// Has been cancelled.
    Cancelled,
}

impl StatementPhase {
    const RUNNING: [Self; 3] = [Self::Waiting, Self::Planning, Self::Running];

    /// Returns the name in `system.statements`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Planning => "planning",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A statement that runs or has ended.
#[derive(Debug, Clone)]
pub struct StatementInfo {
    /// Its number in this session, from 1 on.
    pub id: u64,
    /// Its text, cut to 1,000 characters.
    pub text: String,
    /// Who sent it: `http`, `program` or `rules`.
    pub origin: &'static str,
    /// What it does.
    pub phase: StatementPhase,
    /// When it arrived.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Rows of its result so far.
    pub rows: u64,
    /// Why it has failed, or who has cancelled it.
    pub error: Option<String>,
}

/// Statements of a session.
#[derive(Debug, Default)]
pub(crate) struct Statements(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    running: BTreeMap<u64, Arc<Statement>>,
    ended: VecDeque<StatementInfo>,
}

/// A statement that runs.
#[derive(Debug)]
pub(crate) struct Statement {
    id: u64,
    text: Arc<str>,
    origin: &'static str,
    started: Timestamp,
    phase: AtomicU8,
    rows: AtomicU64,
    /// Whether it has begun to delete or change events, which goes on without it.
    changes: AtomicBool,
    end: Mutex<EarlyEnd>,
}

/// How a statement is ended from outside.
#[derive(Debug, Default)]
struct EarlyEnd {
    /// Tells the reader why.
    report: Option<oneshot::Sender<Error>>,
    task: Option<AbortHandle>,
    cancelled: Option<Error>,
}

/// Guard of a statement that runs: it has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningStatement {
    statements: Arc<Statements>,
    statement: Arc<Statement>,
    outcome: Option<Result<(), String>>,
    forgotten: bool,
}

/// Returns as much of a statement's text as is kept.
pub(crate) fn kept_text(text: &str) -> Arc<str> {
    let text = text.trim();
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

impl Statements {
    /// Adds a statement that has just arrived. The receiver gets the error if it is ended from outside.
    pub fn begin(
        self: &Arc<Self>,
        text: Arc<str>,
        origin: &'static str,
    ) -> (RunningStatement, oneshot::Receiver<Error>) {
        let (report, ended) = oneshot::channel();
        let mut inner = self.0.lock();
        inner.last_id += 1;
        let statement = Arc::new(Statement {
            id: inner.last_id,
            text,
            origin,
            started: now(),
            phase: AtomicU8::new(StatementPhase::Waiting as u8),
            rows: AtomicU64::new(0),
            changes: AtomicBool::new(false),
            end: Mutex::new(EarlyEnd { report: Some(report), ..EarlyEnd::default() }),
        });
        inner.running.insert(statement.id, statement.clone());
        drop(inner);
        (RunningStatement { statements: self.clone(), statement, outcome: None, forgotten: false }, ended)
    }

    /// Cancels a statement that runs; `by` completes "was cancelled by".
    ///
    /// Errors: `NotFound` if none has this number, or if it has ended.
    pub fn cancel(&self, id: u64, by: &str) -> Result<()> {
        let statement = self.0.lock().running.get(&id).cloned();
        let statement = statement.ok_or_else(|| {
            Error::not_found(format!(
                "no statement {id} runs: SELECT id, statement FROM system.statements WHERE ended IS NULL lists those that do"
            ))
        })?;
        statement.cancel(by);
        Ok(())
    }

    /// Returns the statements that run and the last that have ended, by number.
    pub fn list(&self) -> Vec<StatementInfo> {
        let inner = self.0.lock();
        let running = inner.running.values().map(|statement| statement.info());
        let mut all: Vec<StatementInfo> = inner.ended.iter().cloned().chain(running).collect();
        all.sort_unstable_by_key(|info| info.id);
        all
    }
}

impl Statement {
    fn cancel(&self, by: &str) {
        let changed = match self.changes.load(Ordering::Acquire) {
            true => ". The change of events that it had begun goes on",
            false => "",
        };
        let error = Error::conflict(format!("statement {} was cancelled by {by}{changed}", self.id));
        let mut end = self.end.lock();
        end.cancelled.get_or_insert_with(|| Error::conflict(error.message().to_owned()));
        if let Some(report) = end.report.take() {
            // its reader is gone if this fails
            let _ = report.send(error);
        }
        if let Some(task) = &end.task {
            task.abort();
        }
    }

    pub fn origin(&self) -> &'static str {
        self.origin
    }

    /// Ends the statement with an error, without waiting for its task.
    pub fn report(&self, error: Error) {
        if let Some(report) = self.end.lock().report.take() {
            // the statement has ended if this fails
            let _ = report.send(error);
        }
    }

    /// Sets the task that runs the statement, which may have been cancelled already.
    pub fn set_task(&self, task: AbortHandle) {
        let mut end = self.end.lock();
        if end.cancelled.is_some() {
            task.abort();
        }
        end.task = Some(task);
    }

    fn info(&self) -> StatementInfo {
        let phase = self.phase.load(Ordering::Relaxed);
        let phase = StatementPhase::RUNNING.into_iter().find(|known| *known as u8 == phase);
        StatementInfo {
            id: self.id,
            text: self.text.to_string(),
            origin: self.origin,
            phase: phase.unwrap_or(StatementPhase::Running),
            started: self.started,
            ended: None,
            rows: self.rows.load(Ordering::Relaxed),
            error: None,
        }
    }
}

impl RunningStatement {
    pub fn statement(&self) -> &Arc<Statement> {
        &self.statement
    }

    pub fn set_phase(&self, phase: StatementPhase) {
        self.statement.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub fn add_rows(&self, rows: usize) {
        self.statement.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Says that events are deleted or changed from now on.
    pub fn begin_change(&self) {
        self.statement.changes.store(true, Ordering::Release);
    }

    /// Returns the error of a statement that was cancelled.
    pub fn check(&self) -> Result<()> {
        match &self.statement.end.lock().cancelled {
            Some(error) => Err(Error::conflict(error.message().to_owned())),
            None => Ok(()),
        }
    }

    /// Ends a statement that is begun again in another way.
    pub fn forget(mut self) {
        self.forgotten = true;
    }

    /// Says how the statement has ended.
    pub fn set_outcome(&mut self, error: Option<&Error>) {
        self.outcome = Some(error.map_or(Ok(()), |error| Err(error.message().to_owned())));
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        let cancelled = self.statement.end.lock().cancelled.take();
        let (phase, error) = match (cancelled, self.outcome.take()) {
            // it was done before
            (_, Some(Ok(()))) => (StatementPhase::Done, None),
            (Some(error), _) => (StatementPhase::Cancelled, Some(error.message().to_owned())),
            (None, Some(Err(error))) => (StatementPhase::Failed, Some(error)),
            (None, None) => (StatementPhase::Failed, Some("its reader took no more rows".to_owned())),
        };
        let ended = Some(now());
        let info = StatementInfo { phase, ended, error, ..self.statement.info() };
        let mut inner = self.statements.0.lock();
        inner.running.remove(&info.id);
        if self.forgotten {
            return;
        }
        if inner.ended.len() == ENDED_MAX {
            inner.ended.pop_front();
        }
        inner.ended.push_back(info);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
