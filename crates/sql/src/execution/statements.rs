//! Statements that run in a session, and the last that have ended: `system.statements`, and how one is cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{AbortHandle, AbortRegistration};
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_database::{StatementInfo, StatementPhase};
use tidemill_types::budget::{Budget, Stop};
use tidemill_types::{Error, Result, Timestamp};
use tokio::sync::oneshot;

/// Characters of a statement that are kept.
const TEXT_CHARS_MAX: usize = 1_000;
/// Statements that are kept after they have ended.
const ENDED_MAX: usize = 64;

/// End of the error of a statement that has begun to change events, which continues without it.
const IS_FINISHED: &str =
    "What it had begun to change is finished all the same: look at the events before you send it again";

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
    principal: Principal,
    started: Timestamp,
    phase: AtomicU8,
    rows: AtomicU64,
    /// Set once it has begun to delete or change events, which continues without it.
    changes: AtomicBool,
    budget: Budget,
    end: Mutex<End>,
}

/// End of a statement.
#[derive(Debug, Default)]
struct End {
    /// Tells the reader why it was ended from outside.
    report: Option<oneshot::Sender<Error>>,
    /// Tasks that wait or run for the statement.
    tasks: Vec<AbortHandle>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone)]
struct Outcome {
    phase: StatementPhase,
    error: Option<String>,
}

impl Outcome {
    /// Returns the outcome of a statement whose reader has gone.
    fn left() -> Self {
        Self { phase: StatementPhase::Failed, error: Some("its reader took no more rows".to_owned()) }
    }
}

/// Guard of a statement that runs: it has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningStatement {
    statements: Arc<Statements>,
    statement: Arc<Statement>,
}

/// Guard of the reader of a statement. Dropping it ends the statement.
#[derive(Debug)]
pub(crate) struct Reader(Arc<Statement>);

impl Reader {
    pub fn statement(&self) -> &Arc<Statement> {
        &self.0
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.end.lock().outcome.get_or_insert_with(Outcome::left);
        self.0.stop(Stop::ClientGone);
    }
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
    /// Adds a statement that has just arrived and may take `limit`. The receiver gets the error if it is ended from outside.
    pub fn begin(
        self: &Arc<Self>,
        text: Arc<str>,
        origin: &'static str,
        principal: &Principal,
        limit: Duration,
    ) -> (Arc<RunningStatement>, oneshot::Receiver<Error>) {
        let (report, ended) = oneshot::channel();
        let mut inner = self.0.lock();
        inner.last_id += 1;
        let statement = Statement::new((inner.last_id, text), (origin, principal), limit, Some(report));
        inner.running.insert(statement.id, statement.clone());
        drop(inner);
        (Arc::new(RunningStatement { statements: self.clone(), statement }), ended)
    }

    /// Returns a statement that is in no list: planning whose plan is not run.
    pub fn unlisted(self: &Arc<Self>, text: Arc<str>, limit: Duration) -> Arc<RunningStatement> {
        let statement = Statement::new((0, text), ("", &Principal::system()), limit, None);
        Arc::new(RunningStatement { statements: self.clone(), statement })
    }

    /// Cancels a statement that runs and that the caller manages; `by` completes "was cancelled by".
    ///
    /// Errors: `NotFound` if the caller manages none of this number, or if it has ended.
    pub fn cancel(&self, id: u64, principal: &Principal, by: &str) -> Result<()> {
        let statement = self.0.lock().running.get(&id).cloned();
        let statement = statement.filter(|statement| principal.manages(&statement.principal.caller()));
        let statement = statement.ok_or_else(|| {
            Error::not_found(format!(
                "no statement {id} runs: SELECT id, statement FROM system.statements WHERE ended IS NULL lists those that do"
            ))
        })?;
        statement.cancel(by);
        Ok(())
    }

    /// Ends all statements, because the session is being closed.
    pub fn stop_all(&self) {
        let running: Vec<Arc<Statement>> = self.0.lock().running.values().cloned().collect();
        running.iter().for_each(|statement| statement.stop(Stop::Stopping));
    }

    /// Returns the statements that run and the last that have ended, by number.
    pub fn list(&self) -> Vec<StatementInfo> {
        let inner = self.0.lock();
        let running = inner.running.values().map(|statement| statement.info());
        let mut all: Vec<StatementInfo> = inner.ended.iter().cloned().chain(running).collect();
        all.sort_unstable_by_key(|info| info.id);
        all
    }

    /// Returns those that the caller manages.
    pub fn list_of(&self, principal: &Principal) -> Vec<StatementInfo> {
        let mut all = self.list();
        all.retain(|info| principal.manages(&info.caller));
        all
    }
}

impl Statement {
    fn new(
        (id, text): (u64, Arc<str>),
        (origin, principal): (&'static str, &Principal),
        limit: Duration,
        report: Option<oneshot::Sender<Error>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            text,
            origin,
            principal: principal.clone(),
            started: now(),
            phase: AtomicU8::new(StatementPhase::Waiting as u8),
            rows: AtomicU64::new(0),
            changes: AtomicBool::new(false),
            budget: Budget::builder().time(limit).build(),
            end: Mutex::new(End { report, ..End::default() }),
        })
    }

    fn cancel(&self, by: &str) {
        let error = Error::conflict(format!("statement {} was cancelled by {by}", self.id));
        self.end(StatementPhase::Cancelled, error, Stop::Cancelled(by.to_owned()));
    }

    /// Ends the statement because it has taken all of its time.
    pub fn expire(&self, error: Error, limit: Duration) {
        self.end(StatementPhase::Failed, error, Stop::Time(limit));
    }

    /// Ends a statement that could not be started.
    pub fn fail(&self, error: Error) {
        self.end(StatementPhase::Failed, error, Stop::Stopping);
    }

    /// Ends the statement with an error, without waiting for its thread. The first error counts.
    fn end(&self, phase: StatementPhase, error: Error, stop: Stop) {
        {
            let mut end = self.end.lock();
            let error = match self.changes.load(Ordering::Acquire) {
                true => Error::new(error.kind(), format!("{error}. {IS_FINISHED}")),
                false => error,
            };
            end.outcome.get_or_insert_with(|| Outcome { phase, error: Some(error.message().to_owned()) });
            if let Some(report) = end.report.take() {
                // its reader is gone if this fails
                let _ = report.send(error);
            }
        }
        self.stop(stop);
    }

    /// Stops all work for the statement.
    fn stop(&self, stop: Stop) {
        self.budget.stop(stop);
        let tasks = std::mem::take(&mut self.end.lock().tasks);
        tasks.iter().for_each(AbortHandle::abort);
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the name of the caller, with which its statements are counted.
    pub fn caller(&self) -> String {
        self.principal.caller()
    }

    pub fn origin(&self) -> &'static str {
        self.origin
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns what aborts a future when the statement ends, which it may have done already.
    pub fn on_end(&self) -> AbortRegistration {
        let (handle, registration) = AbortHandle::new_pair();
        let mut end = self.end.lock();
        match self.budget.stopped() {
            Some(_) => handle.abort(),
            None => end.tasks.push(handle),
        }
        registration
    }

    fn info(&self) -> StatementInfo {
        let phase = self.phase.load(Ordering::Relaxed);
        let phase = StatementPhase::BEFORE_END.into_iter().find(|known| *known as u8 == phase);
        let outcome = self.end.lock().outcome.clone();
        let (phase, error) = match outcome {
            Some(Outcome { phase, error }) => (phase, error),
            None => (phase.unwrap_or(StatementPhase::Running), None),
        };
        StatementInfo {
            id: self.id,
            text: self.text.to_string(),
            origin: self.origin,
            caller: self.principal.caller(),
            phase,
            started: self.started,
            ended: None,
            rows: self.rows.load(Ordering::Relaxed),
            error,
        }
    }
}

impl RunningStatement {
    pub fn statement(&self) -> &Arc<Statement> {
        &self.statement
    }

    /// Returns the guard of the statement's reader.
    pub fn reader(&self) -> Reader {
        Reader(self.statement.clone())
    }

    pub fn set_phase(&self, phase: StatementPhase) {
        self.swap_phase(phase);
    }

    /// Sets the phase and returns the one of before.
    pub fn swap_phase(&self, phase: StatementPhase) -> StatementPhase {
        let before = self.statement.phase.swap(phase as u8, Ordering::Relaxed);
        StatementPhase::BEFORE_END.into_iter().find(|known| *known as u8 == before).unwrap_or(phase)
    }

    pub fn add_rows(&self, rows: usize) {
        self.statement.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Says that events are appended, deleted or changed from now on.
    ///
    /// Errors: the statement was ended before; nothing may be changed then.
    pub fn begin_change(&self) -> Result<()> {
        // under the lock, so that who ends it knows whether events change
        let end = self.statement.end.lock();
        if let Some(Outcome { error, .. }) = &end.outcome {
            let error = error.clone().unwrap_or_else(|| "the statement has ended".to_owned());
            return Err(Error::conflict(error));
        }
        self.statement.changes.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a statement that is begun again in another way.
    pub fn forget(&self) {
        self.statements.0.lock().running.remove(&self.statement.id);
    }

    /// Says how the statement has ended. One that has all of its rows was done before anything else ended it, and needs no
    /// further thread.
    pub fn set_outcome(&self, error: Option<&Error>) {
        match error {
            None => {
                self.statement.end.lock().outcome =
                    Some(Outcome { phase: StatementPhase::Done, error: None });
                self.leave_list();
            }
            Some(error) => {
                let outcome =
                    || Outcome { phase: StatementPhase::Failed, error: Some(error.message().to_owned()) };
                self.statement.end.lock().outcome.get_or_insert_with(outcome);
            }
        }
    }

    /// Moves the statement to those that have ended.
    fn leave_list(&self) {
        self.statement.end.lock().outcome.get_or_insert_with(Outcome::left);
        let info = StatementInfo { ended: Some(now()), ..self.statement.info() };
        let mut inner = self.statements.0.lock();
        // one that was forgotten, or is done, has left before
        if inner.running.remove(&info.id).is_none() {
            return;
        }
        if inner.ended.len() == ENDED_MAX {
            inner.ended.pop_front();
        }
        inner.ended.push_back(info);
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        self.leave_list();
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
