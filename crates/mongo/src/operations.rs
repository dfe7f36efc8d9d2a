//! The commands that run: what each may take, their list, and how they are ended.
//!
//! A command has its [`Budget`] from its beginning to its end, as that of the thread that runs it. Quick commands (`ping`, a query by
//! `_id`) take neither time nor memory that grows with the data, and have none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{DateTime, cstr, rawdoc};
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_types::budget::{Budget, BytePool, Stop};

use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::options::MongoOptions;
use crate::session::Session;
use crate::wire::frame::Request;

/// Bytes of a command that the list of operations shows; MongoDB cuts commands, too.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// The commands that run.
pub(crate) struct Operations {
    running: Mutex<BTreeMap<i32, Arc<RunningCommand>>>,
    next: AtomicI32,
    stopping: AtomicBool,
    timeout: Duration,
    bytes_max: u64,
    memory: Arc<BytePool>,
}

/// A command that runs.
pub(crate) struct RunningCommand {
    id: i32,
    connection: i32,
    client: SocketAddr,
    application: Option<String>,
    /// Name of the user.
    caller: Option<Principal>,
    request: Arc<Request>,
    started: Instant,
    pub budget: Budget,
    /// True if the client has set a time limit. The rest of that time applies to the cursor that the command
    /// opens.
    pub has_own_time: bool,
}

/// A command in the list of those that run, until this is dropped.
pub(crate) struct Listed<'o> {
    operations: &'o Operations,
    operation: Arc<RunningCommand>,
}

impl Operations {
    pub fn new(options: &MongoOptions) -> Self {
        Self {
            running: Mutex::default(),
            next: AtomicI32::new(1),
            stopping: AtomicBool::new(false),
            timeout: options.command_timeout,
            bytes_max: options.command_memory_max as u64,
            memory: BytePool::new(
                "all commands (setting mongo.commands_bytes)",
                options.commands_memory_max as u64,
            ),
        }
    }

    /// Begins the command of a request. `cursor_time` is what a query has left for its cursor, which the command reads.
    ///
    /// Errors: `maxTimeMS` is not a time.
    pub fn begin(
        &self,
        session: &Session,
        (request, call): (&Arc<Request>, &Call<'_>),
        cursor_time: Option<Duration>,
    ) -> Result<Arc<RunningCommand>> {
        let own_time = match call.name {
            // how long it waits for something new
            "getMore" => cursor_time,
            _ => max_time(call)?,
        };
        let budget = Budget::builder()
            .time(own_time.unwrap_or(self.timeout))
            .bytes(self.bytes_max)
            .pool(self.memory.clone())
            .build();
        if self.stopping.load(Ordering::Acquire) {
            budget.stop(Stop::Stopping);
        }
        Ok(Arc::new(RunningCommand {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            connection: session.connection_id,
            client: session.peer,
            application: session.application.clone(),
            caller: session.principal.clone(),
            request: request.clone(),
            started: Instant::now(),
            budget,
            has_own_time: own_time.is_some(),
        }))
    }

    /// Lists a command as one that runs.
    pub fn list(&self, operation: Arc<RunningCommand>) -> Listed<'_> {
        self.running.lock().insert(operation.id, operation.clone());
        Listed { operations: self, operation }
    }

    /// Returns the commands that run, the oldest first.
    pub fn running(&self) -> Vec<Arc<RunningCommand>> {
        self.running.lock().values().cloned().collect()
    }

    /// Ends a command of a client that `principal` manages, at its next step. Returns whether there is one of that number.
    pub fn kill(&self, id: i32, principal: &Principal) -> bool {
        let operation = self.running.lock().get(&id).cloned();
        let operation = operation.filter(|operation| principal.manages(operation.caller()));
        if let Some(operation) = &operation {
            operation.budget.stop(Stop::Cancelled("killOp".to_owned()));
        }
        operation.is_some()
    }

    /// Ends the commands of callers that are one of those, at their next step.
    pub fn end_of(&self, is_gone: impl Fn(&Principal) -> bool) {
        for operation in self.running() {
            if operation.caller.as_ref().is_some_and(&is_gone) {
                operation.budget.stop(Stop::Cancelled("a change of its user or password".to_owned()));
            }
        }
    }

    /// Ends all commands, also those that begin later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for operation in self.running() {
            operation.budget.stop(Stop::Stopping);
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.operations.running.lock().remove(&self.operation.id);
    }
}

impl RunningCommand {
    /// Returns the name of the user who has sent it; empty where no login is required or none has taken place.
    pub fn caller(&self) -> &str {
        self.caller.as_ref().map_or("", Principal::name)
    }

    /// Describes the command, as `currentOp` lists it.
    pub fn describe(&self) -> RawDocumentBuf {
        let elapsed = self.started.elapsed();
        let micros = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
        let mut described = rawdoc! {
            "type": "op",
            "host": "tidemill",
            "connectionId": self.connection,
            "client": self.client.to_string(),
        };
        if let Some(application) = &self.application {
            described.append(cstr!("appName"), application.as_str());
        }
        described.append(cstr!("active"), true);
        described.append(cstr!("currentOpTime"), DateTime::now());
        described.append(cstr!("opid"), self.id);
        described.append(cstr!("secs_running"), i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX));
        described.append(cstr!("microsecs_running"), micros);
        if let Ok(call) = Call::of_valid(&self.request) {
            described.append(cstr!("op"), kind_of(call.name));
            append_command(&mut described, &call);
        }
        described.append(cstr!("killPending"), self.budget.stopped().is_some());
        described
    }
}

/// Appends the collection of a command and the command itself, as far as it is shown.
pub(crate) fn append_command(described: &mut RawDocumentBuf, call: &Call<'_>) {
    let namespace = match call.get(call.name) {
        Some(RawBsonRef::String(_)) => call.namespace(),
        _ => format!("{}.$cmd", call.database),
    };
    described.append(cstr!("ns"), namespace);
    // the messages of a login are for the server alone
    let is_shown = !call.name.starts_with("sasl") && call.body().as_bytes().len() <= SHOWN_BYTES_MAX;
    match is_shown {
        true => described.append(cstr!("command"), call.body()),
        false => described.append(cstr!("command"), rawdoc! { "$truncated": call.name }),
    }
}

/// Returns MongoDB's word for the kind of a command.
pub(crate) fn kind_of(name: &str) -> &'static str {
    match name {
        "find" => "query",
        "getMore" => "getmore",
        "insert" => "insert",
        "update" | "findAndModify" | "findandmodify" => "update",
        "delete" => "remove",
        _ => "command",
    }
}

/// Returns the time that a command may take by its `maxTimeMS`; `None` if it does not say, or 0.
///
/// Errors: the value is not a number of milliseconds.
fn max_time(call: &Call<'_>) -> Result<Option<Duration>> {
    let Some(value) = call.get("maxTimeMS") else { return Ok(None) };
    let Some(millis) = whole_number(value) else {
        return Err(call.wrong_type("maxTimeMS", value, "a whole number of milliseconds"));
    };
    match u64::try_from(millis).ok().filter(|millis| *millis <= i32::MAX as u64) {
        Some(0) => Ok(None),
        Some(millis) => Ok(Some(Duration::from_millis(millis))),
        None => {
            let message = format!("maxTimeMS is {millis}: expected 0 to {} milliseconds", i32::MAX);
            Err(CommandError::new(Code::BadValue, message))
        }
    }
}
