//! `saslStart`, `saslContinue`, `logout`.

use bson::cstr;
use bson::raw::{RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;

use crate::auth::MECHANISM;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

/// Number of the conversation; there is one at a time on a connection.
const CONVERSATION: i32 = 1;

pub(super) fn start(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    begin(shared, session, call.body()).map(ok)
}

/// Begins a login inside `hello`, which saves a round trip. Its failure does not fail `hello`.
pub(super) fn speculative(
    shared: &Shared,
    session: &mut Session,
    login: &RawDocument,
) -> Result<RawDocumentBuf> {
    begin(shared, session, login)
}

fn begin(shared: &Shared, session: &mut Session, login: &RawDocument) -> Result<RawDocumentBuf> {
    session.login = None;
    let mechanism = login.get("mechanism")?.and_then(|m| m.as_str()).unwrap_or_default();
    if mechanism != MECHANISM {
        let message = format!("Unsupported mechanism '{mechanism}': expected {MECHANISM}");
        return Err(CommandError::new(Code::AuthenticationFailed, message));
    }
    let Some(credentials) = &shared.credentials else {
        let message = "this server needs no login: leave user and password out of the connection string";
        return Err(CommandError::new(Code::AuthenticationFailed, message));
    };
    let skip_empty = match login.get("options")? {
        Some(RawBsonRef::Document(options)) => {
            options.get("skipEmptyExchange")? == Some(RawBsonRef::Boolean(true))
        }
        _ => false,
    };
    let (started, answer) = credentials.start(payload(login)?)?;
    session.login = Some((started, skip_empty));
    Ok(step(&answer, false))
}

pub(super) fn proceed(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let answer = payload(call.body())?;
    if session.awaits_empty_message && answer.is_empty() {
        session.awaits_empty_message = false;
        return Ok(ok(step("", true)));
    }
    let login = session.login.take().zip(shared.credentials.as_ref());
    let Some(((login, skip_empty), credentials)) = login else {
        return Err(CommandError::new(Code::ProtocolError, "No SASL session state found"));
    };
    let (principal, proof) = credentials.finish(&login, answer)?;
    session.principal = Some(principal);
    session.awaits_empty_message = !skip_empty;
    Ok(ok(step(&proof, skip_empty)))
}

pub(super) fn logout(_: &Shared, session: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    session.log_out();
    Ok(ok(RawDocumentBuf::new()))
}

fn payload(login: &RawDocument) -> Result<&[u8]> {
    match login.get("payload")? {
        Some(RawBsonRef::Binary(binary)) => Ok(binary.bytes),
        _ => Err(CommandError::new(Code::AuthenticationFailed, "the payload is missing")),
    }
}

fn step(payload: &str, done: bool) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("conversationId"), CONVERSATION);
    reply.append(cstr!("done"), done);
    let binary = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: payload.as_bytes() };
    reply.append(cstr!("payload"), binary);
    reply
}
