//! Runs commands: quick ones at once, others on a thread of their own, while somebody looks whether the client is still there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bson::RawDocumentBuf;
use tidemill_gateway::Socket;
use tidemill_types::budget::Stop;

use crate::commands;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::operations::RunningCommand;
use crate::session::Session;
use crate::shared::MongoServerState;
use crate::wire::frame::Request;
use crate::wire::reply::cursor_of;

/// Runs the command of a request. Returns nothing if the server stops.
///
/// A command whose client closes the connection ends at its next step.
pub(crate) async fn run(
    socket: &Socket,
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    request: &Arc<Request>,
) -> Option<RawDocumentBuf> {
    match start(shared, session, request) {
        Started::Done(reply) => Some(reply.unwrap_or_else(|error| error.reply())),
        Started::Waiting(operation) => {
            // commands that write wait for the disk, and not long
            let reply = tokio::task::block_in_place(|| execute(shared, session, &operation, request));
            Some(reply.unwrap_or_else(|error| error.reply()))
        }
        Started::Working(operation) => {
            let mut moved = session.take();
            let (server, request) = (shared.clone(), request.clone());
            let budget = operation.budget.clone();
            let mut work = tokio::task::spawn_blocking(move || {
                let reply = execute(&server, &mut moved, &operation, &request);
                (moved, reply)
            });
            let done = tokio::select! {
                done = &mut work => done,
                () = socket.closed() => {
                    budget.stop(Stop::ClientGone);
                    work.await
                }
            };
            // the runtime ends
            let (returned, reply) = done.ok()?;
            *session = returned;
            Some(reply.unwrap_or_else(|error| error.reply()))
        }
    }
}

/// Runs the command of a request on this thread. Nobody looks whether its client is still there.
pub(crate) fn run_here(
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    request: &Arc<Request>,
) -> Result<RawDocumentBuf> {
    match start(shared, session, request) {
        Started::Done(reply) => reply,
        Started::Waiting(operation) | Started::Working(operation) => {
            execute(shared, session, &operation, request)
        }
    }
}

/// Progress of a command on the thread of the connections.
enum Started {
    Done(Result<RawDocumentBuf>),
    /// It waits for the disk, but does not work long.
    Waiting(Arc<RunningCommand>),
    /// It may work long.
    Working(Arc<RunningCommand>),
}

fn start(shared: &Arc<MongoServerState>, session: &mut Session, request: &Arc<Request>) -> Started {
    let call = match Call::of(request) {
        Ok(call) => call,
        Err(error) => return Started::Done(Err(error)),
    };
    match catch(call.name, || commands::run_quick(shared, session, &call)) {
        Ok(Some(reply)) => return Started::Done(Ok(reply)),
        Ok(None) => {}
        Err(error) => return Started::Done(Err(error)),
    }
    let cursor_time = match call.name {
        "getMore" => {
            call.get("getMore").and_then(|id| id.as_i64()).and_then(|id| shared.cursors.time_left(id))
        }
        _ => None,
    };
    match (shared.operations.begin(session, (request, &call), cursor_time), call.name) {
        (Err(error), _) => Started::Done(Err(error)),
        (Ok(operation), "insert") => Started::Waiting(operation),
        (Ok(operation), _) => Started::Working(operation),
    }
}

fn execute(
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    operation: &Arc<RunningCommand>,
    request: &Request,
) -> Result<RawDocumentBuf> {
    let _listed = shared.operations.list(operation.clone());
    let _entered = operation.budget.enter();
    let call = Call::of_valid(request)?;
    operation.budget.check()?;
    let reply = catch(call.name, || commands::run(shared, session, &call))?;
    if operation.has_own_time
        && let Some(left) = operation.budget.time_left()
    {
        shared.cursors.limit_time(cursor_of(&reply), left.max(Duration::from_millis(1)));
    }
    Ok(reply)
}

/// Returns what `command` returns, or the error that it panicked.
fn catch<T>(name: &str, command: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| {
        tracing::error!(command = name, "a command panicked");
        Err(CommandError::new(Code::InternalError, format!("a defect in Tidemill: `{name}` panicked")))
    })
}
