//! State of a session between its messages: user, settings, transaction, prepared statements, portals.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_access::{Access, Principal};
use tidemill_database::{ClientSession, HeldMoment, QueryRequest};

use crate::cancel::CancelKey;
use crate::command::{Command, Isolation};
use crate::error::{PgError, Result, code};
use crate::messages::output::TransactionStatus;
use crate::pending::PendingEvents;
use crate::portal::Portal;
use crate::settings::{DEFAULT_ISOLATION, ISOLATION, Settings};
use crate::shared::{PROTOCOL, ServerState};
use crate::statement::Prepared;

/// Maximum savepoints of a transaction.
const SAVEPOINTS_MAX: usize = 1_000;

/// State of a session.
pub(crate) struct Session {
    pub principal: Principal,
    /// Number of the content of the file of users with which the principal agrees.
    generation: u64,
    pub settings: Settings,
    pub transaction: Transaction,
    /// Events that are appended when the transaction ends.
    pub pending: PendingEvents,
    statements: HashMap<String, Arc<Prepared>>,
    portals: HashMap<String, Portal>,
    pub key: CancelKey,
    limits: Limits,
}

/// Limits of a session.
struct Limits {
    statements: usize,
    portals: usize,
    bytes: usize,
}

/// State of a transaction that was begun by `BEGIN`.
#[derive(Default)]
pub(crate) struct Transaction {
    open: Option<OpenTransaction>,
}

struct OpenTransaction {
    has_failed: bool,
    /// Settings to which `ROLLBACK` returns.
    at_begin: Settings,
    /// Settings that hold after `COMMIT`: without those of `SET LOCAL`.
    to_commit: Settings,
    savepoints: Vec<Savepoint>,
    /// True once a statement of it has used tables.
    has_used_tables: bool,
    /// Moment that its statements read; `None` before the first, and where each reads its own.
    moment: Option<HeldMoment>,
}

struct Savepoint {
    name: String,
    settings: Settings,
    to_commit: Settings,
    /// Statements with events before it.
    statements: usize,
}

impl Transaction {
    pub fn status(&self) -> TransactionStatus {
        match &self.open {
            None => TransactionStatus::Idle,
            Some(OpenTransaction { has_failed: false, .. }) => TransactionStatus::Open,
            Some(OpenTransaction { has_failed: true, .. }) => TransactionStatus::Failed,
        }
    }

    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Notes that a statement uses tables. Returns whether the transaction needs a moment for it and those after it.
    pub fn use_tables(&mut self, level: Isolation) -> bool {
        let Some(open) = &mut self.open else { return false };
        open.has_used_tables = true;
        level == Isolation::RepeatableRead && open.moment.is_none()
    }

    /// Keeps the moment that the statements of the transaction read, until it ends.
    pub fn set_moment(&mut self, moment: HeldMoment) {
        if let Some(open) = &mut self.open {
            open.moment = Some(moment);
        }
    }

    /// Notes that a statement has failed.
    pub fn fail(&mut self) {
        if let Some(open) = &mut self.open {
            open.has_failed = true;
        }
    }

    /// Checks that a statement may run.
    ///
    /// Errors: one of the transaction has failed, and this one does not end it.
    pub fn check(&self, command: &Command) -> Result<()> {
        match self.status() == TransactionStatus::Failed && !command.ends_transaction() {
            true => Err(PgError::new(
                code::FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            false => Ok(()),
        }
    }
}

impl Session {
    pub fn new(principal: Principal, settings: Settings, key: CancelKey, shared: &ServerState) -> Self {
        let options = &shared.options;
        Self {
            pending: PendingEvents::new(&shared.events, options.transaction_bytes_max),
            principal,
            generation: 0,
            settings,
            transaction: Transaction::default(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            key,
            limits: Limits {
                statements: options.statements_max,
                portals: options.portals_max,
                bytes: options.session_memory_max,
            },
        }
    }

    /// Returns the request for a statement of the session. One that may ask for the state of the session gets it.
    pub fn request(&self, text: &str) -> QueryRequest {
        const WORDS: [&str; 4] = ["pg_", "current_setting", "set_config", "version"];
        let lower = text.to_ascii_lowercase();
        let state = WORDS.iter().any(|word| lower.contains(word)).then(|| {
            Arc::new(ClientSession { process: self.key.process, settings: self.settings.of_session() })
        });
        let request = QueryRequest::new(text, PROTOCOL, self.principal.clone());
        let moment = self.transaction.open.as_ref().and_then(|open| open.moment.clone());
        let request = request.with_moment(moment);
        request.with_session(state).with_bad_rows(self.settings.bad_rows()).with_origins()
    }

    /// Gives the client its present rights, which may have changed since its last statement.
    ///
    /// Errors: its user was removed, or its password was changed.
    pub fn renew(&mut self, access: Option<&Access>) -> Result<()> {
        let Some(access) = access else { return Ok(()) };
        let generation = access.generation();
        if generation != self.generation {
            self.generation = generation;
            self.principal = access.renew(&self.principal).ok_or_else(|| {
                PgError::fatal(
                    code::SHUTDOWN,
                    "the user was removed, or its password was changed: log in again",
                )
            })?;
        }
        Ok(())
    }

    /// Returns a prepared statement.
    ///
    /// Errors: the name is unknown.
    pub fn statement(&self, name: &str) -> Result<Arc<Prepared>> {
        self.statements.get(name).cloned().ok_or_else(|| match name {
            "" => PgError::new(code::NO_STATEMENT, "unnamed prepared statement does not exist"),
            name => PgError::new(code::NO_STATEMENT, format!("prepared statement \"{name}\" does not exist")),
        })
    }

    /// Checks that a statement of this name can be prepared.
    ///
    /// Errors: there is one.
    pub fn check_new_statement(&self, name: &str) -> Result<()> {
        match !name.is_empty() && self.statements.contains_key(name) {
            true => Err(PgError::new(
                code::KNOWN_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            )),
            false => Ok(()),
        }
    }

    /// Keeps a prepared statement.
    ///
    /// Errors: there are too many, or they are too large together.
    pub fn add_statement(&mut self, name: &str, statement: Prepared) -> Result<()> {
        self.check_new_statement(name)?;
        self.statements.remove(name);
        if self.statements.len() >= self.limits.statements {
            return Err(PgError::new(
                code::CONFIGURED_LIMIT,
                format!(
                    "a session has at most {} prepared statements: close some, or DEALLOCATE ALL",
                    self.limits.statements
                ),
            ));
        }
        self.check_bytes(statement.bytes())?;
        self.statements.insert(name.to_owned(), Arc::new(statement));
        Ok(())
    }

    pub fn remove_statement(&mut self, name: &str) -> bool {
        self.statements.remove(name).is_some()
    }

    pub fn portal(&self, name: &str) -> Result<&Portal> {
        self.portals.get(name).ok_or_else(|| no_portal(name))
    }

    /// Takes a portal out, while it runs.
    ///
    /// Errors: the name is unknown.
    pub fn take_portal(&mut self, name: &str) -> Result<Portal> {
        self.portals.remove(name).ok_or_else(|| no_portal(name))
    }

    /// Keeps a portal that was taken out.
    pub fn return_portal(&mut self, name: &str, portal: Portal) {
        self.portals.insert(name.to_owned(), portal);
    }

    /// Keeps a new portal.
    ///
    /// Errors: there is one of that name, unless it has none; there are too many, or they hold too many bytes.
    pub fn add_portal(&mut self, name: &str, portal: Portal) -> Result<()> {
        if !name.is_empty() && self.portals.contains_key(name) {
            return Err(PgError::new(code::KNOWN_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        self.portals.remove(name);
        if self.portals.len() >= self.limits.portals {
            return Err(PgError::new(
                code::CONFIGURED_LIMIT,
                format!("a session has at most {} open portals and cursors: close some", self.limits.portals),
            ));
        }
        self.check_bytes(portal.bytes())?;
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    pub fn remove_portal(&mut self, name: &str) -> bool {
        self.portals.remove(name).is_some()
    }

    fn check_bytes(&self, more: usize) -> Result<()> {
        let statements: usize = self.statements.values().map(|statement| statement.bytes()).sum();
        let portals: usize = self.portals.values().map(Portal::bytes).sum();
        match statements + portals + more > self.limits.bytes {
            true => Err(PgError::new(
                code::MEMORY,
                format!(
                    "the prepared statements and portals of a session hold at most {} bytes: close some",
                    self.limits.bytes
                ),
            )),
            false => Ok(()),
        }
    }

    /// Closes what does not stay after a transaction.
    pub fn close_portals(&mut self) {
        if !self.transaction.is_open() {
            self.portals.retain(|_, portal| portal.is_held);
        }
    }

    /// Runs a statement that needs neither the database nor rows. Returns its tag and a notice.
    ///
    /// Errors: it cannot be done.
    pub fn run(&mut self, command: &Command) -> Result<(&'static str, Option<PgError>)> {
        let done = |tag| Ok((tag, None));
        match command {
            Command::Set { name, value, is_local } => {
                let notice = self.set(name, value.as_deref(), *is_local)?;
                Ok(("SET", notice))
            }
            Command::SetTransaction { is_session: true, level } => match level {
                Some(level) => Ok(("SET", self.set(DEFAULT_ISOLATION, Some(level.name()), false)?)),
                None => done("SET"),
            },
            Command::SetTransaction { is_session: false, level } => {
                Ok(("SET", self.set_isolation(level.map(Isolation::name))?))
            }
            Command::Reset(name) => {
                let reset = |settings: &mut Settings| match name {
                    Some(name) => settings.reset(name),
                    None => {
                        settings.reset_all();
                        Ok(())
                    }
                };
                let level = self.settings.isolation();
                reset(&mut self.settings)?;
                if let Some(open) = &mut self.transaction.open {
                    reset(&mut open.to_commit)?;
                    // the level of a transaction is not reset
                    self.settings.set(ISOLATION, level.name())?;
                }
                done("RESET")
            }
            Command::Nothing(tag) => done(tag),
            Command::DiscardAll => {
                if self.transaction.is_open() {
                    return Err(PgError::new("25001", "DISCARD ALL cannot run inside a transaction block"));
                }
                self.portals.clear();
                self.statements.clear();
                self.settings.reset_all();
                done("DISCARD ALL")
            }
            Command::Begin(tag, level) => {
                let is_new = !self.transaction.is_open();
                let notice = self.transaction.is_open().then(|| PgError {
                    code: "25001",
                    ..PgError::warning("there is already a transaction in progress")
                });
                self.transaction.open.get_or_insert_with(|| OpenTransaction {
                    has_failed: false,
                    at_begin: self.settings.clone(),
                    to_commit: self.settings.clone(),
                    savepoints: vec![],
                    has_used_tables: false,
                    moment: None,
                });
                if is_new {
                    let level = level.unwrap_or_else(|| self.settings.isolation());
                    self.settings.set(ISOLATION, level.name())?;
                } else if level.is_some() {
                    self.set_isolation(level.map(Isolation::name))?;
                }
                Ok((tag, notice))
            }
            Command::Commit => self.end(true),
            Command::Rollback => self.end(false),
            Command::Savepoint(name) => self.savepoint(name),
            Command::Release(name) => {
                let (open, at) = self.find_savepoint(name)?;
                open.savepoints.truncate(at);
                done("RELEASE")
            }
            Command::RollbackTo(name) => {
                let (open, at) = self.find_savepoint(name)?;
                open.savepoints.truncate(at + 1);
                open.has_failed = false;
                let Savepoint { settings, to_commit, statements, .. } = &open.savepoints[at];
                open.to_commit = to_commit.clone();
                let (settings, statements) = (settings.clone(), *statements);
                self.settings = settings;
                self.pending.truncate(statements);
                done("ROLLBACK")
            }
            Command::Deallocate(Some(name)) => match self.statements.remove(name) {
                Some(_) => done("DEALLOCATE"),
                None => self.statement(name).map(|_| ("DEALLOCATE", None)),
            },
            Command::Deallocate(None) => {
                self.statements.clear();
                done("DEALLOCATE ALL")
            }
            Command::CloseCursor(Some(name)) => match self.remove_portal(name) {
                true => done("CLOSE CURSOR"),
                false => Err(no_portal(name)),
            },
            Command::CloseCursor(None) => {
                self.portals.clear();
                done("CLOSE CURSOR ALL")
            }
            other => {
                Err(PgError::new(code::INTERNAL, format!("{other:?} is not a statement of the session")))
            }
        }
    }

    /// Sets the level of the transaction. Returns a notice outside of a transaction.
    ///
    /// Errors: a statement has used tables before.
    fn set_isolation(&mut self, level: Option<&str>) -> Result<Option<PgError>> {
        let Some(open) = &self.transaction.open else {
            return Ok(Some(PgError {
                code: code::NO_TRANSACTION,
                ..PgError::warning("SET TRANSACTION can only be used in transaction blocks")
            }));
        };
        let Some(level) = level else { return Ok(None) };
        let changes = self.settings.get(ISOLATION)? != level;
        if changes && open.has_used_tables {
            return Err(PgError::new(
                code::ACTIVE_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        self.settings.set(ISOLATION, level)
    }

    fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Result<Option<PgError>> {
        if name.eq_ignore_ascii_case(ISOLATION) {
            // checked whether there is a transaction or not
            let value = value.map(|value| value.trim().to_lowercase());
            self.settings.clone().set(ISOLATION, value.as_deref().unwrap_or("read committed"))?;
            return self.set_isolation(value.as_deref());
        }
        let set = |settings: &mut Settings| match value {
            Some(value) => settings.set(name, value),
            None => settings.reset(name).map(|()| None),
        };
        match &mut self.transaction.open {
            Some(open) => {
                let notice = set(&mut self.settings)?;
                if !is_local {
                    set(&mut open.to_commit)?;
                }
                Ok(notice)
            }
            // its transaction is the statement itself
            None if is_local => {
                set(&mut self.settings.clone())?;
                Ok(Some(PgError {
                    code: code::NO_TRANSACTION,
                    ..PgError::warning("SET LOCAL can only be used in transaction blocks")
                }))
            }
            None => set(&mut self.settings),
        }
    }

    fn end(&mut self, is_commit: bool) -> Result<(&'static str, Option<PgError>)> {
        let Some(open) = self.transaction.open.take() else {
            let notice = PgError {
                code: code::NO_TRANSACTION,
                ..PgError::warning("there is no transaction in progress")
            };
            return Ok((if is_commit { "COMMIT" } else { "ROLLBACK" }, Some(notice)));
        };
        // those of a transaction that commits were taken out
        self.pending.truncate(0);
        let is_committed = is_commit && !open.has_failed;
        self.settings = if is_committed { open.to_commit } else { open.at_begin };
        self.close_portals();
        Ok((if is_committed { "COMMIT" } else { "ROLLBACK" }, None))
    }

    fn savepoint(&mut self, name: &str) -> Result<(&'static str, Option<PgError>)> {
        let open = self.transaction.open.as_mut().ok_or_else(|| outside("SAVEPOINT"))?;
        if open.savepoints.len() >= SAVEPOINTS_MAX {
            return Err(PgError::new(
                code::CONFIGURED_LIMIT,
                format!("a transaction has at most {SAVEPOINTS_MAX} savepoints"),
            ));
        }
        let (settings, to_commit) = (self.settings.clone(), open.to_commit.clone());
        let statements = self.pending.statements();
        open.savepoints.push(Savepoint { name: name.to_owned(), settings, to_commit, statements });
        Ok(("SAVEPOINT", None))
    }

    fn find_savepoint(&mut self, name: &str) -> Result<(&mut OpenTransaction, usize)> {
        let open = self.transaction.open.as_mut().ok_or_else(|| outside("SAVEPOINT"))?;
        let at = open.savepoints.iter().rposition(|savepoint| savepoint.name == name);
        let missing = || PgError::new(code::NO_SAVEPOINT, format!("savepoint \"{name}\" does not exist"));
        let at = at.ok_or_else(missing)?;
        Ok((open, at))
    }
}

/// Returns the error for a statement that needs a transaction.
pub(crate) fn outside(verb: &str) -> PgError {
    PgError::new(code::NO_TRANSACTION, format!("{verb} can only be used in transaction blocks"))
}

fn no_portal(name: &str) -> PgError {
    match name {
        "" => PgError::new(code::NO_CURSOR, "unnamed portal does not exist"),
        name => PgError::new(code::NO_CURSOR, format!("cursor \"{name}\" does not exist")),
    }
}
