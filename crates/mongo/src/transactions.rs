//! Commands of client sessions: transactions, and writes that a driver may send again.

use std::sync::Arc;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{RawDocument, Timestamp, cstr};
use bytes::Bytes;
use tidemill_access::Principal;
use tidemill_engine::{DocumentSnapshot, Durability, SessionWrite, Transaction};
use tidemill_types::ErrorKind;

use crate::documents::Documents;
use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::moments;
use crate::sessions::{LogicalSession, TransactionState};
use crate::shared::{MongoServerState, Shared};
use crate::wire::error_labels::{TRANSIENT, UNKNOWN_COMMIT};
use crate::wire::reply::ok;

/// Commands that may belong to a transaction.
const IN_TRANSACTIONS: &[&str] = &[
    "insert",
    "update",
    "delete",
    "findAndModify",
    "findandmodify",
    "find",
    "getMore",
    "killCursors",
    "aggregate",
    "distinct",
    "bulkWrite",
    "create",
    "createIndexes",
];
/// Commands that read a moment.
const READS: [&str; 3] = ["find", "aggregate", "distinct"];
/// Commands that a driver may send again.
const RETRYABLE: &[&str] = &["insert", "update", "delete", "findAndModify", "findandmodify", "bulkWrite"];

/// Runs a command with the documents that it may see.
type Handler<'h> = &'h mut dyn FnMut(&Shared) -> Result<RawDocumentBuf>;

/// Runs a command of a client, by its handler, within its session and its transaction.
///
/// Errors: those of the handler, and that the session is another user's.
pub(crate) fn run(
    server: &Arc<MongoServerState>,
    client: Option<&Principal>,
    call: &Call<'_>,
    handler: Handler<'_>,
) -> Result<RawDocumentBuf> {
    let Some(number) = call.get("txnNumber") else {
        if call.get("startTransaction").is_some() || call.get("autocommit").is_some() {
            let message = "'autocommit' and 'startTransaction' need a 'txnNumber'";
            return Err(CommandError::new(Code::InvalidOptions, message));
        }
        if matches!(call.name, "commitTransaction" | "abortTransaction") {
            let message =
                "commitTransaction and abortTransaction need the number of a transaction, `txnNumber`";
            return Err(CommandError::new(Code::InvalidOptions, message));
        }
        let engine = server.whole_engine.clone();
        return match moment_asked_for(server, call)? {
            None => handler(&Shared::new(server.clone(), Documents::present(engine, None))),
            Some((time, moment)) => {
                let documents = Documents::of_moment(engine, moment);
                moments::with_time(&handler(&Shared::new(server.clone(), documents))?, time)
            }
        };
    };
    let number = whole_number(number).ok_or_else(|| call.wrong_type("txnNumber", number, "a long"))?;
    let Some(id) = session_id(call)? else {
        let message = "a command with `txnNumber` needs a session, `lsid`";
        return Err(CommandError::new(Code::InvalidOptions, message));
    };
    let session = server.sessions.get(id, client)?;
    let mut session = session.lock();
    session.touch();
    let write = SessionWrite { session: Bytes::copy_from_slice(id), number, statement: 0 };
    match call.get("autocommit") {
        None => retryable(server, &mut session, call, write, handler),
        Some(RawBsonRef::Boolean(false)) => in_transaction(server, &mut session, call, &write, handler),
        Some(_) => {
            let message = "`autocommit` of a transaction must be false";
            Err(CommandError::new(Code::InvalidOptions, message))
        }
    }
}

/// Returns the moment that a command outside of a transaction asks for by its read concern: the one that it names, or the
/// present one.
///
/// Errors: the moment is not kept any more.
fn moment_asked_for(
    server: &MongoServerState,
    call: &Call<'_>,
) -> Result<Option<(Timestamp, DocumentSnapshot)>> {
    let Some(concern) = call.document("readConcern")? else { return Ok(None) };
    if !READS.contains(&call.name) || concern.get("level")? != Some(RawBsonRef::String("snapshot")) {
        return Ok(None);
    }
    match concern.get("atClusterTime")? {
        None => {
            Ok(Some(server.moments.begin(server.cluster_time(), server.whole_engine.document_snapshot()?)))
        }
        Some(RawBsonRef::Timestamp(time)) => match server.moments.get(time) {
            Some(documents) => Ok(Some((time, documents))),
            None => {
                let message = "Read timestamp is older than the oldest available timestamp: a moment is kept for five minutes after its last read";
                Err(CommandError::new(Code::SnapshotTooOld, message))
            }
        },
        Some(other) => Err(call.wrong_type("readConcern.atClusterTime", other, "a timestamp")),
    }
}

/// Returns the id of the session of a command.
fn session_id<'r>(call: &Call<'r>) -> Result<Option<&'r [u8]>> {
    let Some(lsid) = call.document("lsid")? else { return Ok(None) };
    match lsid.get("id")? {
        Some(RawBsonRef::Binary(id)) if id.bytes.len() == 16 => Ok(Some(id.bytes)),
        _ => Err(CommandError::new(Code::TypeMismatch, "`lsid.id` must be a UUID, 16 bytes")),
    }
}

fn retryable(
    server: &Arc<MongoServerState>,
    session: &mut LogicalSession,
    call: &Call<'_>,
    write: SessionWrite,
    handler: Handler<'_>,
) -> Result<RawDocumentBuf> {
    if !RETRYABLE.contains(&call.name) {
        let message = format!(
            "`txnNumber` is for transactions (autocommit: false) and for writes, not for {}",
            call.name
        );
        return Err(CommandError { code: 50768, message });
    }
    check_not_older(session, write.number)?;
    if session.number != write.number {
        session.number = write.number;
        session.transaction = TransactionState::None;
    }
    let engine = server.whole_engine.clone();
    handler(&Shared::new(server.clone(), Documents::present(engine, Some(write))))
}

fn check_not_older(session: &LogicalSession, number: i64) -> Result<()> {
    if number >= session.number {
        return Ok(());
    }
    let last = session.number;
    let message = format!("number {number} is older than the last one of the session, {last}");
    Err(CommandError { code: 225, message })
}

fn in_transaction(
    server: &Arc<MongoServerState>,
    session: &mut LogicalSession,
    call: &Call<'_>,
    write: &SessionWrite,
    handler: Handler<'_>,
) -> Result<RawDocumentBuf> {
    match call.name {
        "commitTransaction" => return commit(server, session, call, write),
        "abortTransaction" => return abort(session, write.number),
        name if !IN_TRANSACTIONS.contains(&name) => {
            let message = format!("Cannot run '{name}' in a multi-document transaction.");
            return Err(CommandError { code: 263, message });
        }
        _ => {}
    }
    if call.flag("startTransaction", false)? {
        check_not_older(session, write.number)?;
        if write.number == session.number {
            let message = format!("transaction {} of the session has begun before", write.number);
            return Err(CommandError { code: 117, message });
        }
        session.number = write.number;
        let transaction = server.whole_engine.begin_transaction()?;
        session.transaction = TransactionState::Open(Box::new(transaction), std::time::Instant::now());
    }
    if write.number != session.number {
        return Ok(labelled(&no_transaction(session, write.number), TRANSIENT));
    }
    match std::mem::replace(&mut session.transaction, TransactionState::Running) {
        TransactionState::Open(transaction, since) => {
            let documents = Documents::of_transaction(server.whole_engine.clone(), *transaction);
            let shared = Shared::new(server.clone(), documents);
            // a panic leaves the transaction taken back
            session.transaction = TransactionState::Aborted;
            let reply = handler(&shared);
            let transaction = shared.engine.into_transaction();
            finish(session, reply, transaction, since)
        }
        other => {
            session.transaction = other;
            Ok(labelled(&no_transaction(session, write.number), TRANSIENT))
        }
    }
}

/// Keeps the transaction open, or takes it back after an error.
fn finish(
    session: &mut LogicalSession,
    reply: Result<RawDocumentBuf>,
    transaction: Option<Transaction>,
    since: std::time::Instant,
) -> Result<RawDocumentBuf> {
    let failure = transaction.as_ref().and_then(Transaction::failure);
    match (reply, failure, transaction) {
        // a conflict is an error of the command, also if a handler took it for that of one statement
        (_, Some((Some(112), message)), _) => {
            Ok(labelled(&CommandError::new(Code::WriteConflict, message), TRANSIENT))
        }
        (Ok(reply), None, Some(transaction)) if !matches!(reply.get("writeErrors"), Ok(Some(_))) => {
            session.transaction = TransactionState::Open(Box::new(transaction), since);
            Ok(reply)
        }
        (reply, _, _) => reply,
    }
}

fn commit(
    server: &Arc<MongoServerState>,
    session: &mut LogicalSession,
    call: &Call<'_>,
    write: &SessionWrite,
) -> Result<RawDocumentBuf> {
    if write.number != session.number {
        // it may have been committed before a restart
        if server.whole_engine.session_outcome(write)?.is_some() {
            return Ok(ok(RawDocumentBuf::new()));
        }
        return Ok(labelled(&no_transaction(session, write.number), TRANSIENT));
    }
    match std::mem::replace(&mut session.transaction, TransactionState::Running) {
        TransactionState::Open(transaction, _) => {
            // what becomes of it is not known if this fails halfway
            session.transaction = TransactionState::Aborted;
            let done = transaction.commit(durability(call)?, Some(write.clone()));
            match done {
                Ok(()) => {
                    session.transaction = TransactionState::Committed;
                    Ok(ok(RawDocumentBuf::new()))
                }
                Err(e) if e.kind() == ErrorKind::Unavailable => Ok(labelled(&e.into(), UNKNOWN_COMMIT)),
                Err(e) if e.document_code() == Some(112) => Ok(labelled(&e.into(), TRANSIENT)),
                Err(e) => Err(e.into()),
            }
        }
        TransactionState::Committed => {
            session.transaction = TransactionState::Committed;
            Ok(ok(RawDocumentBuf::new()))
        }
        other => {
            session.transaction = other;
            // a commit whose outcome was not known may have been one
            if server.whole_engine.session_outcome(write)?.is_some() {
                session.transaction = TransactionState::Committed;
                return Ok(ok(RawDocumentBuf::new()));
            }
            Ok(labelled(&no_transaction(session, write.number), TRANSIENT))
        }
    }
}

fn abort(session: &mut LogicalSession, number: i64) -> Result<RawDocumentBuf> {
    if number != session.number {
        return Err(no_transaction(session, number));
    }
    match session.transaction {
        TransactionState::Open(..) => {
            session.transaction = TransactionState::Aborted;
            Ok(ok(RawDocumentBuf::new()))
        }
        TransactionState::Committed => {
            let message = format!("transaction {number} has been committed");
            Err(CommandError { code: 256, message })
        }
        _ => Err(no_transaction(session, number)),
    }
}

/// Returns the durability of a commit: a driver asks for that of its transactions by `writeConcern`.
fn durability(call: &Call<'_>) -> Result<Option<Durability>> {
    let journal = call.document("writeConcern")?.map(|concern| concern.get("j")).transpose()?.flatten();
    Ok((journal == Some(RawBsonRef::Boolean(true))).then_some(Durability::Fsync))
}

fn no_transaction(session: &LogicalSession, number: i64) -> CommandError {
    let message = match session.number {
        last if last == number => format!("transaction {number} has been aborted"),
        last => format!("transaction {number} is not in progress; the last number of the session is {last}"),
    };
    CommandError::new(Code::NoSuchTransaction, message)
}

/// Returns the reply of an error with a label, by which drivers decide what to send again.
fn labelled(error: &CommandError, label: &str) -> RawDocumentBuf {
    let mut labels = RawArrayBuf::new();
    labels.push(label);
    let mut reply = error.reply();
    reply.append(cstr!("errorLabels"), labels);
    reply
}

/// Ends the session that `endSessions` names.
///
/// Errors: it is another user's.
pub(crate) fn end(server: &MongoServerState, client: Option<&Principal>, id: &RawDocument) -> Result<()> {
    match id.get("id")? {
        Some(RawBsonRef::Binary(id)) => server.sessions.end(id.bytes, client),
        _ => Ok(()),
    }
}
